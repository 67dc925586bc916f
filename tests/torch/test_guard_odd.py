"""Batches, arguments and ways to stop that are unusual: a guarded loader does as the loader does, or says why not."""

from __future__ import annotations

import multiprocessing
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from dataguard.errors import AttemptError, UsageError
from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.run.run import Run
from dataguard.run.telemetry_reading import read_telemetry
from dataguard.torch import Monitor, guard
from tests.torch.guarded_data import Rows, Stream, loader_of, rows_of


class Weak(dict):  # type: ignore[type-arg]
    """A batch that says when it is gone."""


class Counting:
    """Notes which of its batches are alive whenever it is asked for the next one."""

    def __init__(self) -> None:
        self.batches: list[Any] = []
        self.alive: list[int] = []

    def __iter__(self) -> Iterator[Weak]:
        for _ in range(4):
            self.alive.append(sum(batch() is not None for batch in self.batches))
            batch = Weak(input_ids=torch.ones(2, 8, dtype=torch.int64))
            self.batches.append(weakref.ref(batch))
            yield batch
            del batch


@pytest.mark.parametrize("policy", [None, "default"])
def test_a_batch_that_the_trainer_lets_go_of_is_gone_before_the_next_is_made(
    policy: str | None, tmp_path: Path
) -> None:
    loader = Counting()
    with guard(loader, tmp_path / "run", store="none", policy=policy) as guarded:
        for batch in guarded:
            del batch
    assert loader.alive == [0, 0, 0, 0]


def test_workers_end_with_an_iteration_that_is_left(tmp_path: Path) -> None:
    before = len(multiprocessing.active_children())
    with guard(loader_of(num_workers=2), tmp_path / "run") as guarded:
        for _ in guarded:
            assert len(multiprocessing.active_children()) == before + 2
            break
        assert len(multiprocessing.active_children()) == before


def test_a_batch_of_no_samples_is_handed_over_and_recorded_as_padding(tmp_path: Path) -> None:
    batches = [{"input_ids": torch.ones(n, 8, dtype=torch.int64)} for n in (4, 0, 4)]
    with guard(batches, tmp_path / "run", policy="default") as guarded:
        assert [a is b for a, b in zip(guarded, batches, strict=True)] == [True] * 3
    assert [guarded.replay(step).status for step in range(3)] == ["exact", "skipped", "exact"]
    assert verify_run(Lookup(Run.open(guarded.run.path))).ok
    with guard([torch.ones(0, 2)], tmp_path / "first") as guarded:
        assert len(list(guarded)) == 1


def test_items_without_indices_whose_tokens_are_one_sequence_are_samples(tmp_path: Path) -> None:
    loader = DataLoader(Stream(5), batch_size=None)
    with guard(loader, tmp_path / "run", policy="default", vocab_size=1_000) as guarded:
        assert [rows_of(item) for item in guarded] == [[0], [1], [2], [3], [4]]
    again = guarded.replay(3)
    assert again.status == "exact"
    (microbatch,) = again.answer.microbatches
    assert [(sample.row, sample.length) for sample in microbatch.samples] == [(3, 64)]


@pytest.mark.parametrize("accumulate", [1, 4])
def test_the_last_batch_of_an_epoch_logs_the_losses_of_the_samples_it_has(accumulate: int, tmp_path: Path) -> None:
    with guard(loader_of(), tmp_path / "run", accumulate=accumulate) as guarded, Monitor(guarded.run) as monitor:
        for batch in guarded:
            monitor.log_samples(guarded.address, torch.tensor(rows_of(batch)))
        with pytest.raises(UsageError, match="holds 3 slots"):
            monitor.log_samples(guarded.address, torch.zeros(4))
    last = guarded.next_step - 1
    values = read_telemetry(guarded.run.layout, 1, run_id=guarded.run.run_id)
    logged = values[(values["slot"] >= 0) & (values["step"] == last)]
    samples = guarded.replay(last).answer.microbatches
    assert dict(zip(logged["slot"].tolist(), logged["value"].tolist(), strict=True)) == {
        sample.slot: float(sample.row) for microbatch in samples for sample in microbatch.samples
    }


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ({"accumulate": 1.5}, "accumulate 1.5"),
        ({"accumulate": True}, "accumulate True"),
        ({"batch_size": "8"}, "batch_size '8'"),
        ({"start_step": -1}, "start_step -1"),
        ({"first_label": 2}, "first_label=2"),
        ({"fsync": "never"}, "fsync='never'"),
        ({"by": "name"}, "by='name'"),
        ({"dataloader": 5}, "int, gives no batches"),
    ],
)
def test_arguments_that_cannot_be_are_refused_before_anything_is_written(
    wrong: dict[str, Any], found: str, tmp_path: Path
) -> None:
    arguments: dict[str, Any] = {"dataloader": DataLoader(Rows(8), batch_size=4), "run": tmp_path / "run", **wrong}
    with pytest.raises(UsageError, match=found):
        guard(**arguments)
    assert not (tmp_path / "run").exists()


def test_a_trainer_that_is_ahead_of_a_run_without_a_record_is_told(tmp_path: Path) -> None:
    guarded = guard(loader_of(), tmp_path / "run", start_step=lambda: 500)
    with pytest.raises(AttemptError, match=r"goes on after 500 steps, and the run at .* has recorded none"):
        list(guarded)
    with guard(loader_of(), tmp_path / "run") as guarded:
        assert len(list(guarded)) == 6


def test_a_tensor_without_values_is_refused_where_it_lies(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="on meta") as told:
        list(guard([{"x": torch.empty(2, 3, device="meta")}], tmp_path / "run"))
    assert "on a device that holds their values" in str(told.value)


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("kind", ["index", "order"])
def test_random_numbers_are_drawn_when_an_iteration_begins_as_without(
    kind: str, num_workers: int, tmp_path: Path
) -> None:
    def drawn(guarded: bool) -> list[float]:
        torch.manual_seed(1)
        dataset: Any = Rows(8) if kind == "index" else Stream(8)
        loader: Any = DataLoader(dataset, batch_size=4, shuffle=kind == "index", num_workers=num_workers)
        if guarded:
            loader = guard(loader, tmp_path / "run")
        numbers, rows = [], []
        for _ in range(2):
            batches = iter(loader)
            numbers.append(torch.rand(1).item())  # a model that is made before the first batch is asked for
            rows += [row for batch in batches for row in rows_of(batch)]
        return numbers + rows

    assert drawn(guarded=True) == drawn(guarded=False)


def test_an_iteration_that_was_begun_and_never_asked_is_no_batch(tmp_path: Path) -> None:
    with guard(loader_of(), tmp_path / "run") as guarded:
        first = iter(guarded)
        assert len(list(guarded)) == 6
        with pytest.raises(UsageError, match="two iterations at once"):
            next(first)
    assert verify_run(Lookup(Run.open(guarded.run.path))).ok


def test_a_state_within_the_first_step_after_a_resume_is_the_one_that_was_loaded(tmp_path: Path) -> None:
    def made() -> Any:
        return guard(loader_of(24, cls=StatefulDataLoader), tmp_path / "run", accumulate=2)

    guarded = made()
    batches = iter(guarded)
    rows = [rows_of(next(batches)) for _ in range(2)]
    state = guarded.state_dict()
    guarded.close()
    resumed = made()
    resumed.load_state_dict(state)
    next(iter(resumed))  # killed within the step
    within = resumed.state_dict()
    assert within["loader"] is not None
    resumed.close()
    again = made()
    again.load_state_dict(within)
    rows += [rows_of(batch) for batch in again]
    again.close()
    assert sorted(row for part in rows for row in part) == list(range(24))
