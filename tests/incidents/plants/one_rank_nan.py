"""The machine of one rank computes a NaN, once; on any other machine the same batch from the same weights is finite."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from dataguard.core.evidence import Verdict
from dataguard.core.spikes import EventClass
from tests.incidents.incident import Incident, clean
from tests.incidents.model import MACHINE
from tests.incidents.places import rank_named
from tests.incidents.stage import Fault, Settings
from tests.incidents.training import Training

_STEP, _RANK = 100, 1


def _flipped(x: Tensor) -> Tensor:
    """A bit flipped in one place."""
    hidden = functional.relu(x)
    return torch.where(torch.arange(hidden.numel()).view_as(hidden) == 12_345, torch.nan, hidden)


class _Flip(Fault):
    def before_step(self, training: Training, step: int) -> None:
        is_now = step == _STEP and training.rank == _RANK
        MACHINE.relu = _flipped if is_now else functional.relu


INCIDENT = Incident(
    name="one_rank_nan",
    segments=lambda generator: [clean(generator, 120)],
    settings=lambda seed: Settings(num_steps=_STEP + 4, world_size=2, watch_every=10, fault=_Flip()),
    classes=frozenset({EventClass.HARD_FAULT}),
    verdicts=frozenset({Verdict.HARDWARE}),
    place=rank_named(_RANK),
    experiment=True,
)
