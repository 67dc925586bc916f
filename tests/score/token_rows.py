"""Rows of token ids as tests want them: of every integer type, with much repetition, ragged, masked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

TYPES = [f"{order}{kind}{width}" for kind in "iu" for width in (1, 2, 4, 8) for order in "<>"]


@st.composite
def rows(draw: st.DrawFn, dtype: str, *, longest: int = 60) -> list[int]:
    """One row: pieces of repeated units over few ids, so that windows and runs happen, and any id of the type."""
    info = np.iinfo(dtype)
    some = st.integers(int(info.min), int(info.max))
    few = draw(st.lists(some, min_size=1, max_size=4))
    token = st.sampled_from(few) | some
    units = st.tuples(st.lists(token, min_size=1, max_size=14), st.integers(1, 6)).map(lambda unit: unit[0] * unit[1])
    row: list[int] = []
    for unit in draw(st.lists(st.lists(token, max_size=6) | units, max_size=4)):
        row += unit
    return row[:longest]


@st.composite
def ragged(draw: st.DrawFn) -> tuple[NDArray[Any], list[list[int]], list[list[bool]], bool]:
    """(flat ids, the rows, masks of the rows, whether the masks are meant)."""
    dtype = draw(st.sampled_from(TYPES))
    several = draw(st.lists(rows(dtype), max_size=6))
    masks = [draw(st.lists(st.booleans(), min_size=len(row), max_size=len(row))) for row in several]
    flat = np.array([token for row in several for token in row], dtype=dtype)
    return flat, several, masks, draw(st.booleans())


def offsets_of(several: Sequence[Sequence[Any]]) -> NDArray[np.int64]:
    return np.cumsum([0, *(len(row) for row in several)], dtype=np.int64)


def documents(num: int, longest: int, *, seed: int = 11) -> list[NDArray[np.uint32]]:
    """Rows of 0 to `longest` tokens, some periodic, some of few ids, some with ids past every table."""
    rng = np.random.Generator(np.random.PCG64(seed))
    made = []
    for number in range(num):
        length = int(rng.integers(0, longest + 1))
        row = (rng.zipf(1.3, length) % 50_000).astype(np.uint32)
        if number % 5 == 1 and length:
            row = np.resize(row[: 1 + number % 20], length)
        if number % 7 == 2:
            row += np.uint32(4_294_900_000)
        made.append(row)
    return made
