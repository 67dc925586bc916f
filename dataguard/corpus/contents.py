"""What do the slots of a microbatch hold, whatever the form of a sample is?

The loader and a rebuild ask the same question: for each slot its record's bytes or its window's ids, nothing where the
slot delivers nothing, and a problem where its row cannot be had.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataguard.corpus.problems import RowProblem
from dataguard.corpus.reader import RowReader

__all__ = ["Content", "slot_contents"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What one slot holds."""

    value: bytes | NDArray[Any] | None = None
    """A record's bytes, or a window's ids; None for nothing. Beside a problem: what a changed shard holds now."""
    problem: RowProblem | None = None


_NOTHING = Content()


def slot_contents(
    reader: RowReader, blocks: NDArray[np.int64], rows: NDArray[np.int64], *, seq_len: int | None
) -> list[Content]:
    """Read the slots of a microbatch.

    Parameters
    ----------
    blocks, rows
        int64, shape (n,): what each slot delivers, blocks numbered through; -1 where it delivers nothing.
    seq_len
        Tokens of a window; None for documents.

    Returns
    -------
    list
        One `Content` a slot.
    """
    contents = [_NOTHING] * len(blocks)
    wanted = np.flatnonzero(blocks >= 0)
    if not len(wanted):
        return contents
    places = wanted.tolist()
    if seq_len is None:
        for place, answer in zip(places, reader.read(blocks[wanted], rows[wanted]), strict=True):
            contents[place] = (
                Content(value=answer.content, problem=answer)
                if isinstance(answer, RowProblem)
                else Content(value=answer)
            )
        return contents
    ids, problems = reader.read_windows(blocks[wanted], rows[wanted], seq_len)
    for i, place in enumerate(places):
        problem = problems.get(i)
        told = problem is not None and problem.kind == "changed" and reader.verify == "tell"
        contents[place] = Content(value=ids[i] if problem is None or told else None, problem=problem)
    return contents
