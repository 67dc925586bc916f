"""Whatever a detecting monitor saves, it goes on from: the state behind a few more steps is that of one never cut."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dataguard.run.run import Run
from dataguard.torch.monitoring.decision import SkipBudget
from dataguard.torch.monitoring.detecting import Detecting
from dataguard.torch.monitoring.gathering import Gathering
from dataguard.triage.alerts import Alerts
from dataguard.triage.detect import DetectorSettings
from tests.support.corpora import make_corpus
from tests.support.runs import make_run, open_loaders

NUM_RANKS = 8
SHARED = {60: 1.0, 61: 1.2, 62: 0.6}
"""What is added to the loss of all ranks; and at step 40 that of rank 1 is NaN, from step 20 on rank 3 is ill."""


class Eight(Gathering):
    """Eight ranks of which seven are made up: they log what follows from the step and their number."""

    def __init__(self) -> None:
        super().__init__(None, rank=0, world_size=NUM_RANKS)

    @property
    def is_alone(self) -> bool:
        return False

    @property
    def num_rows(self) -> int:
        return NUM_RANKS

    def gather(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        label, rows = int(row[0]), np.tile(row, (NUM_RANKS, 1))
        rows[:, 2] += 0.01 * np.random.default_rng(label).standard_normal(NUM_RANKS)
        rows[3, 2] += 0.2 * (label >= 20)
        rows[1, 2] += math.nan if label == 40 else 0.0
        rows[:, 5] = label  # the clock of the slowest
        return rows


def walk(detecting: Detecting, steps: range) -> None:
    for step in steps:
        detecting.judge(step, {"loss": 3.0 + SHARED.get(step, 0.0), "grad_norm": 1.0}, {}, attempt=1)


def detecting_of(run: Run) -> Detecting:
    return Detecting(run, DetectorSettings(), Eight(), alerts=Alerts(), budget=SkipBudget(on="spike"))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = make_run(tmp_path / "run", make_corpus(tmp_path / "corpus", {"web": {"a.parquet": 90}}))
    (loader,) = open_loaders(run, microbatch_size=8, steps=1)
    with loader:
        loader.take_step()  # begins the attempt
    return run


def test_all_that_is_saved_counts(run: Run) -> None:
    whole, resumed = detecting_of(run), detecting_of(run)
    walk(whole, range(61))
    state: dict[str, Any] = json.loads(json.dumps(whole.state_dict()))
    for name, held in state.items():
        assert held, f"nothing of {name} is in the state, and nothing would be missed"
    assert state["skips"] == {"steps": [40, 60], "in_a_row": [60]}
    resumed.load_state_dict(state)
    walk(resumed, range(61, 62))
    assert resumed.state_dict()["seconds"] == state["seconds"], "what lies between two attempts is no stall"
    walk(resumed, range(62, 70))
    walk(whole, range(61, 70))
    wanted, found = json.loads(json.dumps(whole.state_dict())), json.loads(json.dumps(resumed.state_dict()))
    assert set(found) == set(wanted)
    for name in set(wanted) - {"seconds"}:
        assert found[name] == wanted[name], name
