"""A walk under a monitor that detects, and what was decided and noted on the way."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dataguard.loader.loader import Loader
from dataguard.run.events import SpikeFound
from dataguard.run.notes import noted
from dataguard.run.run import Run
from dataguard.torch.monitoring.decision import Decision
from dataguard.torch.monitoring.monitor import Monitor

Faults = dict[int, float]


def loss_of(step: int, faults: Faults) -> float:
    return 3.0 + 0.01 * float(np.random.default_rng(step).standard_normal()) + faults.get(step, 0.0)


def walk(
    monitor: Monitor,
    loader: Loader,
    faults: Faults,
    steps: range,
    *,
    log: Callable[[int, float], Decision | None] | None = None,
) -> list[Decision]:
    """Take and log steps; what was decided of each."""
    decided = []
    for step in steps:
        assert loader.take_step()
        loss = loss_of(step, faults)
        decision = monitor.log(step, loss=loss, grad_norm=1.0) if log is None else log(step, loss)
        assert decision is not None
        assert decision.step == step
        decided.append(decision)
    return decided


def told(decided: list[Decision]) -> list[tuple[str, int, str, int]]:
    """(what, step, class, start) of all that was noticed."""
    return [
        (what, decision.step, event.event_class.value, event.start)
        for decision in decided
        for what, events in (("began", decision.began), ("ended", decision.ended))
        for event in events
    ]


def notes_of(run: Run) -> list[SpikeFound]:
    return [note for _, note in noted(run.read().entries, SpikeFound)]
