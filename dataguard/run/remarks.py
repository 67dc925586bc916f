"""What should somebody know who is about to amend a run? One line each, worked out from the journal and the lineage."""

from __future__ import annotations

from dataguard.core.spans import SpanSet
from dataguard.plan.skips import SkippedBy
from dataguard.plan.steps import Steps
from dataguard.run.journal import JournalRead
from dataguard.run.pending import Pending
from dataguard.run.run import Run
from dataguard.run.withhold import Target

__all__ = ["already_withheld", "carried", "effect", "overlaps", "quarantined"]


def overlaps(pending: Pending, positions: tuple[int, int]) -> list[str]:
    """What of a range is skipped already."""
    start, stop = positions
    hit = [skip for skip in pending.skips if skip.start < stop and start < skip.stop]
    if not hit:
        return []
    already = SpanSet.of((max(skip.start, start), min(skip.stop, stop)) for skip in hit)
    events = ", ".join(str(event) for event in dict.fromkeys(sorted(skip.event for skip in hit)))
    word = "event" if len({skip.event for skip in hit}) == 1 else "events"
    return [f"{already.num_inside:,} of {stop - start:,} positions are skipped already, by {word} {events}"]


def effect(run: Run, steps: Steps, positions: tuple[int, int], next_step: int) -> list[str]:
    """What an attempt that goes on where the leaf stands does, where that is not all that was asked for."""
    start, stop = positions
    going_on = steps.start_of(next_step)
    if going_on <= start:
        return []
    what = "has no effect on" if stop <= going_on else f"takes effect only from position {going_on:,} on in"
    first = steps.locate(start)
    where = f"at step {run.label(next_step):,}, where attempt {steps.leaf.number} stands"
    todo = "" if isinstance(first, SkippedBy) else f"; to pass over all of it, fork at step {run.label(first.step):,}"
    return [f"this {what} an attempt that goes on {where}{todo}"]


def carried(run: Run, read: JournalRead, event: int) -> list[str]:
    """Which attempts began with an event that is now taken back."""
    tree = run.attempts(read)
    carrying = [
        number
        for number in tree.numbers
        if any(skip.event == event for skip in tree.attempt(number).skips)
        or any(entry.event == event for entry in tree.attempt(number).withheld)
    ]
    if not carrying:
        return []
    word, verb = ("attempt", "keeps") if len(carrying) == 1 else ("attempts", "keep")
    return [f"{word} {', '.join(map(str, carrying))} began with event {event} and {verb} it"]


def already_withheld(pending: Pending, targets: list[Target]) -> list[str]:
    """How many of some shards and rows are withheld already, by which events."""
    held = {(entry.shard, entry.row): entry.event for entry in pending.withheld}
    events = {held.get(target) or held.get((target[0], None)) for target in targets}
    num_held = sum(target in held or (target[0], None) in held for target in targets)
    if not num_held:
        return []
    shown = ", ".join(str(event) for event in sorted(event for event in events if event))
    if len(targets) == 1:
        return [f"it is withheld already, by event {shown}"]
    return [f"{num_held:,} of {len(targets):,} are withheld already, by event {shown}"]


def quarantined(pending: Pending) -> str:
    """What is withheld, in one line: the first shards by name."""
    if not pending.withheld:
        return "nothing is quarantined in this run"
    shards = list(dict.fromkeys(entry.shard for entry in pending.withheld))
    return f"quarantined: {', '.join(shards[:5])}" + (f" and {len(shards) - 5:,} more" if len(shards) > 5 else "")
