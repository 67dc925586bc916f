"""What a trainer tells a run: checkpoints and facts, in its own labels, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataguard.core.trainer import OptimizerFacts, PlannedChange, TrainerFacts
from dataguard.errors import NotInRun, UsageError
from dataguard.run.events import CheckpointSaved, TrainerDescribed
from dataguard.run.notes import noted
from dataguard.run.noting import note_checkpoint, note_facts
from dataguard.run.run import Run
from tests.support.corpora import make_corpus
from tests.support.runs import make_run, state_after

FACTS = TrainerFacts(optimizer=OptimizerFacts(beta2=0.95), changes=(PlannedChange(step=40, what="lr / 3"),))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Two attempts: steps 0 to 4, and from 5 on; the trainer counts from 1."""
    made = make_run(tmp_path / "run", make_corpus(tmp_path, {"web": {"a.parquet": 90}}), first_label=1)
    state = state_after(made, steps=5, microbatch_size=8)
    state_after(made, steps=8, microbatch_size=8, state=state)
    return made


def test_a_checkpoint_is_noted_in_the_trainers_labels_and_once(run: Run, tmp_path: Path) -> None:
    first = note_checkpoint(run, 6, "s3://bucket/6", attempt=1)
    again = note_checkpoint(run, 6, "s3://bucket/6", attempt=1)
    other = note_checkpoint(run, 8, tmp_path / "8", by="ada@host")
    assert again.number == first.number < other.number
    kept = [event for _, event in noted(run.read().entries, CheckpointSaved)]
    assert kept == [
        CheckpointSaved(attempt=1, next_step=5, path="s3://bucket/6"),
        CheckpointSaved(attempt=2, next_step=7, path=str(tmp_path / "8")),
    ]
    assert other.by == "ada@host"


@pytest.mark.parametrize("step", [True, 3.0, "3", None])
def test_a_step_is_a_whole_number(run: Run, step) -> None:
    with pytest.raises(UsageError, match="cannot be"):
        note_checkpoint(run, step, "a")


def test_checkpoints_that_cannot_be(run: Run) -> None:
    with pytest.raises(NotInRun):
        note_checkpoint(run, 0, "a")  # the first step is called 1
    with pytest.raises(UsageError, match="begins with step 6"):
        note_checkpoint(run, 5, "a")
    with pytest.raises(NotInRun, match="attempt 3"):
        note_checkpoint(run, 9, "a", attempt=3)
    with pytest.raises(UsageError, match="path or URL"):
        note_checkpoint(run, 9, "")
    assert not noted(run.read().entries, CheckpointSaved)


def test_facts_are_noted_once_for_each_attempt_unless_something_else_was_said_since(run: Run) -> None:
    other = TrainerFacts(optimizer=OptimizerFacts(beta2=0.999))
    numbers = [note_facts(run, facts, attempt=attempt).number for facts, attempt in
               [(FACTS, 1), (FACTS, 1), (FACTS, "newest"), (other, "newest"), (FACTS, "newest")]]  # fmt: skip
    assert numbers == [numbers[0], numbers[0], numbers[0] + 1, numbers[0] + 2, numbers[0] + 3]
    kept = [event for _, event in noted(run.read().entries, TrainerDescribed)]
    assert [(event.attempt, event.facts) for event in kept] == [(1, FACTS), (2, FACTS), (2, other), (2, FACTS)]


def test_facts_before_any_attempt_are_of_none(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", make_corpus(tmp_path, {"web": {"a.parquet": 8}}))
    assert note_facts(run, FACTS).event == TrainerDescribed(attempt=None, facts=FACTS)
    with pytest.raises(NotInRun):
        note_checkpoint(run, 3, "a")


def test_facts_may_be_of_no_attempt_though_others_have_begun(run: Run) -> None:
    assert note_facts(run, FACTS, attempt=None).event == TrainerDescribed(attempt=None, facts=FACTS)
    with pytest.raises(NotInRun, match="attempt 7"):
        note_facts(run, FACTS, attempt=7)


def test_nothing_said_is_no_fact(run: Run) -> None:
    with pytest.raises(UsageError, match="say nothing"):
        note_facts(run, TrainerFacts())
    with pytest.raises(UsageError, match="says nothing of a trainer"):
        note_facts(run, {"optimizer": {}})  # type: ignore[arg-type]
