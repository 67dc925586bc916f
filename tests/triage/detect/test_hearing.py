"""How high a spike had to be is told as it was, and one that was not heard is told from noise."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dataguard.run.logs.log import LogRows, TrainingLog
from dataguard.triage.detect import Detection, Detector, DetectorSettings, detect
from dataguard.triage.detect.hearing import Hearing, hearing_of
from dataguard.triage.detect.spikes import spikes
from tests.triage.detect.curves import curve, noise

Floats = NDArray[np.float64]


def log_of(losses: Floats) -> TrainingLog:
    rows = LogRows()
    for step, loss in enumerate(losses.tolist()):
        rows.add(step, {"loss": loss})
    return rows.finish("a", "csv")


def heard(losses: Floats) -> tuple[Detection, Hearing]:
    detection = detect(log_of(losses))
    assert detection.hearing is not None
    return detection, detection.hearing


def steep(num: int = 80, *, tau: float = 10.0, sigma: float = 0.02, seed: int = 0) -> Floats:
    return np.asarray(3 + 8 * np.exp(-np.arange(num) / tau) + sigma * noise(num, seed=seed))


def jumped(losses: Floats, at: int, nats: float, num: int = 3) -> Floats:
    found = losses.copy()
    found[at : at + num] += nats
    return found


@pytest.mark.parametrize("at", [20, 33, 60, 300])
def test_a_spike_as_large_as_was_told_shows_and_one_a_little_smaller_does_not(at: int) -> None:
    """Of a loss that stands still: there the best value and the level are one."""
    losses = np.where(np.arange(at + 1) % 2, 3.01, 3.0) + np.where(np.arange(at + 1) % 5, 0.0, 0.004)
    detector = Detector()
    for step, loss in enumerate(losses[:at].tolist()):
        detector.observe(step, loss=loss)
    least = detector.smallest_spike_nats
    assert least is not None
    judged = heard(losses)[1].smallest_spike(at)
    assert judged == pytest.approx(least)
    begin = [
        bool(_noticed(losses[:at], 3.0 + offset + share * least)) for share in (0.5, 1.5) for offset in (0.0, 0.01)
    ]
    assert begin == [False, False, True, True]


def _noticed(before: Floats, loss: float) -> object:
    detector = Detector()
    for step, value in enumerate(before.tolist()):
        detector.observe(step, loss=value)
    return detector.observe(len(before), loss=loss)


def test_in_a_steep_begin_a_spike_needs_many_times_what_it_needs_later() -> None:
    _, hearing = heard(np.concatenate([steep(), 3 + 0.02 * noise(600, seed=9)]))
    early, late = hearing.smallest_spike(33), hearing.smallest_spike(600)
    assert early is not None
    assert late is not None
    assert early > 30 * 0.02 > 10 * 0.02 > late > 6 * 0.02
    assert hearing.smallest_spike(3) is None
    assert hearing.smallest_spike(9_999) is None
    hardest, typical = hearing.hardest(), hearing.typical()
    assert hardest is not None
    assert typical == pytest.approx(late, rel=0.3)
    assert hardest[0] < 40
    assert hardest[1] >= early


@pytest.mark.parametrize("asked", [32, 33, 34])
@pytest.mark.parametrize("tau", [5.0, 10.0])
def test_a_jump_that_the_steep_begin_hides_is_unheard(tau: float, asked: int) -> None:
    for seed in range(4):
        detection, hearing = heard(jumped(steep(60, tau=tau, seed=seed), 33, 0.9))
        assert not any(event.start <= 35 and event.stop > 33 for event in detection.events)
        (found,) = hearing.unheard(asked)
        assert 33 <= found.start < found.stop <= 36
        assert found.size_nats == pytest.approx(0.9, abs=0.35)
        assert found.smallest_spike_nats > 0.9
        assert hearing.unheard(20) == ()


def test_what_jumped_before_the_step_in_question_and_stayed_is_not_passed_over() -> None:
    losses = 3 + 0.02 * noise(400, seed=1)
    losses[60:] += 1.0
    steps, nothing = np.arange(400), np.full(400, 5.0)
    hearing = hearing_of(steps, losses, nothing, (), DetectorSettings())
    assert [each.start for each in hearing.unheard(60 + 100)] == [60]
    assert [each.start for each in hearing.unheard()] == [60]
    assert hearing.unheard(60 + 300) == ()
    assert hearing.unheard(58) == ()
    assert hearing_of(steps, losses, np.full(400, 0.15), (), DetectorSettings()).unheard() == ()


@pytest.mark.parametrize("kind", ["normal", "laplace", "t4"])
@pytest.mark.parametrize("memory", [0.0, 0.9])
def test_quiet_curves_have_nothing_unheard(kind: str, memory: float) -> None:
    """Nowhere without a question; at a step that is asked for in one of 200 at most, of all that are judged."""
    num_asked = 0
    for seed in range(2):
        _, hearing = heard(curve(250, seed=seed, kind=kind, memory=memory))
        assert hearing.unheard() == ()
        num_asked += sum(bool(hearing.unheard(step)) for step in range(24, 250))
    assert num_asked <= 2 * 2 * 226 / 200  # a point is reached from two steps


def test_an_event_is_not_unheard() -> None:
    detection, hearing = heard(jumped(curve(400, seed=1), 200, 1.0))
    assert [event.start for event in detection.events] == [200]
    assert hearing.unheard(200) == hearing.unheard() == ()


def test_points_that_are_not_finite_or_too_early_are_not_known() -> None:
    losses = curve(100, seed=1)
    losses[50] = np.nan
    _, hearing = heard(losses)
    assert hearing.smallest_spike(50) is None
    assert hearing.smallest_spike(51) is not None
    assert heard(losses[:8])[1].hardest() is None
    assert heard(losses[:8])[1].typical() is None
    assert heard(losses[:20])[1].unheard(19) == ()


def test_the_answer_of_spikes_tells_both() -> None:
    answer = spikes(log_of(jumped(steep(60), 33, 0.9)))
    assert answer.smallest_spike is not None
    assert answer.smallest_spike.hardest_nats > answer.smallest_spike.typical_nats > 0
    assert spikes(log_of(curve(60, seed=1)), profile="lightning").smallest_spike is None
    assert spikes(log_of(curve(8, seed=1))).smallest_spike is None
