"""What somebody planned, and what begins there; a step of the rate that nobody told is no plan."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dataguard.core.evidence import Told
from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.core.trainer import OptimizerFacts, PlannedChange, TrainerFacts
from dataguard.triage.detect import ChangePoint
from dataguard.triage.evidence import planned_change, planned_steps
from tests.run.small import begin, make_run

STEP = TrainerFacts(changes=(PlannedChange(step=40, what="lr / 3"),))


def event(start: int, *, onset: int | None = None) -> SpikeEvent:
    return SpikeEvent(
        event_class=EventClass.ABSORBING_SHIFT,
        start=start,
        stop=start + 100,
        peak=start,
        size_nats=0.2,
        sigmas=9.0,
        onset=onset,
    )


def detection(*changes: ChangePoint) -> Any:
    """What is read of a detection: its change points."""
    return SimpleNamespace(changes=changes)


def answer(start: int, facts: TrainerFacts = STEP, *, onset: int | None = None) -> Told:
    return planned_change(None, event(start, onset=onset), facts, None)[0]


def test_an_event_that_begins_at_a_change_the_trainer_told() -> None:
    told, texts = planned_change(None, event(41), STEP, None)
    assert told is Told.YES
    assert texts == ("step 40: planned by the trainer: lr / 3; the event begins 1 step later",)
    assert answer(40) is Told.YES
    assert answer(39) is Told.NO  # a cause does not come after
    assert answer(60) is Told.YES  # second moments of beta2 = .95 forget in twenty steps
    assert answer(61) is Told.NO
    assert answer(70, onset=41) is Told.YES
    assert answer(45, onset=30) is Told.YES  # an onset may look back too far


def test_a_beta2_that_was_told_says_how_long_a_rate_takes_to_show() -> None:
    slow = TrainerFacts(changes=STEP.changes, optimizer=OptimizerFacts(beta2=0.999))
    assert answer(1_000, slow) is Told.YES
    quick = TrainerFacts(changes=STEP.changes, optimizer=OptimizerFacts(beta2=0.5))
    assert answer(43, quick) is Told.NO


def test_where_nobody_planned_anything_nobody_knows() -> None:
    assert planned_change(None, event(41), TrainerFacts(), None) == (Told.UNKNOWN, ())
    assert planned_change(None, None, TrainerFacts(), None) == (Told.UNKNOWN, ())


def test_a_step_of_the_rate_that_nobody_told_is_no_plan() -> None:
    seen = detection(ChangePoint(step=40, what="the learning rate falls", is_seen=True))
    told, texts = planned_change(None, event(41), TrainerFacts(), seen)
    assert told is Told.UNKNOWN
    assert texts == ("step 40: the learning rate falls, in the log, and nobody said that it was planned",)
    assert planned_change(None, event(41), STEP, seen)[0] is Told.YES


def test_without_an_event_a_change_that_was_told_and_lies_in_the_log() -> None:
    there = detection(ChangePoint(step=40))
    assert planned_change(None, None, STEP, there) == (Told.YES, ("step 40: planned by the trainer: lr / 3",))
    assert planned_change(None, None, STEP, detection())[0] is Told.NO
    assert planned_change(None, None, TrainerFacts(), there)[0] is Told.UNKNOWN


def test_attempts_and_stages_of_a_run_are_plans(tmp_path: Path) -> None:
    """Labels count from 1 there: attempt 2 begins at step 6 (from 0), a larger batch with it."""
    run = make_run(tmp_path, first_label=1)
    begin(run)
    begin(run, parent=1, fork_step=6)
    found = planned_steps(run)
    assert found == {7: "attempt 2 begins"}
    assert planned_change(run, event(7), TrainerFacts(), None)[0] is Told.YES
    assert planned_change(run, event(8), TrainerFacts(), None)[0] is Told.YES
    assert planned_change(run, event(9), TrainerFacts(), None)[0] is Told.NO
    assert planned_change(run, event(9), TrainerFacts(), None, attempt=1)[0] is Told.NO
