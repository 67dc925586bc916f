"""What does the journal of a live run tell: its newest events, the newest checkpoint, and what was noted of the curve?

Read again only when the journal has grown.
"""

from __future__ import annotations

from itertools import pairwise

from dataguard.core.spikes import SpikeEvent
from dataguard.replay.log import read_log
from dataguard.run.events import AttemptBegun, CheckpointSaved, SpikeFound
from dataguard.run.journal import Head, JournalProblem, JournalRead
from dataguard.run.notes import noted
from dataguard.run.run import Run
from dataguard.triage.evidence import planned_steps
from dataguard.triage.respond import facts_of
from dataguard.triage.watching.answers import CheckpointSeen, EventSeen, JournalSeen

__all__ = ["MOST_EVENTS", "Told", "found_event", "merged"]

MOST_LINES = 8
MOST_EVENTS = 8


class Told:
    """What the journal says of the newest attempt."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._seen: tuple[Head, tuple[JournalProblem, ...]] | None = None
        self.journal: tuple[JournalSeen, ...] = ()
        self.events: tuple[EventSeen, ...] = ()
        """Noted for the newest attempt's lineage, each within the steps that its attempt owns there."""
        self.checkpoint: CheckpointSeen | None = None
        self.changes: frozenset[int] = frozenset()
        """First steps of planned changes, in the trainer's labels."""
        self.problems: tuple[str, ...] = ()

    def look(self, read: JournalRead) -> None:
        """Take over what is new in the journal."""
        if (read.head, read.problems) == self._seen:
            return
        run = self._run
        lines, self.problems = read_log(run)
        tree = run.attempts(read)
        leaf = tree.newest if len(tree) else None
        shown = []
        for line in lines[-MOST_LINES:]:
            text = line.text
            if isinstance(line.event, AttemptBegun) and line.event.attempt == leaf:
                # How far it came is a matter of each look.
                parent = "" if line.event.parent is None else f" from attempt {line.event.parent}"
                text = f"attempt {leaf}{parent} begins with step {run.label(line.event.fork_step):,}"
            shown.append(JournalSeen(number=line.number, time=line.time, kind=line.kind, text=text))
        self.journal = tuple(shown)
        if leaf is not None:
            chain = tree.lineage(leaf)
            stops = {own.number: later.fork_step for own, later in pairwise(chain)}
            firsts = {own.number: own.fork_step for own in chain}
            self.events = tuple(
                _seen(run, event)
                for _, event in noted(read.entries, SpikeFound)
                if firsts.get(event.attempt, event.start + 1) <= event.start < stops.get(event.attempt, event.start + 1)
            )
            self.changes = self._changes(read, leaf)
        saved = noted(read.entries, CheckpointSaved)
        if saved:
            entry, event = saved[-1]
            self.checkpoint = CheckpointSeen(
                next_step=run.label(event.next_step), path=event.path, attempt=event.attempt, noted=entry.time
            )
        self._seen = (read.head, read.problems)

    def _changes(self, read: JournalRead, leaf: int) -> frozenset[int]:
        told = {change.step for change in facts_of(read.entries).changes}
        return frozenset(told | planned_steps(self._run, leaf).keys())


def merged(noted_events: tuple[EventSeen, ...], found: tuple[EventSeen, ...]) -> tuple[EventSeen, ...]:
    """The newest events of both, in order; one that both tell is shown as the journal has it."""
    own = [
        event
        for event in found
        if not any(
            event.signal == other.signal and event.start < other.stop and other.start < event.stop
            for other in noted_events
        )
    ]
    events = sorted((*noted_events, *own), key=lambda event: (event.start, event.stop))
    return tuple(events[-MOST_EVENTS:])


def found_event(event: SpikeEvent) -> EventSeen:
    """An event as the detector gives it."""
    return EventSeen(
        event_class=event.event_class,
        start=event.start,
        stop=event.stop,
        is_open=event.is_open,
        size_nats=event.size_nats,
        sigmas=event.sigmas,
        signal=event.signal,
        rank=event.rank,
        origin="found",
    )


def _seen(run: Run, event: SpikeFound) -> EventSeen:
    return EventSeen(
        event_class=event.event_class,
        start=run.label(event.start),
        stop=run.label(event.stop),
        is_open=None,
        size_nats=event.size_nats,
        sigmas=event.sigmas,
        signal=event.signal,
        rank=event.rank,
        origin="journal",
    )
