"""In the loop of each framework: killed behind a checkpoint and resumed, a run equals the one that nothing broke."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from dataguard.plan.slots import SlotStatus
from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.run.run import Run
from dataguard.run.telemetry_reading import telemetry_of_lineage
from tests.examples import withheld
from tests.examples.running import call
from tests.support.lineage import delivered, lineage, tensors

NUM_STEPS = 14
SAVED_EVERY = 4
DIES_IN_STEP = 9  # in the middle of an epoch of six steps, behind the checkpoint of eight


PACKAGES = {
    "accelerate_loop": ["accelerate"],
    "guard_lightning": ["lightning", "torchdata"],
    "hf_trainer": ["transformers", "accelerate"],
    "lightning_fit": ["lightning"],
}
NUM_RANKS = {"accelerate_loop": (2, 1), "hf_trainer": (2, 1), "lightning_fit": (2, 2)}
"""Until it is killed, and afterwards. Lightning counts accumulation in batches of an epoch, so it stays with two."""
NUM_MICROBATCHES = 2  # of a step, over all ranks


@pytest.fixture(scope="module", params=PACKAGES)
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The whole run and the broken one."""
    name = request.param
    for package in ("torch", *PACKAGES[name]):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed; install dataguard[test]")
    folder = tmp_path_factory.mktemp(name)
    whole, broken = folder / "whole", folder / "broken"
    before, after = NUM_RANKS.get(name, (1, 1))
    call(name, (broken, NUM_STEPS), num_ranks=before, kill_at=DIES_IN_STEP * NUM_MICROBATCHES // before + 1)
    more = []
    if name == "hf_trainer":
        withheld.create(folder / "masked", 0, 1, global_batch=8, first_label=1)
        more = [(folder / "masked", 2)]
    call(name, (whole, NUM_STEPS), (broken, NUM_STEPS), *more, num_ranks=after)
    return whole / "run", broken / "run"


def test_every_sample_is_that_of_the_unbroken_run(runs: tuple[Path, Path]) -> None:
    whole, broken = runs
    samples = delivered(broken)
    assert {sample[0] for sample in samples} == set(range(NUM_STEPS))
    assert samples == delivered(whole)
    assert tensors(broken) == tensors(whole)


def test_it_went_on_where_the_checkpoint_stood(runs: tuple[Path, Path]) -> None:
    whole, broken = runs
    assert [attempt.fork_step for attempt in lineage(whole)] == [0]
    assert [attempt.fork_step for attempt in lineage(broken)] == [0, DIES_IN_STEP // SAVED_EVERY * SAVED_EVERY]


def test_nothing_is_missing_doubled_or_changed(runs: tuple[Path, Path]) -> None:
    for path in runs:
        answer = verify_run(Lookup(Run.open(path)))
        assert answer.ok, [fault for check in answer.checks for fault in check.faults]
        assert all(check.checked for check in answer.checks)


@pytest.mark.parametrize("runs", ["hf_trainer"], indirect=True)
def test_a_step_of_which_nothing_counts_is_no_nan(runs: tuple[Path, Path]) -> None:
    masked = runs[0].parents[1] / "masked" / "run"
    assert {sample[5] for sample in delivered(masked)} == {SlotStatus.QUARANTINED}
    rows = telemetry_of_lineage(Run.open(masked), names=["loss", "grad_norm"])
    assert rows["step"].tolist() == [0, 0, 1, 1]
    assert rows["value"].tolist() == [0.0] * 4
