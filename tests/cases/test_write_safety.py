"""What users of other tools reported about writes that were interrupted, and about writers that met (K14).

G27: a kill during an index write left a torn, unreadable or doubled index (francisdb/vpxtool#442,
vshulcz/deja-vu#181). G28: ranks that built the same file or folder at once crashed each other, or read half of it
(allenai/OLMo-core#651, NVIDIA-NeMo/Megatron-Bridge#3886). Other instances of the same kind follow them here.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from dataguard.errors import WriterConflict
from dataguard.run.atomic import publish, publish_new
from dataguard.run.check import check_record
from dataguard.run.compact import compact
from dataguard.run.exceptions import ExceptionReason, exception_record, read_exceptions
from dataguard.run.frames import HEADER_BYTES, scan_frames
from dataguard.run.index import Index, merge
from dataguard.run.layout import Layout
from dataguard.run.records import without_rank
from dataguard.run.seal import seal_attempt
from tests.run.dying import memory_folder
from tests.run.recording import microbatch, open_writer, record_run
from tests.twins.frames import read_slowly

# Newer Pythons warn of any fork beside threads; what these children do is safe, and they are the point.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

NUM_STEPS = 1_000
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def in_memory() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


def recorded(root: Path, attempt: int) -> np.ndarray:
    return merge(list(Index(Layout(root)).records(attempt)))


def steps_of(records: np.ndarray) -> list[int]:
    return records["step"][::4].tolist()


# -- G27


@cache
def delivered() -> list[np.ndarray]:
    return [microbatch(step) for step in range(NUM_STEPS)]


def deliver(root: Path, log: int, *, attempt: int, first_step: int = 0) -> None:
    """A trainer: each step is recorded, handed over, and written to a log outside the run before the next is taken."""
    with open_writer(root, attempt=attempt, first_step=first_step, segment_steps=150, background=True) as writer:
        for step in range(first_step, NUM_STEPS):
            writer.append(delivered()[step])
            os.write(log, b".")


def kill_after(num_steps: int, microseconds: int, work: Callable[[int], None]) -> int:
    """Fork, wait until so many steps are logged and a little longer, SIGKILL; how many steps were logged in the end."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        code = 1
        try:
            work(write_end)
            code = 0
        finally:
            os._exit(code)
    os.close(write_end)
    logged = 0
    while logged < num_steps and (taken := os.read(read_end, num_steps - logged)):
        logged += len(taken)
    until = time.perf_counter_ns() + microseconds * 1_000
    while time.perf_counter_ns() < until:
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while taken := os.read(read_end, 65_536):
        logged += len(taken)
    os.close(read_end)
    return logged


def test_g27_a_kill_at_random_points(in_memory: Path) -> None:
    unbroken = np.concatenate(delivered())
    dice = random.Random(27)
    inside = 0
    for number in range(20):
        root = in_memory / str(number)
        layout = Layout(root)
        logged = kill_after(
            dice.randrange(NUM_STEPS), dice.randrange(1_500), lambda log, root=root: deliver(root, log, attempt=1)
        )
        inside += 0 < logged < NUM_STEPS
        torn = recorded(root, 1)
        for seal in (False, True):
            if seal:
                assert seal_attempt(layout, 1).problems == ()
            got = recorded(root, 1)
            assert steps_of(got) == list(range(len(got) // 4))
            assert logged <= len(got) // 4 <= logged + 1
            assert got.tobytes() == torn.tobytes()
            assert check_record(layout, 1).problems == ()
        (next_step,) = Index(layout).next_steps(1, 1, 1)
        assert next_step == len(torn) // 4
        log = os.open(os.devnull, os.O_WRONLY)
        deliver(root, log, attempt=2, first_step=next_step)
        os.close(log)
        lineage = np.concatenate([torn, recorded(root, 2)])
        assert without_rank(lineage).tobytes() == unbroken.tobytes()
    assert inside  # how many hit the middle is the scheduler's business; that none did would try nothing


def test_g27_a_kill_while_sealing_and_compacting(in_memory: Path) -> None:
    """The commands that tidy up, killed at random moments, again and again, end where one run does."""
    expected = record_run(in_memory, num_ranks=2, steps=range(100), segment_steps=20, close={"seal": False})
    layout = Layout(in_memory)
    dice = random.Random(28)
    kills = 0

    def tidy(log: int) -> None:
        os.write(log, b".")
        compact(layout, 1, file_records=200)

    while list(layout.root.rglob("rank=*/*.*")):
        # A little longer each time, so that it comes to an end on any machine.
        kill_after(1, dice.randrange(4_000 * (kills + 1)), tidy)
        kills += 1
        assert recorded(in_memory, 1).tobytes() == expected.tobytes()
        assert check_record(layout, 1).problems == ()
    compact(layout, 1)
    assert recorded(in_memory, 1).tobytes() == expected.tobytes()
    assert kills > 1


def test_g27_a_finished_index_cut_by_every_length_and_followed_by_garbage(in_memory: Path) -> None:
    record_run(in_memory, num_ranks=1, steps=range(30), close={"seal": False})
    layout = Layout(in_memory)
    path = layout.hot_segment(1, 0, 0)
    content = path.read_bytes()
    frame = len(microbatch(0).tobytes()) + 8
    garbage = random.Random(17).randbytes(17)
    for cut in range(1, 2 * frame + 1):
        left = content[:-cut] + garbage
        path.write_bytes(left)
        told = read_slowly(left)
        scan = scan_frames(path, "index")
        whole = (len(content) - cut - HEADER_BYTES) // frame
        assert steps_of(scan.records) == list(range(whole))
        assert told.good == tuple(range(whole))
        assert scan.torn_bytes == told.torn_bytes
        # Up to 17 bytes short, the garbage makes the frame whole again: a whole frame that fails is damage.
        assert len(scan.damage) == len(told.damaged) == (cut % frame in range(1, 18))
        assert Index(layout).next_steps(1, 1, 1) == [whole]
    path.write_bytes(content[:-100] + garbage)
    assert len(Index(layout).step(1, 28).records) == 4
    assert len(Index(layout).step(1, 29).records) == 0
    assert seal_attempt(layout, 1).torn == ((path, frame - 100 + 17),)
    assert steps_of(recorded(in_memory, 1)) == list(range(29))
    assert check_record(layout, 1).problems == ()


def test_exceptions_survive_a_kill(in_memory: Path) -> None:
    def work(log: int) -> None:
        with open_writer(in_memory) as writer:
            for position in range(NUM_STEPS):
                writer.append_exception(
                    exception_record(step=position // 4, position=position, reason=ExceptionReason.UNREADABLE)
                )
                os.write(log, b".")

    logged = kill_after(317, 123, work)
    found = list(read_exceptions(Layout(in_memory), 1, [0]))
    assert found == list(range(len(found)))
    assert logged <= len(found) <= logged + 1


# -- G28


def _meet(barrier: object, root: Path, rounds: int, way: str, told: object) -> None:
    for number in range(rounds):
        barrier.wait()  # type: ignore[attr-defined]
        path = root / str(number) / "a" / "b" / "store.bin"
        try:
            if way == "publish":
                publish(path, _content(number), tmp=root / "tmp")
                told.put((number, True))  # type: ignore[attr-defined]
            else:
                told.put((number, publish_new(path, _content(number), tmp=root / "tmp")))  # type: ignore[attr-defined]
        except BaseException as error:  # noqa: BLE001
            told.put((number, repr(error)))  # type: ignore[attr-defined]


@cache
def _content(number: int) -> bytes:
    return random.Random(number).randbytes(50_000)


@pytest.mark.parametrize("way", ["publish", "publish_new"])
def test_g28_eight_processes_write_one_path_in_a_folder_that_does_not_exist(in_memory: Path, way: str) -> None:
    rounds = 50
    barrier, told, stop = FORK.Barrier(8), FORK.SimpleQueue(), FORK.Event()
    halves = FORK.SimpleQueue()

    def watch() -> None:
        while not stop.is_set():
            for number in range(rounds):
                try:
                    content = (in_memory / str(number) / "a" / "b" / "store.bin").read_bytes()
                except FileNotFoundError:
                    continue
                if content != _content(number):
                    halves.put((number, len(content)))

    watcher = FORK.Process(target=watch)
    writers = [FORK.Process(target=_meet, args=(barrier, in_memory, rounds, way, told)) for _ in range(8)]
    for process in [watcher, *writers]:
        process.start()
    answers = [told.get() for _ in range(8 * rounds)]
    stop.set()
    for process in [watcher, *writers]:
        process.join(60)
        assert process.exitcode == 0
    assert halves.empty()
    for number in range(rounds):
        mine = [answer for of, answer in answers if of == number]
        assert mine.count(True) == (8 if way == "publish" else 1), mine
        assert all(isinstance(answer, bool) for answer in mine), mine
        assert (in_memory / str(number) / "a" / "b" / "store.bin").read_bytes() == _content(number)
    assert list((in_memory / "tmp").iterdir()) == []


def _claim(barrier: object, root: Path, worker: int, told: object) -> None:
    barrier.wait()  # type: ignore[attr-defined]
    try:
        with open_writer(root) as writer:
            for step in range(20):
                writer.append(microbatch(step))
        told.put((worker, "wrote"))  # type: ignore[attr-defined]
    except WriterConflict as error:
        told.put((worker, str(error).splitlines()[0]))  # type: ignore[attr-defined]


def test_of_eight_processes_that_claim_one_rank_one_writes_and_seven_are_told(in_memory: Path) -> None:
    for number in range(10):
        barrier, told = FORK.Barrier(8), FORK.SimpleQueue()
        root = in_memory / str(number) / "deep" / "run"
        workers = [FORK.Process(target=_claim, args=(barrier, root, worker, told)) for worker in range(8)]
        for worker in workers:
            worker.start()
        answers = sorted(told.get()[1] for _ in workers)
        for worker in workers:
            worker.join(60)
            assert worker.exitcode == 0
        assert answers == ["rank 0 of attempt 1 has had its writer"] * 7 + ["wrote"]
        assert steps_of(recorded(root, 1)) == list(range(20))
        assert check_record(Layout(root), 1).problems == ()


def test_eight_ranks_begin_in_a_run_whose_folders_are_missing(in_memory: Path) -> None:
    def rank(barrier: object, root: Path, number: int) -> None:
        barrier.wait()  # type: ignore[attr-defined]
        with open_writer(root, rank=number, segment_steps=5) as writer:
            for step in range(12):
                writer.append(microbatch(step, rank=number, num_ranks=8))

    for number in range(5):
        root = in_memory / str(number) / "deep" / "run"
        barrier = FORK.Barrier(8)
        ranks = [FORK.Process(target=rank, args=(barrier, root, one)) for one in range(8)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(60)
            assert process.exitcode == 0
        checked = check_record(Layout(root), 1, num_ranks=8)
        assert (checked.problems, checked.num_records) == ((), 8 * 12 * 4)
        assert list((root / "tmp").iterdir()) == []


def test_a_reader_beside_a_writer_that_seals_sees_every_step_once(in_memory: Path) -> None:
    """Looking up steps while segments are opened, sealed and removed never misses or doubles one."""

    def work(log: int) -> None:
        with open_writer(in_memory, segment_steps=10, background=True) as writer:
            for step in range(400):
                writer.append(microbatch(step))
                os.write(log, b".")

    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work(write_end)
            code = 0
        finally:
            os._exit(code)
    os.close(write_end)
    logged, looked = 0, 0
    while taken := os.read(read_end, 7):
        logged += len(taken)
        found = steps_of(recorded(in_memory, 1))
        assert found == list(range(len(found)))
        assert len(found) >= logged
        assert len(Index(Layout(in_memory)).step(1, logged - 1).records) == 4
        looked += 1
    os.close(read_end)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert looked > 20
