"""A run in float32 goes on in float16, where hidden values of one block do not fit: its multiplier is large."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch

from dataguard.core.evidence import Verdict
from dataguard.core.spikes import EventClass
from dataguard.core.trainer import PrecisionFacts, TrainerFacts
from tests.incidents.incident import Incident, clean
from tests.incidents.model import ByteModel
from tests.incidents.places import text_names
from tests.incidents.stage import Fault, Settings

_FROM, _BLOCK = 100, 1
_SMALL = {"width": 64, "num_layers": 3}
"""Processors have no units for float16, and need a second for what takes them a tenth in float32."""


class _Half(Fault):
    def forward(self, step: int) -> AbstractContextManager[object]:
        return torch.autocast("cpu", dtype=torch.float16) if step >= _FROM else nullcontext()


INCIDENT = Incident(
    name="fp16_overflow",
    segments=lambda generator: [clean(generator, 140)],
    settings=lambda seed: Settings(
        num_steps=_FROM + 4,
        start="scratch",
        model=partial(ByteModel, multipliers={_BLOCK: 100_000.0}, **_SMALL),
        fault=_Half(),
        run_dtype=torch.float16,
        facts=TrainerFacts(precision=PrecisionFacts(compute="float16")),
    ),
    classes=frozenset({EventClass.HARD_FAULT}),
    verdicts=frozenset({Verdict.OPTIMIZER_OR_NUMERICS}),
    place=text_names(f"blocks.{_BLOCK}"),
    experiment=True,
)
