"""One rank's gradient is NaN once, by nothing that comes again: its own microbatch is finite where it is replayed."""

from __future__ import annotations

import torch

from dataguard.core.evidence import Verdict
from dataguard.core.spikes import EventClass
from tests.incidents.incident import Incident, clean
from tests.incidents.places import rank_named
from tests.incidents.stage import Fault, Settings
from tests.incidents.training import Training

_STEP, _RANK = 100, 1


class _Flips(Fault):
    def on_gradients(self, training: Training, step: int) -> None:
        if step == _STEP and training.rank == _RANK:
            parameter = next(training.model.parameters())
            assert parameter.grad is not None
            parameter.grad.view(-1)[7] = torch.nan


INCIDENT = Incident(
    name="one_rank_nan_once",
    segments=lambda generator: [clean(generator, 120)],
    settings=lambda seed: Settings(num_steps=_STEP + 4, world_size=2, fault=_Flips()),
    classes=frozenset({EventClass.HARD_FAULT}),
    verdicts=frozenset({Verdict.HARDWARE}),
    place=rank_named(_RANK),
    experiment=True,
)
