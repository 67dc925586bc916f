"""By a real Ray cluster of two workers: the same bytes as by threads, whatever becomes of the workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dataguard.audit.documents import AuditSummary
from dataguard.audit.engines.sharing import share_streams
from dataguard.audit.folder import AuditFolder
from dataguard.audit.tasks import plan_tasks
from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.formats.protocol import ScanOptions
from tests.audit.making import PROSE, SMALL, contents, corpus
from tests.audit.ray_cluster import cluster, ray_environment
from tests.corpus.making import jsonl

pytest.importorskip("ray", reason="ray is not installed; it comes with dataguard[ray]")

PLACE = 6
"""A task in the midst of a compressed shard, and of a Ray task."""
_PATIENCE_SECONDS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A corpus, the audit of it by threads, and a cluster."""

    manifest: Path
    num_tasks: int
    expected: dict[str, str]
    answer: str
    address: str
    env: dict[str, str]

    def words(self, folder: Path, *what: str, engine: str = "ray", resume: bool = False) -> list[str]:
        words = [sys.executable, "-W", "error", "-m", "tests.audit.ray_run", str(folder), *what, "--", "audit"]
        words += [str(self.manifest), "-o", str(folder / "out"), "--json", "--engine", engine]
        words += ["--ray-address", self.address] if engine == "ray" else []
        return [*words, "--resume"] if resume else words

    def run(self, folder: Path, *what: str, **asked: Any) -> subprocess.CompletedProcess[str]:
        words = self.words(folder, *what, **asked)
        return subprocess.run(
            words, env=self.env, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False
        )

    @contextmanager
    def begun(self, folder: Path, *what: str) -> Iterator[subprocess.Popen[str]]:
        """A run that is under way; it is ended with the block."""
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(self.words(folder, *what), env=self.env, **pipes) as process:
            try:
                yield process
            finally:
                process.kill()

    def check(self, folder: Path, done: subprocess.CompletedProcess[str]) -> None:
        """It ended as the local audit did, with the same bytes, and no task was done twice."""
        assert done.returncode == 1, done.stderr
        assert done.stdout == self.answer
        assert "raylet" not in done.stderr, done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        assert contents(folder / "out") == self.expected
        assert done_tasks(folder) == dict.fromkeys(range(self.num_tasks), 1)


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ready]:
    folder = tmp_path_factory.mktemp("ray")
    corpus(folder / "in")
    manifest = folder / "M.parquet"
    options = ScanOptions(block_bytes=1000, block_tokens=100)
    build_manifest_file([f"{folder}/in/web", f"{folder}/in/ids"], manifest, num_workers=1, options=options)
    with ray_environment() as env, cluster(env) as address:
        made = Ready(manifest=manifest, num_tasks=0, expected={}, answer="", address=address, env=env)
        local = made.run(folder, engine="local")
        assert local.returncode == 1, local.stderr
        tasks = plan_tasks(Corpus.open(manifest).manifest, task_bytes=SMALL)
        yield Ready(
            manifest=manifest,
            num_tasks=len(tasks),
            expected=contents(folder / "out"),
            answer=local.stdout,
            address=address,
            env=env,
        )


def done_tasks(folder: Path) -> Counter[int]:
    """How often each task was done by a Ray worker."""
    lines = (folder / "done").read_text().splitlines()
    return Counter(int(line.split()[0]) for line in lines)


def until(condition: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    """Wait for something that a process under way does."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < end, "it never happens"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return b"ray::" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def waiting_worker(folder: Path, process: subprocess.Popen[str], num_tasks: int) -> int:
    """The worker that waits in the midst of task `PLACE`, once all that can be done beside it is kept."""
    until((folder / "waiting").exists, process)
    pid = int((folder / "waiting").read_text())
    assert is_alive(pid), "it is at work"
    parts = AuditFolder(folder / "out")
    beyond = set(range(12, num_tasks))
    until(lambda: parts.parts_done() >= beyond, process)
    assert PLACE not in parts.parts_done()
    return pid


def test_the_place_is_in_the_midst_of_a_ray_task(ready: Ready) -> None:
    manifest = Corpus.open(ready.manifest).manifest
    runs = share_streams(manifest, plan_tasks(manifest, task_bytes=SMALL))
    (run,) = [run for run in runs if run[0].number < PLACE < run[-1].number]
    assert run[-1].number < 12
    assert len(runs) > 4


def test_the_bytes_are_those_of_threads(ready: Ready, tmp_path: Path) -> None:
    ready.check(tmp_path, ready.run(tmp_path))


def test_a_worker_that_is_killed_at_work_costs_nothing(ready: Ready, tmp_path: Path) -> None:
    with ready.begun(tmp_path, f"wait-{PLACE}") as process:
        pid = waiting_worker(tmp_path, process, ready.num_tasks)
        before = done_tasks(tmp_path)
        os.kill(pid, signal.SIGKILL)
        out, err = process.communicate(timeout=_PATIENCE_SECONDS)
    assert PLACE not in before
    ready.check(tmp_path, subprocess.CompletedProcess([], process.returncode, out, err))
    by = dict(line.split() for line in (tmp_path / "done").read_text().splitlines())
    assert by[str(PLACE - 1)] == str(pid) != by[str(PLACE)]
    assert str(pid) not in {by[str(task)] for task in range(12, ready.num_tasks)}, "another worker went on beside it"
    assert not is_alive(pid)


def test_a_task_that_kills_each_worker_is_named_and_another_engine_goes_on(ready: Ready, tmp_path: Path) -> None:
    done = ready.run(tmp_path, f"die-{PLACE}")
    assert done.returncode == 4, done.stderr
    assert done.stdout == ""
    assert f"3 Ray workers died one after the other at task {PLACE} " in done.stderr
    assert "web/b.jsonl.gz" in done.stderr
    assert "--resume" in done.stderr
    assert "Traceback" not in done.stderr
    kept = AuditFolder(tmp_path / "out").parts_done()
    assert {PLACE - 1} <= kept == set(done_tasks(tmp_path))
    assert PLACE not in kept
    assert not (tmp_path / "out/summary.json").exists()
    local = ready.run(tmp_path, engine="local", resume=True)
    assert (local.returncode, local.stdout) == (1, ready.answer), local.stderr
    assert contents(tmp_path / "out") == ready.expected
    assert set(done_tasks(tmp_path).values()) == {1}


def test_an_interruption_keeps_what_is_done_and_says_how_to_go_on(ready: Ready, tmp_path: Path) -> None:
    with ready.begun(tmp_path, f"wait-{PLACE}") as process:
        pid = waiting_worker(tmp_path, process, ready.num_tasks)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=_PATIENCE_SECONDS)
    assert process.returncode == 130, err
    assert out == ""
    assert "--resume goes on from there" in err
    assert "Traceback" not in err
    until(lambda: not is_alive(pid))
    assert AuditFolder(tmp_path / "out").parts_done() == set(done_tasks(tmp_path))
    ready.check(tmp_path, ready.run(tmp_path, resume=True))


def test_a_summary_is_a_summary(ready: Ready) -> None:
    summary = msgspec.json.decode(ready.answer, type=AuditSummary)
    account = summary.account
    assert account.records == account.scored + account.rejected + account.unreadable


def test_evaluation_data_is_read_by_the_workers_too(ready: Ready, tmp_path: Path) -> None:
    jsonl(tmp_path / "valid/v.jsonl", PROSE[170:190])
    told = []
    for engine in ("local", "ray"):
        folder = tmp_path / engine
        folder.mkdir()
        words = [*ready.words(folder, engine=engine), "--against", str(tmp_path / "valid")]
        done = subprocess.run(
            words, env=ready.env, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False
        )
        assert done.returncode == 1, done.stderr
        told.append((done.stdout, contents(folder / "out")))
    assert told[0] == told[1]
    assert "overlap.parquet" in told[0][1]
    assert msgspec.json.decode(told[0][0], type=AuditSummary).overlap
    assert done_tasks(tmp_path / "ray")[0] == 2  # the first task of the corpus, and the one of the evaluation data
