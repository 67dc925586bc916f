"""One line added to a script that exists already: nothing else changes, and every batch is on record."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.run.run import Run
from tests.examples.running import call
from tests.support.lineage import delivered, lineage

NUM_STEPS = 7
DIES_AT = 12  # the twelfth batch, in step 5, behind the checkpoint of four
PACKAGES = {"plain_loop": [], "guard_accelerate": ["accelerate"], "guard_hf_trainer": ["transformers", "accelerate"]}
SLOTS = {"plain_loop": 8, "guard_accelerate": 4, "guard_hf_trainer": 8}


def require_packages(name: str) -> None:
    for package in ("torch", *PACKAGES[name]):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed; install dataguard[test]")


def require_good(path: Path) -> None:
    answer = verify_run(Lookup(Run.open(path)))
    assert answer.ok, [fault for check in answer.checks for fault in check.faults]


def require_unchanged(name: str, guarded: str, bare: str, folder: Path) -> None:
    """With and without the line the losses are the same to the last digit; with it, every batch is on record."""
    losses = [line for line in guarded.splitlines() if "loss" in line and "runtime" not in line]
    assert len(losses) == NUM_STEPS
    assert losses == [line for line in bare.splitlines() if "loss" in line and "runtime" not in line]
    assert not (folder / "bare" / "run").exists()

    samples = delivered(folder / "guarded" / "run")
    expected = [(step, slot) for step in range(NUM_STEPS) for slot in range(SLOTS[name])]
    assert [sample[:2] for sample in samples] == expected
    assert len({sample[4] for sample in samples}) == len(samples), "within an epoch no index comes twice"
    require_good(folder / "guarded" / "run")


@pytest.mark.parametrize("name", ["plain_loop", "guard_accelerate"])
def test_the_line_changes_nothing_and_records_everything(name: str, tmp_path: Path) -> None:
    require_packages(name)
    guarded, bare, _ = call(name, (tmp_path / "guarded", NUM_STEPS), (tmp_path / "bare", NUM_STEPS), bare_at=1)
    require_unchanged(name, guarded, bare, tmp_path)


def test_a_trainer_records_everything_and_says_where_it_stands_when_it_resumes(tmp_path: Path) -> None:
    """Its epoch begins anew, since its own way of skipping would leave the record; steps go on as it counts them."""
    name = "guard_hf_trainer"
    require_packages(name)
    call(name, (tmp_path / "broken", NUM_STEPS), kill_at=DIES_AT)
    folders = [tmp_path / "broken", tmp_path / "guarded", tmp_path / "bare"]
    _, guarded, bare, _ = call(name, *((folder, NUM_STEPS) for folder in folders), bare_at=2)
    require_unchanged(name, guarded, bare, tmp_path)

    broken = tmp_path / "broken" / "run"
    assert [attempt.fork_step for attempt in lineage(broken)] == [0, 4]
    assert {sample[0] for sample in delivered(broken)} == set(range(NUM_STEPS))
    require_good(broken)
