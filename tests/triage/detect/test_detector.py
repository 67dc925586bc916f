"""The default detector, row by row, against curves whose events are known."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.errors import UsageError
from dataguard.triage.detect import Detector, DetectorSettings
from tests.triage.detect.curves import curve, noise, trend

Floats = NDArray[np.float64]
Row = tuple[int, float]
NAN, INF = float("nan"), float("inf")


def seen(losses: Floats, grad: Floats | None = None, **settings: Any) -> tuple[SpikeEvent, ...]:
    detector = Detector(**settings)
    for step, loss in enumerate(losses.tolist()):
        detector.observe(step, loss=loss, grad_norm=None if grad is None else grad[step])
    return detector.finish()


def of_rows(rows: list[Row]) -> tuple[SpikeEvent, ...]:
    detector = Detector()
    for step, loss in rows:
        detector.observe(step, loss=loss)
    return detector.finish()


def classes(events: tuple[SpikeEvent, ...]) -> list[str]:
    return [event.event_class.value for event in events]


def test_a_hard_batch_is_told_at_once_and_classified_after_its_aftermath() -> None:
    losses = curve(800, seed=1)
    losses[400] += 1.0
    detector = Detector()
    told = [
        (step, each.kind, each.event.event_class)
        for step, loss in enumerate(losses.tolist())
        for each in detector.observe(step, loss=loss)
    ]
    assert told == [(400, "began", EventClass.TRANSIENT_SPIKE), (600, "ended", EventClass.HARD_BATCH)]
    (event,) = detector.finish()
    assert (event.start, event.stop, event.peak) == (400, 401, 400)
    assert event.size_nats == pytest.approx(1.0, abs=0.15)
    assert event.aftermath_nats == pytest.approx(0.0, abs=0.05)


@pytest.mark.parametrize("memory", [0.0, 0.9])
@pytest.mark.parametrize("sigma", [0.003, 0.05])
def test_quiet_curves_are_quiet_from_their_first_step_on(memory: float, sigma: float) -> None:
    for seed in range(3):
        assert seen(curve(500, seed=seed, sigma=sigma, memory=memory)) == ()


def test_heavy_tails_are_told_from_events_as_far_as_a_window_knows_them() -> None:
    """A Laplace distribution is beyond 6 standard deviations twice in 10,000 points, a normal one never."""
    found = [event for seed in range(6) for event in seen(curve(600, seed=seed, kind="laplace"))]
    assert len(found) <= 2


def bloom(losses: Floats, grad: Floats, at: int) -> None:
    grad[at : at + 3] *= [2.0, 4.0, 8.0]
    grad[at + 3 : at + 33] *= 1 + 5 * np.exp(-np.arange(30) / 8)
    losses[at + 1 : at + 4] += [0.02, 0.1, 0.8]
    losses[at + 4 : at + 32] += 0.6 * np.exp(-np.arange(28) / 8)


@pytest.mark.parametrize("seed", range(3))
def test_a_spike_that_recovers_in_30_steps_is_transient_and_its_onset_is_where_the_gradient_rose(seed: int) -> None:
    losses, grad = curve(1000, seed=seed, sigma=0.02), np.exp(-1.2 + 0.12 * noise(1000, seed=50 + seed))
    bloom(losses, grad, 700)
    (event,) = seen(losses, grad)
    assert event.event_class is EventClass.TRANSIENT_SPIKE
    assert 700 <= event.start <= 703
    assert event.onset in {700, 701}
    assert event.peak == 703
    assert event.grad_norm_ratio is not None
    assert event.grad_norm_ratio > 5


@pytest.mark.parametrize("seed", range(3))
def test_a_fatal_spike_of_six_hundredths_that_settles_at_fifteen_thousandths_is_absorbing(seed: int) -> None:
    """Both below every threshold in nats that is in use; the noise of a large batch is smaller still."""
    losses = curve(1400, seed=seed, sigma=0.003)
    losses[1000:] += 0.015 + 0.045 * np.exp(-np.arange(400) / 10)
    (event,) = seen(losses)
    assert event.event_class is EventClass.ABSORBING_SHIFT
    assert event.start == 1000
    assert event.aftermath_nats == pytest.approx(0.015, abs=0.005)


def test_a_jump_that_stays_is_absorbing_and_becomes_what_is_expected() -> None:
    losses = curve(1500, seed=3)
    losses[600:] += 0.5
    losses[1300] += 1.0
    first, second = seen(losses)
    assert (first.event_class, first.start) == (EventClass.ABSORBING_SHIFT, 600)
    assert (second.event_class, second.start) == (EventClass.HARD_BATCH, 1300)


def test_a_repeated_batch_makes_a_dip() -> None:
    losses = curve(900, seed=4)
    losses[700:704] -= 0.6
    (event,) = seen(losses)
    assert (event.event_class, event.start, event.stop) == (EventClass.LOSS_DIP, 700, 704)
    assert event.size_nats is not None
    assert event.size_nats < -0.4


def test_a_gradient_norm_alone() -> None:
    losses, grad = curve(900, seed=5), np.exp(-1.2 + 0.12 * noise(900, seed=6))
    grad[700] *= 7
    (event,) = seen(losses, grad)
    assert (event.event_class, event.start, event.stop, event.signal) == (
        EventClass.GRAD_NORM_ONLY, 700, 701, "grad_norm",
    )  # fmt: skip
    assert event.size_nats is None
    assert event.grad_norm_ratio == pytest.approx(7, rel=0.5)


def test_a_gradient_that_creeps_up_is_a_drift_that_no_window_sees() -> None:
    losses, grad = curve(1500, seed=7), np.exp(-1.2 + 0.12 * noise(1500, seed=8))
    grad[600:] *= np.exp(np.arange(900) / 700)
    (event,) = seen(losses, grad)
    assert (event.event_class, event.signal) == (EventClass.CREEPING_DRIFT, "grad_norm")
    assert 200 <= event.start <= 750
    assert event.is_open
    assert event.grad_norm_ratio is not None
    assert event.grad_norm_ratio > 2.5
    assert seen(losses, grad[::-1]) == ()


def test_attention_logits_that_grow_beyond_what_a_softmax_can_tell_apart_are_a_drift() -> None:
    def growing(most: float) -> tuple[SpikeEvent, ...]:
        detector = Detector()
        for step, loss in enumerate(curve(400, seed=9).tolist()):
            logit = 4.0 * (most / 4.0) ** (step / 399)
            detector.observe(step, loss=loss, more={"attention_logit_max/blocks.1.h2": logit})
        return detector.finish()

    (event,) = growing(200.0)
    assert (event.event_class, event.signal) == (EventClass.CREEPING_DRIFT, "attention_logit_max/blocks.1.h2")
    assert growing(12.0) == ()


def test_a_loss_that_creeps_up_is_a_drift_or_a_shift() -> None:
    losses = curve(1500, seed=10)
    losses[900:] += 0.0015 * np.arange(600)
    events = seen(losses)
    assert set(classes(events)) <= {"creeping_drift", "absorbing_shift"}
    assert events


def test_a_run_that_explodes_within_its_first_steps_is_seen() -> None:
    losses = 1.5 + 4 * np.exp(-np.arange(120) / 8.0) + 0.03 * noise(120, seed=11)
    assert seen(losses) == ()
    losses[18:] += 3.0 * (1 - np.exp(-np.arange(102) / 5))
    (event,) = seen(losses)
    assert event.event_class in {EventClass.ABSORBING_SHIFT, EventClass.TRANSIENT_SPIKE}
    assert 18 <= event.start <= 26


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_what_is_not_finite_is_an_event_and_enters_no_window(bad: float) -> None:
    losses = curve(900, seed=12)
    losses[650] += 0.8
    rows = list(enumerate(losses.tolist()))
    without = of_rows([row for row in rows if row[0] != 500])
    found = of_rows([(step, bad if step == 500 else loss) for step, loss in rows])
    fault = [event for event in found if event.event_class is EventClass.HARD_FAULT]
    assert [(event.start, event.stop, event.peak, event.size_nats) for event in fault] == [(500, 501, 500, None)]
    assert tuple(event for event in found if event.event_class is not EventClass.HARD_FAULT) == without
    assert classes(without) == ["hard_batch"]


def _constant(rows: list[Row], at: int) -> list[Row]:
    return [(step, rows[at - 1][1] if at <= step < at + 60 else loss) for step, loss in rows]


def _again(rows: list[Row], at: int) -> list[Row]:
    return [*rows[: at + 1], *rows[at - 2 : at + 1], *rows[at + 1 :]]


DISTURBED: dict[str, tuple[Callable[[list[Row], int], list[Row]], int]] = {
    "nan": (lambda rows, at: [(step, NAN if step == at else loss) for step, loss in rows], 1),
    "inf": (lambda rows, at: [(step, INF if step == at else loss) for step, loss in rows], 1),
    "minus inf": (lambda rows, at: [(step, -INF if step == at else loss) for step, loss in rows], 1),
    "constant": (_constant, 60),
    "one sample": (lambda rows, at: [(step, loss + 5.0 * (step == at)) for step, loss in rows], 1),
    "missing": (lambda rows, at: [row for row in rows if row[0] != at], 1),
    "duplicate": (_again, 0),
    "out of order": (lambda rows, at: [*rows[:at], rows[at + 1], rows[at], *rows[at + 2 :]], 2),
}
"""What happens at a step, and how many rows from it on are not what they were."""


@pytest.mark.parametrize("name", DISTURBED)
@settings(max_examples=2, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(seed=st.integers(0, 1000), at=st.integers(300, 420), later=st.integers(70, 290), size=st.floats(0.6, 2.0))
def test_the_next_300_steps_are_judged_as_if_it_had_not_been_there(
    name: str, seed: int, at: int, later: int, size: float
) -> None:
    losses = curve(730, seed=seed)
    losses[at + later] += size
    rows = list(enumerate(losses.tolist()))
    disturb, num_touched = DISTURBED[name]

    def judged(given: list[Row], *, without: bool = False) -> list[tuple[int, float]]:
        """Step and sigmas of each of the 300 steps, as the detector would judge it."""
        detector, found = Detector(), {}
        for step, loss in given:
            if without and at <= step < at + num_touched:
                continue
            if step > at + num_touched:
                verdict = detector._judge._loss.judge(loss)
                found[step] = verdict.sigmas if verdict is not None else NAN
            detector.observe(step, loss=loss)
        return list(found.items())[:300]

    touched, clean = judged(disturb(rows, at)), judged(rows, without=name not in {"duplicate", "out of order"})
    if name == "out of order":  # the earlier step that came later is the run going back: the step after it is missing
        clean = judged([row for row in rows if row[0] != at + 1])
    if name == "one sample":  # which freezes the window until the detector is armed again
        touched, clean = touched[5:], clean[5:]
    assert [step for step, _ in touched] == [step for step, _ in clean]
    np.testing.assert_array_equal([sigmas for _, sigmas in touched], [sigmas for _, sigmas in clean])
    events = [event for event in of_rows(disturb(rows, at)) if event.start > at + num_touched]
    assert [(event.start, event.stop) for event in events] == [(at + later, at + later + 1)]


def _eventful() -> list[dict[str, Any]]:
    losses, grad = curve(900, seed=21), np.exp(-1.2 + 0.12 * noise(900, seed=22))
    bloom(losses, grad, 300)
    losses[420] = NAN
    grad[450] = INF
    losses[500] += 1.0
    losses[600:] += 0.4
    losses[700:730] = losses[700]
    grad[780] *= 9
    rows = [
        {"step": step, "loss": loss, "grad_norm": norm, "time": 2.0 * step + 100.0 * (step > 640), "more": {}}
        for step, (loss, norm) in enumerate(zip(losses.tolist(), grad.tolist(), strict=True))
    ]
    for step, row in enumerate(rows):
        row["more"] = {"attention_logit_max": 3.0 * 1.006**step, "loss_scale": 65536.0, "other": 1.0}
    return rows


@settings(max_examples=4, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(cut=st.integers(0, 900))
def test_a_state_saved_and_loaded_anywhere_changes_nothing(cut: int) -> None:
    rows = _eventful()
    unbroken, first = Detector(changes=[550]), Detector(changes=[550])
    told: list[Any] = []
    for row in rows[:cut]:
        told.extend(first.observe(**row))
    state = json.loads(json.dumps(first.state_dict(), allow_nan=False))
    second = Detector()
    second.load_state_dict(state)
    for row in rows[cut:]:
        told.extend(second.observe(**row))
    expected = [each for row in rows for each in unbroken.observe(**row)]
    assert told == expected
    assert second.finish() == unbroken.finish()
    assert json.dumps(second.state_dict()) == json.dumps(unbroken.state_dict())
    assert {event.event_class for event in unbroken.finish()} >= {
        EventClass.TRANSIENT_SPIKE, EventClass.HARD_FAULT, EventClass.ABSORBING_SHIFT, EventClass.STALL,
        EventClass.CREEPING_DRIFT,
    }  # fmt: skip


@settings(max_examples=4, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(reached=st.integers(1, 900), back=st.integers(1, 500))
def test_a_run_that_goes_back_is_judged_as_if_it_had_never_gone_further(reached: int, back: int) -> None:
    rows = _eventful()
    fork = max(0, reached - back)
    detector, unbroken = Detector(), Detector()
    for row in rows[:reached]:
        detector.observe(**{**row, "loss": row["loss"] + (0.7 if row["step"] >= fork else 0.0)})
    for row in rows[fork:]:
        detector.observe(**row)
    for row in rows:
        unbroken.observe(**row)
    assert detector.finish() == unbroken.finish()


def test_memory_and_state_are_bounded_whatever_comes() -> None:
    small = DetectorSettings(num_most_events=8, num_rewind=64)
    detector = Detector(small)
    sizes = []
    for step, loss in enumerate(curve(4000, seed=30).tolist()):
        detector.observe(step, loss=NAN if step % 40 == 0 else loss + 2.0 * (step % 97 == 0))
        if step in {1500, 3999}:
            sizes.append(len(json.dumps(detector.state_dict())))
    assert len(detector.finish()) <= 8 + 2
    assert detector.num_forgotten > 50
    assert sizes[1] < 1.3 * sizes[0]  # but for block medians, of which there are 128 at most


def test_a_state_of_other_settings_is_refused() -> None:
    state = Detector().state_dict()
    with pytest.raises(UsageError, match="other settings"):
        Detector(DetectorSettings(threshold=7.0)).load_state_dict(state)
    with pytest.raises(UsageError, match="another version"):
        Detector().load_state_dict({**state, "version": 0})
    with pytest.raises(UsageError, match="above zero"):
        DetectorSettings(num_window=0)
    with pytest.raises(UsageError, match="must end below"):
        DetectorSettings(threshold=2.0)


def test_an_overflow_that_a_loss_scaler_skips_is_no_fault() -> None:
    def scaled(fell_at: int | None, overflows: range) -> list[str]:
        detector, scale = Detector(), 65536.0
        for step, loss in enumerate(curve(120, seed=31).tolist()):
            if fell_at is not None and step - fell_at in overflows:
                scale /= 2
            norm = INF if step in overflows else 0.5
            detector.observe(step, loss=loss, grad_norm=norm, more={} if fell_at is None else {"loss_scale": scale})
        return classes(detector.finish())

    assert scaled(0, range(60, 62)) == []  # the scale is lower in the same row
    assert scaled(1, range(60, 61)) == []  # or in the next
    assert scaled(30, range(60, 61)) == ["hard_fault"]  # it fell at another time
    assert scaled(None, range(60, 61)) == ["hard_fault"]  # nobody scales
    assert scaled(0, range(60, 75)) == ["hard_fault"]  # ten in a row are no search for a scale


def test_a_stall_is_a_gap_unlike_any_before() -> None:
    def timed(gaps: dict[int, float]) -> tuple[SpikeEvent, ...]:
        detector, now = Detector(), 1000.0
        for step, loss in enumerate(curve(200, seed=32).tolist()):
            now += gaps.get(step, 0.5)
            detector.observe(step, loss=loss, time=now)
        return detector.finish()

    (event,) = timed({150: 60.0})
    assert (event.event_class, event.peak, event.start, event.stop) == (EventClass.STALL, 149, 150, 151)
    assert timed({50: 12.0, 100: 14.0, 150: 16.0}) == ()  # checkpoints
    assert timed({150: 4.0}) == ()


def test_a_told_change_of_level_is_no_event_and_a_spike_beside_it_is() -> None:
    losses = trend(1000) + 0.03 * noise(1000, seed=33)
    losses[600:] += 0.5
    (event,) = seen(losses)
    assert event.start == 600
    detector = Detector(changes=[600])
    told = [each for step, loss in enumerate(losses.tolist()) for each in detector.observe(step, loss=loss)]
    assert told == []
    ((step, nats),) = detector.settled_changes()
    assert (step, nats) == (600, pytest.approx(0.5, abs=0.05))
    losses[602] += 2.0
    losses[603:] -= 0.5
    losses[600:602] -= 0.5
    assert classes(seen(losses, changes=[600])) == ["hard_batch"]


@pytest.mark.parametrize("digits", [1, 2, 4])
def test_digits_of_a_log_are_no_events_and_a_constant_log_still_shows_a_spike(digits: int) -> None:
    losses = np.round(trend(600) + 0.01 * noise(600, seed=34), digits)
    assert seen(losses) == ()
    constant = np.full(400, 2.5)
    assert seen(constant) == ()
    constant[300] = 5.0
    (event,) = seen(constant)
    assert (event.event_class, event.start) == (EventClass.HARD_BATCH, 300)


def test_two_hard_batches_near_each_other_do_not_hide_a_third() -> None:
    losses = curve(900, seed=35)
    for step in (500, 510, 530):
        losses[step] += 1.0
    events = seen(losses)
    assert [event.start for event in events] == [500, 510, 530]
    assert set(classes(events)) == {"hard_batch"}
