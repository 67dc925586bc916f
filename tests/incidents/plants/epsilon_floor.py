"""From a step on the second moments of one block are kept in float16: small ones become zero, and updates huge."""

from __future__ import annotations

from typing import Any

from torch.optim import AdamW

from dataguard.core.evidence import Verdict
from dataguard.core.spikes import EventClass
from tests.incidents.incident import Incident, clean
from tests.incidents.places import text_names
from tests.incidents.stage import WARM_STEPS, Settings, constant

_FROM, _BLOCK = 90, 2
_PARAMETERS = range(22, 32)
"""Of the block, among all of the model."""


class _HalfMoments(AdamW):
    """The trainer's own optimizer, replays included."""

    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)
        (group,) = self.param_groups
        for number in _PARAMETERS:
            state = self.state[group["params"][number]]
            if state["step"] > WARM_STEPS + _FROM:
                state["exp_avg_sq"].copy_(state["exp_avg_sq"].half())
        return loss


INCIDENT = Incident(
    name="epsilon_floor",
    segments=lambda generator: [clean(generator, 170)],
    settings=lambda seed: Settings(
        num_steps=170, lr=constant(1e-3), eps=1e-7, watch_every=5, checkpoint_every=10, optimizer=_HalfMoments
    ),
    classes=frozenset({EventClass.TRANSIENT_SPIKE}),
    verdicts=frozenset({Verdict.OPTIMIZER_OR_NUMERICS}),
    place=text_names(f"blocks.{_BLOCK}"),
    experiment=True,
)
