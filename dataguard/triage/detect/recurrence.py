"""Do spikes come again and again, so that skipping one of them is no cure (row A10)?

Counted are events that say something about the state of the model: those that left a tail or a shift, faults and
climbs. Hard batches belong to the data and are expected to come as they come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dataguard.core.spikes import EventClass, SpikeEvent

__all__ = ["LEAST_EVENTS", "WITHIN_STEPS", "Recurrence", "fullest_recurrence", "recurrence"]

LEAST_EVENTS = 3
WITHIN_STEPS = 1_000
"""A public run met about 20 spikes in some 255,000 steps: within 1,000 steps of one, two more have a chance of 0.3 % at
that rate (Poisson, 0.078 expected)."""

_OF_THE_STATE = {
    EventClass.TRANSIENT_SPIKE,
    EventClass.ABSORBING_SHIFT,
    EventClass.HARD_FAULT,
    EventClass.GRAD_NORM_ONLY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """How often it happened."""

    num_events: int
    """Events within the span, the newest of them included."""
    start: int
    """First step of the span."""
    stop: int
    is_growing: bool
    """Whether each of the last three is larger than the one before, where three have a size."""
    has_drift: bool
    """Whether gradient norm, logits or loss climb in the span."""

    @property
    def recurs(self) -> bool:
        """Whether that is more than isolated spikes give by chance."""
        return self.num_events >= LEAST_EVENTS


def recurrence(events: Sequence[SpikeEvent], *, stop: int, within_steps: int = WITHIN_STEPS) -> Recurrence:
    """Events of the state that begin in the `within_steps` steps before `stop`.

    >>> made = dict(event_class=EventClass.TRANSIENT_SPIKE, sigmas=9.0)
    >>> events = [SpikeEvent(start=i, stop=i + 3, peak=i, size_nats=i / 100, **made) for i in (10, 500, 900)]
    >>> found = recurrence(events, stop=1000)
    >>> found.num_events, found.is_growing, found.has_drift
    (3, True, False)
    """
    start = stop - within_steps
    near = [event for event in events if event.start < stop and event.stop > start]
    own = sorted((event for event in near if event.event_class in _OF_THE_STATE), key=lambda event: event.start)
    sizes = [event.size_nats for event in own if event.size_nats is not None][-3:]
    return Recurrence(
        num_events=len(own),
        start=start,
        stop=stop,
        is_growing=len(sizes) == 3 and sizes[0] < sizes[1] < sizes[2],
        has_drift=any(event.event_class is EventClass.CREEPING_DRIFT for event in near),
    )


def fullest_recurrence(events: Sequence[SpikeEvent]) -> Recurrence | None:
    """The stretch of `WITHIN_STEPS` that holds most of them, the latest of those alike; None where none recur."""
    stretches = (recurrence(events, stop=event.start + 1) for event in events if event.event_class in _OF_THE_STATE)
    best = max(stretches, key=lambda each: (each.num_events, each.stop), default=None)
    return best if best is not None and best.recurs else None
