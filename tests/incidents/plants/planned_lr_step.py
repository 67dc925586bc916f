"""A second stage with a higher rate begins, as the trainer has said before."""

from __future__ import annotations

from dataguard.core.evidence import Verdict
from dataguard.core.spikes import EventClass
from dataguard.core.trainer import PlannedChange, TrainerFacts
from tests.incidents.incident import Incident, Played, clean
from tests.incidents.stage import Settings

_STEP = 100


def _place(played: Played) -> tuple[str, bool]:
    (fact,) = (fact for fact in played.answer.facts if fact.name == "planned_change")
    named = [text for text in fact.texts if f"step {_STEP}" in text]
    return (f"step {_STEP}", True) if named else ("no step", False)


INCIDENT = Incident(
    name="planned_lr_step",
    segments=lambda generator: [clean(generator, 180)],
    settings=lambda seed: Settings(
        num_steps=180,
        lr=lambda step: 1e-3 if step < _STEP else 1.2e-2,
        facts=TrainerFacts(changes=(PlannedChange(step=_STEP, what="stage 2: rate 1.2e-2"),)),
    ),
    classes=frozenset({None, EventClass.ABSORBING_SHIFT, EventClass.TRANSIENT_SPIKE, EventClass.CREEPING_DRIFT}),
    verdicts=frozenset({Verdict.PLANNED_CHANGE}),
    place=_place,
)
