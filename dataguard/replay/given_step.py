"""What of a step can be told where its order was given from outside?

What the batch store kept of it: the tensors that were handed over, whose digest is held against the record. Making the
batches again takes the trainer's data set, which only Python has: `dataguard.torch.guard` does, and answers in the same
words, which is why they are put together here. Padding is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dataguard.core.address import Address
from dataguard.core.microbatch import Microbatch
from dataguard.plan.given import row_kind
from dataguard.plan.slots import PADDING, PlannedSlots, SlotStatus
from dataguard.plan.stream import Stream
from dataguard.replay.answers import ReplayAnswer, ReplayMicrobatch, ReplayOrigin, ReplaySample, ReplayStatus
from dataguard.replay.compare import worst
from dataguard.replay.fetch import Fetched, fetch_step
from dataguard.replay.given import not_kept, refuse_rebuilding
from dataguard.replay.lookup import Found, Lookup
from dataguard.replay.rebuild import Rebuilt
from dataguard.replay.stored import origin_of
from dataguard.run.store_file import KeptMicrobatch

__all__ = ["Place", "answer_of_step", "fetched_microbatch", "fetched_step", "given_microbatch", "microbatches_of"]

Place = tuple[int, int]
"""Rank and microbatch."""

_PADDING = [int(status) for status in PADDING]


def fetched_step(lookup: Lookup, label: int, found: Found, rank: int | None) -> tuple[ReplayAnswer, list[Rebuilt]]:
    """The answer of the store alone, and each microbatch with the tensors that it has, in order of rank and microbatch.

    Raises
    ------
    UsageError
        It has nothing of the step, so nothing can be checked here.
    """
    ranks = range(found.attempt.geometry.world_size) if rank is None else [rank]
    fetched = fetch_step(lookup.run, found.attempt.number, found.step, ranks)
    if not fetched.kept and not fetched.damage:
        refuse_rebuilding(lookup.run)
    stream = lookup.run.stream_of(found.attempt.number)
    answers, rebuilt = [], []
    for place, records in microbatches_of(found.records.records):
        kept = fetched.kept.get(place)
        answers.append(fetched_microbatch(stream, place, records, kept))
        rebuilt.append(_with_tensors(stream, found, place, records, kept))
    note = "what the store has is compared with the record"
    if row_kind(lookup.run.plan) == "indices":
        note += "; guard(dataloader, RUN).replay(step) makes the batches again"
    return answer_of_step(lookup, label, found, answers, fetched, [note]), rebuilt


def _with_tensors(
    stream: Stream, found: Found, place: Place, records: NDArray[np.void], kept: KeptMicrobatch | None
) -> Rebuilt:
    """A microbatch as it was recorded, without its padding, and the tensors that the store has of it."""
    slot, position, shard, row = (records[name].astype(np.int64) for name in ("slot", "position", "shard", "row"))
    zeros, nothing = np.zeros(len(records), np.int64), np.full(len(records), -1, np.int64)
    planned = PlannedSlots(
        slot=slot,
        position=position,
        source=records["source"].astype(np.int32),
        generation=zeros.astype(np.int32),
        epoch=zeros,
        shard=shard,
        row=row,
        block=zeros,
        status=records["status"],
        delivered_shard=shard,
        delivered_row=row,
        delivered_block=zeros,
        draw=nothing,
        event=zeros,
    )
    first = int(slot[0]) if len(records) else 0
    microbatch = Microbatch(
        address=Address(step=found.step, rank=place[0], microbatch=place[1]),
        attempt=found.attempt.number,
        batch=found.batch.batch,
        slots=range(first, first + len(records)),
        positions=position,
        status=records["status"],
        source=records["source"].astype(np.int64),
        shard=shard,
        row=row,
        delivered_shard=shard,
        delivered_row=row,
        names=tuple(stream.manifest_set.shard_name(int(each)) for each in records["shard"]),
        records=None,
        ids=None,
        mask=records["status"] == SlotStatus.LIVE,
        lengths=records["length"].astype(np.int64),
        digests=tuple(record["digest"].tobytes().ljust(16, b"\0") for record in records),
        digest=bytes(16) if kept is None else kept.made_of,
    )
    return Rebuilt(microbatch=microbatch, planned=planned, problems={}, tensors=None if kept is None else kept.tensors)


def microbatches_of(records: NDArray[np.void]) -> Iterator[tuple[Place, NDArray[np.void]]]:
    """Each recorded microbatch of a step without its padding, in order of rank and microbatch."""
    for place in sorted(set(zip(records["rank"].tolist(), records["microbatch"].tolist(), strict=True))):
        own = records[(records["rank"] == place[0]) & (records["microbatch"] == place[1])]
        yield place, own[~np.isin(own["status"], _PADDING)]


def answer_of_step(
    lookup: Lookup,
    label: int,
    found: Found,
    answers: Sequence[ReplayMicrobatch],
    fetched: Fetched,
    notes: Sequence[str],
) -> ReplayAnswer:
    """The answer for a step, of those for its microbatches."""
    damage = (*found.records.damage, *fetched.damage)
    return ReplayAnswer(
        step=label,
        batch=lookup.run.label(found.batch.batch),
        attempt=found.attempt.number,
        status=worst([each.status for each in answers]) if answers else "unreadable",
        origin=origin_of(answers),
        microbatches=tuple(answers),
        damage=damage,
        notes=(*found.records.torn, *damage, *notes),
    )


def fetched_microbatch(
    stream: Stream, place: Place, records: NDArray[np.void], kept: KeptMicrobatch | None
) -> ReplayMicrobatch:
    """One microbatch as the store has it; reading it has checked it against its own digest."""
    if not len(records):
        return given_microbatch(stream, place, records, [], [], None, origin="none")
    status: ReplayStatus = "exact"
    why = None
    if kept is None:
        status, why = "unreadable", not_kept(stream)
    elif kept.digest != records["microbatch_digest"][0].tobytes():
        status, why = "differs", "the store has another batch than was recorded"
    digests = [record["digest"].tobytes() if status == "exact" else bytes(8) for record in records]
    said = [(status, why)] * len(records)
    return given_microbatch(
        stream, place, records, said, digests, None if kept is None else kept.digest,
        made_of=None if kept is None else kept.made_of, origin="none" if kept is None else "fetched",
    )  # fmt: skip


def given_microbatch(
    stream: Stream,
    place: Place,
    records: NDArray[np.void],
    said: Sequence[tuple[ReplayStatus, str | None]],
    digests: Sequence[bytes],
    digest: bytes | None,
    *,
    made_of: bytes | None = None,
    origin: ReplayOrigin = "rebuilt",
    problem: str | None = None,
) -> ReplayMicrobatch:
    """The answer for one microbatch.

    Parameters
    ----------
    records
        Of its samples, without padding; none for a microbatch of padding alone.
    said, digests
        By sample: what came out of comparing it, and its digest now (8 bytes).
    digest, made_of
        Of the microbatch now (16 bytes); None where there is none.
    problem
        What differs beside its samples.
    """
    samples = tuple(
        ReplaySample(
            slot=int(record["slot"]),
            position=int(record["position"]),
            source=stream.source_names[0],
            shard=stream.manifest_set.shard_name(int(record["shard"])),
            row=int(record["row"]),
            delivered=None,
            status=status,
            digest=now.hex(),
            recorded=record["digest"].tobytes().hex(),
            length=int(record["length"]),
            problem=why,
        )
        for record, (status, why), now in zip(records, said, digests, strict=True)
    )
    status = worst([sample.status for sample in samples]) if samples else "skipped"
    return ReplayMicrobatch(
        rank=place[0],
        microbatch=place[1],
        status="differs" if problem is not None and status == "exact" else status,
        digest=None if digest is None else digest.hex(),
        recorded=records["microbatch_digest"][0].tobytes().hex() if len(records) else None,
        made_of=None if made_of is None else made_of.hex(),
        origin=origin,
        problem=problem,
        samples=samples,
    )
