"""A guarded loader yields what the loader yields, and the record says which rows that was, whatever kind it is."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.data_loader import BatchSamplerShard, skip_first_batches
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, Subset, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from dataguard.core.address import Address
from dataguard.errors import AttemptError, UsageError
from dataguard.plan.plan import Plan
from dataguard.plan.slots import SlotStatus
from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.run.index import Index
from dataguard.run.run import Run
from dataguard.torch import guard
from tests.support.corpora import make_corpus
from tests.torch.guarded_data import Noisy, Rows, Stream, loader_of, rows_of


def recorded(run: Run, attempt: int = 1) -> list[list[int]]:
    """Rows of every recorded microbatch of rank 0, in order; padding left out."""
    parts = list(Index(run.layout).records(attempt, num_ranks=1, torn=[], damage=[]))
    records = np.concatenate(parts)
    records = records[np.lexsort((records["slot"], records["microbatch"], records["step"]))]
    batches: dict[tuple[int, int], list[int]] = {}
    for record in records[records["status"] != SlotStatus.ENDED]:
        batches.setdefault((int(record["step"]), int(record["microbatch"])), []).append(int(record["row"]))
    return list(batches.values())


def require_good(run: Run, samples: int) -> None:
    """Everything on disk agrees, and so many positions were checked."""
    answer = verify_run(Lookup(Run.open(run.path)))
    assert answer.ok, answer
    assert next(check.checked for check in answer.checks if check.name == "exactly once") == samples


class Backwards(BatchSampler):
    """A batch sampler of somebody's own: another class, batches of two sizes."""

    def __iter__(self) -> Any:
        yield [5, 4, 3]
        yield [2]
        yield [1, 0, 5]

    def __len__(self) -> int:
        return 3


KINDS: dict[str, Any] = {
    "shuffled": loader_of,
    "in order": lambda: loader_of(shuffle=False),
    "drop_last": lambda: loader_of(drop_last=True),
    "batches that fit": lambda: loader_of(24),
    "workers": lambda: loader_of(num_workers=2),
    "one worker, far ahead": lambda: loader_of(num_workers=1, prefetch_factor=5),
    "persistent workers": lambda: loader_of(num_workers=2, persistent_workers=True),
    "no batches": lambda: loader_of(9, batch_size=None),
    "no batches, workers": lambda: loader_of(9, batch_size=None, num_workers=2),
    "batch sampler": lambda: DataLoader(Rows(6), batch_sampler=Backwards(SequentialSampler(range(6)), 3, False)),
    "sampler": lambda: loader_of(shuffle=False, sampler=RandomSampler(range(23), replacement=True, num_samples=17)),
    "subset": lambda: loader_of(dataset=Subset(Rows(30), list(range(20, 30)))),
    "stateful": lambda: loader_of(cls=StatefulDataLoader),
    "stateful, workers": lambda: loader_of(cls=StatefulDataLoader, num_workers=2),
    "accelerate": lambda: Accelerator(cpu=True).prepare(loader_of()),
    "accelerate, workers": lambda: Accelerator(cpu=True).prepare(loader_of(num_workers=2)),
    "accelerate, skipped": lambda: skip_first_batches(Accelerator(cpu=True).prepare(loader_of()), 2),
    "accelerate's shard": lambda: DataLoader(
        Rows(23), batch_sampler=BatchSamplerShard(BatchSampler(range(23), 4, False), 2, 1)
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_record_has_the_rows_of_every_batch_over_two_epochs(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(5)
    loader = KINDS[kind]()
    offset = 20 if kind == "subset" else 0
    delivered: list[list[int]] = []
    with guard(loader, tmp_path / "run") as guarded:
        for _ in range(2):
            before = len(delivered)
            delivered += [[row - offset for row in rows_of(batch)] for batch in guarded]
            assert len(delivered) - before == len(loader)
        assert guarded.address == Address(step=len(delivered) - 1, rank=0, microbatch=0)
    assert recorded(guarded.run) == delivered
    size = max(len(rows) for rows in delivered)
    require_good(guarded.run, size * len(delivered))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_what_is_yielded_and_every_generator_are_as_without(num_workers: int, tmp_path: Path) -> None:
    def epochs(guarded: bool) -> tuple[list[Any], Any]:
        torch.manual_seed(1)
        np.random.seed(1)  # noqa: NPY002 - as people do
        random.seed(1)
        loader: Any = DataLoader(Noisy(23), batch_size=4, shuffle=True, num_workers=num_workers)
        if guarded:
            loader = guard(loader, tmp_path / "run", policy="default", vocab_size=1_000, store="all")
        batches = [batch for _ in range(2) for batch in loader]
        numpy = np.random.get_state()[1].tolist()  # noqa: NPY002 - as people do
        states = torch.get_rng_state().tolist(), numpy, random.getstate()
        return batches, states

    plain, states = epochs(guarded=False)
    ours, our_states = epochs(guarded=True)
    assert our_states == states
    assert len(ours) == len(plain) == 12
    for a, b in zip(ours, plain, strict=True):
        assert list(a) == list(b)
        for name in a:
            assert torch.equal(a[name], b[name])


def test_batches_are_the_very_same_objects(tmp_path: Path) -> None:
    class Kept(list):  # type: ignore[type-arg]
        """A batch that a loader of somebody's own makes."""

    batches = [Kept([torch.arange(4) + i, {"more": torch.ones(4, 2)}]) for i in range(3)]
    with guard(batches, tmp_path / "run") as guarded:
        ours = list(guarded)
    assert all(a is b for a, b in zip(ours, batches, strict=True))
    assert all(a[0] is b[0] for a, b in zip(ours, batches, strict=True))


def test_the_loaders_own_attributes_are_back_before_the_first_batch(tmp_path: Path) -> None:
    loader = loader_of(num_workers=1)
    before = dict(vars(loader))
    with guard(loader, tmp_path / "run") as guarded:
        for _ in guarded:
            assert {**vars(loader), "_iterator": None} == before
            break
    assert type(loader.batch_sampler) is BatchSampler


def test_what_frameworks_ask_a_loader_comes_from_the_loader(tmp_path: Path) -> None:
    loader = loader_of()
    guarded = guard(loader, tmp_path / "run")
    assert (len(guarded), guarded.batch_size, guarded.dataset) == (6, 4, loader.dataset)
    assert guarded.sampler is loader.sampler
    assert guarded.batch_sampler is loader.batch_sampler
    assert not hasattr(guarded, "set_epoch")
    prepared = Accelerator(cpu=True).prepare(guarded)
    assert prepared is guarded
    loader.set_epoch = lambda epoch: None
    assert guarded.set_epoch is loader.set_epoch


def test_steps_of_several_batches_end_with_the_epoch(tmp_path: Path) -> None:
    with guard(loader_of(num_workers=2), tmp_path / "run", accumulate=4, first_label=1) as guarded:
        addresses = []
        for _ in range(2):
            addresses += [(guarded.address.step, guarded.address.microbatch) for _ in guarded]
            assert guarded.state_dict()["dataguard"]["next_step"] == guarded.next_step
    assert addresses == [(s, m) for s, n in ((0, 4), (1, 2), (2, 4), (3, 2)) for m in range(n)]
    require_good(guarded.run, 4 * 16)
    records = Index(guarded.run.layout).step(1, 1, num_ranks=1).records
    assert (records["status"] == SlotStatus.ENDED).tolist() == [False] * 7 + [True] * 9
    assert guarded.replay(2).status == "exact"


def test_an_epoch_that_was_left_ends_its_step(tmp_path: Path) -> None:
    with guard(loader_of(), tmp_path / "run", accumulate=3) as guarded:
        for _ in guarded:
            break
        list(guarded)
    assert guarded.next_step == 3
    assert [len(rows) for rows in recorded(guarded.run)] == [4, 4, 4, 4, 4, 4, 3]
    require_good(guarded.run, 3 * 12)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_two_iterations_at_once_are_refused(num_workers: int, tmp_path: Path) -> None:
    with guard(loader_of(num_workers=num_workers), tmp_path / "run") as guarded:
        first = iter(guarded)
        next(first)
        second = iter(guarded)
        next(second)
        with pytest.raises(UsageError, match="two iterations at once"):
            next(first)
    assert [len(rows) for rows in recorded(guarded.run)] == [4, 4]


def test_batches_without_indices_are_numbered_and_kept(tmp_path: Path) -> None:
    loader = DataLoader(Stream(10), batch_size=4, num_workers=1)
    with guard(loader, tmp_path / "run") as guarded:
        delivered = [rows_of(batch) for _ in range(2) for batch in guarded]
    assert delivered == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] * 2
    assert recorded(guarded.run) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [12, 13, 14, 15], [16, 17, 18, 19], [20, 21]]
    require_good(guarded.run, 24)
    again = guarded.replay(4)
    assert again.status == "exact"
    assert rows_of(again.batches[0, 0]) == [4, 5, 6, 7]


def test_the_first_batch_says_how_many_there_are_and_a_larger_one_is_refused(tmp_path: Path) -> None:
    batches = [{"x": torch.ones(2)}, {"x": torch.ones(3)}]
    with guard(iter(batches), tmp_path / "run") as guarded, pytest.raises(UsageError, match="batch_size=3"):
        list(guarded)
    assert recorded(guarded.run) == [[0, 1]]
    with guard(iter(batches), tmp_path / "other", batch_size=3) as guarded:
        list(guarded)
    assert recorded(guarded.run) == [[0, 1], [3, 4, 5]]


@pytest.mark.parametrize(
    ("batch", "found"),
    [({"a": [1, 2], "b": "text"}, "dict of a: list, b: str"), ("text", "str"), ([np.zeros(3)], "list of 1 x ndarray")],
)
def test_a_batch_without_tensors_is_an_error_that_names_what_it_is(batch: Any, found: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=found):
        list(guard([batch], tmp_path / "run", batch_size=2))


def test_what_cannot_be_recorded_is_refused_at_the_start(tmp_path: Path) -> None:
    guarded = guard(loader_of(), tmp_path / "run")
    with pytest.raises(UsageError, match="guarded already"):
        guard(guarded, tmp_path / "run")
    with pytest.raises(UsageError, match="accumulate 0"):
        guard(loader_of(), tmp_path / "run", accumulate=0)
    with pytest.raises(UsageError, match="gives no indices"):
        guard([1], tmp_path / "run", by="index")
    with pytest.raises(UsageError, match="in_order=False"):
        guard(loader_of(num_workers=2, in_order=False), tmp_path / "run")
    with pytest.raises(AttemptError, match="23 rows"):
        guard(loader_of(24), tmp_path / "run")
    with pytest.raises(AttemptError, match="batches without indices"):
        guard(loader_of(), tmp_path / "run", by="order")
    own = Run.create(tmp_path / "own", Plan(make_corpus(tmp_path, {"web": {"a.jsonl": 10}}), seed=1, global_batch=2))
    with pytest.raises(UsageError, match="a plan of its own"):
        guard(loader_of(), own)


def test_a_sampler_of_names_is_told_and_can_be_recorded_by_order(tmp_path: Path) -> None:
    class Named(dict):  # type: ignore[type-arg]
        """A data set that is asked by name."""

    named = Named({name: torch.tensor([i]) for i, name in enumerate("abc")})
    loader = DataLoader(named, sampler=list("cab"), batch_size=2)
    with pytest.raises(UsageError, match="something else than indices"):
        list(guard(loader, tmp_path / "run"))
    with guard(loader, tmp_path / "other", by="order") as guarded:
        assert [batch.flatten().tolist() for batch in guarded] == [[2, 0], [1]]
    assert guarded.replay(0).status == "exact"


def test_tuples_of_tensors_and_indices_from_the_end(tmp_path: Path) -> None:
    data = TensorDataset(torch.arange(10).reshape(5, 2), torch.arange(5))
    with guard(DataLoader(data, sampler=[-1, 0, -2], batch_size=2), tmp_path / "run") as guarded:
        assert [batch[1].tolist() for batch in guarded] == [[4, 0], [3]]
    assert recorded(guarded.run) == [[4, 0], [3]]
    assert guarded.replay(0).status == "exact"
