"""Queries and keys of one head grow a little at each step, and nothing bounds their logits."""

from __future__ import annotations

import torch

from dataguard.core.evidence import Verdict
from dataguard.core.spikes import EventClass
from tests.incidents.incident import Incident, Played, clean
from tests.incidents.stage import Fault, Settings
from tests.incidents.training import Training

_LAYER, _HEAD, _GROWTH = 3, 1, 1.015


class _Growing(Fault):
    @torch.no_grad()
    def after_update(self, training: Training, step: int) -> None:
        attention = training.model.blocks[_LAYER].attention
        for layer in (attention.query, attention.key):
            rows = layer.weight.view(attention.num_heads, -1, layer.weight.shape[1])
            rows[_HEAD] *= _GROWTH


def _place(played: Played) -> tuple[str, bool]:
    """Layers and heads whose logits drift: only those of the one that grows."""
    drifting = {event.signal for event in played.answer.events if event.event_class is EventClass.CREEPING_DRIFT}
    layer = f"attention_logit_max/blocks.{_LAYER}"
    return ", ".join(sorted(drifting)) or "nothing", drifting == {layer, f"{layer}/head={_HEAD}"}


INCIDENT = Incident(
    name="attention_logits",
    segments=lambda generator: [clean(generator, 150)],
    settings=lambda seed: Settings(num_steps=150, watch_every=1, fault=_Growing()),
    classes=frozenset({EventClass.CREEPING_DRIFT}),
    verdicts=frozenset({Verdict.OPTIMIZER_OR_NUMERICS}),
    place=_place,
)
