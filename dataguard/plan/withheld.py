"""Which rows may not be trained on in an attempt, and which event says so?

A quarantine names a whole shard or single rows of it, always as ``SOURCE/path``. The journal's events are folded into
entries elsewhere (run/); here the entries of one attempt become a set that answers for arrays of (shard, row) at once:

1. Every name is resolved in all manifests of the attempt that hold it, since a grown corpus keeps its old shards.
2. A whole shard is one number in an array over shards: the event that withholds it, 0 for none.
3. Single rows of shard s become keys ``offset[s] + row``; offsets leave each such shard as many keys as its largest
   withheld row needs, so that all keys of an attempt lie in one sorted array and one binary search answers.

Where several events withhold a row, the earliest is named. A row is numbered as an address numbers it: the stored row
of a document, the window's number in its shard.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dataguard.core.manifest import ManifestSet
from dataguard.errors import NotInRun, PlanError

__all__ = ["Withheld", "WithheldSet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """One shard, or one row of it, withheld by one event."""

    shard: str
    """``SOURCE/path``."""
    row: int | None = None
    """Row in the shard, 0-based; the whole shard where None."""
    event: int
    """Number of the journal event, at least 1."""
    reason: str
    """Why, in the words of whoever asked for it."""

    def __post_init__(self) -> None:
        if self.event < 1:
            raise PlanError(
                f"event {self.event} cannot withhold {self.shard}", allowed="a journal number of at least 1"
            )
        if self.row is not None and self.row < 0:
            raise PlanError(f"row {self.row:,} of {self.shard} cannot be withheld", allowed="rows count from 0")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WithheldSet:
    """The withheld rows of one attempt, over the shards of its manifests numbered through; see `WithheldSet.of`."""

    reasons: dict[int, str]
    """Reason by event."""
    unknown: tuple[Withheld, ...]
    """Entries whose shard is in none of the attempt's manifests (a quarantine written on another lineage)."""
    _shards: NDArray[np.int64]  # (shards,): event that withholds the whole shard, 0 none; empty where no shard is
    _offsets: NDArray[np.int64]  # (shards,): first key of the shard's withheld rows
    _limits: NDArray[np.int64]  # (shards,): one past its largest withheld row, 0 none
    _keys: NDArray[np.int64]  # sorted keys of withheld rows
    _events: NDArray[np.int64]  # event of each key
    _any: bool = field(default=False)

    @classmethod
    def of(cls, entries: Iterable[Withheld], manifest_set: ManifestSet) -> WithheldSet:
        """Resolve the entries of an attempt.

        Raises
        ------
        NotInRun
            A row beyond its shard's stored rows.
        """
        num_shards = manifest_set.num_shards
        shards = np.zeros(num_shards, dtype=np.int64)
        rows: dict[int, dict[int, int]] = {}
        reasons: dict[int, str] = {}
        unknown: list[Withheld] = []
        resolved: dict[str, list[int]] = {}
        for entry in entries:
            reasons.setdefault(entry.event, entry.reason)
            if entry.shard not in resolved:
                resolved[entry.shard] = _resolve(entry.shard, manifest_set)
            if not resolved[entry.shard]:
                unknown.append(entry)
            for shard in resolved[entry.shard]:
                if entry.row is None:
                    shards[shard] = min(int(shards[shard]) or entry.event, entry.event)
                    continue
                which, local = manifest_set.split_shard(shard)
                num_rows = manifest_set.manifests[which].shards[local].num_rows
                if entry.row >= num_rows:
                    raise NotInRun(
                        f"row {entry.row:,} of {entry.shard} (event {entry.event}) is not there",
                        allowed=f"0:{num_rows:,}",
                    )
                of_shard = rows.setdefault(shard, {})
                of_shard[entry.row] = min(of_shard.get(entry.row, entry.event), entry.event)
        limits = np.zeros(num_shards, dtype=np.int64)
        for shard, of_shard in rows.items():
            limits[shard] = max(of_shard) + 1
        offsets = np.cumsum(limits) - limits
        pairs = sorted(
            (int(offsets[s]) + row, event) for s, of_shard in rows.items() for row, event in of_shard.items()
        )
        return cls(
            reasons=reasons,
            unknown=tuple(unknown),
            _shards=shards if shards.any() else shards[:0],
            _offsets=offsets,
            _limits=limits,
            _keys=np.array([key for key, _ in pairs], dtype=np.int64),
            _events=np.array([event for _, event in pairs], dtype=np.int64),
            _any=bool(shards.any() or pairs),
        )

    def __bool__(self) -> bool:
        return self._any

    def mask(self, shards: NDArray[np.integer], rows: NDArray[np.integer]) -> NDArray[np.int64]:
        """Name the event that withholds each (shard, row), 0 where none does; all three arrays are of one shape."""
        events = np.zeros(np.shape(shards), dtype=np.int64)
        if not self._any:
            return events
        if len(self._shards):
            events = self._shards[shards]
        if len(self._keys):
            keys = self._offsets[shards] + rows
            place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
            hit = (rows < self._limits[shards]) & (self._keys[place] == keys)
            by_row = np.where(hit, self._events[place], 0)
            events = np.where((by_row > 0) & ((events == 0) | (by_row < events)), by_row, events)
        return events

    def event_of(self, shard: int, row: int) -> int:
        """Name the event that withholds one row, 0 where none does."""
        return int(self.mask(np.array([shard], dtype=np.int64), np.array([row], dtype=np.int64))[0])


def _resolve(name: str, manifest_set: ManifestSet) -> list[int]:
    """Every shard called exactly `name`; a look-up by the ending of a path is for people, not for entries."""
    try:
        found = manifest_set.find_shards(name)
    except NotInRun:
        return []
    return [shard for shard in found if manifest_set.shard_name(shard) == name]
