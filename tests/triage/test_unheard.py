"""No incident is told only where the detector could have heard one; what it could hear is told beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from dataguard.cli.triage import triage as command
from dataguard.core.evidence import Verdict
from dataguard.report.triage import render_triage
from dataguard.run.events import Diagnosed
from dataguard.run.notes import noted
from dataguard.run.run import Run
from dataguard.run.telemetry import open_telemetry, telemetry_records
from dataguard.triage.answers import TriageAnswer
from dataguard.triage.triage import NOTHING_CHECKED, triage
from tests.support.corpora import make_corpus
from tests.support.runs import make_run, open_loaders

JUMP = range(33, 36)


def said(answer: TriageAnswer) -> str:
    return "\n".join(each for each in render_triage(answer) if isinstance(each, str))


def falling(folder: Path, jump: float) -> Run:
    """60 steps, labels from 0, whose loss falls steeply from 11 to 3 nats with noise of .02; it jumps in 33:36."""
    run = make_run(folder / "run", make_corpus(folder, {"web": {"a.parquet": 200}}, group=50), global_batch=2)
    (loader,) = open_loaders(run, microbatch_size=2)
    loader.take_step()  # begins the attempt
    noise = np.random.default_rng(0).normal(0, 0.02, 60)
    with open_telemetry(run, 1, 0) as writer:
        for step in range(60):
            if step:
                loader.take_step()
            loss = 3.0 + 8.0 * np.exp(-step / 10) + noise[step] + jump * (step in JUMP)
            writer.append(telemetry_records(step, ["loss"], np.array([loss]), time_ns=10**18 + step * 10**9))
    loader.close()
    return run


@pytest.fixture(scope="module")
def jumped(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return falling(tmp_path_factory.mktemp("jumped"), 0.9)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return falling(tmp_path_factory.mktemp("quiet"), 0.0)


@pytest.mark.parametrize("step", [32, 33, 35])
def test_a_jump_that_the_steep_begin_hides_is_no_incident_ruled_out(jumped: Run, step: int) -> None:
    answer = triage(jumped, step=step, note=False)
    assert answer.event is None
    assert (answer.diagnosis.verdict, answer.diagnosis.rule) == (Verdict.INCONCLUSIVE, NOTHING_CHECKED)
    assert answer.response.verdict is Verdict.INCONCLUSIVE
    least = answer.smallest_spike
    assert least is not None
    assert least.step == step
    assert least.nats > 0.9
    text = said(answer)
    assert f"the smallest spike that would have shown at step {step}: {least.nats:.3g} nats" in text
    assert "the least lasting shift that this log can show: not known (too short)" in text
    assert "had to reach" in answer.diagnosis.summary
    assert "inspect" in answer.diagnosis.summary
    done = CliRunner().invoke(command, [str(jumped.path), "--step", str(step), "--no-note"], standalone_mode=False)
    assert done.return_value == 1
    document = msgspec.json.encode(answer)
    assert msgspec.json.decode(document, type=TriageAnswer) == answer


def test_the_same_without_the_jump_is_no_incident_and_says_what_it_could_hear(quiet: Run) -> None:
    for step in (None, *range(24, 60, 3)):
        answer = triage(quiet, step=step, note=False)
        assert answer.diagnosis.verdict is Verdict.NO_INCIDENT
        assert answer.smallest_spike is not None
        assert answer.smallest_spike.step == (59 if step is None else step)
        assert answer.smallest_spike.hardest_nats >= answer.smallest_spike.nats
    early = triage(quiet, step=5, note=False)
    assert early.smallest_spike is None
    assert "would have shown at step 5: not known (it was not judged)" in said(early)


def test_what_was_not_heard_is_noted_as_such_in_the_journal(jumped: Run, tmp_path: Path) -> None:
    run = Run.open(shutil.copytree(jumped.path, tmp_path / "copy"))
    triage(run, step=33)
    (diagnosed,) = noted(run.read().entries, Diagnosed)
    assert diagnosed[1].verdict == Verdict.INCONCLUSIVE
