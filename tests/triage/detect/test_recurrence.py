"""Spikes that come again and again (row A10): counted where they say something of the model's state."""

from __future__ import annotations

from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.triage.detect.recurrence import LEAST_EVENTS, fullest_recurrence, recurrence


def spike(
    start: int, *, kind: EventClass = EventClass.TRANSIENT_SPIKE, size: float | None = 1.0, last: int = 3
) -> SpikeEvent:
    return SpikeEvent(event_class=kind, start=start, stop=start + last, peak=start, size_nats=size, sigmas=9.0)


def test_those_of_the_state_are_counted_and_those_of_the_data_are_not() -> None:
    kinds = (
        EventClass.TRANSIENT_SPIKE, EventClass.ABSORBING_SHIFT, EventClass.HARD_FAULT, EventClass.GRAD_NORM_ONLY,
        EventClass.HARD_BATCH, EventClass.LOSS_DIP, EventClass.STALL, EventClass.CREEPING_DRIFT,
    )  # fmt: skip
    found = recurrence([spike(10 * i, kind=kind) for i, kind in enumerate(kinds)], stop=500)
    assert (found.num_events, found.has_drift) == (4, True)


def test_only_what_lies_in_the_span_counts() -> None:
    events = [spike(5), spike(95), spike(100), spike(299), spike(300)]
    found = recurrence(events, stop=300, within_steps=200)
    assert (found.num_events, found.start, found.stop, found.has_drift) == (2, 100, 300, False)
    long = recurrence([spike(5, last=150)], stop=300, within_steps=200)  # it goes on into the span
    assert long.num_events == 1


def test_three_within_a_thousand_steps_recur_and_the_same_three_further_apart_do_not() -> None:
    assert LEAST_EVENTS == 3
    assert fullest_recurrence([spike(100), spike(600), spike(1_000)]) is not None
    assert fullest_recurrence([spike(100), spike(600)]) is None
    assert fullest_recurrence([spike(100), spike(900), spike(1_700), spike(2_500)]) is None
    assert fullest_recurrence([]) is None
    events = [spike(step) for step in (0, 5_000, 5_300, 5_400, 5_900, 9_000)]
    found = fullest_recurrence(events)
    assert found is not None
    assert (found.num_events, found.stop) == (4, 5_901)


def test_growth_is_of_the_last_three_that_have_a_size() -> None:
    def is_growing(*sizes: float | None) -> bool:
        return recurrence([spike(10 * i, size=size) for i, size in enumerate(sizes)], stop=200).is_growing

    assert is_growing(5.0, 0.1, 0.2, 0.3)
    assert is_growing(0.1, 0.2, None, 0.3)
    assert not is_growing(0.1, 0.3, 0.2)
    assert not is_growing(0.1, 0.2)
