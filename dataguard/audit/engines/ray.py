"""How are tasks done on many machines? As Ray tasks; what they find is written down here.

1. Tasks that share a compressed stream go together (`share_streams`); each such run is one Ray task, at most so many
   of them at a time as there are cores, and yields its parts one by one as they are made.
2. The driver, which holds the audit's folder, keeps each part as it comes: whole or not at all, once, by the same
   `Keep` as on one machine. Workers write nothing, so they need no folder in common.
3. A worker that dies takes with it the part that it was at. Ray is told to retry nothing; the driver sends what is
   left of the run again, so that no part that was kept is made twice. A task under which a worker dies three times ends
   the work.

Workers read the corpus for themselves: sources are URLs, or folders that every machine has in the same place. Bytes are
those of the local engine because both call the same scorer.

The package `ray` is imported here and nowhere else, when an engine is run.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import os
import signal
import socket
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dataguard.audit.engines import Keep
from dataguard.audit.engines.sharing import share_streams
from dataguard.audit.job import Job
from dataguard.audit.scoring import Scorer
from dataguard.audit.tasks import Task
from dataguard.corpus.storage import is_url, native
from dataguard.errors import EnvironmentFailed, UsageError
from dataguard.version import __version__

__all__ = ["RayEngine"]

_MOST_DEATHS = 3
"""Workers that may die under one task."""

_MOST_WAITING = 8
"""Parts of one Ray task that may wait to be kept before it goes on: memory is bounded on a slow disk, too."""

_KNOCK_SECONDS = 10

_OWN_CLUSTER = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
"""What a cluster that is begun here is told, unless somebody told it otherwise: listen on the loopback alone, report to
nobody."""

MakeScorer = Callable[[Job, Sequence[Task]], Any]


class RayEngine:
    """Tasks of a Ray cluster.

    Parameters
    ----------
    num_workers
        Ray tasks at a time; None for one a core of the cluster.
    address
        ``HOST:PORT`` of the cluster, or ``auto`` for the one that Ray finds from here. None for the one that this
        process is connected to, and where there is none, for a cluster of this machine that ends with the work.
    scorer
        Makes what scores, for tests; pickled by name.

    Raises
    ------
    UsageError
        Ray is not installed, or is to be reached by its client protocol.
    """

    def __init__(
        self, num_workers: int | None = None, *, address: str | None = None, scorer: MakeScorer = Scorer
    ) -> None:
        if num_workers is not None and num_workers < 1:
            raise UsageError(f"{num_workers} workers cannot score", allowed="at least 1")
        if address is not None and address.startswith("ray://"):
            raise UsageError(
                f"--ray-address {address} is an address for Ray's client",
                allowed="HOST:PORT of the cluster (6379 where nothing else was said), or auto",
                todo="run the command on a machine of the cluster, for example by ray job submit",
            )
        if importlib.util.find_spec("ray") is None:
            raise UsageError("--engine ray needs Ray", found="no module named ray", todo="pip install 'dataguard[ray]'")
        self.num_workers = num_workers
        self.address = address
        self._scorer = scorer

    def run(self, job: Job, tasks: Sequence[Task], keep: Keep) -> None:
        """See `Engine.run`."""
        with _connected(self.address, self.num_workers) as ray:
            limit = self.num_workers or int(ray.cluster_resources().get("CPU", 0))
            if not limit:
                raise EnvironmentFailed(
                    "the Ray cluster has no cores to score on",
                    todo="add workers to it, or give --workers to wait for as many",
                )
            try:
                _Work(ray, job, keep, self._scorer).run(share_streams(job.corpus.manifest, tasks), limit)
            except ray.exceptions.RayError as error:
                raise EnvironmentFailed("the Ray cluster failed", found=_words(error)) from error


class _Work:
    """The tasks of one audit, on a cluster that this process is connected to."""

    def __init__(self, ray: Any, job: Job, keep: Keep, scorer: MakeScorer) -> None:
        self._ray = ray
        self._job = job
        self._keep = keep
        self._deaths: Counter[int] = Counter()
        told = _Told(
            version=__version__,
            folders=tuple(root for root in job.corpus.roots.values() if not is_url(root) and _is_there(root)),
        )
        # in a list it stays a reference, which a worker looks up once and not with every task
        self._sent = ([ray.put(job)], told, scorer)
        settings = {"num_returns": "streaming", "_generator_backpressure_num_objects": _MOST_WAITING}
        self._remote = ray.remote(num_cpus=1, max_retries=0)(_parts).options(**settings)
        self._running: dict[Any, deque[Task]] = {}
        """What a Ray task yields -> the tasks whose parts it still owes."""

    def run(self, runs: Sequence[tuple[Task, ...]], limit: int) -> None:
        """Do all of them."""
        waiting = iter(runs)
        try:
            for run in waiting:
                self._begin(run)
                while len(self._running) >= limit:
                    self._wait()
            while self._running:
                self._wait()
        except BaseException:
            self._end()
            raise

    def _begin(self, tasks: Sequence[Task]) -> None:
        self._running[self._remote.remote(*self._sent, tuple(tasks))] = deque(tasks)

    def _wait(self) -> None:
        """Until a Ray task has a part, has ended, or has died; see to it."""
        (made, *_), _ = self._ray.wait(list(self._running), num_returns=1)
        self._take(made)

    def _take(self, made: Any) -> None:
        left = self._running[made]
        try:
            reference = next(made, None)
            if reference is None:
                assert not left, "a Ray task that ends well yields every part"
                del self._running[made]
                return
            number, part = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            del self._running[made]
            raise _raised(error) from error
        except self._ray.exceptions.RayError as error:
            del self._running[made]
            self._died(left, error)
            return
        task = left[0]
        assert number == task.number
        self._keep(task, part)
        left.popleft()

    def _died(self, left: deque[Task], error: Exception) -> None:
        """Send what is left of a run again, unless its first task was tried too often."""
        if not left:
            return  # every part was had
        task = left[0]
        self._deaths[task.number] += 1
        if self._deaths[task.number] >= _MOST_DEATHS:
            manifest = self._job.corpus.manifest
            names = [manifest.shard_name(segment.shard) for segment in self._job.segments(task)]
            raise EnvironmentFailed(
                f"{_MOST_DEATHS} Ray workers died one after the other at task {task.number} of the audit, "
                f"blocks {task.start}:{task.stop} of the manifest, of {_few(names)}",
                found=_words(error),
                todo="look into the workers' logs (was there memory left?), mend it, and go on with --resume",
            ) from error
        self._begin(left)

    def _end(self) -> None:
        """Keep what is ready, and call off the rest; why the work ends is told by the caller."""
        for made in list(self._running):
            with contextlib.suppress(Exception):
                while made in self._running and self._ray.wait([made], timeout=0)[0]:
                    left = self._running[made]
                    number, part = self._ray.get(next(made))
                    assert number == left[0].number
                    self._keep(left.popleft(), part)
            with contextlib.suppress(Exception):
                self._ray.cancel(made)


# ---- in a worker ----


class _Told:
    """What a worker has to have in common with the driver."""

    def __init__(self, *, version: str, folders: tuple[str, ...]) -> None:
        self.version = version
        self.folders = folders

    def check(self) -> None:
        """EnvironmentFailed where it has not: its parts would be others."""
        if self.version != __version__:
            raise EnvironmentFailed(
                f"the Ray worker on {socket.gethostname()} has dataguard {__version__}",
                allowed=f"dataguard {self.version}, as where the command runs",
                todo="install one version everywhere, and go on with --resume",
            )
        for folder in self.folders:
            if not _is_there(folder):
                raise EnvironmentFailed(
                    f"the Ray worker on {socket.gethostname()} does not see {folder}",
                    todo="give every machine that folder in the same place, or name the source by URL",
                )


_job: tuple[str, Job] | None = None
"""The job of this worker process, by its reference: a manifest may be large, and a process does many tasks."""


def _parts(
    reference: list[Any], told: _Told, scorer: MakeScorer, tasks: tuple[Task, ...]
) -> Iterator[tuple[int, bytes]]:
    """The parts of some tasks, one by one; a Ray task."""
    global _job  # noqa: PLW0603 - one a process
    if _job is None or _job[0] != reference[0].hex():
        import ray

        told.check()
        _job = (reference[0].hex(), ray.get(reference[0]))
    made = scorer(_job[1], tasks)
    for task in tasks:
        sink = io.BytesIO()
        made.score(task, sink)
        yield task.number, sink.getvalue()


def _is_there(folder: str) -> bool:
    return Path(native(folder)).exists()


# ---- connecting, and Ray's own words ----


@contextlib.contextmanager
def _connected(address: str | None, num_workers: int | None) -> Iterator[Any]:
    """The module `ray`, connected to a cluster; the connection ends with the block if it was made for it."""
    own = address is None
    if address is not None:
        _knock(address)
    elif "ray" not in sys.modules:
        for name, value in _OWN_CLUSTER.items():
            os.environ.setdefault(name, value)  # noqa: TID251 - Ray takes it from nowhere else
    import ray

    if own and ray.is_initialized():
        yield ray
        return
    settings: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": logging.ERROR}
    if own:
        settings["address"] = "local"
        settings["num_cpus"] = num_workers or len(os.sched_getaffinity(0))
        settings["include_dashboard"] = False
    with _silenced():
        try:
            with _same_end():
                ray.init(**settings)
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            where = "a Ray cluster of this machine cannot be begun" if own else f"no Ray cluster answers at {address}"
            raise EnvironmentFailed(where, found=_words(error)) from error
        try:
            yield ray
        finally:
            with _silenced(own=True):
                ray.shutdown()


def _knock(address: str) -> None:
    """EnvironmentFailed where nobody listens; Ray itself would ask for minutes."""
    host, sign, port = address.rpartition(":")
    if not (sign and port.isdecimal()):
        return  # `auto`, or what Ray has to say about it
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise EnvironmentFailed(
            f"no Ray cluster answers at {address}",
            found=str(error),
            todo="name HOST:PORT of its head, or leave --ray-address out for a cluster of this machine",
        ) from error


@contextlib.contextmanager
def _same_end() -> Iterator[None]:
    """What this process does at SIGTERM stays as it is; Ray would have it raise SystemExit wherever it is."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)


@contextlib.contextmanager
def _silenced(*, own: bool = False) -> Iterator[None]:
    """While the block goes on, Ray's threads print nothing to standard output, where an answer is to stand.

    With `own` nor does this thread: at its end Ray prints what it held back.
    """
    quiet: Any = _WithoutRay(sys.stdout, threading.current_thread() if own else None)
    with contextlib.redirect_stdout(quiet):
        yield


class _WithoutRay:
    """Standard output for all threads but Ray's, and one more."""

    def __init__(self, stream: Any, other: threading.Thread | None) -> None:
        self._stream = stream
        self._other = other

    def write(self, text: str) -> Any:
        """Write, unless it is Ray that does."""
        thread = threading.current_thread()
        is_ray = thread.name.startswith("ray_") or thread is self._other
        return len(text) if is_ray else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _raised(error: Any) -> BaseException:
    """What a Ray task raised, as it raised it."""
    cause = error.cause
    if isinstance(cause, ImportError) or "failed to import on the worker" in str(cause):
        return EnvironmentFailed(
            "a Ray worker cannot import dataguard",
            found=_words(cause),
            todo=f"install dataguard {__version__} on every machine of the cluster",
        )
    if isinstance(cause, Exception):
        return cause
    return EnvironmentFailed("a Ray task failed", found=_words(error))


def _words(error: BaseException) -> str:
    """Ray's words, as one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
