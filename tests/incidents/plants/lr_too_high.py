"""A warm-up of decent length that ends at five times a rate at which this model trains well."""

from __future__ import annotations

from dataguard.core.evidence import Verdict
from dataguard.core.spikes import EventClass
from dataguard.core.trainer import ScheduleFacts, TrainerFacts
from tests.incidents.incident import Incident, clean
from tests.incidents.places import step_between
from tests.incidents.stage import Settings

_WARM, _PEAK = 100, 5 * 2.5e-3

INCIDENT = Incident(
    name="lr_too_high",
    segments=lambda generator: [clean(generator, 160)],
    settings=lambda seed: Settings(
        num_steps=150,
        start="weights",
        clip=None,
        betas=(0.9, 0.999),
        lr=lambda step: _PEAK * min(1.0, (step + 1) / _WARM),
        facts=TrainerFacts(schedule=ScheduleFacts(total_steps=10_000, warmup_steps=_WARM, peak_lr=_PEAK)),
    ),
    classes=frozenset({EventClass.ABSORBING_SHIFT, EventClass.TRANSIENT_SPIKE}),
    verdicts=frozenset({Verdict.OPTIMIZER_OR_NUMERICS}),
    place=step_between(_WARM * 3 // 4, 150),  # from the end of warm-up on the rate stays at its peak
    experiment=True,
)
