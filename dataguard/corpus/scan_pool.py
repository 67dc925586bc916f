"""How are many shards scanned at once, so that nothing hangs and a worker's death names its shard?

Scanning is parsing, which holds the interpreter's lock, so it is spread over processes. A worker is a fresh
interpreter (`python -m dataguard.corpus.scan_pool`) with one socket to its parent: no fork, no re-import of the
caller's ``__main__``, no state shared. It takes one job at a time, so the parent always knows what a worker was at
when its socket closed.

With a time limit for each shard (``--isolate``) every scan is a worker's, be it the only one: a reader that hangs is
killed, a reader that dies is replaced, either becomes a finding about its shard, and the others go on. The shard's
bytes are then hashed by another worker, under the same limit, so that a changed file is known from the one that failed.

Workers stand in process groups of their own: Ctrl-C reaches the parent alone, which ends them. A parent that dies
closes the sockets, and the workers end by themselves.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from socket import socketpair

import msgspec

from dataguard.corpus.environment import child_environment
from dataguard.corpus.scan import ScanJob, ShardScan, given_up, stored_digest
from dataguard.errors import EnvironmentFailed

__all__ = ["scan_all"]


class _Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An exception of a worker: a fault of this program, for no shard's content may raise one."""

    traceback: str


class _Task(msgspec.Struct, frozen=True, kw_only=True):
    job: ScanJob
    partial_dir: str
    only_digest: bool
    """Whether the shard's bytes are only hashed, because a scan of it was given up."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Worker:
    process: subprocess.Popen[bytes]
    connection: Connection
    job: int = -1
    """Which job it is at; -1 while it starts."""
    deadline: float = math.inf
    """Until when its job may take, by the monotonic clock."""


class _LostError(Exception):
    """A worker that gives no answer to its job any more."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def scan_all(
    jobs: Sequence[ScanJob],
    *,
    num_workers: int,
    scan: Callable[[ScanJob, str], ShardScan],
    partial_dir: str,
    timeout_seconds: float | None = None,
) -> Generator[tuple[int, ShardScan]]:
    """Scan every job; (index, scan) in the order they finish.

    Parameters
    ----------
    jobs
        What to scan. The largest are begun first.
    num_workers
        Processes. With 1 the work is done here, in this thread, unless there is a time limit.
    scan
        What does one job when it is done here; workers use `partial.scan_or_reuse`.
    partial_dir
        Where finished scans are kept; empty for nowhere.
    timeout_seconds
        Isolates shards: the scan of one may take so long, and may end its worker. None trusts the readers.

    Raises
    ------
    EnvironmentFailed
        A worker could not be started, or died, with the shard it was at; where shards are isolated, its death is a
        finding about the shard instead.
    """
    waiting = deque(sorted(range(len(jobs)), key=lambda i: (-jobs[i].size_bytes, i)))
    given: dict[int, _LostError] = {}  # jobs that were given up: only their digests are wanted
    if num_workers <= 1 and timeout_seconds is None:
        for index in waiting:
            yield index, scan(jobs[index], partial_dir)
        return
    workers: list[_Worker] = []
    try:
        workers.extend(_start() for _ in range(min(num_workers, len(jobs))))
        while workers:
            worker = _next_heard(workers)
            if worker.job >= 0:
                index, job = worker.job, jobs[worker.job]
                answer: ShardScan | tuple[str, int] | None = None
                try:
                    answer = _take(worker, job)
                except _LostError as lost:
                    if timeout_seconds is None:
                        raise _died(job, lost) from lost
                    workers.remove(worker)
                    _end([worker])
                    if index not in given:
                        given[index] = lost
                        waiting.appendleft(index)
                        workers.append(_start())
                        continue
                    if waiting:
                        workers.append(_start())
                if not isinstance(answer, ShardScan):
                    answer = given_up(job, given[index].code, given[index].detail, answer)
                yield index, answer
            else:
                _begin(worker)
            if worker in workers:
                if not waiting:
                    workers.remove(worker)
                    _end([worker])
                    continue
                index = waiting.popleft()
                task = _Task(job=jobs[index], partial_dir=partial_dir, only_digest=index in given)
                _give(worker, index, task, timeout_seconds)
    finally:
        _end(workers)


def _start() -> _Worker:
    ours, theirs = socketpair()
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    try:
        process = subprocess.Popen(  # noqa: S603 - this interpreter, this package
            [sys.executable, "-m", "dataguard.corpus.scan_pool", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            process_group=0,
            env=child_environment(PYTHONPATH=path),
        )
    except OSError as error:
        ours.close()
        raise EnvironmentFailed("a scan worker could not be started", found=str(error)) from error
    finally:
        theirs.close()
    return _Worker(process=process, connection=Connection(ours.detach()))


def _next_heard(workers: Sequence[_Worker]) -> _Worker:
    """The first worker that says something, or whose time is up."""
    deadline = min(worker.deadline for worker in workers)
    left = None if math.isinf(deadline) else max(deadline - time.monotonic(), 0.0)
    heard = wait([worker.connection for worker in workers], left)
    return next(worker for worker in workers if (worker.connection in heard if heard else worker.deadline <= deadline))


def _begin(worker: _Worker) -> None:
    """Hear that a worker has started."""
    try:
        worker.connection.recv_bytes()
    except (EOFError, OSError) as error:
        raise EnvironmentFailed("a scan worker could not be started", found=_how_it_ended(worker)) from error


def _give(worker: _Worker, index: int, task: _Task, timeout_seconds: float | None) -> None:
    worker.job = index
    worker.deadline = math.inf if timeout_seconds is None else time.monotonic() + timeout_seconds
    with suppress(OSError):  # a worker that is gone is found to be so when it is listened to
        worker.connection.send_bytes(msgspec.msgpack.encode(task))


def _take(worker: _Worker, job: ScanJob) -> ShardScan | tuple[str, int] | None:
    """The scan of a worker's job, or the digest and size where only those were asked for."""
    if not worker.connection.poll():
        raise _LostError("reader-hung", "its scan did not end within the time limit, and was killed")
    try:
        kind, answer = worker.connection.recv_bytes(), worker.connection.recv_bytes()
    except (EOFError, OSError) as error:
        raise _LostError("reader-died", f"the process that read it ended with {_how_it_ended(worker)}") from error
    if kind == b"scan":
        return msgspec.msgpack.decode(answer, type=ShardScan)
    if kind == b"digest":
        return msgspec.msgpack.decode(answer, type=tuple[str, int] | None)
    if kind == b"environment":
        raise EnvironmentFailed(f"the scan of shard {job.name} was stopped", found=answer.decode())
    failure = msgspec.msgpack.decode(answer, type=_Failure)
    raise EnvironmentFailed(
        f"a scan worker failed at shard {job.name}",
        found=failure.traceback,
        todo="this is a fault of dataguard: report it",
    )


def _died(job: ScanJob, lost: _LostError) -> EnvironmentFailed:
    return EnvironmentFailed(
        f"a scan worker died at shard {job.name}",
        found=f"{lost.detail}, while it read {Path(job.path).name} ({job.size_bytes:,} bytes)",
        todo="free memory or lower --workers, and repeat: finished shards are kept; --isolate goes on without this one",
    )


def _how_it_ended(worker: _Worker) -> str:
    try:
        code = worker.process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        return "no exit code"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _end(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.connection.close()
        worker.process.kill()
    for worker in workers:
        worker.process.wait()


def _work(descriptor: int) -> None:
    """The worker's loop: one job in, one scan out, until the parent closes the socket."""
    import traceback

    import dataguard.corpus.formats.registry  # noqa: F401 - loaded before the time of a first job begins to count
    from dataguard.corpus.partial import scan_or_reuse

    connection = Connection(descriptor)
    with suppress(BrokenPipeError, ConnectionResetError):  # a parent that is gone is found to be so just below
        connection.send_bytes(b"started")
    while True:
        try:
            task = msgspec.msgpack.decode(connection.recv_bytes(), type=_Task)
        except (EOFError, ConnectionResetError):
            return
        try:
            if task.only_digest:
                kind, answer = b"digest", msgspec.msgpack.encode(stored_digest(task.job))
            else:
                kind, answer = b"scan", msgspec.msgpack.encode(scan_or_reuse(task.job, task.partial_dir))
        except EnvironmentFailed as error:
            kind, answer = b"environment", str(error).encode()
        except Exception:  # noqa: BLE001 - handed to the parent, which raises it
            kind, answer = b"failure", msgspec.msgpack.encode(_Failure(traceback=traceback.format_exc()))
        try:
            connection.send_bytes(kind)
            connection.send_bytes(answer)
        except (BrokenPipeError, ConnectionResetError):
            return


if __name__ == "__main__":
    _work(int(sys.argv[1]))
