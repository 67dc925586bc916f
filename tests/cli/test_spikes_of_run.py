"""``dataguard spikes RUN``: what several ranks logged over several attempts is one curve, of which each event counts
once."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from dataguard.cli.main import main
from dataguard.run.run import Run
from dataguard.run.telemetry import open_telemetry, telemetry_records
from tests.architecture.validation import validate
from tests.support.corpora import make_corpus
from tests.support.runs import make_run, open_loaders, state_after
from tests.triage.detect.curves import curve

Capture = pytest.CaptureFixture[str]

RESUMED = 260
"""The step that the second attempt begins with, counted from 0; the first went on to `REACHED`."""
REACHED = 360
NUM = 420


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two ranks, labels from 1. The abandoned part of the first attempt diverges; the second spikes at step 350, on
    one rank alone, where its gradient norm leaps as well; rank 0's is NaN at step 380."""
    folder = tmp_path_factory.mktemp("run")
    corpus = make_corpus(folder, {"web": {"a.parquet": 2 * NUM}})
    run = make_run(folder / "run", corpus, global_batch=2, first_label=1)
    state = state_after(run, world_size=2, microbatch_size=1, steps=RESUMED)
    losses = [curve(NUM, seed=1), curve(NUM, seed=2)]
    norms = [np.full(NUM, 0.5), np.full(NUM, 0.5)]
    for rank in range(2):
        diverged = losses[rank][:REACHED].copy()
        diverged[RESUMED + 20 :] += 4.0
        _log(run, 1, rank, range(REACHED), diverged, norms[rank])
    for loader in open_loaders(run, world_size=2, microbatch_size=1, state=state):
        loader.take_step()
    losses[1][350] += 2.0
    norms[1][350] = 6.0
    losses[0][380] = np.nan
    for rank in range(2):
        _log(run, 2, rank, range(RESUMED, NUM), losses[rank][RESUMED:], norms[rank][RESUMED:])
    return run


def _log(run: Run, attempt: int, rank: int, steps: range, losses: Any, norms: Any) -> None:
    with open_telemetry(run, attempt, rank) as writer:
        for name, values in (("loss", losses), ("grad_norm", norms[: len(steps)])):
            times = 1_000_000_000 * (np.array(steps) + 1)
            writer.append(telemetry_records(np.array(steps), name, values, time_ns=times))


def asked(run: Run, capfd: Capture, *words: str) -> Any:
    capfd.readouterr()
    assert main(["spikes", str(run.path), *words, "--json"]) == 0
    answer = json.loads(capfd.readouterr().out)
    validate(answer, "spikes")
    return answer


def test_the_lineage_is_judged_and_what_was_abandoned_is_not(run: Run, capfd: Capture) -> None:
    answer = asked(run, capfd)
    assert answer["steps"] == {"first": 1, "last": NUM, "logged": NUM}
    spike, fault = answer["events"]
    assert (spike["class"], spike["start"], spike["stop"]) == ("hard_batch", 351, 352)
    assert spike["size_nats"] == pytest.approx(1.0, abs=0.15), "the mean of both ranks"
    assert spike["grad_norm_ratio"] == pytest.approx(12.0), "the largest of both ranks"
    assert (fault["class"], fault["start"], fault["stop"]) == ("hard_fault", 381, 382)


def test_an_attempt_that_was_left_can_be_asked_for(run: Run, capfd: Capture) -> None:
    answer = asked(run, capfd, "--attempt", "1")
    assert answer["steps"] == {"first": 1, "last": REACHED, "logged": REACHED}
    (event,) = answer["events"]
    assert (event["class"], event["start"]) == ("absorbing_shift", RESUMED + 21)
    assert event["aftermath_nats"] == pytest.approx(4.0, abs=0.1)


def test_the_start_of_an_attempt_is_a_change_that_is_told(run: Run, capfd: Capture) -> None:
    assert main(["spikes", str(run.path)]) == 0
    out = capfd.readouterr().out
    assert f"change at step {RESUMED + 1}: " in out
    assert "seen in the log" not in out


def test_two_runs_can_be_compared(run: Run, capfd: Capture) -> None:
    assert main(["spikes", str(run.path), str(run.path), "--json"]) == 0
    comparison = json.loads(capfd.readouterr().out)["comparison"]
    assert comparison["num_spikes"] == [1, 1]
    assert comparison["one_data_order"] is True
