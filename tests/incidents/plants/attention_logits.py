"""Queries and keys of one head grow a little at each step, and nothing bounds their logits."""

from __future__ import annotations

import torch

from dataguard.core.evidence import Verdict
from dataguard.core.spikes import EventClass
from tests.incidents.incident import Incident, clean
from tests.incidents.places import text_names
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


INCIDENT = Incident(
    name="attention_logits",
    segments=lambda generator: [clean(generator, 150)],
    settings=lambda seed: Settings(num_steps=150, watch_every=1, fault=_Growing()),
    classes=frozenset({EventClass.CREEPING_DRIFT}),
    verdicts=frozenset({Verdict.OPTIMIZER_OR_NUMERICS}),
    place=text_names(f"blocks.{_LAYER}"),
)
