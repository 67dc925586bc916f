"""When was this record trained on, and when will it be?

1. Every attempt owns a stretch of positions: from its start to where its record ends, and, on the lineage asked for,
   on to a limit that nobody has reached yet.
2. The stream's exact inverse gives the positions in that stretch at which the record stands; the attempt's steps turn
   each into a step and a slot, or say that it is skipped.
3. Where the record was delivered, its own entry in the index says what really stood in the slot.
4. Where the order was given from outside there is no inverse, and the index alone says where a record stood.
5. As a substitute a record stands where no inverse leads. Such deliveries are found in the index; planned ones by
   walking the positions to come, of which only so many are walked.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dataguard.core.manifest import Manifest, ManifestSet
from dataguard.errors import NotInRun
from dataguard.plan.attempts import AttemptPlan
from dataguard.plan.located import Located
from dataguard.plan.skips import SkippedBy as PlannedSkip
from dataguard.plan.slots import SlotStatus, next_substitute, plan_slots
from dataguard.plan.steps import Steps
from dataguard.plan.stream import Placement, Stream
from dataguard.replay.answers import Delivered, Placed, WhereAnswer
from dataguard.replay.given import given_places
from dataguard.replay.lookup import Lookup
from dataguard.run.policies import fill_of
from dataguard.run.reached import reached_by_any
from dataguard.run.streams import num_steps_of

__all__ = ["where_record"]

_WALKED = 1 << 20
"""Positions to come that are walked for planned substitutes."""
_CHUNK = 1 << 15


def where_record(
    lookup: Lookup, shard: str, row: int, *, attempt: int | None = None, until: int | None = None
) -> WhereAnswer:
    """Every place, delivered and planned, that holds one record.

    Parameters
    ----------
    shard, row
        ``SOURCE/path`` (or an ending of it that only one shard has), and the stored row (of a window its number).
    attempt
        The lineage by which deliveries are called live or abandoned; default the newest leaf's.
    until
        First step (in the trainer's labels) that is not searched for planned places; default the end of the current
        epoch of the record's source.

    Raises
    ------
    NotInRun
        No such shard, or no such row in it.
    """
    run = lookup.run
    leaf = lookup.chain(attempt)[-1].number
    places: list[Placed] = []
    notes: list[str] = []
    limit = None if until is None else run.step(until)
    known, name = _known(lookup, shard, leaf)
    for number in lookup.tree.numbers:
        stream = run.stream_of(number)
        shards = _numbers(stream.manifest_set, name)
        if stream.root.form == "given":
            places += [
                each for one in shards for each in given_places(lookup, lookup.tree.attempt(number), leaf, one, row)
            ]
            notes.append("places to come are in no plan: the order of this run is given from outside")
        elif shards:
            searched = _Searched(lookup, number, leaf, stream)
            places += searched.places(shards, row, limit)
            notes += searched.notes
    places.sort(key=lambda place: (place.position, place.attempt))
    reason = _rejected(known, name, row, run.plan.root.seq_len)
    return WhereAnswer(
        shard=name,
        row=row,
        until=until,
        deliverable=reason is None,
        reason=reason,
        places=tuple(places),
        notes=tuple(dict.fromkeys(notes)),
    )


class _Searched:
    """One attempt, searched for a record."""

    def __init__(self, lookup: Lookup, number: int, leaf: int, stream: Stream) -> None:
        self.lookup = lookup
        self.run = lookup.run
        self.attempt: AttemptPlan = lookup.tree.attempt(number)
        self.leaf = leaf
        self.stream = stream
        self.steps: Steps = self.run.steps_of(number)
        self.withheld = self.run.withheld_of(number)
        self.fill = fill_of(self.run, number)
        self.delivered_stop = self._delivered_stop()
        self.notes: list[str] = []

    def places(self, shards: list[int], row: int, limit: int | None) -> Iterator[Placed]:
        """All places of the record in this attempt's stretch."""
        if self.attempt.number == self.leaf and self.attempt.policy is not None:
            self.notes.append("planned places are told as the plan has them: the gate judges when they are delivered")
        for shard in shards:
            stop = self.delivered_stop
            if self.attempt.number == self.leaf:
                stop = max(stop, self._planned_stop(shard, limit))
                yield from self._planned_substitutes(shard, row, stop)
            for placement in self.stream.find(shard, row, start=self.attempt.start_position, stop=stop):
                placed = self._placed(placement)
                if placed is not None:
                    yield placed
            yield from self._as_substitute(shard, row)

    def _delivered_stop(self) -> int:
        """One past the last position recorded by any rank, unfinished steps included."""
        complete, number = self.lookup.complete[self.attempt.number], self.attempt.number
        position = self.steps.start_of(complete)
        farthest = reached_by_any(self.run, number)
        # The farthest rank's step in hand may hold a part, and its last whole one reaches past what all completed.
        for step in dict.fromkeys((farthest, max(complete, farthest - 1), complete)):
            records = self.lookup.index.step(number, step, num_ranks=self.attempt.geometry.world_size).records
            if len(records):
                return max(position, int(records["position"].max()) + 1)
        return position

    def _planned_stop(self, shard: int, limit: int | None) -> int:
        if self.run.stream_identity is not None:
            last = num_steps_of(self.run)
            return self.steps.start_of(last if limit is None else min(limit, last))
        if limit is not None:
            return self.steps.start_of(limit)
        source = self.stream.manifest_set.source_name(shard)
        begun = self.stream.epochs_begun(source, self.delivered_stop)
        try:
            return self.stream.end_of_epoch(source, begun[1] if begun else 0)
        except NotInRun:
            return self.delivered_stop

    def _placed(self, placement: Placement) -> Placed | None:
        """One position of the stream; None where an attempt that is over did not come to deliver it."""
        position = placement.position
        located = self.steps.locate(position)
        if isinstance(located, PlannedSkip):
            return self._skipped(placement, located)
        recorded = self._recorded(located.step, position) if position < self.delivered_stop else None
        if recorded is not None:
            return self._at(located.step, located.slot, position, placement.epoch, recorded)
        complete = located.step < self.lookup.complete[self.attempt.number]
        if not complete and self.attempt.number != self.leaf:
            return None
        slot = plan_slots(
            self.steps.batch(located.step),
            self.stream,
            self.withheld,
            fill=self.fill,
            slots=range(located.slot, located.slot + 1),
            epochs=self.attempt.epochs,
        )
        status = SlotStatus(int(slot.status[0])).name.lower()
        return self._at(located.step, located.slot, position, placement.epoch, status, planned=not complete)

    def _recorded(self, step: int, position: int) -> str | None:
        """What its record says of a delivery; None where there is none."""
        ranks = self.attempt.geometry.world_size
        records = self.lookup.index.step(self.attempt.number, step, num_ranks=ranks).records
        mine = records[records["position"] == position]
        return SlotStatus(int(mine["status"][0])).name.lower() if len(mine) else None

    def _skipped(self, placement: Placement, skip: PlannedSkip) -> Placed:
        return Placed(
            label="skipped",
            attempt=self.attempt.number,
            step=None,
            batch=self.run.label(self.steps.batch_index(placement.position)),
            rank=None,
            microbatch=None,
            slot=None,
            position=placement.position,
            epoch=placement.epoch,
            status="skipped",
            skips=self.lookup.explain(skip),
        )

    def _at(
        self,
        step: int,
        slot: int,
        position: int,
        epoch: int,
        status: str,
        *,
        planned: bool = False,
        substitute_for: Delivered | None = None,
    ) -> Placed:
        batch = self.steps.batch(step)
        share, size = batch.size // self.attempt.geometry.world_size, self.attempt.geometry.microbatch_size
        return Placed(
            label="planned"
            if planned
            else self.lookup.tree.label(self.attempt.number, step, self.lookup.complete, self.leaf),
            attempt=self.attempt.number,
            step=self.run.label(step),
            batch=self.run.label(batch.batch),
            rank=slot // share,
            microbatch=slot % share // size,
            slot=slot,
            position=position,
            epoch=epoch,
            status=status,
            substitute_for=substitute_for,
        )

    def _planned_substitutes(self, shard: int, row: int, stop: int) -> Iterator[Placed]:
        """Positions before `stop`, not delivered yet, in which the record is to stand for a withheld one."""
        if self.fill != "substitute":
            return
        start = self.steps.start_of(self.lookup.complete[self.attempt.number])
        source = self.stream.source_names.index(self.stream.manifest_set.source_name(shard))
        if stop > start + _WALKED:
            stop = start + _WALKED
            self.notes.append(f"planned substitutes are told up to position {stop:,} alone")
        for first in range(start, stop, _CHUNK):
            positions = np.arange(first, min(first + _CHUNK, stop), dtype=np.int64)
            samples = self.stream.samples(positions[~self.attempt.spans.contains(positions)])
            held = (self.withheld.mask(samples.shard, samples.row) > 0) | samples.removed
            held &= samples.source == source
            if self.attempt.epochs is not None:
                held &= samples.epoch < self.attempt.epochs
            for i in np.flatnonzero(held).tolist():
                position = int(samples.position[i])
                drawn = next_substitute(
                    self.stream,
                    self.withheld,
                    position=position,
                    source=source,
                    generation=int(samples.generation[i]),
                )
                if drawn is None or (drawn.shard, drawn.row) != (shard, row):
                    continue
                located = self.steps.locate(position)
                assert isinstance(located, Located), "skipped positions were left out"
                if self._recorded(located.step, position) is None:
                    name = self.stream.manifest_set.shard_name(int(samples.shard[i]))
                    planned_for = Delivered(shard=name, row=int(samples.row[i]))
                    epoch = int(samples.epoch[i])
                    yield self._at(
                        *(located.step, located.slot, position, epoch, "substitute"),
                        planned=True,
                        substitute_for=planned_for,
                    )

    def _as_substitute(self, shard: int, row: int) -> Iterator[Placed]:
        for records in self.lookup.index.notable(self.attempt.number, num_ranks=self.attempt.geometry.world_size):
            mine = records[(records["delivered_shard"] == shard) & (records["delivered_row"] == row)]
            if not len(mine):
                continue
            samples = self.stream.samples(mine["position"].astype(np.int64))
            for record, epoch in zip(mine, samples.epoch.tolist(), strict=True):
                planned = Delivered(
                    shard=self.stream.manifest_set.shard_name(int(record["shard"])), row=int(record["row"])
                )
                yield self._at(
                    int(record["step"]),
                    int(record["slot"]),
                    int(record["position"]),
                    epoch,
                    "substitute",
                    substitute_for=planned,
                )


def _known(lookup: Lookup, shard: str, leaf: int) -> tuple[ManifestSet, str]:
    """Full name of a shard, and manifests that hold it: of the lineage asked for, else of any other attempt."""
    others = [number for number in reversed(lookup.tree.numbers) if number != leaf]
    for number in (leaf, *others):
        manifests = lookup.run.stream_of(number).manifest_set
        try:
            return manifests, manifests.shard_name(manifests.find_shards(shard)[0])
        except NotInRun as error:
            if number == leaf:
                missing = error
    raise missing


def _numbers(manifests: ManifestSet, name: str) -> list[int]:
    """The numbers of a shard by its full name: one for each manifest that holds it."""
    try:
        return [each for each in manifests.find_shards(name) if manifests.shard_name(each) == name]
    except NotInRun:
        return []


def _rejected(manifests: ManifestSet, name: str, row: int, seq_len: int | None) -> str | None:
    """Why a record has no place in the stream; None where it has one. NotInRun where there is no such row."""
    shard = manifests.find_shards(name)[-1]
    which, local = manifests.split_shard(shard)
    manifest: Manifest = manifests.manifests[which]
    entry = manifest.shards[local]
    num_rows = entry.num_rows if seq_len is None else entry.num_rows // seq_len
    if not 0 <= row < num_rows:
        raise NotInRun(
            f"{'row' if seq_len is None else 'window'} {row:,} is not in shard {name}", allowed=f"0:{num_rows:,}"
        )
    if entry.effect == "excluded":
        return "its shard is excluded: nothing of it could be trusted"
    if seq_len is not None:
        return None
    block = manifest.block_of(local, row)
    span = slice(int(manifest.rejected_starts[block]), int(manifest.rejected_starts[block + 1]))
    hit = manifest.rejected[span]
    hit = hit[hit["row"] == row]
    return f"rejected at the scan: {manifest.codes[int(hit['code'][0])]}" if len(hit) else None
