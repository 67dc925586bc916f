"""What is marked along the steps of a run: events, skips, attempts, checkpoints?"""

from __future__ import annotations

from dataguard.plan.skips import SkippedBy
from dataguard.report.run.facts import AttemptMark, EventMark, SkipMark
from dataguard.report.run.lineage import Lineage
from dataguard.report.triage import event_facts
from dataguard.run.events import AttemptBegun, CheckpointSaved, SkipAdded
from dataguard.run.notes import noted
from dataguard.run.pending import revoked_events
from dataguard.triage.answers import EventShown

__all__ = ["attempt_marks", "checkpoint_marks", "event_mark", "skip_marks"]


def event_mark(event: EventShown) -> EventMark:
    """An event as it is drawn."""
    return EventMark(
        event_class=event.event_class,
        start=event.start,
        stop=event.stop,
        peak=event.peak,
        signal=event.signal,
        rank=event.rank,
        text=", ".join(event_facts(event)) or "its size is not known",
    )


def attempt_marks(lineage: Lineage) -> tuple[AttemptMark, ...]:
    """Every attempt the journal tells of, in order."""
    run, live = lineage.run, {each.attempt.number: each for each in lineage.owned}
    marks = []
    for entry in lineage.read.entries:
        event = entry.event
        if not isinstance(event, AttemptBegun) or event.attempt not in lineage.lookup.tree.numbers:
            continue
        own, first = live.get(event.attempt), event.fork_step
        reached = lineage.complete.get(event.attempt, first)
        marks.append(
            AttemptMark(
                number=event.attempt,
                parent=event.parent,
                begins=run.label(first),
                ends=run.label(reached) if reached > first else None,
                world_size=event.world_size,
                microbatch_size=event.microbatch_size,
                global_batch=run.steps_of(event.attempt, lineage.read).size_of(first),
                live_until=run.label(own.stop) if own is not None and own.first < own.stop else None,
                time=entry.time,
                policy=event.policy_name or None,
                num_withheld=event.num_withheld,
            )
        )
    return tuple(marks)


def skip_marks(lineage: Lineage) -> tuple[SkipMark, ...]:
    """Every skip of the journal, and where on this lineage the stream jumps over it."""
    revoked = revoked_events(lineage.read.entries)
    newest = max((entry.number for entry in lineage.read.entries if isinstance(entry.event, AttemptBegun)), default=0)
    marks = []
    for entry in lineage.read.entries:
        event = entry.event
        if not isinstance(event, SkipAdded):
            continue
        state = "revoked" if entry.number in revoked else "applied" if entry.number < newest else "pending"
        marks.append(
            SkipMark(
                event=entry.number,
                step=_where(lineage, entry.number, event),
                steps=event.steps if event.asked == "steps" else None,
                batches=event.batches,
                reason=event.reason,
                state=state,
            )
        )
    return tuple(marks)


def _where(lineage: Lineage, number: int, event: SkipAdded) -> int | None:
    """The step (label) at which the lineage jumps over a skip, or of which it would be; None where it has no effect."""
    if lineage.leaf is None:
        return None
    applied = [each for each in lineage.owned if any(skip.event == number for skip in each.attempt.skips)]
    if not applied or event.stop <= applied[0].attempt.start_position:
        return None
    steps = lineage.run.steps_of(lineage.leaf, lineage.read)
    position = max(event.start, applied[0].attempt.start_position)
    if lineage.run.document.skip_mode == "jump":
        # The first step that holds nothing from before the skip: behind all skips that touch this one.
        position = max(event.stop, position)
        for _ in range(len(lineage.owned)):
            owner = next(each for each in reversed(lineage.owned) if each.attempt.start_position <= position)
            outside = owner.attempt.spans.skip_to_outside(position)
            if outside == position:
                break
            position = outside
        found = steps.locate(position)
        return None if isinstance(found, SkippedBy) else lineage.run.label(found.step)
    owner = next(each for each in reversed(lineage.owned) if each.attempt.start_position <= position)
    return lineage.run.label(owner.attempt.cutting("hole").step_of(position))


def checkpoint_marks(lineage: Lineage) -> tuple[tuple[int, str], ...]:
    """Checkpoints that were noted of this lineage, (first untrained step in the trainer's labels, path)."""
    live = {each.attempt.number: each for each in lineage.owned}
    return tuple(
        (lineage.run.label(note.next_step), note.path)
        for _, note in noted(lineage.read.entries, CheckpointSaved)
        if note.attempt in live and note.next_step <= live[note.attempt].farthest
    )
