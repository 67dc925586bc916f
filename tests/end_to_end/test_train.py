"""The example trains on two ranks, is killed, and goes on with one: nothing is missing, doubled or changed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from dataguard.run.run import Run
from dataguard.run.telemetry_reading import telemetry_of_lineage
from tests.architecture.tree import TOP
from tests.examples.running import ENVIRONMENT, call
from tests.support.commands import dataguard
from tests.support.lineage import delivered, lineage

KILLED_BEHIND = 10  # this many steps are in a checkpoint when it dies
STEPS_MORE = 10

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed; install dataguard[test]")


def train_until_killed(folder: Path) -> None:
    """Train on two ranks of torchrun; SIGKILL to the launcher and to both of them, once a checkpoint stands."""
    script = str(TOP / "examples" / "train.py")
    words = ["--standalone", "--nproc-per-node", "2", script, str(folder), "--steps", "1000000"]
    with subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *words],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as launcher:
        assert launcher.stdout is not None
        try:
            for line in launcher.stdout:
                told = re.match(r"(\d+) steps are done", line)
                if told and int(told[1]) >= KILLED_BEHIND:
                    break
            places = Run.open(folder / "run").begun(1).ranks if launcher.poll() is None else ()
            assert [place.rank for place in places] == [0, 1], launcher.communicate()[1]
        except BaseException:
            launcher.terminate()  # which ends its ranks
            raise
        launcher.kill()
        for place in places:
            assert place.process is not None
            os.kill(place.process, signal.SIGKILL)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, int]:
    """A run that two ranks began and one ended, a run that nothing broke, and the steps of both."""
    import torch

    folder = tmp_path_factory.mktemp("train")
    broken, whole = folder / "broken", folder / "whole"
    train_until_killed(broken)
    num_steps = int(torch.load(broken / "checkpoint.pt")["loader"]["next_step"]) + STEPS_MORE
    call("train", (broken, num_steps), (whole, num_steps))
    return broken / "run", whole / "run", num_steps


def test_verify_finds_nothing(trained: tuple[Path, Path, int]) -> None:
    done = dataguard("verify", trained[0])
    assert done.stdout.splitlines()[-1] == "everything agrees along attempts 1 > 2"


def test_two_ranks_began_and_one_ended(trained: tuple[Path, Path, int]) -> None:
    broken, _, num_steps = trained
    first, second = lineage(broken)
    assert (first.geometry.world_size, second.geometry.world_size) == (2, 1)
    assert (first.fork_step, second.fork_step) == (0, num_steps - STEPS_MORE)


def test_every_sample_is_that_of_the_unbroken_run(trained: tuple[Path, Path, int]) -> None:
    broken, whole, num_steps = trained
    samples = delivered(broken)
    assert {sample[0] for sample in samples} == set(range(num_steps))
    assert samples == delivered(whole)


def test_it_learned_the_same(trained: tuple[Path, Path, int]) -> None:
    """The loss is the mean over all tokens of a step, whatever ranks and microbatches they are cut into."""
    broken, whole, num_steps = trained

    def losses(path: Path) -> dict[int, float]:
        rows = telemetry_of_lineage(Run.open(path), names=["loss"])
        return {int(row["step"]): float(row["value"]) for row in rows if row["rank"] == 0}

    ours, unbroken = losses(broken), losses(whole)
    assert sorted(ours) == sorted(unbroken) == list(range(num_steps))
    np.testing.assert_allclose(list(ours.values()), list(unbroken.values()), rtol=1e-3)
    assert ours[num_steps - 1] < ours[0] - 1
