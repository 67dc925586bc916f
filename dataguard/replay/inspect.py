"""What was every rank fed at a step, worst first?

Answered from the index alone: the corpus may be gone. Verdicts are those that were recorded; the policy's copy gives
rules their names. Samples come in the order of `worst`: the gravest verdict, the most rules that fired, the furthest
beyond their bounds; then slots that did not deliver their planned sample, then all others by address.
"""

from __future__ import annotations

from functools import lru_cache
from math import isnan
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dataguard.core.manifest import ManifestSet
from dataguard.errors import RunDamaged
from dataguard.gate.rules import Policy
from dataguard.gate.verdict import Verdict
from dataguard.plan.slots import PADDING, SlotStatus
from dataguard.replay.answers import Delivered, InspectAnswer, InspectedSample, SkippedBatch
from dataguard.replay.lookup import Found, Lookup
from dataguard.replay.worst import Fired, fired_rules
from dataguard.run.headline import decode, scale_of
from dataguard.run.policies import policy_of
from dataguard.run.records import HEADLINE_PREFIX, SIGNAL_PREFIX, headline_fields, signal_fields

if TYPE_CHECKING:
    from dataguard.plan.stream import Stream

__all__ = ["Order", "inspect_step", "inspected"]

Order = Literal["worst", "slot"]
"""``worst`` first, or by address: rank, microbatch, slot."""


def inspect_step(
    lookup: Lookup,
    label: int,
    *,
    attempt: int | None = None,
    rank: int | None = None,
    order: Order = "worst",
    limit: int | None = None,
) -> InspectAnswer | SkippedBatch:
    """What was delivered at a step (in the trainer's labels), or by what it was skipped.

    Parameters
    ----------
    limit
        List so many samples, the first ones in the order asked for.

    Raises
    ------
    NotInRun
        No attempt on the lineage delivered it, or no such rank took part.
    """
    found = lookup.find(label, attempt=attempt, rank=rank)
    if isinstance(found, SkippedBatch):
        return found
    run = lookup.run
    policy, notes = _policy(lookup, found.attempt.number)
    samples = inspected(found.records.records, run.stream_of(found.attempt.number), policy, order=order)
    headline = headline_fields(found.records.records.dtype)
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
        resolutions={name: scale_of(name).resolution for name in headline},
        num_samples=len(samples),
        samples=tuple(samples if limit is None else samples[:limit]),
    )


def inspected(
    records: NDArray[np.void], stream: Stream, policy: Policy | None, *, order: Order = "worst"
) -> list[InspectedSample]:
    """Records of an attempt (RANKED_RECORD, or with signals) as people see them, in the order asked for.

    Parameters
    ----------
    stream, policy
        Of the attempt that delivered them.
    """
    judged = [_sample(record, stream.source_names, stream.manifest_set, policy) for record in records]
    judged.sort(key=_by_worst if order == "worst" else _by_address)
    return [sample for sample, _ in judged]


_Judged = tuple[InspectedSample, tuple[Fired, ...]]
_PADDING = {status.name.lower() for status in PADDING}


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


def _by_address(each: _Judged) -> tuple[int, int, int]:
    sample, _ = each
    return sample.rank, sample.microbatch, sample.slot


def _by_worst(each: _Judged) -> tuple[float, ...]:
    sample, fired = each
    grave = 0 if sample.verdict is None else Verdict[sample.verdict.upper()]
    beyond = max((rule.beyond for rule in fired), default=0.0)
    # What was withheld comes before what was trained on, and padding, which holds no sample by design, last of all.
    place = 2 if sample.status in _PADDING else int(sample.status == "live")
    return -grave, -len(sample.rules), -beyond, place, *_by_address(each)


def _verdict(record: Any, source: str, policy: Policy | None) -> tuple[dict[str, Any], tuple[Fired, ...]]:
    """What the gate said, where it said anything, and the rules that fired."""
    headline, signals = _fields(record.dtype)
    bytes_ = {name: int(record[HEADLINE_PREFIX + name]) for name in headline}
    if not any(bytes_.values()):
        return {}, ()
    names = {} if policy is None else {rule.bit: rule.name for rule in policy.rules}
    bits = int(record["rules"])
    kept = {name: float(record[SIGNAL_PREFIX + name]) for name in signals}
    kept = {name: value for name, value in kept.items() if not isnan(value)}
    told = {name: float(decode(name, byte)) if byte else None for name, byte in bytes_.items()}
    rules = tuple(names.get(bit, f"rule {bit}") for bit in range(bits.bit_length()) if bits >> bit & 1)
    fired = () if policy is None else fired_rules(policy, rules, source, {**told, **kept})
    said = {rule.name: rule.text for rule in fired}
    answer = {
        "verdict": Verdict(int(record["verdict"])).name.lower(),
        "rules": rules,
        "why": tuple(said.get(name, "") for name in rules) if said else (),
        "headline": told,
        "signals": kept or None,
    }
    return answer, fired


@lru_cache(maxsize=64)
def _fields(dtype: np.dtype[np.void]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return headline_fields(dtype), signal_fields(dtype)


def _sample(record: Any, source_names: tuple[str, ...], manifests: ManifestSet, policy: Policy | None) -> _Judged:
    shard = int(record["delivered_shard"])
    source = source_names[int(record["source"])]
    said, fired = _verdict(record, source, policy)
    sample = InspectedSample(
        rank=int(record["rank"]),
        microbatch=int(record["microbatch"]),
        slot=int(record["slot"]),
        position=int(record["position"]),
        source=source,
        shard=manifests.shard_name(int(record["shard"])),
        row=int(record["row"]),
        status=SlotStatus(int(record["status"])).name.lower(),
        delivered=None if shard < 0 else Delivered(shard=manifests.shard_name(shard), row=int(record["delivered_row"])),
        event=int(record["event"]) or None,
        length=int(record["length"]),
        digest=record["digest"].tobytes().hex(),
        **said,
    )
    return sample, fired
