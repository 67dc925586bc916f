"""From a step on the second moments of one block are kept in float16: small ones become zero, and updates huge."""

from __future__ import annotations

from dataguard.core.evidence import Verdict
from dataguard.core.spikes import EventClass
from tests.incidents.incident import Incident, clean
from tests.incidents.places import text_names
from tests.incidents.stage import Fault, Settings, constant
from tests.incidents.training import Training

_FROM, _BLOCK = 90, 2


class _HalfMoments(Fault):
    def after_update(self, training: Training, step: int) -> None:
        if step >= _FROM:
            for parameter in training.model.blocks[_BLOCK].parameters():
                moments = training.optimizer.state[parameter]["exp_avg_sq"]
                moments.copy_(moments.half())


INCIDENT = Incident(
    name="epsilon_floor",
    segments=lambda generator: [clean(generator, 190)],
    settings=lambda seed: Settings(num_steps=190, lr=constant(1e-3), eps=1e-7, watch_every=5, fault=_HalfMoments()),
    classes=frozenset({EventClass.TRANSIENT_SPIKE}),
    verdicts=frozenset({Verdict.OPTIMIZER_OR_NUMERICS}),
    place=text_names(f"blocks.{_BLOCK}"),
    experiment=True,
)
