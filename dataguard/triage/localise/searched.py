"""Which steps may hold the cause of an event?

The loss of a step is computed before its update, by the model that the steps before made: a bad batch shows in its own
loss, or in that of the next step. So the search reaches back to the onset and one step more. A cause lies no later than
what it caused: held against the background are the steps up to the first one that stands out, and the peak.
"""

from __future__ import annotations

from dataclasses import dataclass

from dataguard.core.spikes import SpikeEvent

__all__ = ["LEAD", "MOST_SEARCHED", "MOST_TESTED", "Searched", "searched_steps"]

LEAD = 1
"""Steps before the onset: the one whose update the first bad loss is of."""
MOST_SEARCHED = 64
"""Steps that are listed at most, of an event that lasts."""
MOST_TESTED = 8
"""Steps that are held against the background: each is a comparison more, and makes all of them weaker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """Steps, in the trainer's labels."""

    steps: tuple[int, int]
    """Half-open."""
    tested: tuple[int, ...]
    """Ascending, all within `steps`."""
    is_cut: bool
    """Whether the event lasts longer, or begins earlier, than what is searched."""


def searched_steps(event: SpikeEvent, *, first_label: int = 0) -> Searched:
    """The steps in which the cause of an event is looked for.

    >>> from dataguard.core.spikes import EventClass
    >>> event = SpikeEvent(event_class=EventClass.TRANSIENT_SPIKE, start=30, stop=50, peak=33, size_nats=1.0,
    ...                    sigmas=9.0, onset=28)
    >>> searched_steps(event)
    Searched(steps=(27, 50), tested=(27, 28, 29, 30, 33), is_cut=False)
    """
    onset = event.start if event.onset is None else min(event.onset, event.start)
    first = max(first_label, onset - LEAD)
    near = max(first, event.start - (MOST_TESTED - 2))
    tested = sorted({*range(near, event.start + 1), event.peak} - set(range(first_label)))
    # Of a drift that began long ago, what lies right before it stands out is searched, and where it began.
    start = near if event.start - first >= MOST_SEARCHED // 2 else first
    stop = min(max(event.stop, event.start + 1), start + MOST_SEARCHED)
    kept = tuple(step for step in tested if start <= step < stop)
    return Searched(steps=(start, stop), tested=kept, is_cut=start > first or stop < event.stop)
