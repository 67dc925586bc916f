"""What the gradient norm did around an event: each answer has its own curve."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dataguard.core.evidence import GradNorm
from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.run.logs.log import LogRows, TrainingLog
from dataguard.run.telemetry_reading import TELEMETRY_ROW
from dataguard.triage.grad_norm import grad_norm_of

NOTHING = np.empty(0, TELEMETRY_ROW)


def curve(
    values: dict[int, float], *, num_steps: int = 300, noise: float = 0.1, name: str = "grad_norm"
) -> TrainingLog:
    random = np.random.default_rng(5)
    rows = LogRows()
    for step in range(num_steps):
        rows.add(step, {name: values.get(step, math.exp(random.normal(0, noise)))})
    return rows.finish("a", "csv")


def spike(
    event_class: EventClass = EventClass.TRANSIENT_SPIKE, *, start: int = 200, signal: str = "loss"
) -> SpikeEvent:
    return SpikeEvent(
        event_class=event_class, start=start, stop=210, peak=start, size_nats=1.0, sigmas=9.0, signal=signal
    )


def own(values: dict[int, float]) -> np.ndarray:
    rows = [(1, rank, 203, 0, b"local_grad_norm/blocks.0", -1, value) for rank, value in values.items()]
    return np.array(rows, TELEMETRY_ROW)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, GradNorm.ORDINARY),
        ({202: 9.0}, GradNorm.BURST),
        ({199: 9.0}, GradNorm.BURST),  # the step before: its update made the loss
        ({197: 9.0}, GradNorm.ORDINARY),
        ({202: math.inf}, GradNorm.NONFINITE),
        ({202: math.nan}, GradNorm.NONFINITE),
        ({202: 0.01}, GradNorm.ORDINARY),  # falling is no burst
    ],
)
def test_the_norm_of_the_event_is_held_against_what_came_before(values: dict[int, float], expected: GradNorm) -> None:
    found, texts = grad_norm_of(curve(values), NOTHING, spike(), [])
    assert found is expected
    assert len(texts) == 1


def test_a_drift_of_the_norm_before_the_end_of_the_event_is_a_climb() -> None:
    climb = spike(EventClass.CREEPING_DRIFT, start=50, signal="grad_norm")
    later = spike(EventClass.CREEPING_DRIFT, start=250, signal="grad_norm")
    other = spike(EventClass.CREEPING_DRIFT, start=50, signal="attention_logit_max/blocks.0")
    assert grad_norm_of(curve({}), NOTHING, spike(), [climb])[0] is GradNorm.CLIMBING
    assert grad_norm_of(curve({}), NOTHING, climb, [climb])[0] is GradNorm.CLIMBING
    assert grad_norm_of(curve({}), NOTHING, spike(), [later, other])[0] is GradNorm.ORDINARY


def test_zero_on_one_rank_is_told_and_on_all_is_not() -> None:
    assert grad_norm_of(curve({}), own({0: 1.0, 1: 0.0}), spike(), [])[0] is GradNorm.ZERO_ON_ONE_RANK
    assert grad_norm_of(curve({}), own({0: 0.0, 1: 0.0}), spike(), [])[0] is GradNorm.ORDINARY


def test_what_was_not_logged_is_unknown() -> None:
    assert grad_norm_of(curve({}, name="loss"), NOTHING, spike(), [])[0] is GradNorm.UNKNOWN
    assert grad_norm_of(curve({}, num_steps=150), NOTHING, spike(), [])[0] is GradNorm.UNKNOWN
    early = spike(start=20)
    assert grad_norm_of(curve({}), NOTHING, early, [])[0] is GradNorm.UNKNOWN
