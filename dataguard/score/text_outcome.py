"""How do the counts of a batch of documents become signals?

1. The tables that the kernels filled are laid one below the other: a row a count, a column a document.
2. Every signal that is a count is a row of it; every quotient, one of two rows by another. All rows of a kind are taken
   and divided at once: what Python adds to a call depends neither on how many signals are asked for nor, below a batch,
   on how many documents there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dataguard.score.kernels import text_classes, text_lines, text_ngrams, text_runs, text_words
from dataguard.score.text_recipes import CLASS_FACTS, LENGTHS, LINE_FACTS, RECIPES, RUN_FACTS, WORD_FACTS

__all__ = ["Entropies", "Layout", "Outcome", "layout_of"]

Entropies: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Of bytes and of words, bits, shape (n,) where it is asked for, else (0,)."""

Rows: TypeAlias = NDArray[np.intp]

_TABLES: Mapping[str, tuple[int, Mapping[str, int]]] = {
    "bytes": (1, {"bytes": 0}),
    "classes": (text_classes.NUM_FACTS, {name: column for name, (column, _) in CLASS_FACTS.items()}),
    "runs": (text_runs.NUM_FACTS, {name: column for name, (column, _) in RUN_FACTS.items()}),
    "lines": (text_lines.NUM_FACTS, {name: column for name, (column, _) in LINE_FACTS.items()}),
    "words": (text_words.NUM_FACTS, {name: column for name, (column, _) in WORD_FACTS.items()}),
    "ngrams": (text_ngrams.LONGEST + 1, {f"covered_{n}": n for n in LENGTHS}),
    "periods": (2, {"period_repeats": 0, "period_bytes": 1}),
}
"""Of each table its number of rows, and which of them is which count."""

_ENTROPIES = ("byte_entropy", "word_entropy")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """Where the counts of a set of signals stand when the tables lie one below the other."""

    tables: tuple[str, ...]
    """The tables, from above."""
    places: Mapping[str, int]
    """Of each signal, in the order in which they are given, its place behind the counts, quotients and entropies."""
    taken: Rows
    """The row of each signal that is a count."""
    above: Rows
    """Of each quotient the row that is divided."""
    below: Rows
    """Of each quotient the row that it is divided by."""
    symbols: tuple[int, int] | None
    """The row of the symbols among ASCII, and that of those beyond, which belong to them; None where nobody asks."""


@lru_cache(maxsize=64)
def layout_of(names: tuple[str, ...], tables: frozenset[str]) -> Layout:
    """Where the counts of these signals stand, given which tables there will be.

    >>> layout = layout_of(("length_bytes", "digit_fraction"), frozenset({"bytes", "classes", "runs"}))
    >>> layout.tables, layout.places
    (('bytes', 'classes', 'runs'), {'length_bytes': 0, 'digit_fraction': 1})
    """
    present = tuple(name for name in _TABLES if name in tables)
    row_of: dict[str, int] = {}
    num_rows = 0
    for table in present:
        size, columns = _TABLES[table]
        row_of |= {count: num_rows + column for count, column in columns.items()}
        num_rows += size
    counted = [name for name in names if RECIPES[name][1] is None and name not in _ENTROPIES]
    divided = [(name, above, below) for name in names for above, below in [RECIPES[name]] if below is not None]
    kept = [*counted, *(name for name, _, _ in divided), *_ENTROPIES]
    return Layout(
        tables=present,
        places={name: kept.index(name) for name in names},
        taken=np.array([row_of[RECIPES[name][0]] for name in counted], dtype=np.intp),
        above=np.array([row_of[above] for _, above, _ in divided], dtype=np.intp),
        below=np.array([row_of[below] for _, _, below in divided], dtype=np.intp),
        symbols=(row_of["symbols"], row_of["ellipses_alone"]) if "runs" in tables else None,
    )


class Outcome:
    """The signals of the documents of one call, batch after batch."""

    def __init__(self, layout: Layout, num_documents: int) -> None:
        self._layout = layout
        self._counts = np.empty((len(layout.taken), num_documents), dtype=np.int64)
        self._quotients = np.zeros((len(layout.above), num_documents), dtype=np.float64)
        self._entropies = [np.zeros(num_documents * (name in layout.places), dtype=np.float64) for name in _ENTROPIES]

    def entropies(self, first: int, stop: int) -> Entropies:
        """Where the kernels write those of the documents first:stop."""
        in_bytes, in_words = self._entropies
        return in_bytes[first:stop], in_words[first:stop]

    def take(self, first: int, stop: int, tables: Mapping[str, NDArray[np.int64]]) -> None:
        """Take down the documents first:stop, of which these are the counts; each table of shape (rows, n)."""
        layout = self._layout
        stacked = np.concatenate([tables[name] for name in layout.tables])
        if layout.symbols is not None:
            symbols, alone = layout.symbols
            stacked[symbols] += stacked[alone]
        if len(layout.taken):
            self._counts[:, first:stop] = stacked.take(layout.taken, axis=0)
        if len(layout.above):
            above, below = stacked.take(layout.above, axis=0), stacked.take(layout.below, axis=0)
            np.divide(above, below, out=self._quotients[:, first:stop], where=below > 0)

    def columns(self) -> dict[str, NDArray[np.int64] | NDArray[np.float64]]:
        """Each signal, shape (n,)."""
        kept = [*self._counts, *self._quotients, *self._entropies]
        return {name: kept[place] for name, place in self._layout.places.items()}
