"""One who watched a run all along, one who comes late, and those who read it afterwards: they say the same."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from dataguard.core.spikes import EventClass
from dataguard.loader.loader import Loader
from dataguard.run.amend import quarantine
from dataguard.run.exceptions import ExceptionReason, exception_record
from dataguard.run.frames import FramesFile
from dataguard.run.frames_header import FramesHeader
from dataguard.run.index import Index
from dataguard.run.note_events import CheckpointSaved, SpikeFound
from dataguard.run.records import STORE_RECORD
from dataguard.run.run import Run
from dataguard.run.store_ledger import LetGo
from dataguard.run.telemetry import TelemetryWriter, open_telemetry, telemetry_records
from dataguard.run.writer import RankWriter
from dataguard.triage.curve import curve_of_run
from dataguard.triage.detect import detect
from dataguard.triage.looked import look
from dataguard.triage.watching import Watcher
from dataguard.triage.watching.delivered import counted
from dataguard.triage.watching.watcher import _Attempt
from tests.support.corpora import make_corpus
from tests.support.runs import make_run, open_loaders

SECOND = 10**9
BEGIN = 1_800_000_000


class Training:
    """A trainer of several ranks whose clock is counted, not read: a step a second."""

    def __init__(self, folder: Path, *, world_size: int = 2, first_label: int = 1) -> None:
        corpus = make_corpus(folder, {"web": {"a.parquet": 400}})
        self.run = make_run(folder / "run", corpus, global_batch=2 * world_size, first_label=first_label)
        self.world_size = world_size
        self.loaders: list[Loader] = []
        self.writers: list[TelemetryWriter] = []
        self.at = float(BEGIN)

    def begin(self, **settings: Any) -> None:
        """A new attempt."""
        for writer in self.writers:
            writer.close()
        self.loaders = open_loaders(self.run, world_size=self.world_size, microbatch_size=1, **settings)
        self.writers = []

    def step(self, loss: Callable[[int, int], float], *, ranks: list[int] | None = None) -> int:
        """One step of some ranks, logged."""
        self.at += 1
        for rank in range(self.world_size) if ranks is None else ranks:
            number = self.loaders[rank].take_step()[0].step
            if len(self.writers) < self.world_size:
                self.writers.append(open_telemetry(self.run, self.loaders[0].attempt.number, len(self.writers)))
            names = ["loss", "grad_norm", "data_wait_seconds"]
            values = np.array([loss(number, rank), 1.0 + rank, 0.1 * (rank + 1)])
            self.writers[rank].append(telemetry_records(number, names, values, time_ns=round(self.at * SECOND)))
        return number

    def close(self) -> None:
        for each in (*self.writers, *self.loaders):
            each.close()

    def files_as_old_as_the_clock(self) -> None:
        """The files' own times, which the system gave, are those of the counted clock."""
        for path in (self.run.path / "hot").rglob("*.frames"):
            os.utime(path, (self.at, self.at))


def loss_of(step: int, rank: int) -> float:
    noise = float(np.sin(1000.0 * step + rank)) / 50
    return 3.0 + noise + (2.0 if step == 120 and rank == 1 else 0.0)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Training, Watcher, list[Any]]]:
    """160 steps of two ranks, in segments of 48 steps, watched at odd moments from before the run stood."""
    folder = tmp_path_factory.mktemp("watched")
    watcher, looks = Watcher(folder / "run"), []
    assert watcher.look(now_seconds=BEGIN).state == "absent"
    training = Training(folder)
    looks.append(watcher.look(now_seconds=training.at))
    for row in range(0, 400, 9):
        quarantine(training.run, f"web/a.parquet:{row}", reason="odd")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RankWriter, "open", partial(RankWriter.open, segment_steps=48, background=False))
        training.begin()
        training.step(loss_of)
    pauses = np.cumsum(np.random.default_rng(7).integers(1, 12, 40))
    for _ in range(159):
        step = training.step(loss_of)
        if step == 60:
            training.run.journal.append(CheckpointSaved(attempt=1, next_step=60, path="ckpt\x1b[31m/60"))
        if step in pauses:
            looks.append(watcher.look(now_seconds=training.at))
    looks.append(watcher.look(now_seconds=training.at))
    yield training, watcher, looks
    training.close()


def test_states_follow_the_run(story: tuple[Training, Watcher, list[Any]]) -> None:
    _, _, looks = story
    assert looks[0].state == "waiting"
    assert {each.state for each in looks[1:]} == {"open"}
    steps = [each.step for each in looks[1:]]
    assert steps == sorted(steps)
    assert steps[-1] == 160
    assert [each.complete for each in looks[1:]] == steps


def test_who_comes_late_sees_what_was_watched_all_along(story: tuple[Training, Watcher, list[Any]]) -> None:
    training, watcher, _ = story
    watched = watcher.look(now_seconds=training.at, is_last=True)
    late = Watcher(training.run.path).look(now_seconds=training.at, is_last=True)
    assert msgspec.structs.replace(late, free_bytes=watched.free_bytes) == watched
    assert late.whole is not None
    assert (late.whole.steps, late.whole.num_samples, late.whole.is_whole) == ((1, 161), 4 * 160, True)
    assert late.recent is not None
    assert (late.recent.steps, late.recent.num_samples) == ((61, 161), 4 * 100)


def test_counts_are_those_of_a_full_read(story: tuple[Training, Watcher, list[Any]]) -> None:
    training, watcher, _ = story
    watched = watcher.look(now_seconds=training.at)
    parts = [counted(each["status"], each["verdict"]) for each in Index(training.run.layout).records(1, num_ranks=2)]
    assert watched.whole is not None
    found = (watched.whole.num_samples, watched.whole.num_flagged, watched.whole.num_withheld)
    assert found == tuple(sum(part.sum(axis=0) for part in parts))
    assert watched.whole.num_withheld > 40
    assert watched.whole.withheld == pytest.approx(watched.whole.num_withheld / 640)


def test_the_curve_is_that_of_triage(story: tuple[Training, Watcher, list[Any]]) -> None:
    training, watcher, _ = story
    watcher.look(now_seconds=training.at, is_last=True)
    assert isinstance(watcher._watched, _Attempt)
    rows = list(watcher._watched._logged.rows)
    curve = curve_of_run(training.run)
    assert [row.step + 1 for row in rows] == curve.steps.tolist()
    for name in ("loss", "grad_norm"):
        np.testing.assert_allclose([getattr(row, name) for row in rows], curve.series(name)[1], rtol=1e-15)
    assert [row.time for row in rows] == curve.times.tolist()


def test_events_are_those_of_spikes(story: tuple[Training, Watcher, list[Any]]) -> None:
    training, watcher, looks = story
    (event,) = watcher.look(now_seconds=training.at, is_last=True).events
    (expected,) = detect(curve_of_run(training.run)).events
    assert (event.event_class, event.start, event.stop) == (expected.event_class, expected.start, expected.stop)
    assert (event.size_nats, event.origin) == (expected.size_nats, "found")
    assert not any(each.events for each in looks if each.step is not None and each.step <= 120)


def test_speeds_waits_and_the_journal(story: tuple[Training, Watcher, list[Any]]) -> None:
    training, watcher, _ = story
    answer = watcher.look(now_seconds=training.at)
    assert answer.last_minute is not None
    assert answer.last_minute.steps_per_second == pytest.approx(1.0)
    assert answer.last_minute.samples_per_second == pytest.approx(4.0)
    assert answer.wait is not None
    assert (answer.wait.share, answer.wait.worst_rank, answer.wait.worst_share) == pytest.approx((0.15, 1, 0.2))
    assert answer.checkpoint is not None
    assert (answer.checkpoint.next_step, answer.checkpoint.path) == (61, "ckpt\x1b[31m/60")
    assert [each.kind for each in answer.journal[-2:]] == ["attempt-begun", "checkpoint-saved"]
    # A minute later nothing was made in the last one, and that is said, not the old speed.
    later = watcher.look(now_seconds=training.at + 120)
    assert later.last_minute is not None
    assert later.last_minute.steps_per_second == 0


def test_an_answer_can_be_said_in_json(story: tuple[Training, Watcher, list[Any]]) -> None:
    training, watcher, _ = story
    answer = watcher.look(now_seconds=training.at)
    assert msgspec.json.decode(msgspec.json.encode(answer), type=type(answer)) == answer


def test_a_stall_is_one_when_triage_says_so(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.begin()
    for _ in range(30):
        training.step(loss_of)
    training.loaders[0].take_step()  # rank 1 hangs before it is handed the next
    watcher = Watcher(training.run.path)
    training.files_as_old_as_the_clock()
    for silent in (0.5, 3.0, 9.0, 11.0, 100.0):
        now = training.at + silent
        expected = look(training.run, None, now_seconds=now).silence
        answer = watcher.look(now_seconds=now)
        assert (answer.stall is None) == (expected is None), silent
        if expected is not None:
            assert answer.stall is not None
            assert answer.state == "stalled"
            assert answer.stall.texts == expected.texts
            assert answer.stall.silent_seconds == expected.silent_seconds
            assert (answer.stall.rank, answer.stall.step) == (1, 30)
            # A rank that is one step behind is no news while all are at work, and the first to look at now.
            assert [(each.rank, each.num_steps) for each in answer.behind] == [(1, 1)]
        else:
            assert answer.behind == ()
    assert answer.stall is not None
    training.close()
    assert Watcher(training.run.path).look(now_seconds=training.at + 100).state == "closed"


def test_a_rank_that_lags_is_named_and_not_waited_for(tmp_path: Path) -> None:
    training = Training(tmp_path, world_size=3)
    training.begin()
    watcher = Watcher(training.run.path)
    for _ in range(10):
        training.step(loss_of)
    assert watcher.look(now_seconds=training.at).behind == ()
    for _ in range(60):
        training.step(loss_of, ranks=[0, 2])
    answer = watcher.look(now_seconds=training.at)
    assert [(each.rank, each.step, each.num_steps) for each in answer.behind] == [(1, 10, 60)]
    assert (answer.step, answer.complete, answer.num_behind) == (70, 10, 1)
    loss = answer.signals[0]
    assert loss.step == 38, "the newest that the laggard was not waited for"
    training.close()


def test_what_is_not_finite_is_told_as_it_is(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.begin()
    for _ in range(40):
        training.step(lambda step, rank: float("nan") if (step, rank) == (39, 1) else loss_of(step, rank))
    answer = Watcher(training.run.path).look(now_seconds=training.at, is_last=True)
    assert (answer.signals[0].step, answer.signals[0].value, answer.signals[0].recent[-1]) == (40, "NaN", None)
    assert [(each.event_class, each.start, each.is_open) for each in answer.events] == [
        (EventClass.HARD_FAULT, 40, True)
    ]
    training.close()


def test_a_new_attempt_goes_on_from_its_fork(tmp_path: Path) -> None:
    """What the first did beyond the fork counts no longer; who comes late judges by the lineage, as the other does."""
    training = Training(tmp_path)
    training.begin()
    watcher = Watcher(training.run.path)
    for step in range(140):
        if step == 100:
            state = training.loaders[0].state()
        training.step(lambda step, rank: loss_of(step, rank) + (4.0 if step > 125 else 0.0))
        if step % 10 == 0:
            watcher.look(now_seconds=training.at)
    diverged = watcher.look(now_seconds=training.at)
    assert [event.start for event in diverged.events] == [121, 127]
    note = {"size_nats": 1.0, "sigmas": 9.0, "aftermath_nats": None, "grad_norm_ratio": None, "rank": None}
    for start in (50, 127):  # the later one lies beyond the fork
        event = SpikeFound(
            attempt=1, event_class=EventClass.HARD_BATCH, start=start, stop=start + 1, peak=start, signal="loss",
            detector="default", **note,
        )  # fmt: skip
        training.run.journal.append(event)
    training.begin(state=state)
    training.at += 3600
    for _ in range(30):
        training.step(lambda step, rank: loss_of(step + 1, rank))
    answer = watcher.look(now_seconds=training.at, is_last=True)
    assert answer.attempt is not None
    assert (answer.attempt.number, answer.attempt.parent, answer.attempt.first_step) == (2, 1, 101)
    # The spike of step 120 comes a step earlier this time; the pause of an hour before the attempt is no stall.
    assert [(event.start, event.origin) for event in answer.events] == [(51, "journal"), (120, "found")]
    late = Watcher(training.run.path).look(now_seconds=training.at, is_last=True)
    assert (late.events, late.judged_from) == (answer.events, 1)
    assert answer.whole is not None
    assert (answer.whole.steps, answer.whole.num_samples) == ((101, 131), 4 * 30)
    training.close()


def test_a_long_record_is_counted_from_the_newest_back_a_bounded_stretch_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(tmp_path)
    training.begin()
    for _ in range(130):
        training.step(loss_of)
    monkeypatch.setattr("dataguard.triage.watching.delivered.FIRST_BYTES", 1_000)
    monkeypatch.setattr("dataguard.triage.watching.delivered.LATER_BYTES", 8_000)
    watcher = Watcher(training.run.path)
    counts = [watcher.look(now_seconds=training.at).whole for _ in range(6)]
    assert all(each is not None for each in counts)
    nums = [each.num_samples for each in counts if each is not None]
    assert 4 * 100 < nums[0] < nums[1] <= 4 * 130
    assert nums == sorted(nums)
    assert counts[0] is not None
    assert not counts[0].is_whole
    assert counts[-1] is not None
    assert (counts[-1].num_samples, counts[-1].is_whole) == (4 * 130, True)
    training.close()


def test_exceptions_and_what_the_store_let_go_of_are_counted(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.begin()
    training.step(loss_of)
    watcher, layout = Watcher(training.run.path), training.run.layout
    assert watcher.look(now_seconds=training.at).exceptions == {}
    about = {"run_id": training.run.run_id, "attempt": 1, "first_step": 0, "digests": {}, "journal_head": (1, "")}
    made = FramesHeader.of("exceptions", records_per_frame=1, rank=1, created="", **about)
    with FramesFile.create(layout.exceptions(1, 1), made, tmp=layout.tmp) as file:
        for reason in (ExceptionReason.CHANGED, ExceptionReason.UNREADABLE, ExceptionReason.CHANGED):
            file.append(exception_record(step=0, position=1, reason=reason))
    made = FramesHeader.of("store", records_per_frame=1, rank=0, created="", **about)
    with FramesFile.create(layout.store_ledger(1, 0), made, tmp=layout.tmp) as file:
        file.append(np.array([(0, 0, 9, LetGo.TOO_LARGE)], STORE_RECORD))
        for _ in range(2):
            answer = watcher.look(now_seconds=training.at)
            assert (answer.exceptions, answer.let_go) == ({"unreadable": 1, "changed": 2}, {"too large": 1})
    training.close()


def test_nothing_is_written(story: tuple[Training, Watcher, list[Any]]) -> None:
    training, _, _ = story
    before = {path: path.stat().st_mtime_ns for path in training.run.path.rglob("*")}
    Watcher(training.run.path).look(now_seconds=training.at, is_last=True)
    assert {path: path.stat().st_mtime_ns for path in training.run.path.rglob("*")} == before


def test_a_run_that_is_removed_and_made_again_is_another(tmp_path: Path) -> None:
    import shutil

    watcher = Watcher(tmp_path / "run")
    run: Run = make_run(tmp_path / "run", make_corpus(tmp_path, {"web": {"a.parquet": 40}}), global_batch=4)
    assert watcher.look(now_seconds=BEGIN).state == "waiting"
    shutil.rmtree(run.path)
    assert watcher.look(now_seconds=BEGIN).state == "absent"


def test_what_changes_in_the_same_tick_of_the_file_system_is_seen_at_the_next_look(tmp_path: Path) -> None:
    """A folder whose time stands still, as within one tick, while its files come and go."""
    training = Training(tmp_path)
    training.begin()
    training.step(loss_of)
    folders = [training.run.layout.hot_rank(1, rank) for rank in range(2)]
    watcher = Watcher(training.run.path)

    def at_once() -> None:
        for folder in folders:
            os.utime(folder, (BEGIN, BEGIN))

    at_once()
    assert watcher.look(now_seconds=training.at).state == "open"
    training.close()
    at_once()
    assert watcher.look(now_seconds=training.at).state == "closed"
