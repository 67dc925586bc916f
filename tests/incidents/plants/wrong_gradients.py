"""One of four ranks computes wrong gradients from a step on: finite, and with no error that anybody sees."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from dataguard.core.evidence import Verdict
from dataguard.core.spikes import EventClass
from tests.incidents.incident import Incident, Played, clean
from tests.incidents.model import MACHINE
from tests.incidents.stage import Fault, Settings
from tests.incidents.training import Training

_FROM, _RANK = 50, 2


class _Wrong(torch.autograd.Function):
    """A ReLU whose backward pass has the wrong sign in one unit of sixteen."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return functional.relu(x)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        gradient = gradient * (x > 0)
        gradient[..., ::16] *= -1
        return gradient


class _Broken(Fault):
    def before_step(self, training: Training, step: int) -> None:
        if step == _FROM and training.rank == _RANK:
            MACHINE.relu = _Wrong.apply


def _place(played: Played) -> tuple[str, bool]:
    canaries = played.answer.canaries
    odd = canaries[-1].odd if canaries else ()
    return ", ".join(odd) or "no rank", len(odd) == 1 and odd[0].startswith(f"node-{_RANK}/")


INCIDENT = Incident(
    name="wrong_gradients",
    segments=lambda generator: [clean(generator, 100)],
    settings=lambda seed: Settings(num_steps=100, world_size=4, canary_every=14, watch_every=0, fault=_Broken()),
    classes=frozenset({None, EventClass.CREEPING_DRIFT}),
    verdicts=frozenset({Verdict.HARDWARE}),
    place=_place,
)
