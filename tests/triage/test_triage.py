"""From a run to a verdict: the event in question, facts from their places, commands, notes, and the six steps."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dataguard.cli.main import main
from dataguard.core.evidence import Replay, Told, Verdict
from dataguard.core.spikes import EventClass
from dataguard.core.trainer import PlannedChange, TrainerFacts
from dataguard.errors import NotInRun
from dataguard.run.events import CanaryCompared, Diagnosed, ExperimentDone, SpikeFound
from dataguard.run.notes import noted
from dataguard.run.noting import note_checkpoint, note_facts
from dataguard.run.run import Run
from dataguard.run.telemetry import open_telemetry, telemetry_records
from dataguard.triage.triage import triage
from tests.support.commands import dataguard
from tests.support.corpora import make_corpus
from tests.support.runs import make_run, open_loaders

NUM_STEPS = 300
DIGEST = "ab" * 32


def logged(folder: Path, excess: dict[int, float], *, seed: int = 0, grad: dict[int, float] | None = None) -> Run:
    """A run of 300 steps on one rank, labels from 1, whose loss falls slowly with a little noise plus an excess."""
    corpus = make_corpus(folder, {"web": {"a.parquet": 1000}}, group=50)
    run = make_run(folder / "run", corpus, global_batch=2, first_label=1)
    (loader,) = open_loaders(run, microbatch_size=2)
    loader.take_step()
    noise = np.random.default_rng(seed).normal(0, 0.01, (2, NUM_STEPS))
    with open_telemetry(run, 1, 0) as writer:
        for step in range(NUM_STEPS):
            if step:
                loader.take_step()
            loss = 3.0 - 0.001 * step + noise[0, step] + excess.get(step + 1, 0.0)
            norm = (grad or {}).get(step + 1, 1.0) * np.exp(10 * noise[1, step])
            values = np.array([loss, norm, 1e-3])
            time_ns = 1_800_000_000_000_000_000 + step * 1_000_000_000
            writer.append(telemetry_records(step, ["loss", "grad_norm", "lr"], values, time_ns=time_ns))
            if step % 50 == 49:
                note_checkpoint(run, step + 2, f"/nowhere/{step + 2}.pt")
    loader.close()
    return run


SPIKE = {step: 1.5 * 0.8 ** (step - 250) for step in range(250, 270)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a spike at step 250 that takes 20 steps to recover, its gradient norm with it."""
    return logged(tmp_path_factory.mktemp("spiked"), SPIKE, grad=dict.fromkeys(range(249, 256), 30.0)).path


@pytest.fixture
def spiked(made: Path, tmp_path: Path) -> Run:
    return Run.open(shutil.copytree(made, tmp_path / "copy"))


def test_a_spike_without_an_experiment_is_inconclusive_and_names_what_to_do(spiked: Run) -> None:
    answer = triage(spiked, note=False)
    assert answer.event is not None
    assert (answer.event.event_class, answer.event.peak) == (EventClass.TRANSIENT_SPIKE, 250)
    assert answer.diagnosis.verdict is Verdict.INCONCLUSIVE
    assert answer.diagnosis.next_check is not None
    assert [step.number for step in answer.checklist] == [1, 2, 3, 4, 5, 6]
    assert answer.checklist[0].done == "partly"
    assert any("replay of step 250" in text for text in answer.checklist[2].missing)
    assert {fact.name: fact.value for fact in answer.facts}["grad_norm"] == "burst"
    replay = next(check for check in answer.diagnosis.checks if check.name == "replay")
    assert replay.cost.node_seconds == pytest.approx(700.0)
    assert "6 x 50 + 4 x 100" in replay.cost.text  # steps, from the checkpoints of 201 and 151, a second each


def test_an_experiment_in_the_journal_convicts_and_the_skip_covers_the_event(spiked: Run) -> None:
    run = spiked
    run.journal.append(
        ExperimentDone(
            attempt=1, step=249, outcome=Replay.BATCH_FROM_THIS_STATE, number_type=Told.NO, first_layer="blocks.1",
            results=DIGEST, summary="the batch spikes from step 201 and not from step 151",
        )
    )  # fmt: skip
    answer = triage(run, step=252)
    assert answer.diagnosis.verdict is Verdict.DATA_AND_STATE
    assert answer.experiments[0].step == 250
    skip, resume = answer.response.skip, answer.response.resume
    assert skip is not None
    assert resume is not None
    assert skip.steps[0] <= 249
    assert skip.steps[1] >= 251
    assert resume.next_step == 201
    assert resume.next_step <= skip.steps[0]
    assert any("first layer to go: blocks.1" in step.answer for step in answer.checklist)


def test_after_a_rewind_an_experiment_says_nothing_of_the_batch_that_stands_there_now(spiked: Run) -> None:
    run = spiked
    run.journal.append(
        ExperimentDone(
            attempt=1, step=249, outcome=Replay.BATCH, number_type=Told.NO, first_layer=None, results=DIGEST,
            summary="the batch spikes from both",
        )
    )  # fmt: skip
    run.journal.append(
        ExperimentDone(
            attempt=1, step=99, outcome=Replay.NOT_REPRODUCED, number_type=Told.NO, first_layer=None, results=DIGEST,
            summary="an ordinary batch",
        )
    )  # fmt: skip
    (loader,) = open_loaders(run, microbatch_size=2, from_step=200)
    for _ in range(3):
        loader.take_step()
    loader.close()
    newest, older = triage(run, step=250, note=False), triage(run, step=250, attempt=1, note=False)
    assert newest.attempt == 2
    assert newest.experiments == ()
    assert [each.summary for each in older.experiments] == ["the batch spikes from both"]
    shared = triage(run, step=100, note=False)
    assert [each.summary for each in shared.experiments] == ["an ordinary batch"], "both lineages hold that step"


def test_of_a_step_that_is_still_to_come_nothing_is_noted(spiked: Run) -> None:
    before = len(spiked.read().entries)
    for step in (5_000, NUM_STEPS + 2):
        assert triage(spiked, step=step).diagnosis.verdict is Verdict.INCONCLUSIVE
    assert len(spiked.read().entries) == before
    triage(spiked, step=NUM_STEPS + 1)
    assert len(spiked.read().entries) > before, "the next one may be why somebody asks"


def test_what_was_decided_is_noted_once(spiked: Run) -> None:
    for _ in range(2):
        triage(spiked, by="ada@host")
    entries = spiked.read().entries
    ((_, found),) = noted(entries, SpikeFound)
    ((entry, decided),) = noted(entries, Diagnosed)
    assert (found.peak, decided.step, decided.verdict) == (249, 249, Verdict.INCONCLUSIVE)
    assert entry.by == "ada@host"


def test_a_step_without_an_event_says_which_is_near(spiked: Run) -> None:
    answer = triage(spiked, step=100, note=False)
    assert answer.event is None
    assert answer.diagnosis.verdict is Verdict.NO_INCIDENT
    assert answer.localised is not None
    assert "no event holds step 100; the nearest is transient_spike" in answer.notes[-1]
    with pytest.raises(NotInRun):
        triage(spiked, step=0, note=False)


def test_an_experiment_on_a_step_without_an_event_is_shown_and_a_node_that_shows_it_is_hardware(spiked: Run) -> None:
    spiked.journal.append(
        ExperimentDone(
            attempt=1, step=99, outcome=Replay.NODE, number_type=Told.UNKNOWN, first_layer=None, results=DIGEST,
            summary="this node and not another",
        )
    )  # fmt: skip
    answer = triage(spiked, step=100, note=False)
    assert [each.step for each in answer.experiments] == [100]
    assert answer.diagnosis.verdict is Verdict.HARDWARE
    assert triage(spiked, step=101, note=False).experiments == ()


def test_a_planned_change_is_told_from_an_event(tmp_path: Path) -> None:
    shift = dict.fromkeys(range(250, NUM_STEPS + 1), 0.3)
    run = logged(tmp_path, shift)
    assert triage(run, note=False).event is not None
    note_facts(run, TrainerFacts(changes=(PlannedChange(step=250, what="learning rate / 3"),)))
    assert triage(run, note=False).diagnosis.verdict is Verdict.PLANNED_CHANGE


def test_a_quiet_run_has_no_incident_and_a_canary_speaks_without_an_event(tmp_path: Path) -> None:
    run = logged(tmp_path, {})
    quiet = triage(run, note=False)
    assert (quiet.event, quiet.events) == (None, ())
    assert quiet.diagnosis.verdict is Verdict.NO_INCIDENT
    assert quiet.response.nothing
    run.journal.append(
        CanaryCompared(attempt=1, step=3, differs=Told.YES, odd=("node-7/cuda:3",), results=DIGEST, summary="1 of 8")
    )
    answer = triage(run, note=False)
    assert answer.diagnosis.verdict is Verdict.HARDWARE
    assert answer.response.fence == ("node-7",)


def test_a_run_without_an_attempt_or_telemetry_is_answered_and_nothing_is_claimed(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", make_corpus(tmp_path, {"web": {"a.parquet": 8}}), global_batch=2)
    empty = triage(run)
    assert (empty.steps, empty.attempt) == (None, None)
    (loader,) = open_loaders(run, microbatch_size=2)
    loader.take_step()
    silent = triage(run, step=0)
    assert (silent.steps, silent.attempt) == (None, 1)
    assert "whether the loss misbehaved there is not known" in silent.notes[-1]


def test_the_command_line_answers_and_ends_as_it_says(spiked: Run, capsys: pytest.CaptureFixture[str]) -> None:
    told = dataguard("triage", str(spiked.path), "--json", "--fail", "--no-note", code=1)
    assert json.loads(told.stdout)["event"]["class"] == "transient_spike"
    assert main(["triage", str(spiked.path), "--step", "252"]) == 0
    said = capsys.readouterr().out
    assert "verdict: inconclusive" in said
    assert "1. establish ground truth" in said
    assert main(["triage", str(spiked.path), "--dry-run"]) == 2


def test_apply_writes_the_skip_and_nothing_else_and_once(spiked: Run, capsys: pytest.CaptureFixture[str]) -> None:
    def applied(*words: str) -> Any:
        capsys.readouterr()
        assert main(["triage", str(run.path), "--apply", *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)["applied"]

    run = spiked
    run.journal.append(
        ExperimentDone(
            attempt=1, step=249, outcome=Replay.BATCH, number_type=Told.NO, first_layer=None, results=DIGEST,
            summary="the batch spikes from both",
        )
    )  # fmt: skip
    before = len(run.read().entries)
    assert applied("--dry-run")["dry_run"] is True
    assert len(run.read().entries) == before
    assert len(applied()["written"]) == 1
    kinds = [type(entry.event).__name__ for entry in run.read().entries[before:]]
    assert sorted(kinds) == ["Diagnosed", "SkipAdded", "SpikeFound"]
    again = applied()
    assert (again["written"], len(again["already"])) == ([], 1)
