"""Mends that whole curves do not tell apart: each test is of one thing that was undone, and noticed by no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.run.logs.log import LogRows
from dataguard.triage.detect import Detection, Detector, DetectorSettings, detect
from dataguard.triage.detect.spikes import examine
from dataguard.triage.detect.tracker import Tracker
from tests.triage.detect.curves import curve, noise


def seen(losses: Any, *, steps: Any = None, grad: Any = None, times: Any = None) -> tuple[SpikeEvent, ...]:
    detector = Detector()
    for i, loss in enumerate(losses.tolist()):
        detector.observe(
            i if steps is None else int(steps[i]),
            loss=loss,
            grad_norm=None if grad is None else float(grad[i]),
            time=None if times is None else float(times[i]),
        )
    return detector.finish()


def tracker_of(values: Any) -> Tracker:
    tracker = Tracker(DetectorSettings())
    for value in values.tolist():
        tracker.accept(value)
    return tracker


def test_a_point_is_no_part_of_what_it_is_judged_by() -> None:
    tracker = tracker_of(curve(600, seed=1))
    judged = [tracker.judge(value) for value in (4.0, 5.0, 6.0)]
    sigmas = [each.sigmas for each in judged if each is not None]
    assert sigmas[2] - sigmas[1] == pytest.approx(sigmas[1] - sigmas[0])


def test_a_scale_counts_for_as_much_as_it_is_known() -> None:
    thresholds = [tracker_of(2.5 + 0.03 * noise(num, seed=1)).threshold() for num in (34, 60, 120, 600)]
    assert thresholds == sorted(thresholds, reverse=True)
    assert thresholds[0] > 9
    assert 6.5 < thresholds[-1] < 7  # 6 were the scale known for certain


def test_a_few_far_points_do_not_widen_the_scale() -> None:
    values = 2.5 + 0.03 * noise(600, seed=1)
    before = tracker_of(values).judge(3.0)
    values[::64] -= 0.5
    after = tracker_of(values).judge(3.0)
    assert before is not None
    assert after is not None
    assert after.sigmas > 0.8 * before.sigmas


def sigmas_of(values: Any, point: float) -> float:
    judged = tracker_of(values).judge(point)
    assert judged is not None
    return judged.sigmas


def test_tails_heavier_than_normal_widen_the_scale_and_high_ones_not_what_high_points_are_judged_by() -> None:
    quiet = 2.5 + 0.03 * noise(600, seed=1)
    low, high = quiet.copy(), quiet.copy()
    low[::20] -= 0.15
    high[::20] += 0.15
    assert sigmas_of(low, 3.0) < 0.6 * sigmas_of(quiet, 3.0)
    assert sigmas_of(high, 2.0) > 0.6 * sigmas_of(quiet, 2.0)
    assert sigmas_of(high, 3.0) > 0.8 * sigmas_of(quiet, 3.0)


def test_an_onset_reaches_back_over_one_quiet_point_and_not_over_two() -> None:
    losses = 2.5 + 0.03 * noise(600, seed=3)
    losses[392:401] = 2.5
    losses[[394, 397, 399]] += 0.14
    losses[400] += 1.0
    (event,) = seen(losses)
    assert (event.start, event.onset) == (400, 397)


def test_the_gradient_norm_of_the_steps_before_is_evidence() -> None:
    losses, grad = curve(600, seed=1), np.exp(-1.2 + 0.05 * noise(600, seed=2))
    losses[401] += 1.0
    grad[399] *= 4.0
    (event,) = seen(losses, grad=grad)
    assert event.onset == 399
    assert event.grad_norm_ratio == pytest.approx(4.0, rel=0.15)


def test_a_gradient_norm_of_zero_is_an_event() -> None:
    grad = np.full(600, 0.5)
    grad[400:403] = 0.0
    (event,) = seen(curve(600, seed=1), grad=grad)
    assert (event.event_class, event.start, event.stop) == (EventClass.GRAD_NORM_ONLY, 400, 403)
    assert event.grad_norm_ratio == 0.0


def test_wander_that_is_slower_than_a_point_is_no_aftermath() -> None:
    for seed in range(6):
        losses = 2.5 + 0.03 * noise(1600, seed=seed) + 0.03 * noise(1600, seed=50 + seed, memory=0.9)
        losses[1000] += 2.0
        assert [event.event_class for event in seen(losses)] == [EventClass.HARD_BATCH]


def test_rows_that_stand_for_many_steps_take_their_time() -> None:
    steps = np.r_[np.arange(100), 150 + 50 * np.arange(40)]
    times = 0.5 * steps
    assert seen(curve(140, seed=1), steps=steps, times=times) == ()
    times[120:] += 2000.0
    assert [event.event_class for event in seen(curve(140, seed=1), steps=steps, times=times)] == [EventClass.STALL]


def test_a_loss_that_fell_over_a_hole_in_the_log_is_no_event_and_one_that_rose_is() -> None:
    steps = np.r_[np.arange(300), 100_000 + np.arange(300)]
    fell = 2.5 + 0.03 * noise(600, seed=1)
    fell[300:] -= 0.8
    assert seen(fell, steps=steps) == ()
    assert [event.start for event in seen(fell)] == [300]
    fell[300:] += 1.6
    assert [event.start for event in seen(fell, steps=steps)] == [100_000]


def with_rate(losses: Any, rates: Any) -> Detection:
    rows = LogRows()
    for step, (loss, rate) in enumerate(zip(losses.tolist(), rates.tolist(), strict=True)):
        rows.add(step, {"loss": loss, "lr": rate})
    return detect(rows.finish("a", "csv"))


def test_a_rate_that_steps_down_takes_the_loss_with_it_and_one_that_steps_up_excuses_nothing() -> None:
    moved = 2.5 + 0.03 * noise(700, seed=1)
    moved[400:] -= 0.4
    down = with_rate(moved, np.where(np.arange(700) < 400, 1e-3, 1e-4))
    assert down.events == ()
    assert [change.step for change in down.changes] == [400]
    assert any("from step 400 on" in note for note in down.notes)
    assert [event.start for event in with_rate(moved, np.full(700, 1e-3)).events] == [400]
    moved[400:] += 0.8
    up = with_rate(moved, np.where(np.arange(700) < 400, 1e-4, 5e-4))
    assert [event.start for event in up.events] == [400]
    assert 400 in [change.step for change in up.changes]


def test_right_after_a_shift_the_noise_is_known_as_before() -> None:
    losses = 2.5 + 0.03 * noise(800, seed=1)
    losses[500:] += 0.5
    losses[569] += 0.6
    assert [(event.event_class, event.start) for event in seen(losses)] == [
        (EventClass.ABSORBING_SHIFT, 500),
        (EventClass.HARD_BATCH, 569),
    ]


def test_a_gradient_norm_that_stays_raised_after_a_hard_batch_makes_it_none() -> None:
    losses, grad = 2.5 + 0.03 * noise(800, seed=1), np.exp(-1.2 + 0.12 * noise(800, seed=2))
    losses[500] += 1.0
    assert [event.event_class for event in seen(losses, grad=grad)] == [EventClass.HARD_BATCH]
    grad[501:530] = np.exp(-1.2 + 0.24)  # two sigma: no point of them stands out by itself
    assert [event.event_class for event in seen(losses, grad=grad)] == [EventClass.TRANSIENT_SPIKE]


def test_a_shift_below_every_threshold_shows_in_the_aftermath() -> None:
    losses = 2.5 + 0.03 * noise(1000, seed=1)
    losses[600] += 1.0
    losses[601:] += 0.04
    event = next(each for each in seen(losses) if each.start == 600)
    assert (event.event_class, event.stop) == (EventClass.ABSORBING_SHIFT, 601)
    assert event.aftermath_nats == pytest.approx(0.04, abs=0.015)


def noticed_in(losses: Any, *, steps: Any = None, changes: tuple[int, ...] = ()) -> list[tuple[str, int, int]]:
    """What is noticed, at which row, of an event that begins at which step."""
    detector = Detector(changes=changes)
    return [
        (each.kind, i, each.event.start)
        for i, loss in enumerate(losses.tolist())
        for each in detector.observe(i if steps is None else int(steps[i]), loss=loss)
    ]


def test_what_comes_back_from_a_told_change_began_as_soon_as_that_is_known() -> None:
    losses = 2.5 + 0.03 * noise(1000, seed=1)
    losses[500:503] += 1.0
    came_back = 502 + DetectorSettings().num_quiet
    assert noticed_in(losses)[0] == ("began", 500, 500)
    first, last = noticed_in(losses, changes=(500,))
    assert first == ("began", came_back, 500)
    assert (last[0], last[2]) == ("ended", 500)


def test_what_goes_on_moving_after_a_told_change_began_before_it_ends() -> None:
    losses = 2.5 + 0.03 * noise(1000, seed=1)
    losses[500:600] += 0.5 + 0.05 * np.arange(100)
    losses[600:] += 5.5
    noticed = noticed_in(losses, changes=(500,))
    assert noticed[0] == ("began", 500 + 2 * DetectorSettings().num_history - 1, 500)
    assert [row > 600 for kind, row, start in noticed if (kind, start) == ("ended", 500)] == [True]


def test_what_settles_higher_behind_a_hole_in_the_log_began_and_ended() -> None:
    steps = np.r_[np.arange(300), 100_000 + np.arange(300)]
    losses = 2.5 + 0.03 * noise(600, seed=1)
    losses[300:] += 0.8
    (began, row, _), (ended, same_row, start) = noticed_in(losses, steps=steps)
    assert (began, ended, start) == ("began", "ended", 100_000)
    assert row == same_row


def test_the_pause_before_a_later_attempt_is_no_stall() -> None:
    rows = LogRows()
    for step in range(60):
        rows.add(step, {"loss": 3.0 + 0.01 * (step % 7)}, time=float(step + (600 if step >= 40 else 0)))
    log = rows.finish("a", "csv")
    found = detect(log).events
    (stall,) = (each for each in found if each.event_class is EventClass.STALL)
    assert stall.start == 40
    others = tuple(each for each in found if each is not stall)
    assert detect(log, begun={40}).events == examine(log, begun={40}).detection.events == others
    assert len(examine(log, begun={40}).answer.events) == len(others)
    assert detect(log, begun={41}).events == found
