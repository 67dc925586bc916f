"""Real logs: what is known of them is found, and where nothing is there is nothing said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dataguard.core.spikes import EventClass
from dataguard.run.logs import TrainingLog, read_log
from dataguard.triage.detect import compare_logs, detect

PAIRS = (
    ("nanogpt_2024-10-20_ScaleUp1B_ad8d7ae5", "nanogpt_2024-10-20_ScaleUp1B_c0078066", 60),
    ("nanogpt_2024-11-10_ScaleShortcuts_4897c987", "nanogpt_2024-11-14_QuantizedFP4_70a0ada6", 60),
)


def log_of(shared: Path, name: str) -> TrainingLog:
    (path,) = (shared / "data/training_logs").glob(f"{name}*")
    return read_log(path)


@pytest.mark.parametrize(("first", "second", "least"), PAIRS)
def test_paired_runs_share_hard_batches_of_one_data_order(shared: Path, first: str, second: str, least: int) -> None:
    compared = compare_logs(log_of(shared, first), log_of(shared, second))
    comparison = compared.comparison
    assert comparison.one_data_order is True
    assert min(comparison.num_spikes) >= least
    assert comparison.num_recurring == comparison.num_spikes
    assert max(comparison.log10_chance) < -50
    classes = [event.event_class for log in compared.logs for event in log.events]
    assert classes.count("hard_batch") >= 0.95 * len(classes)


def test_unrelated_runs_are_told_apart(shared: Path) -> None:
    unrelated = compare_logs(log_of(shared, PAIRS[0][1]), log_of(shared, PAIRS[1][0])).comparison
    assert unrelated.one_data_order is False
    assert min(unrelated.log10_chance) > -3


def test_the_gradient_norm_of_step_9025_comes_with_an_ordinary_loss(shared: Path) -> None:
    detection = detect(log_of(shared, "nanogpt_llmc"))
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
