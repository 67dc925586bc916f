"""The curve of a run of several ranks: mean loss, largest gradient norm, later attempts over earlier ones."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from dataguard.errors import NotInRun
from dataguard.run.run import Run
from dataguard.run.telemetry import open_telemetry, telemetry_records
from dataguard.triage.curve import curve_of_run, ranks_that_logged
from tests.support.corpora import make_corpus
from tests.support.runs import make_run, open_loaders, state_after


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path / "run", make_corpus(tmp_path, {"web": {"a.parquet": 64}}), global_batch=4, first_label=1)


def log(run: Run, attempt: int, rank: int, values: dict[int, dict[str, float]]) -> None:
    with open_telemetry(run, attempt, rank) as writer:
        for step, each in values.items():
            names, numbers = list(each), np.array(list(each.values()))
            writer.append(telemetry_records(step, names, numbers, time_ns=1_000_000_000 * (step + 1)))


def test_ranks_are_joined_and_a_nan_of_one_is_the_step_s(run: Run) -> None:
    for loader in open_loaders(run, world_size=2, microbatch_size=2):
        loader.take_step()
    log(run, 1, 0, {0: {"loss": 2.0, "grad_norm": 1.0, "lr": 0.1}, 1: {"loss": math.nan, "grad_norm": 2.0, "lr": 0.2}})
    log(run, 1, 1, {0: {"loss": 4.0, "grad_norm": 5.0, "lr": 0.9}, 1: {"loss": 1.0, "grad_norm": math.inf}})
    curve = curve_of_run(run)
    assert ranks_that_logged(run) == (0, 1)
    assert curve.steps.tolist() == [1, 2]
    np.testing.assert_equal(curve.values["loss"], [3.0, np.nan])
    np.testing.assert_equal(curve.values["grad_norm"], [5.0, np.inf])
    np.testing.assert_equal(curve.values["lr"], [0.1, 0.2])
    assert curve.times.tolist() == [1.0, 2.0]


def test_a_step_that_one_rank_did_not_log_is_the_mean_of_the_others(run: Run) -> None:
    for loader in open_loaders(run, world_size=2, microbatch_size=2):
        loader.take_step()
    log(run, 1, 0, {0: {"loss": 2.0}})
    log(run, 1, 1, {0: {"loss": 4.0}, 1: {"loss": 1.0}})
    assert curve_of_run(run).values["loss"].tolist() == [3.0, 1.0]


def test_the_later_attempt_counts(run: Run) -> None:
    state = state_after(run, microbatch_size=4, steps=2)
    log(run, 1, 0, {0: {"loss": 1.0}, 1: {"loss": 2.0}, 2: {"loss": 3.0}})
    (loader,) = open_loaders(run, microbatch_size=4, state=state)
    loader.take_step()
    log(run, 2, 0, {2: {"loss": 30.0}, 3: {"loss": 40.0}})
    assert curve_of_run(run).values["loss"].tolist() == [1.0, 2.0, 30.0, 40.0]
    assert curve_of_run(run, 1).values["loss"].tolist() == [1.0, 2.0, 3.0]


def test_a_run_of_which_nothing_was_logged_says_so(run: Run) -> None:
    (loader,) = open_loaders(run, microbatch_size=4)
    loader.take_step()
    with pytest.raises(NotInRun, match="no rank"):
        curve_of_run(run)
