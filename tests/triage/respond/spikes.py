"""Events for the tests of what is done about them."""

from __future__ import annotations

from typing import Any

from dataguard.core.spikes import EventClass, SpikeEvent


def spike(start: int, stop: int | None = None, **changes: Any) -> SpikeEvent:
    """A transient spike of steps ``start:stop`` (one step by default) in the trainer's labels."""
    facts: dict[str, Any] = {
        "event_class": EventClass.TRANSIENT_SPIKE,
        "start": start,
        "stop": start + 1 if stop is None else stop,
        "peak": start,
        "size_nats": 1.25,
        "sigmas": 12.0,
    }
    return SpikeEvent(**{**facts, **changes})


def drift(signal: str, start: int, stop: int) -> SpikeEvent:
    """A signal that climbs."""
    return spike(start, stop, event_class=EventClass.CREEPING_DRIFT, signal=signal, size_nats=None)
