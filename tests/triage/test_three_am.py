"""What is said at 3 AM: true where nothing could be looked at or written, bounded, and about the right machine."""

from __future__ import annotations

import json
import math
import shlex
import shutil
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from dataguard.cli.triage import triage as command
from dataguard.core.evidence import HardwareLog, Replay, Told, Verdict
from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.errors import RunDamaged, WriteFailed
from dataguard.plan.state import LoaderState
from dataguard.report.triage import render_triage
from dataguard.run.amend import skip
from dataguard.run.events import ExperimentDone
from dataguard.run.journal import Journal
from dataguard.run.places import this_host
from dataguard.run.run import Run
from dataguard.run.telemetry import open_telemetry, telemetry_records
from dataguard.triage.answers import TriageAnswer
from dataguard.triage.curve import curve_of_run
from dataguard.triage.evidence import MachineLogs, match, read_machine_logs
from dataguard.triage.gathering import gather
from dataguard.triage.looked import look, rows_around
from dataguard.triage.respond import Sign
from dataguard.triage.triage import NOTHING_CHECKED, triage
from tests.support.corpora import make_corpus
from tests.support.runs import make_run, open_loaders
from tests.triage.test_triage import SPIKE, logged

START = 1_800_000_000
NAN = dict.fromkeys(range(200, 301), math.nan)


def said(answer: TriageAnswer) -> str:
    return "\n".join(each for each in render_triage(answer) if isinstance(each, str))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return logged(tmp_path_factory.mktemp("it's a run"), SPIKE).path


@pytest.fixture
def spiked(made: Path, tmp_path: Path) -> Run:
    return Run.open(shutil.copytree(made, tmp_path / "it's a run"))


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return logged(tmp_path_factory.mktemp("faulty"), NAN)


def test_where_nothing_could_show_an_incident_none_is_ruled_out(made: Path, tmp_path: Path) -> None:
    run = Run.open(made)
    for step, why in ((9_999, "no loss was logged of step 9,999"), (5, "4 losses were logged before step 5")):
        answer = triage(run, step=step, note=False)
        assert (answer.diagnosis.verdict, answer.diagnosis.rule) == (Verdict.INCONCLUSIVE, NOTHING_CHECKED)
        assert answer.diagnosis.summary.startswith(why)
        assert answer.response.verdict is Verdict.INCONCLUSIVE
    assert triage(run, step=100, note=False).diagnosis.verdict is Verdict.NO_INCIDENT
    silent = make_run(tmp_path / "silent", make_corpus(tmp_path, {"web": {"a.parquet": 8}}), global_batch=2)
    open_loaders(silent, microbatch_size=2)[0].take_step()
    assert triage(silent, note=False).diagnosis.verdict is Verdict.INCONCLUSIVE
    done = CliRunner().invoke(command, [str(made), "--step", "9999", "--no-note"], standalone_mode=False)
    assert done.return_value == 1


def test_an_inconclusive_verdict_is_no_leave_to_do_nothing(made: Path) -> None:
    text = said(triage(Run.open(made), note=False))
    assert "response: nothing yet, for the verdict is inconclusive" in text
    assert "nothing is to be done" not in text
    assert text.count("--step 250 --evidence") == 1
    following = text.split("next cheapest check: ")[1].splitlines()[0].partition("): ")[2]
    assert shlex.split(following)[2] == str(made)
    assert "log lr" not in text
    assert len(set(text.split("\n\n")[-2].splitlines())) == len(text.split("\n\n")[-2].splitlines())


def test_a_fault_of_the_only_rank_points_to_no_device_and_to_no_batch(faulty: Run) -> None:
    answer = triage(faulty, note=False)
    assert answer.event is not None
    assert answer.event.event_class is EventClass.HARD_FAULT
    assert not any("on one rank" in text for text in answer.diagnosis.for_["hardware"])
    text = said(answer)
    assert "anomalous batch" not in text
    assert "the one rank is not finite" in text
    assert "log it (Monitor.log(step, grad_norm" not in text
    document = msgspec.json.encode(answer)
    assert msgspec.json.decode(document, type=TriageAnswer) == answer
    json.loads(document, parse_constant=pytest.fail)


def test_a_quiet_run_is_told_in_few_words(made: Path) -> None:
    answer = triage(Run.open(made), step=100, note=False)
    text = said(answer)
    assert "next cheapest check" not in text
    assert "log lr" not in text
    assert [step.done for step in answer.checklist[:3]] == ["yes"] * 3


def test_an_answer_that_cannot_be_noted_is_given_and_ends_with_4(spiked: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise WriteFailed("the journal cannot be written: No space left on device")

    monkeypatch.setattr(Journal, "append", full)
    answer = triage(spiked)
    assert answer.not_noted is not None
    assert "No space left" in answer.not_noted
    done = CliRunner().invoke(command, [str(spiked.path), "--json"], standalone_mode=False)
    assert json.loads(done.stdout)["event"]["peak"] == 250
    assert isinstance(done.exception, WriteFailed)
    assert done.exception.exit_code == 4


def xid(path: Path, host: str, second: float) -> MachineLogs:
    at = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")
    path.write_text(f"{at} {host} kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n")
    return read_machine_logs([path])


def test_an_event_of_a_run_on_one_machine_lies_on_that_machine(made: Path, tmp_path: Path) -> None:
    run = Run.open(made)
    logs = xid(tmp_path / "a.txt", this_host(), START + 245)
    answer = triage(run, machine_logs=logs, note=False)
    fact = {fact.name: fact for fact in answer.facts}["hardware_log"]
    assert fact.value == HardwareLog.HARDWARE
    assert any("chance that an unrelated event falls there: 2.9e-06" in text for text in fact.texts)
    assert any("with a device for each of one rank" in text for text in fact.texts)
    assert answer.diagnosis.verdict is Verdict.HARDWARE
    other = triage(run, machine_logs=xid(tmp_path / "b.txt", "node99", START + 245), note=False)
    assert {fact.name: fact.value for fact in other.facts}["hardware_log"] == HardwareLog.ELSEWHERE


def test_a_complaint_of_libraries_is_heard_without_a_host(tmp_path: Path) -> None:
    at = datetime.fromtimestamp(START + 280, UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")
    path = tmp_path / "nccl.log"
    path.write_text(f"{at} node1:12:34 [0] NCCL WARN NET/IB : Got completion from peer with status=12\n")
    logs = read_machine_logs([path])
    answer, texts = match(logs, start_time=START + 249.0, stop_time=START + 251.0, hosts=())
    assert answer is HardwareLog.CONSEQUENCE
    assert "a consequence" in texts[0]


def test_signs_of_the_traces_become_the_configuration_to_change(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, {"web": {"a.parquet": 100}}, group=50)
    run = make_run(tmp_path / "run", corpus, global_batch=2)
    (loader,) = open_loaders(run, microbatch_size=2)
    loader.take_step()
    loader.close()
    noise = np.random.default_rng(0).normal(0, 0.01, 200)
    with open_telemetry(run, 1, 0) as writer:
        for step in range(200):
            loss = 3.0 + noise[step] + (2.0 if step >= 180 else 0.0)
            values = np.array([loss, math.exp(step / 40), 0.9])
            names = ["loss", "attention_logit_max/blocks.0", "epsilon_floor_share/blocks.1"]
            writer.append(telemetry_records(step, names, values, time_ns=START * 10**9))
    looked = look(run, None, now_seconds=START)
    event = next(each for each in looked.events if each.start <= 180 < each.stop)
    signs = gather(looked, event, None, None).signs
    assert "epsilon_floor_share/blocks.1: 90% of second moments" in signs[Sign.EPSILON_FLOOR]
    assert "of attention_logit_max/blocks.0" in signs[Sign.RISING_ATTENTION_LOGITS]
    late = SpikeEvent(event_class=EventClass.ABSORBING_SHIFT, start=180, stop=200, peak=180, size_nats=2.0, sigmas=9.0)
    asked = gather(looked, late, None, None).signs
    assert "attention_logit_max/blocks.0 climbs from 1.2" in asked[Sign.RISING_ATTENTION_LOGITS]
    run.journal.append(
        ExperimentDone(
            attempt=1, step=event.peak, outcome=Replay.STATE, number_type=Told.NO, first_layer=None, results="ab" * 32,
            summary="the placebo does it as well",
        )
    )  # fmt: skip
    answer = triage(run, step=event.peak, note=False)
    assert answer.diagnosis.verdict is Verdict.OPTIMIZER_OR_NUMERICS
    reasons = {change.what: change.reason for change in answer.response.configuration}
    assert "epsilon_floor_share/blocks.1: 90%" in reasons["epsilon"]
    assert "attention_logit_max/blocks.0" in reasons["qk_norm"]


def test_what_ranks_logged_of_a_long_event_is_read_around_its_begin_and_its_peak(made: Path) -> None:
    looked = look(Run.open(made), None, now_seconds=START)
    short = SpikeEvent(event_class=EventClass.TRANSIENT_SPIKE, start=100, stop=110, peak=104, size_nats=1.0, sigmas=9.0)
    rows, told = rows_around(looked, short)
    assert (rows["step"].min(), rows["step"].max(), told) == (99 - 64, 108 + 64, None)
    long = SpikeEvent(event_class=EventClass.CREEPING_DRIFT, start=1, stop=301, peak=290, size_nats=1.0, sigmas=9.0)
    rows, told = rows_around(looked, long)
    assert np.unique(rows["step"]).tolist() == [*range(64), *range(289 - 64, 300)]
    assert told == "of 300 steps, what ranks logged was read in 1:65 and 226:354"


@pytest.mark.parametrize("skip_mode", ["jump", "hole"])
def test_a_pause_between_attempts_is_no_stall_and_an_abandoned_event_is_pointed_to(
    tmp_path: Path, skip_mode: str
) -> None:
    corpus = make_corpus(tmp_path, {"web": {"a.parquet": 1000}}, group=50)
    run = make_run(tmp_path / "run", corpus, global_batch=2, skip_mode=skip_mode)
    noise = np.random.default_rng(0).normal(0, 0.01, 200)

    def train(attempt: int, state: LoaderState | None, steps: int, excess: dict[int, float]) -> LoaderState:
        (loader,) = open_loaders(run, microbatch_size=2, state=state)
        taken = [loader.take_step()[0].step]
        kept = loader.state()
        for _ in range(steps - 1):
            taken.append(loader.take_step()[0].step)
            kept = loader.state() if taken[-1] == 59 else kept
        loader.close()
        with open_telemetry(run, attempt, 0) as writer:
            for step in taken:
                value = np.array([3.0 + noise[step] + excess.get(step, 0.0)])
                time_ns = (START + step + 5_000 * attempt) * 10**9
                writer.append(telemetry_records(step, ["loss"], value, time_ns=time_ns))
        return kept

    state = train(1, None, 110, {100: 1.5, 101: 1.2, 102: 0.9, 103: 0.6})
    skip(run, 99, 105, reason="the spike")
    train(2, state, 130, {150: 1.0})
    answer = triage(run, note=False)
    assert [each.event_class for each in answer.events] == [EventClass.HARD_BATCH]
    asked = triage(run, step=100, note=False)
    assert "attempt 1 logged step 100 as well, which does not count on this lineage: --attempt 1" in asked.notes
    if skip_mode == "hole":
        assert asked.diagnosis.summary.startswith("no loss was logged of step 100, which a skip of this lineage")
    abandoned = triage(run, attempt=1, note=False)
    assert {fact.name: fact.value for fact in abandoned.facts}["mitigation"] == "skip"


def test_a_rank_whose_steps_were_delivered_again_hides_no_other(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, {"web": {"a.parquet": 64}})
    run = make_run(tmp_path / "run", corpus, global_batch=4)
    for loader in open_loaders(run, world_size=2, microbatch_size=2):
        loader.take_step()
    for rank, steps in ((0, ()), (1, (0, 1))):
        with open_telemetry(run, 1, rank) as writer:
            for step in steps:
                writer.append(telemetry_records(step, ["loss"], np.array([2.0]), time_ns=1))
    assert curve_of_run(run).series("loss")[1].tolist() == [2.0, 2.0]


def test_a_damaged_journal_is_told_and_never_taken_for_a_run_that_has_not_begun(spiked: Run) -> None:
    files = sorted((spiked.path / "journal").glob("*.json"))
    files[-1].write_bytes(files[-1].read_bytes()[:-7])
    done = CliRunner().invoke(command, [str(spiked.path), "--json"], standalone_mode=False)
    answer = json.loads(done.stdout)
    assert answer["event"]["peak"] == 250
    assert any(files[-1].name in note for note in answer["notes"])
    assert isinstance(done.exception, RunDamaged)
    for file in files[1:]:
        file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(RunDamaged):
        triage(Run.open(spiked.path))
