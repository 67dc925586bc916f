"""One line added to a script that exists already: nothing else changes, and every batch is on record."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.run.run import Run
from tests.examples.running import call
from tests.support.lineage import delivered

NUM_STEPS = 7
PACKAGES = {"plain_loop": [], "guard_accelerate": ["accelerate"], "guard_hf_trainer": ["transformers", "accelerate"]}
SLOTS = {"plain_loop": 8, "guard_accelerate": 4, "guard_hf_trainer": 8}


@pytest.mark.parametrize("name", PACKAGES)
def test_the_line_changes_nothing_and_records_everything(name: str, tmp_path: Path) -> None:
    for package in ("torch", *PACKAGES[name]):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed; install dataguard[test]")
    guarded, bare, _ = call(name, (tmp_path / "guarded", NUM_STEPS), (tmp_path / "bare", NUM_STEPS), bare_at=1)
    losses = [line for line in guarded.splitlines() if "loss" in line and "runtime" not in line]
    assert len(losses) == NUM_STEPS
    assert losses == [line for line in bare.splitlines() if "loss" in line and "runtime" not in line]
    assert not (tmp_path / "bare" / "run").exists()

    samples = delivered(tmp_path / "guarded" / "run")
    assert [sample[:2] for sample in samples] == [
        (step, slot) for step in range(NUM_STEPS) for slot in range(SLOTS[name])
    ]
    assert len({sample[4] for sample in samples}) == len(samples), "within an epoch no index comes twice"
    assert verify_run(Lookup(Run.open(tmp_path / "guarded" / "run"))).ok
