"""Which samples are there before, byte for byte, in the same shard or in another?

Every sample is told in the order of shards and rows, as its digest (xxh3-128), its place and its size. Memory is
bounded whatever the corpus is like, also where half of it is one record:

1. Samples are sorted a million at a time by digest, and each such *run* is appended to one spill file. All samples of
   a run stand before all samples of the next.
2. The runs are merged, a bounded piece of each in memory. Equal digests come in the order of the runs, hence in the
   order of the corpus, so the first of them is the original, and each is compared with the one before it alone.

Blank samples (no word, no token) are counted apart: that two records are both empty is no copy of anything.

Memory: 48 bytes a sample of one run, twice, and `MERGE_BYTES` for the pieces. Disk: 48 bytes a sample.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from dataguard.run.atomic import make_folders, write_failed

__all__ = ["ENTRY_DTYPE", "MERGE_BYTES", "RUN_SAMPLES", "DuplicateFinder", "Piece"]

RUN_SAMPLES = 1 << 20
MERGE_BYTES = 64 << 20

ENTRY_DTYPE = np.dtype(
    [
        ("high", "<u8"),  # first 8 bytes of the digest, as a big-endian number
        ("low", "<u8"),
        ("shard", "<i8"),
        ("row", "<i8"),
        ("content_bytes", "<i8"),
        ("kind", "<i8"),  # samples of two kinds are never copies of each other
    ]
)
"""One sample as it is spilled."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Piece:
    """Some samples in the order of digests, then of the corpus. Arrays have one entry a sample."""

    entries: NDArray[np.void]
    """ENTRY_DTYPE."""
    is_copy: NDArray[np.bool_]
    """Whether an equal sample stands before it in the corpus."""
    is_within: NDArray[np.bool_]
    """Whether the last equal sample before it stands in the same shard: of copies, those within their shard."""
    group: NDArray[np.int64]
    """Number of its group of equal samples, counted through all pieces."""
    previous: NDArray[np.void]
    """The entry before each: for a copy, the last equal sample before it."""
    first: NDArray[np.void]
    """The first entry of its group."""


class DuplicateFinder(AbstractContextManager["DuplicateFinder"]):
    """Takes samples in the order of the corpus, then gives them back in the order of their digests.

    Parameters
    ----------
    folder
        Where the spill file is kept; it has no name there.
    run_samples, merge_bytes
        What is held in memory, see above.
    """

    def __init__(self, folder: Path, *, run_samples: int = RUN_SAMPLES, merge_bytes: int = MERGE_BYTES) -> None:
        self.num_samples = 0
        self._folder = folder
        self._run_samples = run_samples
        self._merge_bytes = merge_bytes
        self._waiting: list[NDArray[np.void]] = []
        self._num_waiting = 0
        self._runs: list[tuple[int, int]] = []  # entries start:stop of the spill file
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def add(
        self,
        digests: NDArray[np.void],
        shard: NDArray[np.int64],
        row: NDArray[np.int64],
        content_bytes: NDArray[np.int64],
        *,
        kind: int = 0,
    ) -> None:
        """Tell samples that stand behind all those told before, and ascend by shard and row.

        Parameters
        ----------
        digests
            V16.
        shard, row, content_bytes
            Place and size of each.
        kind
            Of all of them; samples of different kinds are never equal.

        Raises
        ------
        WriteFailed
            The spill file cannot be written.
        """
        entries = np.zeros(len(digests), ENTRY_DTYPE)
        halves = np.frombuffer(digests.tobytes(), ">u8").reshape(-1, 2)
        entries["high"], entries["low"] = halves[:, 0], halves[:, 1]
        entries["shard"], entries["row"], entries["content_bytes"] = shard, row, content_bytes
        entries["kind"] = kind
        while len(entries):
            taken = entries[: self._run_samples - self._num_waiting]
            self._waiting.append(taken)
            self._num_waiting += len(taken)
            self.num_samples += len(taken)
            entries = entries[len(taken) :]
            if self._num_waiting == self._run_samples:
                self._spill()

    def pieces(self) -> Iterator[Piece]:
        """All samples, some at a time; afterwards nothing more can be told."""
        if self._num_waiting:
            self._spill()
        last: NDArray[np.void] = np.zeros(0, ENTRY_DTYPE)
        original: NDArray[np.void] = np.zeros(1, ENTRY_DTYPE)
        num_groups = 0
        for entries in self._merged():
            joined = np.concatenate([last, entries])
            same = np.zeros(len(joined), dtype=bool)
            for name in ("high", "low", "kind"):
                column = joined[name]
                same[1:] = column[1:] == column[:-1] if name == "high" else same[1:] & (column[1:] == column[:-1])
            within = same.copy()
            within[1:] &= joined["shard"][1:] == joined["shard"][:-1]
            begun = len(last)
            same, within = same[begun:], within[begun:]
            group = num_groups + np.cumsum(~same) - 1
            num_groups = int(group[-1]) + 1
            # the first of a group stands in this piece, or is the original of the group that goes on
            starts = np.maximum.accumulate(np.where(same, -1, np.arange(len(entries))))
            first = np.where(starts < 0, original[0], entries[starts])
            previous = entries.copy()
            previous[1:] = entries[:-1]
            if begun:
                previous[0] = joined[0]
            yield Piece(entries=entries, is_copy=same, is_within=within, group=group, previous=previous, first=first)
            last, original = entries[-1:].copy(), first[-1:].copy()

    def _spill(self) -> None:
        """Sort what is waiting, and append it as a run."""
        entries = np.concatenate(self._waiting)
        self._waiting, self._num_waiting = [], 0
        # stable: equal digests stay in the order of the corpus
        entries = entries[_order(entries)]
        start = self._runs[-1][1] if self._runs else 0
        try:
            if self._file is None:
                self._file = _nameless(self._folder)
            self._file.seek(start * ENTRY_DTYPE.itemsize)
            self._file.write(entries.tobytes())
            self._file.flush()
        except OSError as error:
            raise write_failed(self._folder, error, doing="spill digests into") from error
        self._runs.append((start, start + len(entries)))

    def _read(self, start: int, stop: int) -> NDArray[np.void]:
        assert self._file is not None
        content = os.pread(self._file.fileno(), (stop - start) * ENTRY_DTYPE.itemsize, start * ENTRY_DTYPE.itemsize)
        return np.frombuffer(content, ENTRY_DTYPE)

    def _merged(self) -> Iterator[NDArray[np.void]]:
        """All entries in order, a bounded number at a time."""
        each = max(64, self._merge_bytes // (ENTRY_DTYPE.itemsize * max(len(self._runs), 1)))
        cursors = [_Cursor(start, stop) for start, stop in self._runs]
        while True:
            for cursor in cursors:
                if not len(cursor.entries) and cursor.start < cursor.stop:
                    self._refill(cursor, each)
            cursors = [cursor for cursor in cursors if len(cursor.entries)]
            if not cursors:
                return
            # the least of the last entries of pieces behind which more will come: up to it everything is at hand
            pending = [_key(cursor.entries[-1]) for cursor in cursors if cursor.start < cursor.stop]
            if not pending:
                yield _sorted([cursor.take(len(cursor.entries)) for cursor in cursors])
                continue
            bound = min(pending)
            below = [cursor.take(_place(cursor.entries, bound, side="left")) for cursor in cursors]
            if any(map(len, below)):
                yield _sorted(below)
            # the bound itself may go on for any number of pieces: run by run, which is the order of the corpus
            for cursor in cursors:
                while len(cursor.entries) and _key(cursor.entries[0]) == bound:
                    yield cursor.take(_place(cursor.entries, bound, side="right"))
                    if not len(cursor.entries) and cursor.start < cursor.stop:
                        self._refill(cursor, each)

    def _refill(self, cursor: _Cursor, most: int) -> None:
        stop = min(cursor.start + most, cursor.stop)
        cursor.entries = self._read(cursor.start, stop)
        cursor.start = stop


class _Cursor:
    """How far one run has been read."""

    def __init__(self, start: int, stop: int) -> None:
        self.start = start
        """First entry of the run that was not read."""
        self.stop = stop
        self.entries: NDArray[np.void] = np.zeros(0, ENTRY_DTYPE)
        """Read, and not yet given out."""

    def take(self, number: int) -> NDArray[np.void]:
        taken, self.entries = self.entries[:number], self.entries[number:]
        return taken


def _key(entry: np.void) -> tuple[int, int, int]:
    return int(entry["high"]), int(entry["low"]), int(entry["kind"])


def _order(entries: NDArray[np.void]) -> NDArray[np.intp]:
    return np.lexsort((entries["kind"], entries["low"], entries["high"]))


def _sorted(parts: list[NDArray[np.void]]) -> NDArray[np.void]:
    """Parts of several runs, given in the order of the runs, as one sorted array."""
    joined = np.concatenate(parts)
    return joined if len(parts) == 1 else joined[_order(joined)]


def _place(entries: NDArray[np.void], key: tuple[int, int, int], *, side: str) -> int:
    """How many of sorted entries are below a key (``left``), or not above it (``right``)."""
    low, high = 0, len(entries)
    while low < high:
        middle = (low + high) // 2
        found = _key(entries[middle])
        if found < key or (side == "right" and found == key):
            low = middle + 1
        else:
            high = middle
    return low


def _nameless(folder: Path) -> BinaryIO:
    """A file that is gone when this process is, however it ends."""
    make_folders(folder)
    path = folder / f"spill.{os.getpid()}"
    file = path.open("w+b")
    path.unlink()
    return file
