"""The machine of one rank computes NaN from a step on; on any other the same batch from the same weights is finite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from dataguard import Run
from dataguard.core.evidence import Verdict
from dataguard.core.spikes import EventClass
from tests.incidents.incident import Incident, clean, experiment_on
from tests.incidents.model import MACHINE
from tests.incidents.places import rank_named
from tests.incidents.stage import Fault, Settings, Stage
from tests.incidents.training import Training

_STEP, _RANK, _UNIT = 100, 1, 137


def _broken(x: Tensor) -> Tensor:
    """One unit of the machine is broken."""
    hidden = functional.relu(x)
    return torch.where(torch.arange(hidden.shape[-1]) == _UNIT, torch.nan, hidden)


class _Breaks(Fault):
    def before_step(self, training: Training, step: int) -> None:
        if step == _STEP and training.rank == _RANK:
            MACHINE.relu = _broken


@contextmanager
def _machine(relu: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """What is computed here is computed as on that machine."""
    MACHINE.relu = relu
    try:
        yield
    finally:
        MACHINE.relu = functional.relu


def _answers(stage: Stage, settings: Settings, run: Run) -> tuple[Any, Mapping[str, Any]]:
    """The step is replayed on the machine of the rank, and on another."""
    from dataguard.triage.triage import triage

    first = triage(run)
    if first.event is None:
        return first, {}
    with _machine(_broken):
        experiment_on(stage, settings, run, first.event.peak, node=f"node-{_RANK}")
    experiment_on(stage, settings, run, first.event.peak, node="node-0")
    return triage(run), {"before the replay": first}


INCIDENT = Incident(
    name="one_rank_nan",
    segments=lambda generator: [clean(generator, 120)],
    settings=lambda seed: Settings(num_steps=_STEP + 4, world_size=2, fault=_Breaks()),
    classes=frozenset({EventClass.HARD_FAULT}),
    verdicts=frozenset({Verdict.HARDWARE}),
    place=rank_named(_RANK),
    answers=_answers,
)
