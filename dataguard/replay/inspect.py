"""What was every rank fed at a step, worst first?

Answered from the index alone: the corpus may be gone. Verdicts are those that were recorded; the policy's copy gives
rules their names. The gravest verdicts come first, then slots that did not deliver their planned sample, then all
others by address.
"""

from __future__ import annotations

from math import isnan
from typing import Any

from dataguard.core.manifest import ManifestSet
from dataguard.errors import RunDamaged
from dataguard.gate.rules import Policy
from dataguard.gate.verdict import Verdict
from dataguard.plan.slots import SlotStatus
from dataguard.replay.answers import Delivered, InspectAnswer, InspectedSample, SkippedBatch
from dataguard.replay.lookup import Found, Lookup
from dataguard.run.headline import decode
from dataguard.run.policies import policy_of
from dataguard.run.records import HEADLINE_PREFIX, SIGNAL_PREFIX, headline_fields, signal_fields

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
    policy, notes = _policy(lookup, found.attempt.number)
    samples = [_sample(record, stream_names, manifests, policy) for record in found.records.records]
    samples.sort(key=_order)
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
        notes=(*found.records.torn, *found.records.damage, *run.problems(), *notes),
        policy=None if policy is None else policy.name,
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


def _policy(lookup: Lookup, attempt: int) -> tuple[Policy | None, tuple[str, ...]]:
    """The attempt's policy; where its copy cannot be read, rules have numbers, and that is told."""
    try:
        return policy_of(lookup.run, attempt), ()
    except RunDamaged as error:
        return None, (str(error).replace("\n", ";"),)


def _order(sample: InspectedSample) -> tuple[int, bool, int, int, int]:
    grave = 0 if sample.verdict is None else Verdict[sample.verdict.upper()]
    return -grave, sample.status == "live", sample.rank, sample.microbatch, sample.slot


def _verdict(record: Any, policy: Policy | None) -> dict[str, Any]:
    """What the gate said, where it said anything."""
    headline, signals = headline_fields(record.dtype), signal_fields(record.dtype)
    bytes_ = {name: int(record[HEADLINE_PREFIX + name]) for name in headline}
    if not any(bytes_.values()):
        return {}
    names = {} if policy is None else {rule.bit: rule.name for rule in policy.rules}
    bits = int(record["rules"])
    kept = {name: float(record[SIGNAL_PREFIX + name]) for name in signals}
    return {
        "verdict": Verdict(int(record["verdict"])).name.lower(),
        "rules": tuple(names.get(bit, f"rule {bit}") for bit in range(bits.bit_length()) if bits >> bit & 1),
        "headline": {name: float(decode(name, byte)) if byte else None for name, byte in bytes_.items()},
        "signals": {name: value for name, value in kept.items() if not isnan(value)} or None,
    }


def _sample(
    record: Any, source_names: tuple[str, ...], manifests: ManifestSet, policy: Policy | None
) -> InspectedSample:
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
        **_verdict(record, policy),
    )
