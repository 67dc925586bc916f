"""What frameworks do to a guarded loader beside iterating it."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator, skip_first_batches
from torch.utils.data import DataLoader

from dataguard.errors import UsageError
from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.torch import Guarded, guard
from tests.support.lineage import delivered, lineage
from tests.torch.guarded_data import loader_of, rows_of


def prepared() -> DataLoader[torch.Tensor]:
    loader: DataLoader[torch.Tensor] = Accelerator(cpu=True).prepare(loader_of(24, shuffle=False))
    return loader


def test_steps_of_several_batches_of_a_loader_that_accelerate_has_prepared(tmp_path: Path) -> None:
    """It has the method of a state, and a state only where it was told to."""
    guarded = guard(prepared(), tmp_path / "run", accumulate=2)
    assert len(list(guarded)) == len(guarded) == 6
    assert guarded.next_step == 3
    state = guarded.state_dict()
    assert state["loader"] is None
    guard(prepared(), tmp_path / "run", accumulate=2).load_state_dict(state)


def test_a_loader_made_of_the_parts_of_a_guarded_one_is_refused(tmp_path: Path) -> None:
    """A Trainer that resumes and skips does this: its batches would be delivered, and nobody would record them."""
    guarded = guard(prepared(), tmp_path / "run")
    with pytest.raises(UsageError, match="ignore_data_skip=True"):
        skip_first_batches(guarded, 2)


def test_a_loader_that_skips_is_guarded_and_goes_on(tmp_path: Path) -> None:
    first = guard(prepared(), tmp_path / "run")
    before = [rows_of(batch) for _, batch in zip(range(2), first, strict=False)]
    first.close()
    second = guard(skip_first_batches(prepared(), 2), tmp_path / "run", start_step=2)
    after = [rows_of(batch) for batch in second]
    second.close()
    samples = delivered(tmp_path / "run")
    assert [sample[4] for sample in samples] == list(chain(*before, *after)) == list(range(24))
    assert [attempt.fork_step for attempt in lineage(tmp_path / "run")] == [0, 2]
    assert verify_run(Lookup(second.run)).ok


def test_a_trainer_is_asked_where_it_stands_at_the_first_batch(tmp_path: Path) -> None:
    """A Trainer makes its loader before it reads how far its checkpoint was."""
    with guard(prepared(), tmp_path / "run") as guarded:
        assert len(list(guarded)) == 6
    done = -1
    with guard(prepared(), tmp_path / "run", start_step=lambda: done) as guarded:
        with pytest.raises(UsageError, match="start_step -1 cannot be"):
            next(iter(guarded))
        done = 4
        assert guarded.next_step == 4
        assert len(list(guarded)) == 6
    assert [attempt.fork_step for attempt in lineage(tmp_path / "run")] == [0, 4]


def test_a_seed_for_workers_reaches_them(tmp_path: Path) -> None:
    """As Lightning does after seed_everything(workers=True)."""
    loader = loader_of(24)
    guarded: Guarded = guard(loader, tmp_path / "run")
    assert guarded.worker_init_fn is None
    guarded.worker_init_fn = print
    assert loader.worker_init_fn is print
    assert not hasattr(guard(iter([[torch.zeros(1, 2)]]), tmp_path / "other", batch_size=1), "worker_init_fn")
