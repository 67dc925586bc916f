"""How far has each rank of a live attempt come, and how much of what it was handed was flagged or withheld?

1. Each rank's frames are followed from near their end on: they give where the rank stands, and the newest steps.
2. What lies before (older frames, sealed and compacted files) is only counted, a bounded number of bytes a look, from
   the newest back; until that is done the answer says that it is not whole.
3. Counts are kept by segment. A segment that was sealed before all of its frames were seen is counted again from the
   sealed file, so that nothing is counted twice or missed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataguard.errors import RunDamaged
from dataguard.plan.slots import PADDING, SlotStatus
from dataguard.run.columns import read_table
from dataguard.run.following import FramesFollower
from dataguard.run.frames import FramesReader
from dataguard.run.index import Index
from dataguard.run.layout import Layout
from dataguard.run.sources import Notes, Source, Sources, covered_steps
from dataguard.run.sources import first_frame as first_frame_of

__all__ = ["NUM_RECENT", "SHARES", "Columns", "Counts", "Delivered", "Tally", "counted"]

NUM_RECENT = 100
"""Steps whose share is told as recent."""
FIRST_BYTES, LATER_BYTES = 128 << 20, 32 << 20
"""What is read of older frames at the first look and at each later one, over all ranks."""
_STRETCH_BYTES = 4 << 20
_COLUMN_BYTES = 8
"""What a record of a sealed file costs to count: two small columns of it are read."""

Counts = NDArray[np.int64]
"""What a tally counts, shape (k,); of `SHARES` samples, flagged and withheld."""
Columns = Mapping[str, NDArray[Any]] | NDArray[np.void]
"""Records, or some of their columns by name."""


def counted(status: NDArray[np.uint8], verdict: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which records are samples, flagged, withheld: shape (n, 3).

    >>> counted(np.array([SlotStatus.LIVE, SlotStatus.LIVE, SlotStatus.SUBSTITUTED, SlotStatus.SKIPPED], np.uint8),
    ...         np.array([0, 1, 3, 0], np.uint8)).sum(axis=0).tolist()
    [3, 1, 1]
    """
    is_sample = ~np.isin(status, PADDING)
    is_withheld = is_sample & (status != SlotStatus.LIVE)
    is_flagged = is_sample & ~is_withheld & (verdict != 0)
    return np.stack([is_sample, is_flagged, is_withheld], axis=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What is counted of records."""

    columns: tuple[str, ...]
    """Of an index record."""
    size: int
    total: Callable[[Columns], Counts]
    """Counts of some records, shape (size,)."""


SHARES = Tally(
    columns=("status", "verdict"),
    size=3,
    total=lambda records: counted(records["status"], records["verdict"]).sum(axis=0),
)
"""Samples, flagged, withheld."""


@dataclass(slots=True, eq=False)
class _Rank:
    """What is known of one rank."""

    number: int
    hot: dict[int, FramesFollower] = field(default_factory=dict)
    """By the first step of the segment, in order."""
    counts: dict[int, Counts] = field(default_factory=dict)
    """By the first step of the segment."""
    recent: dict[int, Counts] = field(default_factory=dict)
    """By step."""
    newest: tuple[int, int] | None = None
    """Step and microbatch."""
    is_open: bool | None = None
    """Whether its record is not closed; None where its frames cannot be seen from here."""
    has_begun: bool = False
    folder_ns: int = -1
    """When its folder of frames was changed last."""
    is_settled: bool = False
    """Whether two looks have seen it so."""


class Delivered:
    """Follows what the ranks of one attempt were handed.

    Parameters
    ----------
    layout, attempt, ranks
        Which ranks of which attempt of which run.
    num_microbatches
        Of a rank in a step. None: all frames are counted at the first look, and no newest steps are told apart.
    tally
        What is counted.
    """

    def __init__(
        self,
        layout: Layout,
        attempt: int,
        ranks: Iterable[int],
        num_microbatches: Callable[[int], int] | None = None,
        *,
        tally: Tally = SHARES,
    ) -> None:
        self.attempt = attempt
        self._layout = layout
        self._sources = Sources(layout)
        self._index = Index(layout)
        self._num_microbatches = num_microbatches
        self._tally = tally
        self._ranks = [_Rank(number) for number in ranks]
        self._queue: list[tuple[_Rank | None, Source]] = []
        """Sealed and compacted files that are still to be counted, the newest last."""
        self._covered: int | None = None
        """Steps before this one were compacted when the first look was taken; None before it."""
        self._compacted_counts: dict[int, Counts] = {}
        self._has_looked = False
        self._damage: list[str] = []

    # -- looking

    def look(self) -> None:
        """Read what came since the last look.

        Raises
        ------
        RunDamaged
            The system cannot read a file.
        """
        for rank in self._ranks:
            self._look_at(rank)
        if not self._has_looked and self._num_microbatches is not None:
            self._read_recent_sealed()
        budget = LATER_BYTES if self._has_looked else FIRST_BYTES
        self._has_looked = True
        self._count_older(budget)
        newest = self.newest_step
        if newest is not None:
            for rank in self._ranks:
                for step in [step for step in rank.recent if step <= newest - NUM_RECENT]:
                    del rank.recent[step]

    def _look_at(self, rank: _Rank) -> None:
        for first, follower in rank.hot.items():
            self._take(rank, first, follower.added())
        try:
            changed = os.stat(self._layout.hot_rank(self.attempt, rank.number)).st_mtime_ns  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            changed = 0
        if changed != rank.folder_ns or not rank.is_settled:
            self._find_files(rank)
            # Clocks of file systems tick: what changed in the same tick shows at the next look alone.
            rank.is_settled = rank.has_begun and changed == rank.folder_ns
            rank.folder_ns = changed

    def _find_files(self, rank: _Rank) -> None:
        """Segments that were opened or sealed since the last look."""
        notes = Notes()
        if self._covered is None:
            # What is compacted later was counted by rank, and stays so.
            compacted = self._sources.compacted(self.attempt, notes=notes)
            self._covered = covered_steps(compacted)
            self._queue += [(None, source) for source in compacted]
        if self._sources.seals(self.attempt, rank.number, Notes()) is None:
            return
        is_first = not rank.has_begun
        rank.has_begun = True
        sources = self._sources.of_rank(self.attempt, rank.number, covered=self._covered, notes=notes)
        self._note(notes.damage)
        sealed = {source.first: source for source in sources if source.kind == "sealed"}
        for first, source in sealed.items():
            follower = rank.hot.pop(first, None)
            if follower is not None and self._is_all_of(follower, source):
                continue
            if follower is not None or first not in rank.counts:
                rank.counts[first] = self._nothing()
                self._queue.append((rank, source))
                if not is_first and self._num_microbatches is not None:
                    self._read_recent(rank, source)
        for source in sources:
            if source.kind == "hot" and source.first not in rank.hot:
                follower = self._follower(source, tail=is_first)
                rank.hot[source.first] = follower
                rank.counts.setdefault(source.first, self._nothing())
                self._take(rank, source.first, follower.added())
        rank.is_open = self._is_open(rank)

    @staticmethod
    def _is_all_of(follower: FramesFollower, source: Source) -> bool:
        """Whether all that a sealed file holds was read as frames."""
        return follower.is_whole and source.seal is not None and follower.num_records == source.seal.num_records

    def _is_open(self, rank: _Rank) -> bool | None:
        folder = self._layout.hot_rank(self.attempt, rank.number)
        try:
            with os.scandir(folder) as found:
                return any(item.name.endswith(".frames") for item in found)
        except (FileNotFoundError, NotADirectoryError):
            return None if self._layout.spool is not None else False

    def _follower(self, source: Source, *, tail: bool) -> FramesFollower:
        num_frames = None
        if tail and self._num_microbatches is not None:
            num_frames = NUM_RECENT * max(1, self._num_microbatches(source.first))
        first_frame = 0
        if source.skip_bytes:
            # Where it was sealed meanwhile, it is counted from the sealed file.
            with contextlib.suppress(FileNotFoundError), FramesReader(source.path, "index") as reader:
                first_frame = first_frame_of(source, reader)
        return FramesFollower(source.path, "index", first_frame=first_frame, tail_frames=num_frames)

    # -- counting

    def _take(self, rank: _Rank, first: int, records: NDArray[np.void]) -> None:
        """Count new records of a segment."""
        if not len(records):
            return
        rank.counts[first] += self._tally.total(records)
        last = (int(records["step"][-1]), int(records["microbatch"][-1]))
        rank.newest = last if rank.newest is None else max(rank.newest, last)
        if self._num_microbatches is None:
            return
        for step, counts in _by_step(records["step"], counted(records["status"], records["verdict"])):
            known = rank.recent.get(step)
            rank.recent[step] = counts if known is None else known + counts

    def _read_recent_sealed(self) -> None:
        """The newest steps of ranks whose frames do not hold as many, and where a closed rank stood at its end."""
        for rank, source in sorted(self._queue, key=lambda each: each[1].first, reverse=True):
            newest = max([source.stop or 0, *(one.newest[0] + 1 for one in self._ranks if one.newest is not None)])
            if source.stop is None or source.stop <= newest - NUM_RECENT:
                continue
            self._read_recent(rank, source)

    def _read_recent(self, rank: _Rank | None, source: Source) -> None:
        """The steps of one sealed or compacted file that may be among the newest."""
        assert source.stop is not None
        notes = Notes()
        records = self._index.read(source, (max(source.first, source.stop - NUM_RECENT), source.stop), notes)
        if records is None:
            return  # told when it is counted
        for one in self._ranks if rank is None else [rank]:
            own = records[records["rank"] == one.number]
            if not len(own):
                continue
            last = (int(own["step"][-1]), int(own["microbatch"][-1]))
            one.newest = last if one.newest is None else max(one.newest, last)
            for step, counts in _by_step(own["step"], counted(own["status"], own["verdict"])):
                one.recent[step] = counts

    def _count_older(self, budget: int) -> None:
        for rank in self._ranks:
            for first in sorted(rank.hot, reverse=True):
                follower = rank.hot[first]
                while budget > 0 and not follower.is_whole:
                    records, size = follower.earlier(min(budget, _STRETCH_BYTES))
                    if not size:
                        break  # sealed meanwhile: counted from there
                    budget -= size
                    rank.counts[first] += self._tally.total(records)
        self._queue.sort(key=lambda each: each[1].first)
        while budget > 0 and self._queue:
            rank_of, source = self._queue.pop()
            counts, num_records = self._counts_of(source)
            budget -= num_records * _COLUMN_BYTES
            if rank_of is None:
                self._compacted_counts[source.first] = counts
            else:
                rank_of.counts[source.first] = counts

    def _counts_of(self, source: Source) -> tuple[Counts, int]:
        try:
            if source.whole:
                table = read_table(source.path, source.name, columns=list(self._tally.columns))
                columns = {name: table.column(name).to_numpy() for name in self._tally.columns}
                return self._tally.total(columns), table.num_rows
        except FileNotFoundError:
            pass  # compacted meanwhile: the index below finds its successor, or says that it is missing
        except RunDamaged as error:
            self._note([str(error)])
            return self._nothing(), 0
        notes = Notes()
        records = self._index.read(source, None, notes)
        self._note(notes.damage)
        if records is None:
            return self._nothing(), 0
        return self._tally.total(records), len(records)

    def _nothing(self) -> Counts:
        return np.zeros(self._tally.size, np.int64)

    def _note(self, texts: Iterable[str]) -> None:
        self._damage += [text for text in texts if text not in self._damage]

    # -- what is known

    @property
    def newest_step(self) -> int | None:
        """The newest step of which any rank was handed anything."""
        return max((rank.newest[0] for rank in self._ranks if rank.newest is not None), default=None)

    def newest(self) -> dict[int, tuple[int, int] | None]:
        """Of each rank the newest step, and the newest microbatch of it."""
        return {rank.number: rank.newest for rank in self._ranks}

    def changed_seconds(self) -> dict[int, float]:
        """Unix second at which each rank's frames were changed last; of those that have any."""
        found = {}
        for rank in self._ranks:
            times = [each.changed_seconds for each in rank.hot.values() if each.changed_seconds is not None]
            if times:
                found[rank.number] = max(times)
        return found

    @property
    def num_open(self) -> int | None:
        """Ranks whose record is not closed; None where that cannot be seen from here."""
        states = [rank.is_open for rank in self._ranks if rank.has_begun]
        return None if None in states else sum(map(bool, states))

    @property
    def num_begun(self) -> int:
        """Ranks that have had their writer."""
        return sum(rank.has_begun for rank in self._ranks)

    def recent(self) -> tuple[tuple[int, int] | None, Counts]:
        """The newest steps (at most `NUM_RECENT`), ``first:stop``, and their counts over all ranks."""
        newest = self.newest_step
        if newest is None:
            return None, np.zeros(3, np.int64)
        held = {step for rank in self._ranks for step in rank.recent}
        total: Counts = sum((counts for rank in self._ranks for counts in rank.recent.values()), np.zeros(3, np.int64))
        return (min(held, default=newest), newest + 1), total

    def whole(self) -> tuple[Counts, bool]:
        """Counts over the attempt as far as it was counted, and whether that is all of it."""
        parts = [*self._compacted_counts.values(), *(each for rank in self._ranks for each in rank.counts.values())]
        total: Counts = sum(parts, self._nothing())
        followers = [each for rank in self._ranks for each in rank.hot.values()]
        return total, not self._queue and all(each.is_whole for each in followers)

    @property
    def damage(self) -> tuple[str, ...]:
        """What could not be trusted."""
        return (*self._damage, *(text for rank in self._ranks for each in rank.hot.values() for text in each.damage))


def _by_step(steps: NDArray[np.uint64], flags: NDArray[np.bool_]) -> Iterator[tuple[int, Counts]]:
    """Counts of each step; steps climb."""
    unique, places = np.unique(steps, return_inverse=True)
    table = np.zeros((len(unique), 3), np.int64)
    np.add.at(table, places, flags.astype(np.int64))
    yield from zip(unique.tolist(), table, strict=True)
