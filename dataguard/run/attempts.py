"""Which attempts does the journal tell of, and is each still what it was when it began?

An AttemptBegun event names its plan document; the skips and withheld rows it applies follow from the events before it.
The attempt is put together again from those, and must come out as it was written down: root, skips, withheld rows and
attempt digest. Whatever does not is damage, since none of the parts may change.

In a journal with problems an attempt that cannot be put together is left out, with those that forked from it, and
named; in a sound one it raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dataguard.core.address import Geometry
from dataguard.errors import RunDamaged
from dataguard.plan.attempts import AttemptPlan, AttemptTree, attempt_digest
from dataguard.plan.document import PlanDocument
from dataguard.run.events import AppliedSkip, AttemptBegun, RunCreated
from dataguard.run.journal import Entry, JournalRead
from dataguard.run.pending import Pending
from dataguard.run.withhold import list_digest

__all__ = ["Rebuilt", "applied_skips", "begun_events", "rebuild"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """The attempts of a run as one reading of its journal tells them."""

    tree: AttemptTree
    left_out: tuple[str, ...]
    """One line for each attempt that cannot be put together; only in a journal with problems."""


def begun_events(read: JournalRead) -> dict[int, AttemptBegun]:
    """The event of every attempt, by its number."""
    events = (entry.event for entry in read.entries)
    return {event.attempt: event for event in events if isinstance(event, AttemptBegun)}


def applied_skips(pending: Pending) -> tuple[AppliedSkip, ...]:
    """Skips as an event writes them down.

    >>> applied_skips(Pending())
    ()
    """
    return tuple(
        AppliedSkip(start=skip.start, stop=skip.stop, event=skip.event, reason=skip.reason) for skip in pending.skips
    )


def rebuild(
    read: JournalRead,
    created: RunCreated,
    plan_document: Callable[[str], PlanDocument],
    pending: Callable[[Sequence[Entry]], Pending],
    known: dict[str, AttemptPlan] | None = None,
) -> Rebuilt:
    """Put every attempt together again.

    Parameters
    ----------
    plan_document
        Gives a kept plan document by its digest.
    pending
        Gives what stands after some events (`pending.fold`).
    known
        Attempts by the SHA-256 of their event, which covers all events before it; added to. Only of a sound journal.

    Raises
    ------
    RunDamaged
        An attempt of a journal without problems is not what it was.
    """
    attempts: dict[int, AttemptPlan] = {}
    left_out: list[str] = []
    for i, entry in enumerate(read.entries):
        event = entry.event
        if not isinstance(event, AttemptBegun):
            continue
        if event.parent is not None and event.parent not in attempts:
            left_out.append(f"attempt {event.attempt} is left out: its parent, attempt {event.parent}, cannot be read")
            continue
        sound = known if known is not None and not read.problems else {}
        if entry.sha256 in sound:
            attempts[event.attempt] = sound[entry.sha256]
            continue
        try:
            attempts[event.attempt] = _one(event, plan_document(event.plan), pending(read.entries[:i]))
            sound[entry.sha256] = attempts[event.attempt]
        except RunDamaged as error:
            if not read.problems:
                raise
            left_out.append(f"attempt {event.attempt} is left out: {error.asked}")
    tree = AttemptTree(
        attempts.values(),
        skip_mode=created.skip_mode,
        first_label=created.first_label,
        independent=bool(created.stream),
    )
    return Rebuilt(tree=tree, left_out=tuple(left_out))


def _one(event: AttemptBegun, document: PlanDocument, pending: Pending) -> AttemptPlan:
    attempt = AttemptPlan(
        number=event.attempt,
        parent=event.parent,
        fork_step=event.fork_step,
        start_position=event.start_position,
        geometry=Geometry(world_size=event.world_size, microbatch_size=event.microbatch_size),
        mixtures=document.mixtures,
        batch_sizes=document.batch_sizes,
        skips=pending.skips,
        withheld=pending.withheld,
        epochs=event.epochs,
        policy=event.policy or None,
        profile=event.profile or None,
        vocab_size=event.vocab_size or None,
    )
    for what, found, written in (
        ("root", document.root.digest, event.root),
        ("skips", applied_skips(pending), event.skips),
        ("withheld rows", list_digest((entry.shard, entry.row) for entry in pending.withheld), event.withheld),
        ("attempt digest", attempt_digest(document.root, attempt), event.attempt_digest),
    ):
        if found != written:
            raise RunDamaged(
                f"attempt {event.attempt} cannot be put together: its {what} are not those it began with",
                found=str(found),
                allowed=str(written),
            )
    return attempt
