"""How is a signal computed that is no part of the kernels which compute many at once?

By a function of a file of its own, which the registry names (`SignalSpec.scorer`). It is given what its kind is made
of, flat, with offsets, and gives a column. That is all it takes to add a signal: the file, and its entry in the
registry. One that has to be as cheap as the others becomes part of a kernel later, under the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dataguard.core.signals import SignalSpec

__all__ = ["Column", "Scorer", "columns_of", "scorer_of"]

Column: TypeAlias = NDArray[np.int64] | NDArray[np.float64]

Scorer: TypeAlias = Callable[[NDArray[Any], NDArray[np.int64]], Column]
"""Content (uint8 bytes, or int64 ids) and offsets of shape (n + 1,), neither of which it writes -> shape (n,)."""


@cache
def scorer_of(where: str) -> Scorer:
    """The function that ``file:function`` of this room names."""
    module, _, name = where.partition(":")
    found: Scorer = getattr(import_module(f"dataguard.score.{module}"), name)
    return found


def columns_of(specs: Iterable[SignalSpec], content: NDArray[Any], offsets: NDArray[np.int64]) -> dict[str, Column]:
    """The column of each of these signals, all of which name their scorer."""
    found = {}
    for spec in specs:
        column = scorer_of(spec.scorer)(content, offsets)
        shape, num = np.shape(column), len(offsets) - 1
        assert (shape, column.dtype) == ((num,), spec.dtype), f"{spec.scorer} gave {column.dtype} of shape {shape}"
        found[spec.name] = column
    return found
