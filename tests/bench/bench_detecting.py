"""What does a detector cost a training step?

    pytest tests/bench/bench_detecting.py --benchmark-enable

Two parts: judging (on every rank alike, by the number of ranks whose rows it sees; processor time), and the one
collective of a step (real gloo ranks that share the cores of one machine; wall clock, so it holds the others' turns).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dataguard.torch.monitoring.decision import SkipBudget
from dataguard.torch.monitoring.detecting import Detecting
from dataguard.triage.alerts import Alerts
from dataguard.triage.detect import Detector
from tests.bench.conftest import Claims
from tests.support.processes import environment


class Rows:
    """Stands for the ranks: their rows are made beforehand."""

    rank = 1  # nobody writes into a journal
    is_alone = False

    def __init__(self, world_size: int, num_steps: int) -> None:
        generator = np.random.default_rng(1)
        self.world_size = self.num_rows = world_size
        self.losses = 3 + 0.1 * generator.standard_normal((num_steps, world_size))
        self.norms = np.exp(0.1 * generator.standard_normal((num_steps, world_size)))

    def from_first(self, value: Any) -> Any:
        return value

    def gather(self, row: np.ndarray) -> np.ndarray:
        rows = np.repeat(row[None], self.world_size, 0)
        rows[:, 2], rows[:, 3] = self.losses[int(row[0])], self.norms[int(row[0])]
        return rows


@pytest.mark.parametrize("world_size", [1, 4, 64, 512])
def test_judging(world_size: int, claims: Claims, measured: bool) -> None:
    history, count = (400, 600) if measured else (40, 10)
    ranks: Any = Rows(world_size, history + count)
    run: Any = SimpleNamespace(path="run")
    detecting = Detecting(run, Detector(), ranks, alerts=Alerts(), budget=SkipBudget())
    for step in range(history):
        detecting.judge(step, {"loss": 3.0, "grad_norm": 1.0}, {}, attempt=1)
    began = time.process_time()
    for step in range(history, history + count):
        detecting.judge(step, {"loss": 3.0, "grad_norm": 1.0}, {}, attempt=1)
    claims(f"judging a step of {world_size} ranks", (time.process_time() - began) / count * 1e6, "us")
    claims(f"state of {world_size} ranks in a checkpoint", len(json.dumps(detecting.state_dict())) / 1e3, "kB")


def test_the_collective(tmp_path: Path, claims: Claims, measured: bool) -> None:
    for num_ranks in (2, 4) if measured else (2,):
        said = gathered(str(tmp_path / f"meet-{num_ranks}"), num_ranks, 1_000 if measured else 3)
        claims(
            f"one gather of {num_ranks} gloo ranks", max(each["seconds"] for each in said) * 1e6, "us",
            detail=f"{said[0]['processor_seconds'] * 1e6:.0f} us of processor time a rank",
        )  # fmt: skip


def gathered(init: str, num_ranks: int, count: int) -> list[dict[str, float]]:
    """What each of some ranks says one gather took."""
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.bench.gathering_rank", init, str(rank), str(num_ranks), str(count)],
                    stdout=subprocess.PIPE,
                    text=True,
                    env=environment(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo"),
                )
            )
            for rank in range(num_ranks)
        ]
        for process in processes:
            stack.callback(process.kill)
        return [json.loads(process.communicate(timeout=120)[0]) for process in processes]
