"""Preflight of a run: what it has seen itself goes before what was said; and the command with its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from dataguard.cli.main import main
from dataguard.core.spikes import EventClass
from dataguard.core.trainer import CheckpointFacts, MonitoringFacts, OptimizerFacts, ScheduleFacts, TrainerFacts
from dataguard.errors import NotInRun
from dataguard.run.events import CheckpointSaved, Diagnosed, SpikeFound, TrainerDescribed
from dataguard.run.run import Run
from dataguard.run.telemetry import telemetry_records
from dataguard.triage.preflight import PreflightAnswer, preflight
from tests.run.recording import open_telemetry_writer
from tests.run.test_events import NOTES
from tests.support.corpora import make_corpus
from tests.support.runs import deliver, make_run, state_after


def states(answer: PreflightAnswer) -> dict[str, str]:
    return {point.name: point.state for point in answer.points}


def facts_told(answer: PreflightAnswer, name: str) -> str:
    (point,) = (point for point in answer.points if point.name == name)
    return f"{point.reason} | {point.fact}"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two attempts over two sources, the second from a state of the first, with telemetry and notes."""
    folder = tmp_path_factory.mktemp("preflight")
    corpus = make_corpus(folder, {"web": {"a.jsonl": 96}, "code": {"b.jsonl": 32}})
    made = make_run(folder / "run", corpus, global_batch=8)
    state = state_after(made, steps=12)
    writer = open_telemetry_writer(made.path, attempt=1, run_id=made.run_id)
    for step in range(0, 12, 2):
        writer.append(telemetry_records(step, ["loss", "grad_norm", "train/mfu"], [2.0, 1.0, 0.4], time_ns=1))
    writer.close()
    for step in (4, 8, 12):
        made.journal.append(CheckpointSaved(attempt=1, next_step=step, path=f"s3://b/{step}"))
    deliver(made, state=state, steps=6)
    for facts in (
        TrainerFacts(
            optimizer=OptimizerFacts(epsilon=1e-8, clip_norm=2.0),
            monitoring=MonitoringFacts(grad_norm_every_steps=1_000),
            checkpoints=CheckpointFacts(every_steps=99, num_kept=4, restore_tested=False),
        ),
        TrainerFacts(optimizer=OptimizerFacts(clip_norm=1.0), schedule=ScheduleFacts(warmup_steps=3, total_steps=300)),
    ):
        made.journal.append(TrainerDescribed(attempt=2, facts=facts))
    for stop in (7, 6):  # by the trainer, and by who looked later: one event
        made.journal.append(
            SpikeFound(
                attempt=1,
                event_class=EventClass.TRANSIENT_SPIKE,
                start=5,
                stop=stop,
                peak=5,
                size_nats=1.0,
                sigmas=9.0,
                aftermath_nats=None,
                grad_norm_ratio=None,
                signal="loss",
                rank=None,
                detector="default",
            )
        )
    return made


def test_what_a_run_has_seen_goes_before_what_was_said(run: Run) -> None:
    answer = preflight(run)
    told = states(answer)
    assert told["grad_norm"] == "pass"
    assert "6 steps, at most 2 apart" in facts_told(answer, "grad_norm")
    assert told["checkpoints"] == "pass"
    assert "3 checkpoints, 4 steps apart, attempt 2 went on at step 12" in facts_told(answer, "checkpoints")
    assert told["utilization"] == "pass"
    assert told["spike_detector"] == "pass"
    assert told["mixture"] == "pass"
    assert "are of web" in facts_told(answer, "mixture") or "are of code" in facts_told(answer, "mixture")
    # A spike was noted, and epsilon is what is usual before one.
    assert told["epsilon"] == "fail"
    assert "1 event that may leave damage noted" in facts_told(answer, "epsilon")


def test_later_notes_count_as_they_say_it_and_facts_given_after_them(run: Run) -> None:
    assert states(preflight(run))["clip_norm"] == "pass"
    assert states(preflight(run))["warmup"] == "pass"
    given = TrainerFacts(optimizer=OptimizerFacts(epsilon=1e-6), schedule=ScheduleFacts(warmup_steps=2))
    after = states(preflight(run, facts=given))
    assert (after["epsilon"], after["warmup"]) == ("pass", "fail")


def test_retention_goes_by_the_distance_that_was_seen(run: Run) -> None:
    advice = preflight(run, rewind_steps=8, delay_steps=4).retention
    assert (advice.every_steps, advice.num_kept, advice.reach_steps, advice.state) == (4, 4, 12, "pass")
    assert preflight(run, rewind_steps=9, delay_steps=4).retention.state == "fail"


def test_the_delay_is_the_default_detectors_at_the_rhythm_of_the_loss(run: Run) -> None:
    advice = preflight(run).retention
    assert advice.delay_steps == 34  # 16 points of reach back and the one that begins it, every second step
    assert "34 until the default detector notices it" in advice.text
    assert preflight(TrainerFacts()).retention.delay_steps is None


def test_an_event_that_triage_noted_afterwards_shows_no_detector(tmp_path: Path) -> None:
    made = make_run(tmp_path / "run", make_corpus(tmp_path, {"web": {"a.jsonl": 16}}))
    (spike,) = (event for event in NOTES if isinstance(event, SpikeFound))
    diagnosed = msgspec.structs.replace(
        next(event for event in NOTES if isinstance(event, Diagnosed)), attempt=spike.attempt, step=spike.peak
    )
    made.journal.append(spike)
    assert states(preflight(made))["spike_detector"] == "pass"
    made.journal.append(diagnosed)
    assert states(preflight(made))["spike_detector"] == "not known"


def test_a_run_without_attempts_and_one_that_is_not_there(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, {"web": {"a.jsonl": 16}})
    fresh = make_run(tmp_path / "run", corpus)
    answer = preflight(fresh)
    assert answer.attempt is None
    assert (answer.num_pass, answer.num_fail) == (0, 0)
    with pytest.raises(NotInRun):
        preflight(fresh, attempt=1)
    with_policy = Run.create(tmp_path / "other", fresh.plan, policy="default")
    assert states(preflight(with_policy))["anomaly_detection"] == "pass"


def test_a_mixture_that_lost_a_source_to_withholding_fails(tmp_path: Path) -> None:
    from dataguard.run.amend import quarantine

    corpus = make_corpus(tmp_path, {"web": {"a.jsonl": 96}, "code": {"b.jsonl": 32}})
    made = make_run(tmp_path / "run", corpus, global_batch=16, lanes=1)
    quarantine(made, "code/b.jsonl", reason="x")
    deliver(made, steps=40)
    answer = preflight(made)
    assert states(answer)["mixture"] == "fail"
    assert "0.00% are of code, and 25.00% were asked for" in facts_told(answer, "mixture")


# -- the command


GOOD = "[optimizer]\nclip_norm = 1.0\nweight_decay = 0.1\n"


@pytest.mark.parametrize(
    ("text", "flags", "code"),
    [
        (GOOD, (), 0),
        (GOOD, ("--strict",), 1),
        (GOOD + "epsilon = 1e-2\n", (), 1),
        ("", (), 1),  # nothing was checked
        ("[optimizr]\n", (), 2),
        ("[optimizer\n", (), 2),
    ],
)
def test_exit_codes(tmp_path: Path, text: str, flags: tuple[str, ...], code: int) -> None:
    (tmp_path / "f.toml").write_text(text)
    assert main(["preflight", str(tmp_path / "f.toml"), *flags]) == code


def test_the_command_on_a_run_says_the_same_as_the_function(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "f.toml").write_text("[optimizer]\nepsilon = 1e-6\n")
    words = ["preflight", str(run.path), "--facts", str(tmp_path / "f.toml"), "--json", "--delay-steps", "4"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    told = msgspec.json.decode(shown, type=PreflightAnswer)
    facts = TrainerFacts(optimizer=OptimizerFacts(epsilon=1e-6))
    assert told == preflight(run, of=str(run.path), facts=facts, delay_steps=4)
    assert set(json.loads(shown)) == {
        *("of", "attempt", "points", "num_pass", "num_fail", "num_not_known", "retention", "notes"),
    }
    assert main(["preflight", str(run.path)]) == 1
    shown = capsys.readouterr().out
    assert "FAIL" in shown
    assert "checkpoints: " in shown


def test_usage(run: Run, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["preflight", "--template"]) == 0
    (tmp_path / "f.toml").write_bytes(capsysbinary.readouterr().out)
    assert main(["preflight", str(tmp_path / "f.toml")]) == 1
    for words in (
        (),
        ("--template", str(run.path)),
        (str(tmp_path / "f.toml"), "--attempt", "1"),
        (str(tmp_path / "x"),),
    ):
        assert main(["preflight", *words]) == 2
