"""Logs as they should not be: each has a true answer, or an error that says what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from dataguard.errors import NotInRun
from dataguard.report.spikes.text import render_spikes
from dataguard.run.logs import TrainingLog
from dataguard.run.logs.log import LogRows
from dataguard.triage.detect import DetectorSettings
from dataguard.triage.detect.detection import smallest_visible_shift
from dataguard.triage.detect.spikes import examine
from tests.triage.detect.curves import curve, noise, trend

NUM = 500
HARD_BATCH_AT_400 = [("hard_batch", 400, 401)]


def log_of(losses: Sequence[float] | Any, steps: Iterable[int] | None = None, name: str = "loss") -> TrainingLog:
    rows = LogRows()
    for step, value in zip(range(len(losses)) if steps is None else steps, losses, strict=True):
        rows.add(step, {name: float(value)})
    return rows.finish("a", "csv")


def found_in(log: TrainingLog) -> list[tuple[str, int, int]]:
    examined = examine(log)
    assert list(render_spikes(examined))
    return [(event.event_class.value, event.start, event.stop) for event in examined.detection.events]


def spiked(factor: float = 1.0, shift: float = 0.0) -> Any:
    losses = curve(NUM, seed=1)
    losses[400] += 1.0
    return losses * factor + shift


@pytest.mark.parametrize("losses", [[3.0], [3.0, 3.1]])
def test_of_too_few_points_none_is_judged(losses: list[float]) -> None:
    examined = examine(log_of(losses))
    assert (examined.detection.num_judged, examined.detection.events) == (0, ())
    assert examined.detection.smallest_shift_nats is None
    assert "nothing was judged: too few points of the loss" in list(render_spikes(examined))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_log_that_is_never_finite_is_one_fault(value: float) -> None:
    assert found_in(log_of([value] * NUM)) == [("hard_fault", 0, NUM)]


def test_a_log_that_ends_within_an_event_leaves_it_open() -> None:
    losses = curve(NUM, seed=1)
    losses[NUM - 10 :] += 2.0
    (event,) = examine(log_of(losses)).detection.events
    assert (event.start, event.stop, event.is_open, event.aftermath_nats) == (NUM - 10, NUM, True, None)


@pytest.mark.parametrize(("factor", "shift"), [(1.0, -10.0), (1e6, 0.0), (1e-4, 1.0), (1e300, 0.0)], ids=str)
def test_the_unit_of_a_loss_changes_nothing(factor: float, shift: float) -> None:
    assert found_in(log_of(spiked(factor, shift))) == HARD_BATCH_AT_400


def test_a_line_without_any_noise_shows_its_spike_and_nothing_else() -> None:
    line = 10 - 0.01 * np.arange(NUM)
    assert found_in(log_of(line)) == []
    assert found_in(log_of(10 - np.arange(NUM) / 3e3)) == []
    line[400] += 1.0
    assert found_in(log_of(line)) == HARD_BATCH_AT_400


@pytest.mark.parametrize(
    "quantise", [np.float32, lambda x: np.round(x * 128) / 128, np.round], ids=["f32", "bf16", "1"]
)
def test_digits_are_no_events(quantise: Any) -> None:
    losses = curve(NUM, seed=1)
    assert found_in(log_of(quantise(losses))) == []
    assert found_in(log_of(quantise(1000 + losses * 1e-4))) == []


def test_every_fifth_step_is_a_log_as_well_and_a_hole_in_it_is_no_event() -> None:
    steps = [5 * i for i in range(NUM)]
    assert found_in(log_of(spiked(), steps)) == [("hard_batch", 2000, 2001)]
    steps = [i if i < 300 else i + 10**9 for i in range(NUM)]
    assert found_in(log_of(curve(NUM, seed=1), steps)) == []


def test_what_is_logged_again_counts_as_it_came_last_and_is_told() -> None:
    first, again = curve(300, seed=1), curve(300, seed=2)
    first[200] += 3.0
    examined = examine(log_of(np.r_[first, again], [*range(300), *range(300)]))
    assert examined.detection.events == ()
    assert "300 points were logged again" in examined.detection.notes[0]
    both = np.stack([first, again + 1.0], axis=1).ravel()  # two runs in one file
    examined = examine(log_of(both, [step for step in range(300) for _ in range(2)]))
    assert examined.detection.events == ()
    assert "300 points were logged again" in examined.detection.notes[0]


@pytest.mark.parametrize("name", ["grad_norm", "val_loss"])
def test_a_log_without_a_training_loss_says_so(name: str) -> None:
    with pytest.raises(NotInRun, match="holds no loss") as raised:
        examine(log_of(curve(NUM, seed=1), name=name))
    assert name in str(raised.value)


@pytest.mark.parametrize("kind", ["flat", "line", "power"])
def test_the_smallest_shift_is_that_of_the_noise_and_not_of_the_trend(kind: str) -> None:
    trends = {"flat": np.full(4000, 3.0), "line": 8 - 0.001 * np.arange(4000), "power": trend(4000)}
    shift, points = smallest_visible_shift(trends[kind] + 0.02 * noise(4000, seed=1), DetectorSettings())
    assert points == 200
    white = 4 * 0.02 * np.sqrt(2 / 200)
    assert shift is not None
    assert 0.5 * white < shift < 3.5 * white  # first differences of the power law: 10 x
    wander = np.repeat(0.05 * noise(20, seed=2), 200)
    wandering, _ = smallest_visible_shift(trends[kind] + wander + 0.02 * noise(4000, seed=1), DetectorSettings())
    assert wandering is not None
    assert wandering > 0.1
    short, _ = smallest_visible_shift(8 - 0.001 * np.arange(400) + 0.01 * noise(400, seed=1), DetectorSettings())
    assert short is not None
    assert short < 2.5 * 4 * 0.01 * np.sqrt(2 / 25)
