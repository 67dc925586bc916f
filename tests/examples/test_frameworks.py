"""In the loop of each framework: what is on record, with a loader of ours and with one line added to theirs.

All in one file: what launches them imports each framework once.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from dataguard.plan.slots import SlotStatus
from dataguard.replay import Lookup, verify_run
from dataguard.run.run import Run
from dataguard.run.telemetry_reading import telemetry_of_lineage
from tests.examples import withheld
from tests.examples.running import Launch, Launched, launcher
from tests.support.lineage import Sample, delivered, lineage, tensors

PACKAGES = {
    "accelerate_loop": ["accelerate"],
    "guard_accelerate": ["accelerate"],
    "guard_hf_trainer": ["transformers", "accelerate"],
    "guard_lightning": ["lightning", "torchdata"],
    "hf_trainer": ["transformers", "accelerate"],
    "lightning_fit": ["lightning"],
    "plain_loop": [],
}


@pytest.fixture(scope="module")
def launched() -> Iterator[Launched]:
    with launcher() as launched:
        yield launched


def require_packages(name: str) -> None:
    for package in ("torch", *PACKAGES[name]):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed; install dataguard[test]")


def require_good(path: Path) -> None:
    answer = verify_run(Lookup(Run.open(path)))
    assert answer.ok, [fault for check in answer.checks for fault in check.faults]


# ---- killed behind a checkpoint and resumed, a run equals the one that nothing broke ----

NUM_STEPS = 14
SAVED_EVERY = 4
DIES_IN_STEP = 9  # in the middle of an epoch of six steps, behind the checkpoint of eight
NUM_MICROBATCHES = 2  # of a step, over all ranks
NUM_RANKS = {"accelerate_loop": (2, 1), "guard_lightning": (1, 1), "hf_trainer": (2, 1), "lightning_fit": (2, 2)}
"""Until it is killed, and afterwards. Lightning counts accumulation in batches of an epoch, so it stays with two."""


@pytest.fixture(scope="module", params=NUM_RANKS)
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, launched: Launched
) -> tuple[Path, Path]:
    """The whole run and the broken one."""
    name = request.param
    require_packages(name)
    folder = tmp_path_factory.mktemp(name)
    whole, broken = folder / "whole", folder / "broken"
    before, after = NUM_RANKS[name]
    dies = DIES_IN_STEP * NUM_MICROBATCHES // before + 1
    calls = [(whole, NUM_STEPS), (broken, NUM_STEPS)]
    if name == "hf_trainer":
        withheld.create(folder / "masked", 0, 1, global_batch=8, first_label=1)
        calls.append((folder / "masked", 2))
    launched(name, Launch([(broken, NUM_STEPS)], num_ranks=before, kill_at=dies), Launch(calls, num_ranks=after))
    return whole / "run", broken / "run"


def test_every_sample_is_that_of_the_unbroken_run(runs: tuple[Path, Path]) -> None:
    whole, broken = runs
    samples = delivered(broken)
    assert {sample[0] for sample in samples} == set(range(NUM_STEPS))
    assert samples == delivered(whole)
    assert tensors(broken) == tensors(whole)


def test_it_went_on_where_the_checkpoint_stood(runs: tuple[Path, Path], request: pytest.FixtureRequest) -> None:
    whole, broken = runs
    num_ranks = NUM_RANKS[request.node.callspec.params["runs"]]
    assert tuple(attempt.geometry.world_size for attempt in lineage(broken)) == num_ranks
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


# ---- one line added to a script that exists already: nothing else changes, and every batch is on record ----

GUARDED_STEPS = 7
DIES_AT = 12  # the twelfth batch, in step 5, behind the checkpoint of four
EPOCH_STEPS = 20  # of plain_loop
SLOTS = {"plain_loop": 8, "guard_accelerate": 4, "guard_hf_trainer": 8}


def require_unchanged(name: str, guarded: str, bare: str, folder: Path, num_steps: int) -> list[Sample]:
    """With and without the line the losses are the same to the last digit; with it, every batch is on record."""
    losses = [line for line in guarded.splitlines() if "loss" in line and "runtime" not in line]
    assert len(losses) == num_steps
    assert losses == [line for line in bare.splitlines() if "loss" in line and "runtime" not in line]
    assert not (folder / "bare" / "run").exists()

    samples = delivered(folder / "guarded" / "run")
    expected = [(step, slot) for step in range(num_steps) for slot in range(SLOTS[name])]
    assert [sample[:2] for sample in samples] == expected
    require_good(folder / "guarded" / "run")
    return samples


def test_the_line_changes_nothing_and_records_everything(launched: Launched, tmp_path: Path) -> None:
    require_packages("guard_accelerate")
    calls = [(tmp_path / which, GUARDED_STEPS) for which in ("guarded", "bare")]
    ((guarded, bare),) = launched("guard_accelerate", Launch(calls, bare_at=1))
    samples = require_unchanged("guard_accelerate", guarded, bare, tmp_path, GUARDED_STEPS)
    assert len({sample[4] for sample in samples}) == len(samples), "within an epoch no index comes twice"


def test_so_does_it_on_two_ranks_over_several_epochs(launched: Launched, tmp_path: Path) -> None:
    """A DistributedSampler goes on doing what `set_epoch` tells it, and workers stay."""
    require_packages("plain_loop")
    num_steps = EPOCH_STEPS + 5
    calls = [(tmp_path / which, num_steps) for which in ("guarded", "bare")]
    ((guarded, bare),) = launched("plain_loop", Launch(calls, num_ranks=2, bare_at=1))
    samples = require_unchanged("plain_loop", guarded, bare, tmp_path, num_steps)
    assert [attempt.geometry.world_size for attempt in lineage(tmp_path / "guarded" / "run")] == [2]
    rows = [sample[4] for sample in samples]
    first, second = rows[: EPOCH_STEPS * 8], rows[EPOCH_STEPS * 8 :]
    assert sorted(first) == list(range(160)), "an epoch is all there is, once, over both ranks"
    assert len(set(second)) == len(second)
    assert second != first[: len(second)], "the second is in another order"


def test_a_trainer_records_everything_and_says_where_it_stands_when_it_resumes(
    launched: Launched, tmp_path: Path
) -> None:
    """Its epoch begins anew, since its own way of skipping would leave the record; steps go on as it counts them."""
    name = "guard_hf_trainer"
    require_packages(name)
    calls = [(tmp_path / which, GUARDED_STEPS) for which in ("broken", "guarded", "bare")]
    _, (_, guarded, bare) = launched(name, Launch(calls[:1], kill_at=DIES_AT), Launch(calls, bare_at=2))
    samples = require_unchanged(name, guarded, bare, tmp_path, GUARDED_STEPS)
    assert len({sample[4] for sample in samples}) == len(samples), "within an epoch no index comes twice"

    broken = tmp_path / "broken" / "run"
    assert [attempt.fork_step for attempt in lineage(broken)] == [0, 4]
    assert {sample[0] for sample in delivered(broken)} == set(range(GUARDED_STEPS))
    require_good(broken)
