"""Which kernels run for a set of text signals, and over how many documents at a time?

1. Only what the signals' recipes ask for is done.
2. Documents are taken a few hundred KB at a time, so that what one kernel leaves for the next is still in the cache.
3. A kernel that finds its table too small stops at a document; the table grows, and it goes on there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from math import log2

import numpy as np
from numpy.typing import NDArray

from dataguard.core.signals import SignalSpec
from dataguard.score.code_points import class_table
from dataguard.score.kernels import text_bytes, text_classes, text_lines, text_ngrams, text_runs, text_words
from dataguard.score.text_outcome import Entropies, Outcome, layout_of
from dataguard.score.text_recipes import RECIPES, WORK, Work
from dataguard.score.text_workspace import Workspace, borrowed
from dataguard.score.unicode_ranges import BULLETS

__all__ = ["signals_of"]

_BATCH_BYTES = 512 << 10
_BATCH_DOCUMENTS = 4096


def signals_of(
    values: NDArray[np.uint8], offsets: NDArray[np.int64], specs: Sequence[SignalSpec]
) -> dict[str, NDArray[np.int64] | NDArray[np.float64]]:
    """The signals of the documents; `values` and `offsets` are sound and cannot be written.

    >>> from dataguard.score.registry import select
    >>> values, offsets = np.frombuffer(b"aab", dtype=np.uint8), np.array([0, 2, 3])
    >>> values.flags.writeable = offsets.flags.writeable = False
    >>> signals_of(values, offsets, select(["length_bytes"], "text"))
    {'length_bytes': array([2, 1])}
    """
    names = tuple(spec.name for spec in specs)
    asked = _asked_for(names)
    outcome = Outcome(layout_of(names, asked.tables), len(offsets) - 1)
    with borrowed() as workspace:
        for first, stop in pairwise(_cuts(offsets)):
            counting = _Counting(values, offsets[first : stop + 1], asked, outcome.entropies(first, stop))
            counting.run(workspace)
            outcome.take(first, stop, counting.tables())
    return outcome.columns()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What each kernel is asked for, as its own flags, and which kernels run."""

    in_bytes: int
    in_runs: int
    in_lines: int
    in_words: int
    ngrams: int
    runs_classes: bool
    runs_lines: bool
    runs_words: bool

    tables: frozenset[str]
    """The tables of counts that there will be."""


@lru_cache(maxsize=64)
def _asked_for(names: tuple[str, ...]) -> _Asked:
    """What the counts in the recipes of these signals ask for."""
    work = Work(0)
    for name in names:
        for count in RECIPES[name]:
            if count is not None:
                work |= WORK[count]

    def flags(*pairs: tuple[Work, int]) -> int:
        return sum(flag for asked, flag in pairs if work & asked)

    ngrams = int(work) >> 20 & ~3
    in_bytes = flags((Work.BYTE_ENTROPY, text_bytes.WANT_ENTROPY), (Work.PERIODS, text_bytes.WANT_PERIODS))
    in_runs = flags(
        (Work.DIGITS, text_runs.WANT_DIGITS),
        (Work.SYMBOLS, text_runs.WANT_SYMBOLS),
        (Work.MARKUP, text_runs.WANT_MARKUP),
        (Work.ENCODED, text_runs.WANT_ENCODED),
    )
    in_words = flags((Work.WORD_ENTROPY, text_words.WANT_ENTROPY))
    if in_words or ngrams:
        in_words |= text_words.WANT_NUMBERS
    runs_lines = bool(work & (Work.LINES | Work.EDGES | Work.DUP_LINES | Work.PARAGRAPHS))
    runs_words = bool(work & Work.WORDS) or bool(in_words)
    runs_classes = bool(work & Work.CLASSES) or bool(in_runs) or runs_lines or runs_words
    tables = {
        "bytes": True,
        "classes": runs_classes,
        "runs": bool(in_runs),
        "lines": runs_lines,
        "words": runs_words,
        "ngrams": bool(ngrams),
        "periods": bool(in_bytes & text_bytes.WANT_PERIODS),
    }
    return _Asked(
        in_bytes=in_bytes,
        in_runs=in_runs,
        in_lines=flags(
            (Work.EDGES, text_lines.WANT_EDGES),
            (Work.DUP_LINES, text_lines.WANT_LINES),
            (Work.PARAGRAPHS, text_lines.WANT_PARAGRAPHS),
        ),
        in_words=in_words,
        ngrams=ngrams,
        runs_classes=runs_classes,
        runs_lines=runs_lines,
        runs_words=runs_words,
        tables=frozenset(name for name, is_there in tables.items() if is_there),
    )


def _cuts(offsets: NDArray[np.int64]) -> list[int]:
    """Where batches of documents begin, and the end."""
    cuts, num = [0], len(offsets) - 1
    while cuts[-1] < num:
        first = cuts[-1]
        if offsets[num] - offsets[first] <= _BATCH_BYTES:
            fitting = num
        else:
            fitting = int(np.searchsorted(offsets, offsets[first] + _BATCH_BYTES, side="right")) - 1
        cuts.append(min(num, max(first + 1, min(fitting, first + _BATCH_DOCUMENTS))))
    return cuts


class _Counting:
    """The counts of one batch of documents, and the kernels that fill them."""

    def __init__(
        self, values: NDArray[np.uint8], offsets: NDArray[np.int64], asked: _Asked, entropies: Entropies
    ) -> None:
        self._values, self._offsets, self._asked = values, offsets, asked
        self._byte_entropy, self._word_entropy = entropies
        num = len(offsets) - 1
        self.class_facts = _table(num * asked.runs_classes, text_classes.NUM_FACTS)
        self.run_facts = _table(num * bool(asked.in_runs), text_runs.NUM_FACTS)
        self.line_facts = _table(num * asked.runs_lines, text_lines.NUM_FACTS)
        self.word_facts = _table(num * asked.runs_words, text_words.NUM_FACTS)
        self.covered = _table(num * bool(asked.ngrams), text_ngrams.LONGEST + 1)
        self.periods = _table(2, num * ("periods" in asked.tables))

    def tables(self) -> dict[str, NDArray[np.int64]]:
        """The tables of counts, a row a count, those that are not filled with no columns."""
        return {
            "bytes": (self._offsets[1:] - self._offsets[:-1])[np.newaxis],
            "classes": self.class_facts.T,
            "runs": self.run_facts.T,
            "lines": self.line_facts.T,
            "words": self.word_facts.T,
            "ngrams": self.covered.T,
            "periods": self.periods,
        }

    def run(self, workspace: Workspace) -> None:
        """Count."""
        stop = len(self._offsets) - 1
        if self._asked.in_bytes:
            text_bytes.measure(
                self._values,
                self._offsets,
                0,
                stop,
                self._asked.in_bytes,
                _logs(),
                workspace.histograms,
                workspace.period_ends,
                self._byte_entropy,
                *self.periods,
            )
        if self._asked.runs_classes:
            num_words = self._classify(workspace, stop)
            if self._asked.in_runs:
                text_runs.follow_runs(
                    self._values,
                    self._offsets,
                    0,
                    stop,
                    self._asked.in_runs,
                    workspace.masks,
                    self.class_facts[:, text_classes.FIRST_BLOCK],
                    self.run_facts,
                    workspace.spare,
                    workspace.queue,
                )
            if self._asked.runs_lines:
                self._cut_lines(workspace, stop)
            if self._asked.runs_words:
                workspace.need_words(num_words)
                self._compare_words(workspace, stop)

    def _classify(self, workspace: Workspace, stop: int) -> int:
        num_bytes = int(self._offsets[stop] - self._offsets[0])
        workspace.need_blocks(num_bytes // 64 + stop)
        return int(
            text_classes.classify(
                self._values,
                self._offsets,
                0,
                stop,
                *class_table(),
                workspace.masks,
                self.class_facts,
                workspace.spare,
            )
        )

    def _cut_lines(self, workspace: Workspace, stop: int) -> None:
        table, facts, first = workspace.lines, self.class_facts, 0
        while first < stop:
            first = text_lines.cut_lines(
                self._values,
                self._offsets,
                first,
                stop,
                self._asked.in_lines,
                workspace.masks,
                facts[:, text_classes.FIRST_BLOCK],
                facts[:, text_classes.NEWLINES],
                _bullets(),
                table.entries,
                table.tallies,
                table.generations(stop - first),
                self.line_facts,
            )
            if first < stop:
                table.grow(int(facts[first, text_classes.NEWLINES]) + 1)

    def _compare_words(self, workspace: Workspace, stop: int) -> None:
        first = 0
        while first < stop:
            self._number_words(workspace, first, stop)
            if not self._asked.ngrams:
                return
            first = self._find_repeats(workspace, first, stop)
            if first < stop:
                workspace.ngrams.grow(int(self.class_facts[first, text_classes.WORDS]))

    def _number_words(self, workspace: Workspace, first: int, stop: int) -> None:
        table, facts = workspace.words, self.class_facts
        counts, numbers, sums, _ = workspace.per_word
        while first < stop:
            first = text_words.number_words(
                self._values,
                self._offsets,
                first,
                stop,
                self._asked.in_words,
                workspace.masks,
                facts[:, text_classes.FIRST_BLOCK],
                facts[:, text_classes.WORDS],
                facts[:, text_classes.CHARS],
                workspace.places,
                workspace.keys,
                table.entries[0],
                table.tallies[0],
                counts,
                table.generations(stop - first),
                _logs(),
                numbers,
                sums,
                facts[:, text_classes.FIRST_WORD],
                self.word_facts,
                self._word_entropy,
            )
            if first < stop:
                table.grow(int(facts[first, text_classes.WORDS]))

    def _find_repeats(self, workspace: Workspace, first: int, stop: int) -> int:
        table, facts = workspace.ngrams, self.class_facts
        counts, numbers, sums, spots = workspace.per_word
        return int(
            text_ngrams.find_repeats(
                first,
                stop,
                self._asked.ngrams,
                facts[:, text_classes.WORDS],
                numbers,
                counts,
                sums,
                facts[:, text_classes.FIRST_WORD],
                workspace.keys,
                table.entries[0],
                table.tallies,
                table.generations((stop - first) * text_ngrams.LONGEST),
                spots,
                self.covered,
            )
        )


def _table(num: int, num_facts: int) -> NDArray[np.int64]:
    return np.zeros((num, num_facts), dtype=np.int64)


@cache
def _logs() -> NDArray[np.float64]:
    assert text_bytes.NUM_LOGS == text_words.NUM_LOGS
    return np.array([count * log2(count) if count else 0.0 for count in range(text_bytes.NUM_LOGS)])


@cache
def _bullets() -> NDArray[np.int64]:
    return np.array([point for start, stop in BULLETS for point in range(start, stop) if point >= 0x80], dtype=np.int64)
