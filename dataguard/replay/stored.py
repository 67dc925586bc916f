"""What does the batch store add to a step that is rebuilt?

A second witness. Where a microbatch is kept, and its digest is the one recorded:

1. What was rebuilt is held against it: the samples it was made of, and, with tensors, the tensors themselves.
2. What could not be rebuilt, since shards are gone, is taken from it: its samples are then those of the record,
   compared with what is kept, and what the gate would say of them is not asked again.

A kept microbatch whose digest is another one is no witness: it is told as damage, and what was rebuilt stands alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dataguard.core.manifest import ManifestSet
from dataguard.core.microbatch import NOTHING
from dataguard.plan.slots import SlotStatus
from dataguard.replay.answers import Delivered, ReplayMicrobatch, ReplayOrigin, ReplaySample, ReplayStatus
from dataguard.replay.compare import recorded_digest, worst
from dataguard.replay.rebuild import Rebuilt
from dataguard.run.store_file import KeptMicrobatch

__all__ = ["Witnessed", "origin_of", "with_store"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Witnessed:
    """One microbatch after the store was asked."""

    rebuilt: Rebuilt
    answer: ReplayMicrobatch
    damage: str | None = None


def with_store(
    rebuilt: Rebuilt,
    compared: ReplayMicrobatch,
    kept: KeptMicrobatch | None,
    records: NDArray[np.void],
    *,
    manifests: ManifestSet,
    source_names: Sequence[str],
) -> Witnessed:
    """What is known of a microbatch from plan, shards and store together.

    Parameters
    ----------
    rebuilt, compared
        As it was rebuilt, and what came out of comparing it with the record.
    kept
        What the store has of it.
    records
        RANKED_RECORD of this microbatch.
    """
    recorded = recorded_digest(records)
    damage = None
    if kept is not None and recorded not in {None, kept.digest.hex()}:
        damage = (
            f"the store's copy of rank {compared.rank}, microbatch {compared.microbatch} is not what was delivered: "
            f"digest {kept.digest.hex()}, and {recorded} is recorded"
        )
        kept = None
    if kept is None:
        origin: ReplayOrigin = "none" if _is_gone(rebuilt) else "rebuilt"
        return Witnessed(rebuilt=rebuilt, answer=_replaced(compared, origin=origin), damage=damage)
    if _is_gone(rebuilt):
        return Witnessed(
            rebuilt=_fetched(rebuilt, kept), answer=_from_record(rebuilt, kept, records, manifests, source_names)
        )
    return Witnessed(rebuilt=replace(rebuilt, tensors=kept.tensors), answer=_both(rebuilt, compared, kept))


def origin_of(microbatches: Sequence[ReplayMicrobatch]) -> ReplayOrigin:
    """Where a whole comes from, by its parts."""
    found = {each.origin for each in microbatches}
    return next(
        (origin for origin in ("none", "fetched", "both") if origin in found),
        "rebuilt",
    )


def _is_gone(rebuilt: Rebuilt) -> bool:
    """Whether something that was delivered cannot be read; what holds other bytes now can, and differs."""
    digests = rebuilt.microbatch.digests
    return any(problem.kind != "changed" and digests[i] == NOTHING for i, problem in rebuilt.problems.items())


def _both(rebuilt: Rebuilt, compared: ReplayMicrobatch, kept: KeptMicrobatch) -> ReplayMicrobatch:
    same = kept.made_of == rebuilt.microbatch.digest
    digest, status, problem = compared.digest, compared.status, compared.problem
    if status != "differs":
        if not same:
            status, problem = "differs", "the store has a microbatch that was made of other samples"
        elif digest is None:
            # Rebuilt samples, kept tensors and the digest over both agree: nothing is left to compare.
            digest, problem = kept.digest.hex(), None
    elif problem is None:
        problem = "the store has what was delivered"
    elif same:
        problem = f"{problem}; the store has them, made of the same samples"
    return _replaced(compared, origin="both", digest=digest, status=status, problem=problem)


def _replaced(compared: ReplayMicrobatch, **changes: Any) -> ReplayMicrobatch:
    return msgspec.structs.replace(compared, **changes)


def _fetched(rebuilt: Rebuilt, kept: KeptMicrobatch) -> Rebuilt:
    """The microbatch with what is kept in the place of what could not be read."""
    microbatch = rebuilt.microbatch
    digests = kept.sample_digests()
    if digests is None:
        microbatch = replace(microbatch, records=None, ids=None, digest=kept.made_of)
    elif kept.form == "records":
        records = kept.records()
        lengths = np.array([len(record) for record in records], np.int64)
        microbatch = replace(
            microbatch, records=records, mask=kept.mask(), lengths=lengths, digests=digests, digest=kept.made_of
        )
    else:
        ids = kept.ids()
        lengths = np.where(kept.delivered(), ids.shape[1], 0).astype(np.int64)
        microbatch = replace(
            microbatch, ids=ids, mask=kept.mask(), lengths=lengths, digests=digests, digest=kept.made_of
        )
    return replace(rebuilt, microbatch=microbatch, problems={}, answers=None, tensors=kept.tensors)


def _from_record(
    rebuilt: Rebuilt,
    kept: KeptMicrobatch,
    records: NDArray[np.void],
    manifests: ManifestSet,
    source_names: Sequence[str],
) -> ReplayMicrobatch:
    digests = kept.sample_digests()
    by_slot = {int(record["slot"]): record for record in records}
    samples = tuple(
        _sample(rebuilt, i, by_slot.get(slot), None if digests is None else digests[i], manifests, source_names)
        for i, slot in enumerate(rebuilt.planned.slot.tolist())
    )
    return ReplayMicrobatch(
        rank=rebuilt.microbatch.address.rank,
        microbatch=rebuilt.microbatch.address.microbatch,
        status=worst([sample.status for sample in samples]),
        digest=kept.digest.hex(),
        recorded=recorded_digest(records),
        made_of=kept.made_of.hex(),
        origin="fetched",
        problem=_why_not_rebuilt(rebuilt),
        samples=samples,
    )


def _why_not_rebuilt(rebuilt: Rebuilt) -> str:
    told = dict.fromkeys(f"{problem.shard}: {problem.detail}" for problem in rebuilt.problems.values())
    return f"not rebuilt, since it cannot be read: {'; '.join(list(told)[:3])}"


def _sample(
    rebuilt: Rebuilt,
    i: int,
    record: Any,
    digest: bytes | None,
    manifests: ManifestSet,
    source_names: Sequence[str],
) -> ReplaySample:
    """A slot as recorded, its planned row held against the plan and its content against the digest."""
    planned = rebuilt.planned
    status: ReplayStatus = "exact"
    problem = None
    instead = None
    length = 0
    if record is None:
        problem = "not recorded; as the store has it"
    else:
        fate, length = int(record["status"]), int(record["length"])
        if int(record["delivered_shard"]) >= 0:
            shard = manifests.shard_name(int(record["delivered_shard"]))
            instead = Delivered(shard=shard, row=int(record["delivered_row"]))
        nothing = not any(record["digest"].tobytes())
        if nothing or fate == SlotStatus.REFUSED:
            status = "skipped" if fate == SlotStatus.SKIPPED else "withheld"
        theirs = {name: int(record[name]) for name in ("position", "shard", "row")}
        ours = {name: int(getattr(planned, name)[i]) for name in theirs}
        if theirs != ours:
            status = "differs"
            problem = "; ".join(f"{n} {theirs[n]} recorded, {ours[n]} planned" for n in ours if ours[n] != theirs[n])
        elif digest is not None and record["digest"].tobytes() != digest[:8]:
            status, problem = "differs", "the bytes that are kept are not those that were delivered"
    own = NOTHING[:8] if digest is None else digest[:8]
    return ReplaySample(
        slot=int(planned.slot[i]),
        position=int(planned.position[i]),
        source=source_names[int(planned.source[i])],
        shard=manifests.shard_name(int(planned.shard[i])),
        row=int(planned.row[i]),
        delivered=instead,
        status=status,
        digest=own.hex(),
        recorded=None if record is None else record["digest"].tobytes().hex(),
        length=length,
        problem=problem,
    )
