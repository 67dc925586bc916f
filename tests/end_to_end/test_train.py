"""The example trains on two ranks, is killed, and goes on with one: nothing is missing, doubled or changed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from dataguard.plan.slots import SlotStatus
from dataguard.run.run import Run
from dataguard.run.telemetry_reading import telemetry_of_lineage
from tests.architecture.tree import TOP
from tests.examples import withheld
from tests.examples.running import ENVIRONMENT, Launch, launcher
from tests.support.commands import dataguard
from tests.support.lineage import delivered, lineage

KILLED_BEHIND = 10  # this many steps are in a checkpoint when it dies
STEPS_MORE = 10
MASKED_STEPS = 15

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


@dataclass(frozen=True)
class Trained:
    """Runs of the example, and the steps of the first two."""

    broken: Path
    """Two ranks began it and were killed, one ended it."""
    whole: Path
    """Nothing broke it."""
    masked: Path
    """Half of its text is withheld."""
    num_steps: int


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    import torch

    folder = tmp_path_factory.mktemp("train")
    broken, whole, masked = folder / "broken", folder / "whole", folder / "masked"
    train_until_killed(broken)
    num_steps = int(torch.load(broken / "newest.pt")["loader"]["next_step"]) + STEPS_MORE
    withheld.create(masked, 1, global_batch=16)
    with launcher() as launched:
        launched("train", Launch([(broken, num_steps), (whole, num_steps), (masked, MASKED_STEPS)]))
    return Trained(broken=broken / "run", whole=whole / "run", masked=masked / "run", num_steps=num_steps)


def losses(path: Path) -> dict[int, float]:
    """Of each live step over all ranks, as rank 0 logged it."""
    rows = telemetry_of_lineage(Run.open(path), names=["global_loss"])
    return {int(row["step"]): float(row["value"]) for row in rows if row["rank"] == 0}


def test_verify_finds_nothing(trained: Trained) -> None:
    done = dataguard("verify", trained.broken)
    assert done.stdout.splitlines()[-1] == "everything agrees along attempts 1 > 2"


def test_two_ranks_began_and_one_ended(trained: Trained) -> None:
    first, second = lineage(trained.broken)
    assert (first.geometry.world_size, second.geometry.world_size) == (2, 1)
    assert (first.fork_step, second.fork_step) == (0, trained.num_steps - STEPS_MORE)


def test_every_sample_is_that_of_the_unbroken_run(trained: Trained) -> None:
    samples = delivered(trained.broken)
    assert {sample[0] for sample in samples} == set(range(trained.num_steps))
    assert samples == delivered(trained.whole)


def test_it_learned_the_same(trained: Trained) -> None:
    """The loss is the mean over all tokens of a step, whatever ranks and microbatches they are cut into."""
    ours, unbroken = losses(trained.broken), losses(trained.whole)
    assert sorted(ours) == sorted(unbroken) == list(range(trained.num_steps))
    np.testing.assert_allclose(list(ours.values()), list(unbroken.values()), rtol=1e-3)
    assert ours[trained.num_steps - 1] < ours[0] - 1


def test_a_microbatch_without_any_token_is_no_nan(trained: Trained) -> None:
    masked: dict[tuple[int, int], set[bool]] = {}
    for step, slot, *_, status, _ in delivered(trained.masked):
        masked.setdefault((step, slot // 4), set()).add(status == SlotStatus.QUARANTINED)
    assert {True} in masked.values(), "some microbatch holds nothing"
    assert {False} in masked.values()
    ours = losses(trained.masked)
    assert sorted(ours) == list(range(MASKED_STEPS))
    assert np.isfinite(list(ours.values())).all()
    assert ours[MASKED_STEPS - 1] < ours[0] - 0.5
    dataguard("verify", trained.masked)
