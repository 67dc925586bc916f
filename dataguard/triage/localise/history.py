"""Which samples were delivered at the steps of an event, and which before, as one table?

The index alone answers, by stretches of steps and never by walking a run: everything before the event where that is no
more than `MOST_BEFORE` samples, else half of that right before it and the rest in `FAR_STRETCHES` stretches whose
places are drawn by key, so that the background is not the neighbours only and is the same whenever it is drawn. Every
attempt numbers sources and shards in its own way; here they go by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from dataguard.core.keys import derive_key
from dataguard.core.spans import SpanSet
from dataguard.plan.slots import PADDING
from dataguard.replay.lookup import Lookup
from dataguard.run.headline import decode
from dataguard.run.index import merge
from dataguard.run.records import HEADLINE_PREFIX, SIGNAL_PREFIX, headline_fields, signal_fields
from dataguard.run.telemetry_reading import owned_steps

__all__ = ["FAR_STRETCHES", "MOST_BEFORE", "Delivered", "Names", "read_steps", "stretches_before"]

MOST_BEFORE = 60_000
"""Samples of the background that the index is asked for."""
FAR_STRETCHES = 8
_LEAST_STEPS = 16
_PADDING = [int(status) for status in PADDING]


@dataclass(slots=True, kw_only=True)
class Names:
    """Names by the numbers used here, over all attempts."""

    names: list[str] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)

    def number(self, name: str) -> int:
        """The number of a name; a new one where it is new."""
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(name)
        return self._numbers[name]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Delivered:
    """Samples as they were delivered, padding left out; arrays of shape (n,), in the order (step, rank, microbatch,
    slot) of each attempt.
    """

    attempt: NDArray[np.int64]
    step: NDArray[np.int64]
    """Counted from 0."""
    rank: NDArray[np.int64]
    microbatch: NDArray[np.int64]
    slot: NDArray[np.int64]
    position: NDArray[np.int64]
    source: NDArray[np.int64]
    """By `Names`, as `shard`."""
    planned_shard: NDArray[np.int64]
    planned_row: NDArray[np.int64]
    shard: NDArray[np.int64]
    """Of what was delivered: a substitute's where one was."""
    row: NDArray[np.int64]
    number: NDArray[np.int64]
    """Of that shard as the attempt's own stream numbers it."""
    status: NDArray[np.int64]
    length: NDArray[np.int64]
    digest: NDArray[np.uint64]
    """0 where nothing was delivered."""
    verdict: NDArray[np.int64]
    judged: NDArray[np.bool_]
    """Whether anything was said by a gate."""
    rules: NDArray[np.uint64]
    recorded: Mapping[str, NDArray[np.float64]]
    """Signals that the index has, NaN where it has not: exact ones, else headline bytes."""

    def __len__(self) -> int:
        return len(self.step)

    @property
    def held(self) -> NDArray[np.bool_]:
        """Whether the slot delivered anything."""
        held: NDArray[np.bool_] = self.digest != 0
        return held

    def part(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> Delivered:
        """Those chosen by a mask or by places."""
        arrays = {each.name: getattr(self, each.name)[chosen] for each in fields(self) if each.name != "recorded"}
        return Delivered(**arrays, recorded={name: values[chosen] for name, values in self.recorded.items()})

    @property
    def steps(self) -> NDArray[np.int64]:
        """The steps there, ascending."""
        return np.unique(self.step)


def stretches_before(first: int, batch_size: int, *, seed: int) -> list[tuple[int, int]]:
    """Stretches of steps ``0:first`` that are the background of an event that is looked for from `first` on.

    >>> stretches_before(100, 8, seed=7)
    [(0, 100)]
    >>> far = stretches_before(100_000, 4096, seed=7)
    >>> far == stretches_before(100_000, 4096, seed=7), far[-1], sum(stop - start for start, stop in far)
    (True, (99992, 100000), 16)
    """
    most = max(_LEAST_STEPS, MOST_BEFORE // max(1, batch_size))
    if first <= most:
        return [(0, first)] if first > 0 else []
    near = most // 2
    length = max(1, (most - near) // FAR_STRETCHES)
    spans = [(first - near, first)]
    for i in range(FAR_STRETCHES):
        start = derive_key("localise-stretch", seed, first, i) % (first - near - length + 1)
        spans.append((start, start + length))
    return list(SpanSet.of(spans).spans)


def read_steps(
    lookup: Lookup,
    leaf: int,
    spans: Sequence[tuple[int, int]],
    *,
    names: tuple[Names, Names],
    notes: list[str],
) -> Delivered:
    """What the lineage of an attempt recorded of stretches of steps (from 0), each attempt of its own steps.

    Parameters
    ----------
    names
        Of sources and of shards; they grow.
    notes
        What could not be read is added.
    """
    parts = []
    for attempt, own_first, own_stop in owned_steps(lookup.chain(leaf)):
        for start, stop in spans:
            low, high = max(start, own_first), stop if own_stop is None else min(stop, own_stop)
            if low >= high:
                continue
            damage: list[str] = []
            found = lookup.index.records(
                attempt.number, steps=(low, high), num_ranks=attempt.geometry.world_size, torn=[], damage=damage
            )
            records = merge([*found])
            notes += [f"the record is damaged: {each}" for each in damage if each]
            if len(records):
                parts.append(_delivered(lookup, attempt.number, records, names))
    return _joined(parts)


def _delivered(lookup: Lookup, attempt: int, records: NDArray[np.void], names: tuple[Names, Names]) -> Delivered:
    stream = lookup.run.stream_of(attempt)
    records = records[~np.isin(records["status"], _PADDING)]
    sources, shards = names
    delivered_shard, delivered_row = records["delivered_shard"], records["delivered_row"]
    planned_shard, planned_row = records["shard"].astype(np.int64), records["row"].astype(np.int64)
    other = delivered_shard >= 0
    numbers = np.unique(np.concatenate([planned_shard, delivered_shard[other]]))
    by_name = np.array([shards.number(stream.manifest_set.shard_name(int(each))) for each in numbers], np.int64)
    source_numbers = np.array([sources.number(name) for name in stream.source_names], np.int64)
    planned = by_name[np.searchsorted(numbers, planned_shard)] if len(numbers) else planned_shard
    shard = np.where(other, delivered_shard, planned_shard)
    recorded: dict[str, NDArray[np.float64]] = {}
    judged = np.zeros(len(records), np.bool_)
    for name in headline_fields(records.dtype):
        bytes_ = records[HEADLINE_PREFIX + name]
        judged |= bytes_ != 0
        recorded[name] = decode(name, bytes_)
    for name in signal_fields(records.dtype):
        exact = records[SIGNAL_PREFIX + name].astype(np.float64)
        coarse = recorded.get(name)
        recorded[name] = exact if coarse is None else np.where(np.isnan(exact), coarse, exact)
    return Delivered(
        attempt=np.full(len(records), attempt, np.int64),
        **{name: records[name].astype(np.int64) for name in ("step", "rank", "microbatch", "slot", "position")},
        source=source_numbers[records["source"].astype(np.int64)],
        planned_shard=planned,
        planned_row=planned_row,
        shard=by_name[np.searchsorted(numbers, shard)] if len(numbers) else planned,
        row=np.where(other, delivered_row, planned_row).astype(np.int64),
        number=shard.astype(np.int64),
        status=records["status"].astype(np.int64),
        length=records["length"].astype(np.int64),
        digest=np.ascontiguousarray(records["digest"]).view("<u8").astype(np.uint64),
        verdict=records["verdict"].astype(np.int64),
        judged=judged,
        rules=records["rules"].astype(np.uint64),
        recorded=recorded,
    )


def _joined(parts: Sequence[Delivered]) -> Delivered:
    known = dict.fromkeys(name for part in parts for name in part.recorded)

    def column(name: str) -> NDArray[np.float64]:
        return np.concatenate([part.recorded.get(name, np.full(len(part), np.nan)) for part in parts])

    whole = {"digest": np.uint64, "rules": np.uint64, "judged": np.bool_}
    arrays = {
        each.name: np.concatenate(
            [*(getattr(part, each.name) for part in parts), np.empty(0, whole.get(each.name, np.int64))]
        )
        for each in fields(Delivered)
        if each.name != "recorded"
    }
    return Delivered(**arrays, recorded={name: column(name) for name in known})
