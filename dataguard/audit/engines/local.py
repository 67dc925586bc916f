"""How are tasks done on this machine? By threads: decoders and kernels release the interpreter's lock.

Tasks are begun in their order; a thread that is done takes the next one. A failure ends the work: no further task is
begun, and whoever waits for blocks gives up. An interruption lets every task that was begun come to its end, which is
soon, and be kept.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

from dataguard.audit.engines import Keep
from dataguard.audit.job import Job
from dataguard.audit.scoring import Scorer
from dataguard.audit.supply import GivenUp
from dataguard.audit.tasks import Task
from dataguard.errors import UsageError

__all__ = ["LocalEngine"]

_LOOK_SECONDS = 0.5


class LocalEngine:
    """Threads of this process.

    Parameters
    ----------
    num_workers
        Threads; None for one a core that this process may use.
    scorer
        Makes what scores, for tests.
    """

    def __init__(
        self, num_workers: int | None = None, *, scorer: Callable[[Job, Sequence[Task]], Any] = Scorer
    ) -> None:
        if num_workers is not None and num_workers < 1:
            raise UsageError(f"{num_workers} workers cannot score", allowed="at least 1")
        self.num_workers = num_workers or len(os.sched_getaffinity(0))
        self._scorer = scorer

    def run(self, job: Job, tasks: Sequence[Task], keep: Keep) -> None:
        """See `Engine.run`."""
        scorer = self._scorer(job, tasks)
        waiting, lock, stop = iter(tasks), threading.Lock(), threading.Event()

        def work() -> None:
            while True:
                with lock:
                    task = None if stop.is_set() else next(waiting, None)
                if task is None:
                    return
                try:
                    keep(task, partial(scorer.score, task))
                except BaseException:
                    # at once: another thread may wait for blocks that this one will never take
                    stop.set()
                    scorer.supply.give_up()
                    raise

        pool = ThreadPoolExecutor(self.num_workers, thread_name_prefix="dataguard-audit")
        try:
            futures = [pool.submit(work) for _ in range(min(self.num_workers, max(len(tasks), 1)))]
            pending = set(futures)
            while pending:
                # Looked at again and again: a library may have had the system resume what Ctrl-C should interrupt.
                done, pending = wait(pending, _LOOK_SECONDS, return_when=FIRST_EXCEPTION)
                if any(future.exception() is not None for future in done):
                    break
        except BaseException:
            stop.set()
            raise
        finally:
            pool.shutdown(wait=True)
        errors = [error for future in futures if (error := future.exception()) is not None]
        for error in sorted(errors, key=lambda error: isinstance(error, GivenUp)):
            raise error
