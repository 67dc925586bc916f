"""What was every rank fed at a step, worst first?

Answered from the index alone: the corpus may be gone. Slots that did not deliver their planned sample come first, then
all others by address.
"""

from __future__ import annotations

from typing import Any

from dataguard.core.manifest import ManifestSet
from dataguard.plan.slots import SlotStatus
from dataguard.replay.answers import Delivered, InspectAnswer, InspectedSample, SkippedBatch
from dataguard.replay.lookup import Found, Lookup

__all__ = ["inspect_step"]


def inspect_step(
    lookup: Lookup, label: int, *, attempt: int | None = None, rank: int | None = None
) -> InspectAnswer | SkippedBatch:
    """What was delivered at a step (in the trainer's labels), or by what it was skipped.

    Raises
    ------
    NotInRun
        No attempt on the lineage delivered it, or no such rank took part.
    """
    found = lookup.find(label, attempt=attempt, rank=rank)
    if isinstance(found, SkippedBatch):
        return found
    run = lookup.run
    stream_names = run.stream_of(found.attempt.number).source_names
    manifests = run.stream_of(found.attempt.number).manifest_set
    samples = [_sample(record, stream_names, manifests) for record in found.records.records]
    samples.sort(key=lambda sample: (sample.status == "live", sample.rank, sample.microbatch, sample.slot))
    geometry = found.attempt.geometry
    # A jump moves every later batch; a hole moves nothing, so only what lies in this batch matters to it.
    jumps = run.document.skip_mode == "jump"
    first = found.attempt.start_position if jumps else found.batch.first_position
    skips = [(skip.start, skip.stop, skip.event) for skip in found.attempt.skips_over(first, found.batch.stop_position)]
    return InspectAnswer(
        step=label,
        attempt=found.attempt.number,
        batch=run.label(found.batch.batch),
        label=found.label,
        lineage=found.lineage,
        positions=(found.batch.first_position, found.batch.stop_position),
        global_batch=found.batch.size,
        world_size=geometry.world_size,
        microbatch_size=geometry.microbatch_size,
        skip_mode=run.document.skip_mode,
        skips=lookup.skips(skips),
        missing_ranks=_missing(found, rank),
        damage=tuple(found.records.damage),
        notes=(*found.records.torn, *found.records.damage, *run.problems()),
        samples=tuple(samples),
    )


def _missing(found: Found, rank: int | None) -> tuple[int, ...]:
    """Ranks whose record of this step is not complete."""
    share = found.batch.size // found.attempt.geometry.world_size
    ranks = range(found.attempt.geometry.world_size) if rank is None else [rank]
    counts = dict.fromkeys(ranks, 0)
    for each in found.records.records["rank"].tolist():
        counts[each] = counts.get(each, 0) + 1
    return tuple(each for each, count in sorted(counts.items()) if count != share)


def _sample(record: Any, source_names: tuple[str, ...], manifests: ManifestSet) -> InspectedSample:
    shard = int(record["delivered_shard"])
    return InspectedSample(
        rank=int(record["rank"]),
        microbatch=int(record["microbatch"]),
        slot=int(record["slot"]),
        position=int(record["position"]),
        source=source_names[int(record["source"])],
        shard=manifests.shard_name(int(record["shard"])),
        row=int(record["row"]),
        status=SlotStatus(int(record["status"])).name.lower(),
        delivered=None if shard < 0 else Delivered(shard=manifests.shard_name(shard), row=int(record["delivered_row"])),
        event=int(record["event"]) or None,
        length=int(record["length"]),
        digest=record["digest"].tobytes().hex(),
    )
