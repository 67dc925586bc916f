"""Do number, start and life of workers change what is delivered, and do they end when they should?"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from dataguard.corpus.corpus import Corpus
from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.run.run import Run
from dataguard.torch import GuardedLoader
from dataguard.torch.making import _global_randomness
from tests.support.processes import environment
from tests.torch.making import Delivered, a_run, all_of, loader_of, told

GONE_WITHIN_SECONDS = 30.0


def worker_pids(loader: GuardedLoader) -> list[int]:
    reading = loader._readings._under_way
    assert reading is not None
    under_way = reading()
    assert under_way is not None
    return [process.pid for process in under_way._processes]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pids: list[int]) -> bool:
    """Whether all of them end in time."""
    assert pids
    stop = time.monotonic() + GONE_WITHIN_SECONDS
    while any(map(alive, pids)):
        if time.monotonic() > stop:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize(
    ("num_workers", "start_method", "prefetch_factor", "persistent_workers"),
    [
        (1, "forkserver", 1, True),
        (1, "fork", 14, False),
        (2, "fork", 8, True),
        (3, "forkserver", 3, False),
        (8, "fork", 2, True),
        (3, "fork", 1, False),
        (2, "spawn", 2, True),
    ],
)
def test_workers_change_nothing(
    documents: Corpus,
    run_folder: Path,
    unbroken: list[Delivered],
    num_workers: int,
    start_method: str,
    prefetch_factor: int,
    persistent_workers: bool,
) -> None:
    run = a_run(run_folder, documents)
    delivered = []
    with loader_of(
        run,
        steps=12,
        steps_per_epoch=5,
        num_workers=num_workers,
        start_method=start_method,
        prefetch_factor=prefetch_factor,
        persistent_workers=persistent_workers,
    ) as loader:
        pids = []
        for length in (20, 20, 8, 0):
            stretch = [told(microbatch) for microbatch in loader]
            assert len(stretch) == length
            delivered += stretch
            if length == 20:
                pids.append(worker_pids(loader))
        assert (pids[0] == pids[1] != []) is persistent_workers
    assert delivered == unbroken


def test_more_workers_than_microbatches(documents: Corpus, run_folder: Path, unbroken: list[Delivered]) -> None:
    assert all_of(a_run(run_folder, documents), steps=1, num_workers=6, start_method="fork") == unbroken[:4]


def test_tensors_may_be_kept_without_end(documents: Corpus, run_folder: Path) -> None:
    """No file is held open for a microbatch that is kept."""
    run = a_run(run_folder, documents)
    with loader_of(run, steps=12, num_workers=1, microbatch_size=1) as loader:
        iterator = iter(loader)
        kept = [next(iterator)]
        before = len(list(Path("/proc/self/fd").iterdir()))
        kept += [next(iterator) for _ in range(60)]
        assert len(list(Path("/proc/self/fd").iterdir())) < before + 20
        assert len({microbatch.address for microbatch in kept}) == 61


def test_from_another_thread(documents: Corpus, run_folder: Path, unbroken: list[Delivered]) -> None:
    delivered: list[Delivered] = []
    thread = threading.Thread(
        target=lambda: delivered.extend(all_of(a_run(run_folder, documents), steps=2, num_workers=2))
    )
    thread.start()
    thread.join(60)
    assert delivered == unbroken[:8]


def test_closed_or_dropped_workers_end(documents: Corpus, tmp_path: Path) -> None:
    loader = loader_of(a_run(tmp_path / "closed", documents), num_workers=2)
    next(iter(loader))
    pids = worker_pids(loader)
    loader.close()
    assert not any(map(alive, pids))

    loader = loader_of(a_run(tmp_path / "dropped", documents), num_workers=2)
    next(iter(loader))
    pids = worker_pids(loader)
    del loader
    gc.collect()
    assert gone(pids)
    assert verify_run(Lookup(Run.open(tmp_path / "dropped"))).ok


def test_global_generators_are_left_alone(documents: Corpus, run_folder: Path) -> None:
    expected = _global_randomness()
    with loader_of(a_run(run_folder, documents), steps=2, num_workers=2) as loader:
        for _ in loader:
            pass
    assert _global_randomness() == expected
    torch.rand(1)
    assert _global_randomness() != expected


SCRIPT = """
import json, sys, time
from dataguard.run.run import Run
from tests.torch.making import loader_of
from tests.torch.test_workers import worker_pids

if __name__ == "__main__":
    loader = loader_of(Run.open(sys.argv[1]), num_workers=2, start_method=sys.argv[2])
    for microbatch in loader:
        if microbatch.step == 3:
            print(json.dumps(worker_pids(loader)), flush=True)
            time.sleep(120)
"""


@pytest.mark.parametrize("start_method", ["forkserver", "fork"])
def test_a_killed_parent_leaves_no_orphan(documents: Corpus, tmp_path: Path, start_method: str) -> None:
    a_run(tmp_path / "run", documents)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    parent = subprocess.Popen(
        [sys.executable, "-W", "error", script, tmp_path / "run", start_method],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert parent.stdout is not None
        pids = json.loads(parent.stdout.readline())
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait(30)
        parent.stdout.close()
    assert gone(pids)
    run = Run.open(tmp_path / "run")
    lookup = Lookup(run)
    assert verify_run(lookup).ok
    assert lookup.complete[1] == 3  # of step 3 one microbatch was handed over
    assert len(lookup.index.step(1, 3, num_ranks=1).records) == 2


CTRL_C = """
import signal, sys
from dataguard.run.run import Run
from tests.torch.making import loader_of

if __name__ == "__main__":
    told = []
    signal.signal(signal.SIGINT, lambda *_: told.append(1))
    with loader_of(Run.open(sys.argv[1]), num_workers=2, prefetch_factor=1, steps=9, start_method="fork") as loader:
        for microbatch in loader:
            if microbatch.step == 1 and not told:
                print("ready", flush=True)
                while not told:
                    signal.pause()
        print(loader.state_dict()["next_step"], flush=True)
"""


def test_ctrl_c_is_for_the_trainer_to_answer(documents: Corpus, tmp_path: Path) -> None:
    """A terminal tells all processes; a trainer that wants to end its work finds its workers there."""
    a_run(tmp_path / "run", documents)
    script = tmp_path / "train.py"
    script.write_text(CTRL_C)
    parent = subprocess.Popen(
        [sys.executable, "-W", "error", script, tmp_path / "run"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        os.killpg(parent.pid, signal.SIGINT)
        out, err = parent.communicate(timeout=60)
    finally:
        parent.kill()
        parent.wait(30)
    assert (parent.returncode, out, err) == (0, "9\n", "")


UNGUARDED = """
import sys
from dataguard.errors import WorkerDied
from dataguard.run.run import Run
from tests.torch.making import loader_of

loader = loader_of(Run.open(sys.argv[1]), num_workers=2)
try:
    next(iter(loader))
except WorkerDied as error:
    print(error)
loader.close()
"""


def test_a_script_without_a_guard_is_told_so(documents: Corpus, tmp_path: Path) -> None:
    """Its workers run it again as they start; they begin no attempt."""
    run = a_run(tmp_path / "run", documents)
    script = tmp_path / "train.py"
    script.write_text(UNGUARDED)
    done = subprocess.run(
        [sys.executable, script, tmp_path / "run"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "ended by itself, with exit code 1" in done.stdout
    assert "needs an if __name__ == '__main__':" in done.stdout
    assert "a worker process has come by a GuardedLoader of its own" in done.stderr
    assert len(run.attempts()) == 1


PIPED = """
import sys
from dataguard.errors import UsageError
from dataguard.run.run import Run
from tests.torch.making import loader_of

try:
    loader_of(Run.open(sys.argv[1]), num_workers=1)
except UsageError as error:
    print(error)
loader_of(Run.open(sys.argv[1]), num_workers=1, start_method="fork", steps=1).take_step()
print("handed over")
"""


def test_a_script_that_no_file_holds_is_told_before_a_worker_starts(documents: Corpus, tmp_path: Path) -> None:
    a_run(tmp_path / "run", documents)
    done = subprocess.run(
        [sys.executable, "-", tmp_path / "run"],
        input=PIPED,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "they import the main script, and no file holds it" in done.stdout
    assert done.stdout.endswith("handed over\n")
