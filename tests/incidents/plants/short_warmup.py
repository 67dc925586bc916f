"""A warm-up of 0.1 % of the run."""

from __future__ import annotations

from dataguard.core.evidence import Verdict
from dataguard.core.spikes import EventClass
from dataguard.core.trainer import ScheduleFacts, TrainerFacts
from tests.incidents.incident import Incident, clean
from tests.incidents.places import step_between
from tests.incidents.stage import Settings

_WARM, _PEAK = 40, 5 * 5e-3

INCIDENT = Incident(
    name="short_warmup",
    segments=lambda generator: [clean(generator, 140)],
    settings=lambda seed: Settings(
        num_steps=130,
        start="weights",
        checkpoint_every=5,
        betas=(0.9, 0.999),
        lr=lambda step: _PEAK * min(1.0, (step + 1) / _WARM),
        facts=TrainerFacts(schedule=ScheduleFacts(total_steps=1000 * _WARM, warmup_steps=_WARM, peak_lr=_PEAK)),
    ),
    classes=frozenset({EventClass.ABSORBING_SHIFT, EventClass.TRANSIENT_SPIKE}),
    verdicts=frozenset({Verdict.OPTIMIZER_OR_NUMERICS}),
    place=step_between(0, 2 * _WARM),
    experiment=True,
)
