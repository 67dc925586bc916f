"""Real logs: what is known of them is found, and where nothing is there is nothing said."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dataguard.core.spikes import EventClass
from dataguard.run.logs import TrainingLog, read_log
from dataguard.triage.detect import detect
from dataguard.triage.detect.spikes import Examined, compare_examined, examine

PAIRS = (
    ("nanogpt_2024-10-20_ScaleUp1B_ad8d7ae5", "nanogpt_2024-10-20_ScaleUp1B_c0078066", 33),
    ("nanogpt_2024-11-10_ScaleShortcuts_4897c987", "nanogpt_2024-11-14_QuantizedFP4_70a0ada6", 50),
)


def log_of(shared: Path, name: str) -> TrainingLog:
    (path,) = (shared / "data/training_logs").glob(f"{name}*")
    return read_log(path)


@cache
def examined(shared: Path, name: str) -> Examined:
    return examine(log_of(shared, name))


@pytest.mark.parametrize(("first", "second", "least"), PAIRS)
def test_paired_runs_share_hard_batches_of_one_data_order(shared: Path, first: str, second: str, least: int) -> None:
    compared = compare_examined(examined(shared, first), examined(shared, second))
    comparison = compared.comparison
    assert comparison.one_data_order is True
    assert min(comparison.num_spikes) >= least
    assert comparison.num_recurring == comparison.num_spikes
    assert max(comparison.log10_chance) < -50
    classes = [event.event_class for log in compared.logs for event in log.events]
    assert classes.count("hard_batch") >= 0.95 * len(classes)


def test_unrelated_runs_are_told_apart(shared: Path) -> None:
    unrelated = compare_examined(examined(shared, PAIRS[0][1]), examined(shared, PAIRS[1][0])).comparison
    assert unrelated.one_data_order is False
    assert min(unrelated.log10_chance) > -3


def test_the_gradient_norm_of_step_9025_comes_with_an_ordinary_loss(shared: Path) -> None:
    detection = examined(shared, "nanogpt_llmc").detection
    alone = [event for event in detection.events if event.event_class is EventClass.GRAD_NORM_ONLY]
    assert [(event.start, event.stop) for event in alone] == [(9025, 9026)]
    assert detection.smallest_shift_nats == pytest.approx(0.036, abs=0.006)
    assert [(change.step, change.what) for change in detection.changes] == [(699, "end of warm-up")]


@pytest.mark.parametrize(
    "name", ["megatron_gpt3_15b", "torchtitan_llama3_cuda", "torchtitan_llama3_rocm", "torchtitan_qwen3"]
)
def test_quiet_logs_are_quiet(shared: Path, name: str) -> None:
    assert detect(log_of(shared, name)).events == ()


def test_missing_points_of_megatron_are_missing_and_no_fault(shared: Path) -> None:
    log = log_of(shared, "megatron_mixtral")
    assert np.diff(np.unique(log.steps)).max() > 1000
    assert EventClass.HARD_FAULT not in {event.event_class for event in detect(log).events}


def _stands_out(values: NDArray[np.float64], side: int) -> NDArray[np.bool_]:
    """Which points lie above 6 robust standard deviations of their neighbours, trend and all; `side` on either side."""
    padded = np.pad(values, side, constant_values=np.nan)
    found = np.zeros(len(values), np.bool_)
    for first in range(0, len(values), 2048):
        window = np.lib.stride_tricks.sliding_window_view(padded, 2 * side + 1)[first : first + 2048]
        median_of = np.median if np.isfinite(window).all() else np.nanmedian  # points x neighbours
        median = median_of(window, axis=1)
        scale = 1.4826 * median_of(np.abs(window - median[:, None]), axis=1)
        found[first : first + len(window)] = values[first : first + len(window)] - median > 6 * scale
    return found


def test_quiet_stretches_give_at_most_one_alarm_in_ten_thousand_points(shared: Path) -> None:
    """Counted in both ways that one can mean it: points that do not stand out themselves, and points farther than 200
    steps from any that does. Those of the second kind are three hard batches where the curve is steep (7 to 9 sigma off
    its trend), and the gradient norm that is to be found."""
    num_points, num_alarms, num_far, num_far_alarms = 0, 0, 0, 0
    for path in sorted((shared / "data/training_logs").iterdir()):
        found = examined(shared, path.name.split(".")[0])
        steps, values = found.log.series("loss")
        steps, values = steps[np.isfinite(values)], values[np.isfinite(values)]
        side = 200 // int(np.median(np.diff(steps)))
        loud = _stands_out(values, side)
        near = np.convolve(loud, np.ones(2 * side + 1), "same") > 0.5
        num_points, num_far = num_points + int((~loud).sum()), num_far + int((~near).sum())
        for event in found.detection.events:
            place = slice(int(np.searchsorted(steps, event.start)), int(np.searchsorted(steps, event.stop)))
            num_alarms += not loud[place].any()
            num_far_alarms += not near[place].any()
    assert num_points > 100_000
    assert num_far > 40_000
    assert num_alarms <= num_points / 10_000
    assert num_far_alarms <= num_far / 10_000
