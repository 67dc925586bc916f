"""Which of several events is the one in question?

The one that holds the step that was asked for. Of several, and where no step was asked for, the most serious class, and
of one class the newest: what must be answered at once stands first.
"""

from __future__ import annotations

from collections.abc import Sequence

from dataguard.core.spikes import EventClass, SpikeEvent

__all__ = ["SERIOUS", "chosen", "nearest", "reaches"]

SERIOUS = (
    EventClass.HARD_FAULT,
    EventClass.STALL,
    EventClass.ABSORBING_SHIFT,
    EventClass.TRANSIENT_SPIKE,
    EventClass.CREEPING_DRIFT,
    EventClass.LOSS_DIP,
    EventClass.HARD_BATCH,
    EventClass.GRAD_NORM_ONLY,
)
"""Most serious first: what ends a run, what leaves damage, what may, what does not."""


def reaches(event: SpikeEvent, step: int) -> bool:
    """Whether an event, from its onset and the step before it on, holds a step.

    The loss of a step is computed before its update, so a cause may lie one step earlier.
    """
    first = event.start if event.onset is None else min(event.onset, event.start)
    return first - 1 <= step < event.stop


def chosen(events: Sequence[SpikeEvent], step: int | None = None) -> SpikeEvent | None:
    """The event in question; None where none holds the step.

    >>> dip = SpikeEvent(event_class=EventClass.LOSS_DIP, start=7, stop=8, peak=7, size_nats=-1.0, sigmas=-9.0)
    >>> shift = SpikeEvent(event_class=EventClass.ABSORBING_SHIFT, start=3, stop=9, peak=4, size_nats=1.0, sigmas=9.0)
    >>> chosen([shift, dip]) is shift, chosen([dip], 6) is dip, chosen([dip], 8)
    (True, True, None)
    """
    candidates = [event for event in events if step is None or reaches(event, step)]
    if not candidates:
        return None
    return min(candidates, key=lambda event: (SERIOUS.index(event.event_class), -event.start))


def nearest(events: Sequence[SpikeEvent], step: int) -> SpikeEvent | None:
    """The event that begins nearest to a step."""
    return min(events, key=lambda event: abs(event.start - step), default=None)
