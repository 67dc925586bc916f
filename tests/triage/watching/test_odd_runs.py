"""Runs as they stand at odd moments: half a step, a hole, a rank that never came; and what is told of them once."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from dataguard.core.spikes import EventClass
from dataguard.run import amend
from dataguard.run.run import Run
from dataguard.run.telemetry import open_telemetry, telemetry_records
from dataguard.triage.watching import Watcher
from dataguard.triage.watching.answers import EventSeen
from dataguard.triage.watching.told import Told, merged
from tests.support.corpora import make_corpus
from tests.support.runs import deliver, make_run, open_loaders

BEGIN = 1_800_000_000


def new_run(folder: Path, **plan: object) -> Run:
    corpus = make_corpus(folder, {"web": {"a.parquet": 120}, "code": {"b.parquet": 60}})
    return make_run(folder / "run", corpus, global_batch=4, first_label=1, **plan)


def write_odd_values(run: Run) -> None:
    """Three steps; at the second the norm of rank 0 is NaN. Losses of samples are no rank's own loss."""
    for rank in range(2):
        with open_telemetry(run, 1, rank) as writer:
            for step in range(3):
                norm = float("nan") if (step, rank) == (1, 0) else 1.0 + rank
                time_ns = (BEGIN + step) * 10**9
                values = [2.0 + rank, norm, 1e-3 * (rank + 1)]
                writer.append(telemetry_records(step, ["loss", "grad_norm", "lr"], values, time_ns=time_ns))
                slots = np.array([2 * rank, 2 * rank + 1])
                writer.append(telemetry_records(step, "loss", np.array([99.0, 99.0]), time_ns=time_ns, slots=slots))


def test_half_a_step_is_not_complete_and_values_are_as_triage_has_them(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    loaders = open_loaders(run, world_size=2, microbatch_size=1)
    for _ in range(3):
        for loader in loaders:
            loader.take_step()
    loaders[0].take_step()
    next(loaders[1])
    write_odd_values(run)
    watcher = Watcher(run.path)
    answer = watcher.look(now_seconds=BEGIN + 4.0)
    assert (answer.step, answer.complete) == (4, 3)
    assert {(one.name, one.recent) for one in watcher.look(now_seconds=BEGIN + 5.0, is_last=True).signals} == {
        ("loss", (2.5, 2.5, 2.5)),
        ("grad_norm", (2.0, None, 2.0)),
        ("lr", (1e-3, 1e-3, 1e-3)),
    }
    speeds = [watcher.look(now_seconds=BEGIN + seconds).last_minute for seconds in (4.0, 12.0, 30.0)]
    per_second = [None if each is None else each.steps_per_second for each in speeds]
    assert per_second == pytest.approx([1.0, 2 / 12, 2 / 30]), "silence counts once it is longer than a step takes"
    for loader in loaders:
        loader.close()


def test_a_step_is_judged_once_a_quiet_look_has_passed(tmp_path: Path) -> None:
    """More of it may come between two looks: until then it is shown and not judged."""
    run = new_run(tmp_path)
    deliver(run, world_size=1, microbatch_size=4, steps=3)
    watcher = Watcher(run.path)
    with open_telemetry(run, 1, 0) as writer:
        for step in range(2):
            writer.append(telemetry_records(step, ["loss"], [2.0], time_ns=(BEGIN + step) * 10**9))
        # That it waits for data of a step says nothing of how far a rank has come in what it logs.
        writer.append(telemetry_records(90, ["data_wait_seconds"], [1.0], time_ns=BEGIN * 10**9))
        first = watcher.look(now_seconds=BEGIN + 2.0)
        writer.append(telemetry_records(1, ["grad_norm"], [7.0], time_ns=(BEGIN + 1) * 10**9))
        for _ in range(2):
            second = watcher.look(now_seconds=BEGIN + 3.0)
    assert [(one.name, one.step, one.value) for one in first.signals] == [("loss", 2, 2.0)]
    assert [(one.name, one.step, one.value) for one in second.signals] == [("loss", 2, 2.0), ("grad_norm", 2, 7.0)]


def test_a_sealed_record_that_is_not_counted_yet_is_not_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = new_run(tmp_path)
    deliver(run, world_size=2, microbatch_size=2, steps=3)
    monkeypatch.setattr("dataguard.triage.watching.delivered.FIRST_BYTES", 0)
    watcher = Watcher(run.path)
    shares = [watcher.look(now_seconds=BEGIN).whole for _ in range(2)]
    assert [(share.num_samples, share.is_whole) for share in shares if share is not None] == [(0, False), (12, True)]


def test_the_last_complete_step_lies_before_the_hole(tmp_path: Path) -> None:
    run = new_run(tmp_path, skip_mode="hole")
    deliver(run, world_size=2, microbatch_size=1, steps=2)
    amend.skip(run, 4, 6, reason="spike", batches=True)
    loaders = open_loaders(run, world_size=2, microbatch_size=1, from_step=2, weights={"web": 1, "code": 3})
    for loader in loaders:
        loader.take_step()
    loaders[0].take_step()
    next(loaders[1])
    answer = Watcher(run.path).look(now_seconds=BEGIN)
    assert (answer.step, answer.complete) == (6, 3), "steps 4 and 5 are a hole"
    told = Told(run)
    told.look(run.read())
    assert told.changes >= {3}, "other weights from the third step on: a planned change"
    for loader in loaders:
        loader.close()


def test_a_rank_that_never_came_leaves_the_run_open(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    first, second = open_loaders(run, world_size=2, microbatch_size=1)
    first.take_step()
    first.close()
    answer = Watcher(run.path).look(now_seconds=BEGIN)
    assert (answer.state, answer.step, answer.complete) == ("open", 1, None)
    assert answer.attempt is not None
    assert (answer.attempt.num_open_ranks, answer.attempt.num_ranks_seen) == (0, 1)
    second.close()


@pytest.mark.parametrize(
    ("change", "num_told"),
    [({}, 1), ({"signal": "grad_norm"}, 2), ({"start": 22, "stop": 23}, 2), ({"start": 21, "stop": 30}, 1)],
)
def test_an_event_that_was_noted_and_found_is_told_once(change: dict[str, object], num_told: int) -> None:
    noted = EventSeen(
        event_class=EventClass.HARD_BATCH, start=20, stop=22, is_open=None, size_nats=1.0, sigmas=9.0, signal="loss",
        rank=None, origin="journal",
    )  # fmt: skip
    found = msgspec.structs.replace(noted, origin="found", **change)
    told = merged((noted,), (found,))
    assert len(told) == num_told
    assert told[0] == noted
