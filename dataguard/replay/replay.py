"""What was delivered at a step: made again and compared with its record, and with the batch store where that has it?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from dataguard.core.tensors import Tensors, tensors_digest
from dataguard.replay.answers import ReplayAnswer, ReplayMicrobatch, SkippedBatch
from dataguard.replay.compare import compare_microbatch, without_transform, worst
from dataguard.replay.fetch import Fetched, fetch_step
from dataguard.replay.given_step import fetched_step
from dataguard.replay.lookup import Found, Lookup
from dataguard.replay.rebuild import Rebuilder, Rebuilt
from dataguard.replay.stored import origin_of, with_store

__all__ = ["Remake", "Remaking", "replay_step", "skipped_answer"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Remake:
    """What makes tensors of samples as a transform did."""

    tensors: Callable[[Rebuilt], Tensors]
    """Of one microbatch whose samples are all there."""
    notes: tuple[str, ...] = ()
    """What should be known of it: that it is not the transform that was recorded, for one."""


Remaking = Callable[[Rebuilder], Remake | None]
"""Gives what makes tensors for the attempt of a rebuilder; None where nobody can. Rooms with a framework have one."""


def replay_step(
    lookup: Lookup,
    label: int,
    *,
    attempt: int | None = None,
    rank: int | None = None,
    roots: Mapping[str, str] | None = None,
    remaking: Remaking | None = None,
) -> tuple[ReplayAnswer, list[Rebuilt]]:
    """Rebuild the step (in the trainer's labels) that a lineage delivered, and compare it with its record.

    Where the batch store has it both are compared; what cannot be rebuilt, since shards are gone, is fetched there.
    Where the order was given from outside, the store is all there is.

    Parameters
    ----------
    remaking
        Makes tensors again, where the attempt delivered tensors. Without it their samples are compared, and tensors
        with those in the store alone.

    Returns
    -------
    ReplayAnswer
        With status ``exact``, ``differs``, ``skipped``, ``withheld`` or ``unreadable``.
    list
        The microbatches as rebuilt or fetched, in order of rank and microbatch.

    Raises
    ------
    NotInRun
        No attempt on the lineage delivered it.
    UsageError
        The order was given from outside, and the store has nothing of the step.
    """
    found = lookup.find(label, attempt=attempt, rank=rank)
    if isinstance(found, SkippedBatch):
        return skipped_answer(found), []
    number = found.attempt.number
    if lookup.run.plan_document().root.form == "given":
        return fetched_step(lookup, label, found, rank)
    fetched = fetch_step(
        lookup.run, number, found.step, range(found.attempt.geometry.world_size) if rank is None else [rank]
    )
    rebuilder = Rebuilder(lookup.run, number, roots=roots)
    rebuilt: list[Rebuilt] = []
    answers: list[ReplayMicrobatch] = []
    damage = [*found.records.damage, *fetched.damage]
    try:
        remake = None if remaking is None or rebuilder.transform is None else remaking(rebuilder)
        for microbatch, compared, told in _compared(rebuilder, found, rank, fetched, remake):
            rebuilt.append(microbatch)
            answers.append(compared)
            damage += told
    finally:
        rebuilder.close()
    answer = ReplayAnswer(
        step=label,
        batch=lookup.run.label(found.batch.batch),
        attempt=number,
        status=worst([each.status for each in answers]),
        origin=origin_of(answers),
        microbatches=tuple(answers),
        damage=tuple(damage),
        notes=(*found.records.torn, *damage, *_notes(rebuilder, remake, answers)),
    )
    return answer, rebuilt


def skipped_answer(skipped: SkippedBatch) -> ReplayAnswer:
    """The answer for a step or batch that was skipped: never another batch."""
    return ReplayAnswer(
        step=skipped.step,
        batch=skipped.batch,
        attempt=skipped.attempt,
        status="skipped",
        origin="none",
        microbatches=(),
        skips=skipped.skips,
    )


def _notes(rebuilder: Rebuilder, remake: Remake | None, answers: list[ReplayMicrobatch]) -> Iterator[str]:
    if remake is not None:
        yield from remake.notes
    elif rebuilder.transform is not None and any(each.digest is None for each in answers):
        yield without_transform(rebuilder.transform)
    unrecorded = sum(1 for each in answers if each.recorded is None)
    if unrecorded:
        yield f"{unrecorded:,} of {len(answers):,} microbatches have no record; they are compared with the manifest"
    fetched = sum(1 for each in answers if each.origin == "fetched")
    if fetched:
        yield (
            f"{fetched:,} of {len(answers):,} microbatches could not be rebuilt and were fetched from the store, "
            "where they are as recorded"
        )


def _compared(
    rebuilder: Rebuilder, found: Found, rank: int | None, fetched: Fetched, remake: Remake | None
) -> Iterator[tuple[Rebuilt, ReplayMicrobatch, list[str]]]:
    """Each microbatch, what came out of comparing it, and what of the store cannot be trusted."""
    records = found.records.records
    manifests, source_names = rebuilder.stream.manifest_set, rebuilder.stream.source_names
    for rebuilt in rebuilder.step(found.step, rank=rank):
        address = rebuilt.microbatch.address
        own = records[(records["rank"] == address.rank) & (records["microbatch"] == address.microbatch)]
        digest = None
        if remake is not None and not rebuilt.problems:
            rebuilt = replace(rebuilt, tensors=remake.tensors(rebuilt))
            assert rebuilt.tensors is not None
            digest = tensors_digest(rebuilt.microbatch.digest, rebuilt.tensors)
        compared = compare_microbatch(
            rebuilt,
            own,
            manifests=manifests,
            source_names=source_names,
            policy=None if rebuilder.judge is None else rebuilder.judge.policy,
            of_tensors=rebuilder.transform is not None,
            digest=digest,
        )
        kept = fetched.kept.get((address.rank, address.microbatch))
        seen = with_store(rebuilt, compared, kept, own, manifests=manifests, source_names=source_names)
        yield seen.rebuilt, seen.answer, [] if seen.damage is None else [seen.damage]
