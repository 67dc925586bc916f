"""A monitor beside a loader: what is kept, which steps are refused, resumes, devices, failures, the end."""

from __future__ import annotations

import errno
import gc
import math
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dataguard.core.address import Address
from dataguard.corpus.corpus import Corpus
from dataguard.errors import AttemptError, GeometryError, NotInRun, UsageError, WriteFailed, WriterConflict
from dataguard.loader.loader import Loader
from dataguard.run import frames
from dataguard.run.amend import skip
from dataguard.run.run import Run
from dataguard.run.telemetry_reading import read_telemetry, telemetry_of_lineage
from dataguard.torch.monitoring import sink
from dataguard.torch.monitoring.monitor import DATA_WAIT, Monitor
from tests.run.dying import in_a_child
from tests.support.corpora import make_corpus
from tests.support.runs import make_run, open_loaders
from tests.torch.later import FakeDevice

# Newer Pythons warn of any fork beside threads; what these children do is safe, and they are the point.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("corpus"), {"web": {"a.parquet": 90}})


@pytest.fixture
def run(tmp_path: Path, corpus: Corpus) -> Run:
    return make_run(tmp_path / "run", corpus)


@pytest.fixture
def loader(run: Run) -> Iterator[Loader]:
    """Two microbatches of 4 a step."""
    (made,) = open_loaders(run, microbatch_size=4, steps=8)
    with made:
        yield made


def logged(run: Run, *names: str, attempt: int = 1) -> list[tuple[int, float]]:
    rows = read_telemetry(run.layout, attempt, names=names or ("loss",))
    rows = rows[rows["slot"] < 0]
    return list(zip(rows["step"].tolist(), rows["value"].tolist(), strict=True))


def test_what_is_logged_is_on_disk_when_log_returns(run: Run, loader: Loader) -> None:
    monitor = Monitor(run, loader=loader)
    for step in range(3):
        loader.take_step()
        monitor.log(step, loss=torch.tensor(2.5 + step), grad_norm=np.float32(0.5), lr=1e-3, tokens=4096)
        rows = read_telemetry(run.layout, 1)
        assert set(rows[rows["step"] == step]["name"].tolist()) == {
            b"loss", b"grad_norm", b"lr", b"tokens", DATA_WAIT.encode(),
        }  # fmt: skip
    assert logged(run) == [(0, 2.5), (1, 3.5), (2, 4.5)]
    assert (monitor.rank, monitor.step_in_hand, monitor.num_pending, monitor.notes) == (0, 2, 0, ())
    times = read_telemetry(run.layout, 1, names=["loss"])["time"]
    assert (np.diff(times) > 0).all()


def test_nan_and_infinity_are_kept(run: Run, loader: Loader) -> None:
    loader.take_step()
    with Monitor(run) as monitor:
        monitor.log(0, loss=torch.tensor(math.nan), grad_norm=math.inf, lr=-math.inf)
    assert math.isnan(logged(run)[0][1])
    assert logged(run, "grad_norm", "lr") == [(0, math.inf), (0, -math.inf)]


def test_the_loss_of_each_sample_goes_to_its_slot(run: Run) -> None:
    loaders = open_loaders(run, world_size=2, microbatch_size=2, steps=2)
    monitors = [Monitor(run, rank) for rank in range(2)]
    for _ in range(2):
        for loader, monitor in zip(loaders, monitors, strict=True):
            for microbatch in loader.take_step():
                losses = torch.tensor(microbatch.slots.start + np.arange(2.0), requires_grad=True)
                monitor.log_samples(microbatch if microbatch.step else microbatch.address, losses)
    rows = telemetry_of_lineage(run)
    assert [tuple(row) for row in rows[["step", "rank", "name", "slot", "value"]].tolist()] == [
        (step, slot // 4, b"loss", slot, float(slot)) for step in range(2) for slot in range(8)
    ]
    for loader in loaders:
        loader.close()


def test_losses_of_samples_must_fit_the_microbatch(run: Run, loader: Loader) -> None:
    microbatch = next(loader)
    monitor = Monitor(run, loader=loader)
    for losses in ([1.0] * 3, [1.0] * 8, torch.zeros(4, 1), 1.0):
        with pytest.raises(UsageError, match="the microbatch holds 4 slots"):
            monitor.log_samples(microbatch, losses)
    with pytest.raises(AttemptError, match="microbatch 1 of step 0 was logged, and was not handed over yet"):
        monitor.log_samples(Address(step=0, rank=0, microbatch=1), [1.0] * 4)
    with pytest.raises(AttemptError, match="of attempt 1, rank 1 was logged by the monitor of attempt 1, rank 0"):
        monitor.log_samples(Address(step=0, rank=1, microbatch=0), [1.0] * 4)
    with pytest.raises(AttemptError, match="step 1 was logged, and the step delivered to rank 0 of attempt 1 is 0"):
        monitor.log_samples(Address(step=1, rank=0, microbatch=0), [1.0] * 4)
    with pytest.raises(AttemptError, match="a microbatch of attempt 2, rank 0 was logged"):
        monitor.log_samples(SimpleNamespace(address=microbatch.address, attempt=2, slots=range(4)), [1.0] * 4)
    with pytest.raises(UsageError, match="a dict does not say which microbatch it is"):
        monitor.log_samples({"input_ids": torch.zeros(4)}, [1.0] * 4)
    assert not run.layout.telemetry(1, 0).exists()


# -- which step


@pytest.mark.parametrize("first_label", [0, 1])
def test_a_step_other_than_the_one_delivered_names_both(tmp_path: Path, corpus: Corpus, first_label: int) -> None:
    run = make_run(tmp_path / "run", corpus, first_label=first_label)
    (loader,) = open_loaders(run, microbatch_size=4)
    with loader, Monitor(run, loader=loader) as monitor:
        for _ in range(3):
            loader.take_step()
        newest = 2 + first_label
        for label in (newest - 2, newest - 1, newest + 1, newest + 700, -1, 0 if first_label else -5):
            with pytest.raises(AttemptError) as refused:
                monitor.log(label, loss=1.0)
            assert f"step {label:,} was logged, and the step delivered to rank 0 of attempt 1 is {newest}" in str(
                refused.value
            )
            assert f"of step {newest} the rank was handed 2 microbatches" in str(refused.value)
        monitor.log(newest, loss=1.0)
        monitor.log(np.int64(newest), loss=2.0)
        monitor.log(torch.tensor(newest), loss=3.0)
    assert logged(run) == [(2, 1.0), (2, 2.0), (2, 3.0)]


@pytest.mark.parametrize(
    ("first_label", "off", "advice"),
    [
        (0, 1, "create the run with first_label=1"),
        (1, -1, "run.label(microbatch.step) is what the trainer calls a step"),
        (0, -1, "Monitor(..., ahead=1)"),
        (1, 1, "the trainer must count as the loader does"),
    ],
)
def test_the_advice_fits_the_difference(
    tmp_path: Path, corpus: Corpus, first_label: int, off: int, advice: str
) -> None:
    run = make_run(tmp_path / "run", corpus, first_label=first_label)
    (loader,) = open_loaders(run, microbatch_size=4)
    with loader:
        loader.take_step()
        loader.take_step()
        with pytest.raises(AttemptError) as refused:
            Monitor(run).log(1 + first_label + off, loss=1.0)
    assert advice in str(refused.value)


@pytest.mark.parametrize("step", [True, 1.0, "1", None, torch.tensor(1.5)])
def test_a_step_is_a_whole_number(run: Run, loader: Loader, step) -> None:
    loader.take_step()
    with pytest.raises(UsageError, match=r"step .* cannot be"):
        Monitor(run).log(step, loss=1.0)


def test_logging_between_microbatches_and_after_evaluation_is_of_the_step_in_hand(run: Run, loader: Loader) -> None:
    with Monitor(run, loader=loader) as monitor:
        for step in range(2):
            for microbatch in (next(loader), next(loader)):
                monitor.log(step, micro_loss=float(microbatch.address.microbatch))
            monitor.log(step, loss=1.0)
            monitor.log(step, valid_loss=2.0)
    assert logged(run, "micro_loss") == [(0, 0.0), (0, 1.0), (1, 0.0), (1, 1.0)]
    assert logged(run, "valid_loss") == [(0, 2.0), (1, 2.0)]


def test_nothing_is_logged_before_something_was_delivered(run: Run) -> None:
    (loader,) = open_loaders(run, microbatch_size=4)
    monitor = Monitor(run, loader=loader)
    assert monitor.step_in_hand is None
    with pytest.raises(AttemptError, match="the loader of rank 0 has not begun"):
        monitor.log(0, loss=1.0)
    loader.take_step()
    monitor.log(0, loss=1.0)
    loader.close()
    monitor.log(0, final_loss=0.5)
    assert logged(run, "loss", "final_loss") == [(0, 1.0), (0, 0.5)]


def test_a_framework_that_asks_ahead(run: Run, loader: Loader) -> None:
    strict, monitor = Monitor(run, loader=loader), Monitor(run, loader=loader, ahead=1)
    for _ in range(3):
        loader.take_step()
    next(loader)
    with pytest.raises(AttemptError, match="step 2 was logged, and the step delivered"):
        strict.log(2, loss=1.0)
    monitor.log(2, loss=1.0)
    monitor.log(3, loss=1.0)
    for step in (1, 4):
        with pytest.raises(AttemptError, match=f"step {step} was logged") as refused:
            monitor.log(step, loss=1.0)
        assert "step 3, or up to 1 before it" in str(refused.value)
    assert logged(run) == [(2, 1.0), (3, 1.0)]


def test_asking_ahead_over_a_hole(tmp_path: Path, corpus: Corpus) -> None:
    run = make_run(tmp_path / "run", corpus, skip_mode="hole")
    skip(run, 1, 3, reason="bad")
    (loader,) = open_loaders(run, microbatch_size=4)
    with loader, Monitor(run, loader=loader, ahead=1) as monitor:
        assert [microbatch.step for _ in range(2) for microbatch in loader.take_step()] == [0, 0, 3, 3]
        monitor.log(0, loss=1.0)
        for step in (1, 2):
            with pytest.raises(AttemptError, match=f"step {step} was logged"):
                monitor.log(step, loss=1.0)


def test_steps_before_the_attempt_were_not_delivered_by_it(run: Run) -> None:
    (first,) = open_loaders(run, microbatch_size=4)
    for _ in range(4):
        first.take_step()
    state = first.state()
    first.close()
    (loader,) = open_loaders(run, microbatch_size=4, state=state)
    with loader:
        loader.take_step()
        with pytest.raises(AttemptError, match="step 3 was logged, and the step delivered to rank 0 of attempt 2 is 4"):
            Monitor(run, ahead=3).log(3, loss=1.0)


# -- attempts


def test_two_attempts_in_one_process_each_have_their_own(run: Run) -> None:
    (first,) = open_loaders(run, microbatch_size=4)
    with Monitor(run) as monitor:
        for step in range(4):
            first.take_step()
            if step == 1:
                state = first.state()
            monitor.log(step, loss=10.0 + step)
        first.close()
        (second,) = open_loaders(run, microbatch_size=4, state=state)
        with second:
            for step in range(2, 5):
                second.take_step()
                monitor.log(step, loss=20.0 + step)
    assert logged(run) == [(step, 10.0 + step) for step in range(4)]
    assert logged(run, attempt=2) == [(step, 20.0 + step) for step in range(2, 5)]
    assert telemetry_of_lineage(run, names=["loss"])["value"].tolist() == [10.0, 11.0, 22.0, 23.0, 24.0]


def test_slots_of_an_address_are_those_of_its_own_attempt(run: Run) -> None:
    (first,) = open_loaders(run, microbatch_size=4)
    with Monitor(run) as monitor:
        first.take_step()
        monitor.log_samples(Address(step=0, rank=0, microbatch=1), [1.0] * 4)
        state = first.state()
        first.close()
        (second,) = open_loaders(run, microbatch_size=4, state=state, global_batch=16)
        with second:
            second.take_step()
            monitor.log_samples(Address(step=1, rank=0, microbatch=3), [2.0] * 4)
    assert telemetry_of_lineage(run)[["step", "slot"]].tolist() == [
        *((0, slot) for slot in range(4, 8)), *((1, slot) for slot in range(12, 16)),
    ]  # fmt: skip


def test_what_was_on_its_way_when_the_next_attempt_began_is_kept(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice(monkeypatch)
    (first,) = open_loaders(run, microbatch_size=4)
    monitor = Monitor(run)
    first.take_step()
    state = first.state()
    monitor.log(0, loss=torch.tensor(1.0))
    first.close()
    (second,) = open_loaders(run, microbatch_size=4, state=state)
    second.take_step()
    monitor.log(1, loss=torch.tensor(2.0))
    second.close()
    assert (logged(run), logged(run, attempt=2)) == ([(0, 1.0)], [])
    device.release()
    monitor.close()
    assert logged(run, attempt=2) == [(1, 2.0)]


def test_an_attempt_that_is_over_logs_nothing(run: Run, loader: Loader) -> None:
    loader.take_step()
    monitor = Monitor(run)
    monitor.log(0, loss=1.0)
    other = Run.open(run.path)
    (newer,) = open_loaders(other, microbatch_size=4, from_step=1)
    newer.take_step()
    newer.close()
    with pytest.raises(WriterConflict, match="attempt 1 is over: fenced by attempt 2"):
        monitor.log(0, loss=2.0)
    assert logged(run) == [(0, 1.0)]


def test_a_rank_has_one_monitor(run: Run, loader: Loader) -> None:
    loader.take_step()
    first, second = Monitor(run), Monitor(run)
    first.log(0, loss=1.0)
    with pytest.raises(WriterConflict, match="the telemetry of rank 0 of attempt 1 has had its writer"):
        second.log(0, loss=2.0)
    first.log(0, loss=3.0)
    assert logged(run) == [(0, 1.0), (0, 3.0)]


def test_without_a_loader_in_this_process_it_says_so_and_goes_to_the_newest(run: Run) -> None:
    other = Run.open(run.path)
    (loader,) = open_loaders(other, microbatch_size=4)
    with pytest.raises(NotInRun, match="no attempt"):
        Monitor(run).log(0, loss=1.0)
    for _ in range(3):
        loader.take_step()
    state = loader.state()
    loader.close()
    (second,) = open_loaders(other, microbatch_size=4, state=state)
    with second:
        second.take_step()
        monitor = Monitor(run)
        with pytest.warns(UserWarning, match="nothing delivers to rank 0 .*newest attempt, 2,") as told:
            monitor.log(700, loss=1.0)
        assert told[0].filename == __file__
        monitor.log(701, loss=2.0)
        assert len(monitor.notes) == 1
        with pytest.raises(AttemptError, match="step 2 was logged, and attempt 2 begins at step 3"):
            monitor.log(2, loss=1.0)
    assert logged(run, attempt=2) == [(700, 1.0), (701, 2.0)]


def test_a_loader_of_another_run_object_of_the_same_run(run: Run) -> None:
    other = Run.open(run.path)
    (loader,) = open_loaders(other, microbatch_size=4)
    with loader:
        loader.take_step()
        Monitor(run, loader=loader).log(0, loss=1.0)
        with pytest.raises(AttemptError, match="step 1 was logged"):
            Monitor(run, loader=loader).log(1, loss=1.0)
    assert logged(run) == [(0, 1.0)]


# -- how it is made


def test_rank_is_the_loaders_or_that_of_what_is_delivered_here(run: Run) -> None:
    # Two ranks of one launch, each with a Run object of its own, as processes have.
    other = Run.open(run.path)
    (zero, one) = (
        open_loaders(each, world_size=2, microbatch_size=2, launch_id="one")[i] for i, each in ((0, run), (1, other))
    )
    assert Monitor(run, loader=one).rank == 1
    early = Monitor(other)
    assert early.rank == 0
    with zero, one:
        zero.take_step()
        one.take_step()
        assert early.rank == 1
        early.log(0, loss=1.0)
        # It stays, whatever else is delivered here.
        other.progress = {0: run.progress[0], **other.progress}
        assert early.rank == 1
        assert Monitor(other).rank == 0
    assert read_telemetry(run.layout, 1)["rank"].tolist() == [1, 1]


def test_what_cannot_be(run: Run, loader: Loader, tmp_path: Path, corpus: Corpus) -> None:
    elsewhere = make_run(tmp_path / "other", corpus)
    with pytest.raises(UsageError, match="monitor and loader are of different runs"):
        Monitor(elsewhere, loader=loader)
    with pytest.raises(UsageError, match="rank 3 was given, and the loader is that of rank 0"):
        Monitor(run, 3, loader)
    with pytest.raises(UsageError, match="a DataLoader does not say what it delivers"):
        Monitor(run, loader=torch.utils.data.DataLoader([1, 2]))
    for wrong in ({"every": 0}, {"every": True}, {"every": 1.5}, {"ahead": -1}):
        with pytest.raises(UsageError, match="cannot be"):
            Monitor(run, **wrong)
    loader.take_step()
    with pytest.raises(GeometryError, match="rank 7 is not one of 1 ranks"), pytest.warns(UserWarning, match="nothing"):
        Monitor(run, 7).log(0, loss=1.0)


def test_every_leaves_steps_out_by_their_label_and_checks_them_all(tmp_path: Path, corpus: Corpus) -> None:
    run = make_run(tmp_path / "run", corpus, first_label=1)
    (loader,) = open_loaders(run, microbatch_size=8)
    with loader, Monitor(run, loader=loader, every=3) as monitor:
        for label in range(1, 8):
            for microbatch in loader.take_step():
                monitor.log_samples(microbatch, [1.0] * 8)
            monitor.log(label, loss=label)
            monitor.record(label, {"activation": label})
            with pytest.raises(AttemptError):
                monitor.log(label + 1, loss=1.0)
    assert logged(run) == [(2, 3.0), (5, 6.0)]
    assert logged(run, "activation") == [(label - 1, float(label)) for label in range(1, 8)]
    rows = read_telemetry(run.layout, 1)
    assert rows[rows["slot"] >= 0]["step"].tolist() == [2] * 8 + [5] * 8
    assert [step for step, _ in logged(run, DATA_WAIT)] == [2, 5]


@pytest.mark.parametrize("name", ["step", "rank", "n" * 65, "a\nb", DATA_WAIT])
def test_names_that_cannot_be_kept(run: Run, loader: Loader, name: str) -> None:
    loader.take_step()
    with pytest.raises(UsageError, match=r"name|called"):
        Monitor(run).log(0, **{name: 1.0})
    assert not run.layout.telemetry(1, 0).exists()


def test_a_tensor_of_several_elements_is_refused(run: Run, loader: Loader) -> None:
    loader.take_step()
    with pytest.raises(UsageError, match=r"loss cannot be logged: it has shape \(4,\)") as refused:
        Monitor(run).log(0, loss=torch.zeros(4))
    assert "log_samples" in str(refused.value)


# -- time waited for data


def test_the_time_waited_for_a_step_is_recorded_once_it_changed(run: Run, loader: Loader) -> None:
    with Monitor(run, loader=loader) as monitor:
        loader.take_step()
        whole = run.progress[0].waited_seconds
        monitor.log(0, loss=1.0)
        monitor.log(0, lr=0.1)
        next(loader)
        half = run.progress[0].waited_seconds
        monitor.log(1)
        next(loader)
        monitor.log(1, loss=1.0)
        all_of_1 = run.progress[0].waited_seconds
    assert whole > 0
    assert all_of_1 > half > 0
    assert logged(run, DATA_WAIT) == [(0, whole), (1, half), (1, all_of_1)]


# -- values that are not there at once


def test_nobody_waits_for_a_device_and_nothing_overtakes(
    run: Run, loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = FakeDevice(monkeypatch)
    monitor = Monitor(run, loader=loader)
    for step in range(4):
        loader.take_step()
        monitor.log(step, loss=torch.tensor(float(step)), lr=0.1)
        if step == 1:
            assert (device.waited_for, monitor.num_pending, logged(run)) == (0, 6, [])
            device.release(1)
    assert logged(run, "loss") == [(0, 0.0)]
    monitor.log(3, tokens=7)
    assert logged(run, "tokens") == []
    device.release()
    monitor.log(3, last=8)
    assert device.waited_for == 0
    assert logged(run, "loss") == [(step, float(step)) for step in range(4)]
    assert logged(run, "tokens", "last") == [(3, 7.0), (3, 8.0)]
    assert monitor.num_pending == 0


def test_what_waits_is_bounded(run: Run, loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice(monkeypatch)
    monkeypatch.setattr(sink, "MOST_PENDING", 10)
    monitor = Monitor(run, loader=loader)
    loader.take_step()
    for i in range(30):
        monitor.record(0, {"a": torch.tensor(float(i)), "b": 1.0, "c": 1.0})
        assert monitor.num_pending <= 10
    assert device.waited_for == 27
    assert logged(run, "a") == [(0, float(i)) for i in range(27)]
    monitor.flush()
    assert monitor.num_pending == 0
    assert logged(run, "a") == [(0, float(i)) for i in range(30)]


@pytest.mark.parametrize("how", ["close", "with", "drop", "flush"])
def test_what_is_on_its_way_is_written_at_the_end(
    run: Run, loader: Loader, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    FakeDevice(monkeypatch)
    loader.take_step()
    monitor = Monitor(run, loader=loader)
    monitor.log(0, loss=torch.tensor(2.5))
    assert logged(run) == []
    if how == "close":
        monitor.close()
        monitor.close()
    elif how == "with":
        with monitor:
            pass
    elif how == "flush":
        monitor.flush()
    else:
        del monitor
        gc.collect()
    assert logged(run) == [(0, 2.5)]


def test_a_closed_monitor_logs_nothing(run: Run, loader: Loader) -> None:
    loader.take_step()
    monitor = Monitor(run, loader=loader)
    monitor.close()
    with pytest.raises(UsageError, match="this monitor is closed"):
        monitor.log(0, loss=1.0)


# -- failures


def test_a_full_disk(run: Run, loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    device = FakeDevice(monkeypatch)
    loader.take_step()
    monitor = Monitor(run, loader=loader)
    monitor.log(0, loss=torch.tensor(1.0))
    device.release()
    with monkeypatch.context() as patch:
        patch.setattr(frames.os, "pwrite", full)
        with pytest.raises(WriteFailed, match="No space left") as failed:
            monitor.log(0, lr=0.1)
        assert failed.value.exit_code == 4
        with pytest.raises(WriteFailed, match="No space left"):
            monitor.close()
    monitor.close()
    assert logged(run) == [(0, 1.0)]
    assert logged(run, "lr") == []


def test_forked_children_never_write(run: Run, loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice(monkeypatch)
    loader.take_step()
    monitor = Monitor(run, loader=loader)
    monitor.log(0, loss=torch.tensor(1.0))

    def child() -> None:
        with pytest.raises(WriterConflict, match="a forked child may not log"):
            monitor.log(0, loss=2.0)
        monitor.flush()
        monitor.close()

    assert in_a_child(child) == 0
    assert logged(run) == []
    device.release()
    monitor.close()
    assert logged(run) == [(0, 1.0)]


def test_a_process_that_does_not_record_logs_nothing_for_the_rank_of_the_one_that_does(run: Run) -> None:
    (loader,) = open_loaders(run, microbatch_size=4, steps=1, peers=_Peer())
    recording = Loader(Run.open(run.path), geometry=loader.geometry, launch_id="one", steps=1, num_threads=0)
    with recording, loader:
        recording.take_step()
        loader._request["launch_id"] = "one"
        loader.take_step()
        shared, first = Monitor(run), Monitor(recording.run)
        with shared, first:
            for told in (lambda: shared.log(0, loss=1.0), lambda: shared.record(0, {"loss": 1.0})):
                with pytest.raises(UsageError, match="another one of its replica records"):
                    told()
            first.log(0, loss=2.0)
    assert logged(run) == [(0, 2.0)]
    with pytest.raises(UsageError, match="another one of its replica records"):
        Monitor(run, loader=SimpleNamespace(run=run, rank=0, records=False))


class _Peer:
    """The second process of a replica, the first of which has begun the attempt."""

    name, records, device = "process 1 of the replica of rank 0", False, None

    def gather(self, value: object) -> list[object]:
        return [value]

    def broadcast(self, value: object) -> object:
        return None
