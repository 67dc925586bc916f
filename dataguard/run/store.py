"""How are delivered microbatches kept without a step ever waiting for it?

1. `StoreWriter.offer` is called at hand-over, after the microbatch was recorded. What the rule wants is copied (the
   trainer may change what it was handed) and put aside until the step is over; then the step's microbatches go to a
   thread of the writer's own as one file.
2. The queue is bounded in bytes. What does not fit is not waited for: it is let go of, and counted in the rank's ledger
   at once, so the count outlives the process.
3. The thread compresses, writes to ``tmp/``, fsyncs, renames. With ``last:N`` it then removes files of older steps, of
   this rank and attempt alone; never before the newer file stands.
4. A full disk is no drop that somebody finds weeks later: the next `offer` (or `close`) raises what the system said,
   and the step that was lost is in the ledger.

A killed process leaves whole files or none; what was waiting is missing, and is counted against the index
(`store_account`). A forked child writes nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from dataguard.errors import DataguardError, WriteFailed, WriterConflict
from dataguard.run.atomic import publish, write_failed
from dataguard.run.layout import Layout
from dataguard.run.store_file import MOST_BYTES, KeptMicrobatch, encode_store
from dataguard.run.store_ledger import Ledger, LetGo, StoreSettings, header_of, told, write_settings
from dataguard.run.store_rule import FLAGGED_BUDGET_BYTES, StoreRule

__all__ = ["QUEUE_BYTES", "StoreWriter", "remove_stored"]

QUEUE_BYTES = 256 << 20
"""What may wait to be written, of one rank, where nothing else is said."""
_TRIES = 8
"""Another rank may remove an empty step folder between its making and its use."""


@dataclass(slots=True)
class _Step:
    """The microbatches of one step that are to be kept."""

    step: int
    ordinal: int
    """How many steps were offered before it."""
    kept: list[KeptMicrobatch] = field(default_factory=list)
    num_bytes: int = 0


@dataclass(slots=True)
class _Shared:
    """What the thread and the writer share; the thread holds no reference to the writer."""

    layout: Layout
    settings: StoreSettings
    rule: StoreRule
    ledger: Ledger
    jobs: queue.SimpleQueue[_Step | None] = field(default_factory=queue.SimpleQueue)
    lock: threading.Lock = field(default_factory=threading.Lock)
    pending_bytes: int = 0
    used_bytes: int = 0
    """On disk."""
    standing: deque[tuple[int, int]] = field(default_factory=deque)
    """Ordinal and step of what ``last`` keeps."""
    failure: DataguardError | None = None

    def write(self, job: _Step) -> None:
        """Write one file and remove what ``last`` no longer keeps; what fails is kept for the next hand-over."""
        stands = False
        try:
            stands = self._write(job)
            if stands and self.rule.kind == "last":
                self._remove_older(job)
        except Exception as error:  # noqa: BLE001 - whatever ends this thread would end the store without a word
            self.failure = self.failure or (error if isinstance(error, DataguardError) else _unexpected(job, error))
            # The disk that is full may have no room for this either: what failed first is what is told.
            with contextlib.suppress(DataguardError):
                if not stands:
                    self._let_go(job, LetGo.DISK)
        finally:
            with self.lock:
                self.pending_bytes -= job.num_bytes

    def _write(self, job: _Step) -> bool:
        """Whether it stands; where it is beyond the budget it was let go of."""
        settings, budget = self.settings, self.settings.budget_bytes
        if budget is not None and self.used_bytes >= budget:
            self._let_go(job, LetGo.BUDGET)
            return False
        whose = {"run": settings.run, "attempt": settings.attempt, "rank": settings.rank, "step": job.step}
        content = encode_store(whose, job.kept)
        if budget is not None and self.used_bytes + len(content) > budget:
            self._let_go(job, LetGo.BUDGET)
            return False
        path = self.layout.store(settings.attempt, job.step, settings.rank)
        for left in reversed(range(_TRIES)):
            try:
                publish(path, content, tmp=self.layout.tmp)
                break
            except WriteFailed as error:
                if error.errno != errno.ENOENT or not left:
                    raise
        self.used_bytes += len(content)
        return True

    def _remove_older(self, job: _Step) -> None:
        self.standing.append((job.ordinal, job.step))
        while self.standing[0][0] <= job.ordinal - self.rule.num_steps:
            remove_stored(self.layout, self.settings.attempt, self.standing.popleft()[1], self.settings.rank)

    def _let_go(self, job: _Step, reason: LetGo) -> None:
        for kept in job.kept:
            self.ledger.add(job.step, kept.microbatch, kept.num_bytes, reason)


def _unexpected(job: _Step, error: Exception) -> WriteFailed:
    """Memory that is short, for one."""
    failure = WriteFailed(
        f"step {job.step:,} (counted from 0) cannot be kept in the store", found=f"{type(error).__name__}: {error}"
    )
    failure.__cause__ = error
    return failure


def _serve(shared: _Shared) -> None:
    """The thread: write what comes until None comes."""
    while (job := shared.jobs.get()) is not None:
        shared.write(job)


class StoreWriter:
    """Keeps what one rank hands over, as a rule says; made by `open`, ended by `close`.

    `offer` and `close` belong to one thread.
    """

    def __init__(self, shared: _Shared, *, background: bool) -> None:
        self._shared = shared
        self._step: _Step | None = None
        self._num_offered = 0
        self._pid = os.getpid()
        self._closed = False
        self._thread: threading.Thread | None = None
        if background:
            # A daemon: an interpreter that ends without `close` does not wait, and what waited is counted as lost.
            self._thread = threading.Thread(target=_serve, args=(shared,), name="dataguard-store", daemon=True)
            self._thread.start()
            weakref.finalize(self, shared.jobs.put, None).atexit = False

    @classmethod
    def open(
        cls,
        layout: Layout,
        *,
        run_id: str,
        attempt: int,
        rank: int,
        first_step: int,
        rule: StoreRule,
        rule_bits: int = 0,
        clock: Callable[[], str],
        budget_bytes: int | None = None,
        queue_bytes: int | None = None,
        background: bool = True,
    ) -> Self:
        """Write down what is to be kept, and be ready for it.

        Parameters
        ----------
        rule, rule_bits
            What is kept; the rules listed as bits (`StoreRule.bits`).
        clock
            The time as text (UTC, ISO 8601), for people.
        budget_bytes
            What may lie on disk, of this rank and attempt. Default: 1 GiB for ``flagged``, else no bound.
        queue_bytes
            What may wait to be written. Default: 256 MiB.
        background
            Write in a thread of the writer's own; otherwise `offer` writes before it returns, and nothing is ever let
            go of for a full queue.

        Raises
        ------
        WriterConflict
            This rank of the attempt has had its store.
        WriteFailed
            The operating system failed.
        """
        if budget_bytes is None and rule.kind == "flagged":
            budget_bytes = FLAGGED_BUDGET_BYTES
        settings = StoreSettings(
            run=run_id,
            attempt=attempt,
            rank=rank,
            keep=str(rule),
            rule_bits=rule_bits,
            budget_bytes=budget_bytes,
            queue_bytes=(queue_bytes or QUEUE_BYTES) if background else None,
            first_step=first_step,
            created=clock(),
        )
        write_settings(layout, settings)
        ledger = Ledger(layout, header_of(settings))
        return cls(_Shared(layout, settings, rule, ledger), background=background)

    def offer(self, step: int, make: Callable[[], KeptMicrobatch] | None, *, last_of_step: bool) -> None:
        """Take one microbatch that was recorded and is about to be handed over.

        Parameters
        ----------
        step
            Counted from 0; never falls.
        make
            Gives it, with buffers that are borrowed; None where the rule does not want it.
        last_of_step
            The rank hands over nothing more of this step.

        Raises
        ------
        WriteFailed
            An earlier one could not be written.
        WriterConflict
            This process is a fork of the writer.
        """
        if os.getpid() != self._pid:
            raise WriterConflict(
                f"a forked child may not write the store of rank {self._shared.settings.rank}",
                todo="hand over in the process that began",
            )
        self.check()
        if self._step is None or self._step.step != step:
            self._flush()
            self._step = _Step(step, self._num_offered)
            self._num_offered += 1
        if make is not None:
            self._take(self._step, make())
        if last_of_step:
            self._flush()

    def _take(self, step: _Step, kept: KeptMicrobatch) -> None:
        shared, size = self._shared, kept.num_bytes
        limit, budget = shared.settings.queue_bytes, shared.settings.budget_bytes
        reason = None
        if step.num_bytes + size > MOST_BYTES // 2:
            reason = LetGo.TOO_LARGE  # half of it is left for the header
        elif budget is not None and shared.used_bytes >= budget:
            reason = LetGo.BUDGET
        elif limit is not None and shared.pending_bytes + size > limit:
            reason = LetGo.QUEUE
        if reason is not None:
            shared.ledger.add(step.step, kept.microbatch, size, reason)
            return
        step.kept.append(kept.owned())
        step.num_bytes += size
        with shared.lock:
            shared.pending_bytes += size

    def _flush(self) -> None:
        job, self._step = self._step, None
        if job is None or not job.kept:
            return
        if self._thread is not None:
            self._shared.jobs.put(job)
        else:
            self._shared.write(job)
            self.check()

    def check(self) -> None:
        """Raise WriteFailed where something could not be written."""
        failure = self._shared.failure
        if failure is not None:
            if failure.todo is not None and "store" not in failure.todo:
                failure.todo = f"{failure.todo}, or keep less in the store"
            raise failure

    def wait(self, timeout_seconds: float = 30.0) -> None:
        """Wait until every whole step that was offered is written or let go of; for whoever reads it back at once."""
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            with self._shared.lock:
                waiting = self._shared.pending_bytes
            if self._thread is None or waiting <= (0 if self._step is None else self._step.num_bytes):
                return
            time.sleep(0.002)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was let go of so far, if anything."""
        counts = dict(self._shared.ledger.counts)
        if not counts:
            return ()
        total, rank = f"{sum(counts.values()):,} microbatches", self._shared.settings.rank
        return (f"the store of rank {rank} let go of {total} ({told(counts.items())}): see `dataguard store list`",)

    def close(self) -> None:
        """Write what waits, a step in hand included, and end the thread. Closing twice is fine; a fork only lets go.

        Raises
        ------
        WriteFailed
            Something could not be written.
        """
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._pid:
            return
        try:
            self._flush()
            if self._thread is not None:
                self._shared.jobs.put(None)
                self._thread.join()
            self.check()
        finally:
            self._shared.ledger.close()


def remove_stored(layout: Layout, attempt: int, step: int, rank: int) -> bool:
    """Remove one store file, and its step's folder where it was the last one there; False where there was none."""
    path = layout.store(attempt, step, rank)
    # Not durably: the folder may be gone the moment after, and a file that comes back is none that could mislead.
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise write_failed(path, error, doing="remove") from error
    # Other ranks' files still stand there, or another rank was faster.
    with contextlib.suppress(OSError):
        path.parent.rmdir()
    return True
