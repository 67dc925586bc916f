"""Where do the kernels of text signals keep what they need while they work?

In arrays that are made once for a thread and used again for all documents after. They grow with the largest batch of
documents seen; what one huge document made them grow to is given back when its call ends.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from dataguard.score.kernels import text_classes, text_ngrams, text_runs, text_words

__all__ = ["Table", "Workspace", "borrowed"]

_KEPT_BYTES = 64 << 20
_FEWEST_SLOTS = 1 << 12
_EAGER_SLOTS = 1 << 20
_GENERATIONS = 1 << 32


class Table:
    """An open-addressing table with `num_tables` parts, and `num_tallies` numbers for each entry.

    Its entries bear the generation that made them; what is of an older one is free. At most half of its slots are used.
    """

    def __init__(self, *, num_tables: int, num_tallies: int) -> None:
        self._num_tables, self._num_tallies = num_tables, num_tallies
        self.entries: NDArray[np.uint64]
        self.tallies: NDArray[np.uint32]
        self._make(_FEWEST_SLOTS)

    def _make(self, slots: int) -> None:
        self.entries = np.zeros((self._num_tables, 2 * slots), dtype=np.uint64)
        self.tallies = np.empty((self._num_tallies, slots // 2), dtype=np.uint32)
        self._next = 1

    @property
    def num_bytes(self) -> int:
        """Bytes it takes up."""
        return self.entries.nbytes + self.tallies.nbytes

    def grow(self, num: int) -> None:
        """Make room for four times as many entries, or at once for `num` where these are not very many.

        What it held is gone. A document that turns out to be too large is begun again after each growth.
        """
        slots = 2 * self.entries.shape[1]
        while slots < min(2 * num, _EAGER_SLOTS):
            slots *= 2
        del self.entries, self.tallies  # before the new ones are made
        self._make(slots)

    def generations(self, num: int) -> int:
        """The first of `num` generations that nobody has used."""
        if self._next + num > _GENERATIONS:
            self.entries[:] = 0
            self._next = 1
        first, self._next = self._next, self._next + num
        return first


class Workspace:
    """Everything one thread needs."""

    def __init__(self) -> None:
        self.masks: NDArray[np.uint64] = np.empty((0, text_classes.NUM_MASKS), dtype=np.uint64)
        self.spare = np.zeros(64, dtype=np.uint8)
        self.queue = np.zeros(text_runs.QUEUE, dtype=np.int64)
        self.histograms = np.zeros(1024, dtype=np.uint32)
        self.period_ends = np.zeros(65, dtype=np.int64)
        self.places = np.zeros((5, text_words.PLACES), dtype=np.int64)
        self.keys = np.zeros(max(text_words.PLACES, text_ngrams.PIECE), dtype=np.uint64)
        self.per_word: NDArray[np.uint32] = np.empty((4, 0), dtype=np.uint32)
        """Counts, numbers, sums and spots."""
        self.lines = Table(num_tables=2, num_tallies=2)
        self.words = Table(num_tables=1, num_tallies=1)
        self.ngrams = Table(num_tables=1, num_tallies=3)

    def need_blocks(self, num: int) -> None:
        """Have masks for this many blocks."""
        if len(self.masks) < num:
            self.masks = np.empty((num + num // 4, text_classes.NUM_MASKS), dtype=np.uint64)

    def need_words(self, num: int) -> None:
        """Have room for this many words."""
        if self.per_word.shape[1] < num:
            self.per_word = np.empty((4, num + num // 4), dtype=np.uint32)

    @property
    def num_bytes(self) -> int:
        """Bytes it takes up, without what is always the same."""
        tables = self.lines.num_bytes + self.words.num_bytes + self.ngrams.num_bytes
        return self.masks.nbytes + self.per_word.nbytes + tables


_local = threading.local()


@contextmanager
def borrowed() -> Iterator[Workspace]:
    """The thread's workspace; another one for whoever asks while it is lent.

    >>> with borrowed() as workspace, borrowed() as other:
    ...     workspace is other
    False
    """
    workspace: Workspace | None = _local.__dict__.pop("workspace", None)
    if workspace is None:
        workspace = Workspace()
    yield workspace
    if workspace.num_bytes <= _KEPT_BYTES:
        _local.workspace = workspace
