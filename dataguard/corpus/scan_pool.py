"""How are many shards scanned at once, so that nothing hangs and a worker's death names its shard?

Scanning is parsing, which holds the interpreter's lock, so it is spread over processes. A worker is a fresh
interpreter (`python -m dataguard.corpus.scan_pool`) with one socket to its parent: no fork, no re-import of the
caller's ``__main__``, no state shared. It takes one job at a time, so the parent always knows what a worker was at
when its socket closed.

Workers stand in process groups of their own: Ctrl-C reaches the parent alone, which ends them. A parent that dies
closes the sockets, and the workers end by themselves.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from socket import socketpair

import msgspec

from dataguard.corpus.environment import child_environment
from dataguard.corpus.scan import ScanJob, ShardScan
from dataguard.errors import EnvironmentFailed

__all__ = ["scan_all"]


class _Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An exception of a worker: a fault of this program, for no shard's content may raise one."""

    traceback: str


class _Task(msgspec.Struct, frozen=True, kw_only=True):
    job: ScanJob
    partial_dir: str


@dataclass(slots=True, kw_only=True, eq=False)
class _Worker:
    process: subprocess.Popen[bytes]
    connection: Connection
    job: int = -1


def scan_all(
    jobs: Sequence[ScanJob], *, num_workers: int, scan: Callable[[ScanJob, str], ShardScan], partial_dir: str
) -> Generator[tuple[int, ShardScan]]:
    """Scan every job; (index, scan) in the order they finish.

    Parameters
    ----------
    jobs
        What to scan. The largest are begun first.
    num_workers
        Processes. With 1 the work is done here, in this thread.
    scan
        What does one job when it is done here; workers use `partial.scan_or_reuse`.
    partial_dir
        Where finished scans are kept; empty for nowhere.

    Raises
    ------
    EnvironmentFailed
        A worker died, with the shard it was at.
    """
    order = sorted(range(len(jobs)), key=lambda i: (-jobs[i].size_bytes, i))
    if num_workers <= 1:
        for index in order:
            yield index, scan(jobs[index], partial_dir)
        return
    workers: list[_Worker] = []
    try:
        workers.extend(_start() for _ in range(min(num_workers, len(jobs))))
        waiting = iter(order)
        busy = [worker for worker in workers if _give(worker, jobs, waiting, partial_dir)]
        while busy:
            for ready in wait([worker.connection for worker in busy]):
                worker = next(entry for entry in busy if entry.connection is ready)
                index = worker.job
                yield index, _take(worker, jobs[index])
                if not _give(worker, jobs, waiting, partial_dir):
                    busy.remove(worker)
    finally:
        for worker in workers:
            worker.connection.close()
            worker.process.kill()
        for worker in workers:
            worker.process.wait()


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


def _give(worker: _Worker, jobs: Sequence[ScanJob], waiting: Iterator[int], partial_dir: str) -> bool:
    """Hand a worker the next job; False where none is left."""
    worker.job = next(waiting, -1)
    if worker.job < 0:
        return False
    try:
        worker.connection.send_bytes(msgspec.msgpack.encode(_Task(job=jobs[worker.job], partial_dir=partial_dir)))
    except OSError as error:
        raise _died(worker, jobs[worker.job]) from error
    return True


def _take(worker: _Worker, job: ScanJob) -> ShardScan:
    try:
        kind, answer = worker.connection.recv_bytes(), worker.connection.recv_bytes()
    except (EOFError, OSError) as error:
        raise _died(worker, job) from error
    if kind == b"scan":
        return msgspec.msgpack.decode(answer, type=ShardScan)
    if kind == b"environment":
        raise EnvironmentFailed(f"the scan of shard {job.name} was stopped", found=answer.decode())
    failure = msgspec.msgpack.decode(answer, type=_Failure)
    raise EnvironmentFailed(
        f"a scan worker failed at shard {job.name}",
        found=failure.traceback,
        todo="this is a fault of dataguard: report it",
    )


def _died(worker: _Worker, job: ScanJob) -> EnvironmentFailed:
    try:
        code = worker.process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        code = None
    how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
    return EnvironmentFailed(
        f"a scan worker died at shard {job.name}",
        found=f"{how}, while it read {Path(job.path).name} ({job.size_bytes:,} bytes)",
        todo="free memory or lower --workers, and repeat: finished shards are kept",
    )


def _work(descriptor: int) -> None:
    """The worker's loop: one job in, one scan out, until the parent closes the socket."""
    import traceback

    from dataguard.corpus.partial import scan_or_reuse

    connection = Connection(descriptor)
    while True:
        try:
            task = msgspec.msgpack.decode(connection.recv_bytes(), type=_Task)
        except (EOFError, ConnectionResetError):
            return
        try:
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
