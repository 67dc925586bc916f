"""Interrupted anywhere, an audit goes on: nothing is scored twice, and the answer is that of one that was not."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import pytest

from dataguard.audit.engines import Keep, local
from dataguard.audit.engines.local import LocalEngine
from dataguard.audit.folder import AuditFolder
from dataguard.audit.job import Job
from dataguard.audit.run import Progress, run_audit
from dataguard.audit.scoring import Scorer, score_tasks
from dataguard.audit.tasks import Task
from dataguard.errors import RunDamaged, UsageError, WriteFailed
from tests.audit.making import SMALL, audit_all, contents, corpus, request_of
from tests.support.processes import environment


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A corpus, and the audit of it that nobody interrupted."""
    folder = tmp_path_factory.mktemp("audit")
    corpus(folder / "in")
    audit_all(folder / "out", folder / "in", task_bytes=SMALL)
    return folder / "in", contents(folder / "out")


class Counting(Scorer):
    """Counts the tasks that are scored, and fails at one of them."""

    scored: ClassVar[Counter[int]] = Counter()
    fails_at: int | None = None
    error: BaseException = OSError(28, "No space left on device")

    def score(self, task: Task, sink: BinaryIO) -> None:
        if task.number == self.fails_at:
            raise self.error
        super().score(task, sink)
        Counting.scored[task.number] += 1


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Counting.scored, Counting.fails_at, Counting.error = Counter(), None, OSError(28, "No space left on device")


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("fails_at", [0, 4, 11])
def test_after_a_failure_it_goes_on_without_scoring_a_task_twice(
    whole: tuple[Path, dict[str, str]], tmp_path: Path, workers: int, fails_at: int
) -> None:
    folder, expected = whole
    Counting.fails_at = fails_at
    with pytest.raises(WriteFailed, match="No space left"):
        audit_all(tmp_path, folder, task_bytes=SMALL, engine=LocalEngine(workers, scorer=Counting))
    kept = AuditFolder(tmp_path).parts_done()
    assert fails_at not in kept
    assert kept == set(Counting.scored), "all that was scored is kept"
    with pytest.raises(UsageError, match="--resume"):
        audit_all(tmp_path, folder, task_bytes=SMALL)
    Counting.fails_at = None
    audit_all(tmp_path, folder, task_bytes=SMALL, resume=True, engine=LocalEngine(workers, scorer=Counting))
    assert len(Counting.scored) > 11
    assert set(Counting.scored.values()) == {1}
    assert contents(tmp_path) == expected


def test_one_huge_compressed_shard_is_gone_on_with_in_its_midst(
    whole: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    folder, _ = whole
    from tests.audit.making import audit

    Counting.fails_at = 3
    path = folder / "web/b.jsonl.gz"
    with pytest.raises(WriteFailed):
        audit(tmp_path / "a", path, task_bytes=SMALL, engine=LocalEngine(3, scorer=Counting))
    first = AuditFolder(tmp_path / "a").parts_done()
    assert 3 not in first
    Counting.fails_at = None
    audit(tmp_path / "a", path, task_bytes=SMALL, resume=True, engine=LocalEngine(3, scorer=Counting))
    assert sorted(Counting.scored) == list(range(len(Counting.scored)))
    assert len(Counting.scored) >= 4
    assert set(Counting.scored.values()) == {1}
    audit(tmp_path / "b", path, task_bytes=SMALL)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_one_stream_is_decoded_once_by_all_threads(whole: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    from tests.audit.making import audit

    path, read = whole[0] / "web/b.jsonl.gz", []

    class Kept(Scorer):
        def __init__(self, job: Job, tasks: Sequence[Task]) -> None:
            super().__init__(job, tasks)
            assert len(tasks) >= 4
            read.append(self.supply.counter)

    audit(tmp_path, path, task_bytes=SMALL, engine=LocalEngine(3, scorer=Kept))
    assert read[0].total <= path.stat().st_size + 8192


def test_tasks_in_any_order_and_any_grouping_make_the_same_parts(
    whole: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """What an engine in other processes does: `score_tasks` of some tasks at a time, from a pickled job."""
    import pickle

    folder, expected = whole

    class Elsewhere:
        def run(self, job: Job, tasks: Sequence[Task], keep: Keep) -> None:
            sent = pickle.dumps(job)
            groups = [tasks[start : start + 5] for start in range(0, len(tasks), 5)]
            for group in reversed(groups):
                for task, part in score_tasks(pickle.loads(sent), group):
                    keep(task, part)

    audit_all(tmp_path, folder, task_bytes=SMALL, engine=Elsewhere())
    assert contents(tmp_path) == expected


def test_an_interruption_waits_for_what_is_under_way_and_keeps_it(
    whole: tuple[Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, expected = whole
    began, ending = threading.Event(), threading.Event()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            ending.set()
            super().shutdown(wait, cancel_futures=cancel_futures)

    class Slow(Counting):
        def score(self, task: Task, sink: BinaryIO) -> None:
            if task.number == 2:
                began.set()
                assert ending.wait(60)
            super().score(task, sink)

    monkeypatch.setattr(local, "ThreadPoolExecutor", Pool)

    def interrupt() -> None:
        began.wait(60)
        signal.pthread_kill(main, signal.SIGINT)

    # As some libraries leave it: what waits is not woken by the signal.
    signal.siginterrupt(signal.SIGINT, False)

    main = threading.main_thread().ident
    assert main is not None
    waiting = threading.Thread(target=interrupt)
    waiting.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            audit_all(tmp_path, folder, task_bytes=SMALL, engine=LocalEngine(1, scorer=Slow))
    finally:
        signal.siginterrupt(signal.SIGINT, True)
    waiting.join()
    assert AuditFolder(tmp_path).parts_done() == {0, 1, 2} == set(Counting.scored)
    audit_all(tmp_path, folder, task_bytes=SMALL, resume=True, engine=LocalEngine(2, scorer=Counting))
    assert set(Counting.scored.values()) == {1}
    assert contents(tmp_path) == expected


def test_a_second_half_that_is_interrupted_is_done_again(
    whole: tuple[Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, expected = whole
    real = AuditFolder.publish
    for last in ("profile.json", "withhold.parquet", "duplicates.parquet", "shards.parquet", "summary.json"):

        def publish(self: AuditFolder, path: Path, content: Any, last: str = last) -> None:
            real(self, path, content)
            if path.name == last and last != "summary.json":
                raise KeyboardInterrupt

        monkeypatch.setattr(AuditFolder, "publish", publish)
        engine = LocalEngine(1, scorer=Counting)
        if last == "summary.json":
            audit_all(tmp_path, folder, task_bytes=SMALL, resume=True, engine=engine)
        else:
            with pytest.raises(KeyboardInterrupt):
                audit_all(tmp_path, folder, task_bytes=SMALL, resume=True, engine=engine)
    assert set(Counting.scored.values()) == {1}
    assert contents(tmp_path) == expected


def test_a_part_that_was_changed_is_told_and_its_removal_mends_it(
    whole: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    folder, expected = whole
    Counting.fails_at = 9
    with pytest.raises(WriteFailed):
        audit_all(tmp_path, folder, task_bytes=SMALL, engine=LocalEngine(1, scorer=Counting))
    part = AuditFolder(tmp_path).part(3)
    content = bytearray(part.read_bytes())
    content[60] ^= 1
    part.write_bytes(content)
    Counting.fails_at = None
    for _ in range(2):
        with pytest.raises(RunDamaged, match="a part of the audit, is damaged"):
            audit_all(tmp_path, folder, task_bytes=SMALL, resume=True)
    part.unlink()
    audit_all(tmp_path, folder, task_bytes=SMALL, resume=True)
    assert contents(tmp_path) == expected


def test_a_scan_that_is_interrupted_goes_on_too(whole: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    folder, expected = whole

    class Stops(Progress):
        def scanned(self, done_bytes: int, total_bytes: int) -> None:
            raise KeyboardInterrupt

    request = request_of(tmp_path, folder / "web", folder / "ids", task_bytes=SMALL)
    with pytest.raises(KeyboardInterrupt):
        run_audit(request, LocalEngine(1), progress=Stops())
    assert not (tmp_path / "audit.json").exists()
    with pytest.raises(UsageError, match="--resume"):
        audit_all(tmp_path, folder, task_bytes=SMALL)
    audit_all(tmp_path, folder, task_bytes=SMALL, resume=True)
    assert contents(tmp_path) == expected


_CHILD = """
    import sys
    from pathlib import Path
    from dataguard.audit.engines.local import LocalEngine
    from dataguard.audit.scoring import Scorer
    from tests.audit.making import SMALL, audit_all

    class Loud(Scorer):
        def score(self, task, sink):
            super().score(task, sink)
            sys.stdout.write(f"{task.number}\\n")
            sys.stdout.flush()

    audit_all(Path(sys.argv[1]), Path(sys.argv[2]), task_bytes=SMALL, resume=True, engine=LocalEngine(2, scorer=Loud))
"""


def test_killed_at_any_moment_it_loses_nothing_that_was_kept(
    whole: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """SIGKILL after the first, the third, ... task that a process says it has scored, until one ends by itself."""
    folder, expected = whole
    kills = 0
    while True:
        before = AuditFolder(tmp_path).parts_done()
        said = []
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(_CHILD), str(tmp_path), str(folder)],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout is not None
            for line in child.stdout:
                said.append(int(line))
                if len(said) > 3 * kills and kills < 3:
                    child.send_signal(signal.SIGKILL)
                    break
            _, err = child.communicate(timeout=60)
        assert not set(said) & before, "what was kept is not scored again"
        if child.returncode == 0:
            break
        assert child.returncode == -signal.SIGKILL, err
        kills += 1
    assert kills == 3
    assert contents(tmp_path) == expected


def test_a_disk_that_is_full_ends_with_a_named_error_and_loses_nothing(
    whole: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """A limit on file sizes stands for the disk: EFBIG comes where ENOSPC would, in the midst of a write."""
    folder, _ = whole
    words = [sys.executable, "-m", "dataguard", "audit", f"{folder}/web", f"{folder}/ids", "-o", str(tmp_path / "out")]
    settings: dict[str, Any] = {"env": environment(), "capture_output": True, "text": True, "timeout": 120}

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))

    done = subprocess.run(words, preexec_fn=limit, check=False, **settings)
    assert done.returncode == 4, done.stderr
    assert "File too large" in done.stderr
    assert "--resume" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert not (tmp_path / "out/summary.json").exists()
    done = subprocess.run([*words, "--resume"], check=False, **settings)
    assert done.returncode in (0, 1), done.stderr
    assert (tmp_path / "out/summary.json").exists()
