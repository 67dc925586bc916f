"""How is the next microbatch made while the trainer works on this one, by processes?

One `torch.utils.data.DataLoader` gives the planned microbatches, which the walk plans in this process, to its workers
in turn, a few together, and its answers come back in that order, however many workers there are. So their number, how
they are started and how far they are ahead never change what is delivered.

1. What was planned and not answered yet is kept here: it names what was due when a worker dies, and is given again
   when workers are started anew.
2. The DataLoader is asked with a short time-out; between two of them it is looked whether all workers live, and whether
   the longest wait is over.
3. Workers are daemons of this process, and end with it (`feeding.begin_worker`).

Without workers it is done here, at hand-over; a few microbatches are read and judged together.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import DataLoader

from dataguard.core.address import Address
from dataguard.errors import WorkerDied
from dataguard.loader.feed import Fed, Feeder
from dataguard.loader.feeding import Feeding
from dataguard.loader.walk import Planned
from dataguard.torch.feeding import Failed, Feed, WorkerDataset, begin_worker, received, with_tensors
from dataguard.torch.making import Recipe, message_of
from dataguard.torch.workers import (
    Workers,
    how_it_ended,
    leave_signals_alone,
    often_because,
    pickled_recipe,
    preload,
)

__all__ = ["Readings"]


_GROUPS_AHEAD = 2
"""Groups that a worker is ahead: one it is at, and one it goes on with."""
_READ_TOGETHER = 8
"""Microbatches that are read at once where there are no workers: their tensors are made one by one."""
_POLL_SECONDS = 1.0
_JOINED_SECONDS = 5.0
_GRACE_SECONDS = 2.0
_STARTED_SECONDS = 120.0


class Readings:
    """A `dataguard.loader.reading.Reading` for tensors; it knows the reading under way, so that it can be paused."""

    def __init__(self, recipe: Recipe, workers: Workers) -> None:
        self._recipe = recipe
        self._workers = workers
        self._shipped = pickled_recipe(recipe) if workers.number and workers.start_method != "fork" else recipe
        self._under_way: weakref.ref[_ByWorkers] | None = None

    def __call__(self, feeding: Feeding, feeder: Feeder, planned: Iterable[Planned]) -> Iterator[Fed]:
        """Begin to read."""
        if not self._workers.number:
            return _here(Feed(feeder, self._recipe), planned, where=self._recipe.where, pin=self._workers.pin_memory)
        reading = _ByWorkers(WorkerDataset(feeding, self._shipped), self._workers, planned, where=self._recipe.where)
        self._under_way = weakref.ref(reading)
        # Now and not at the first microbatch: a fork has to come before this process begins threads of its own.
        reading.start()
        return reading

    def pause(self) -> None:
        """End the workers until the next microbatch is asked for."""
        reading = None if self._under_way is None else self._under_way()
        if reading is not None:
            reading.pause()


def _here(feed: Feed, planned: Iterable[Planned], *, where: Callable[[Address], str], pin: bool) -> Iterator[Fed]:
    """In this process: read and judged a few at a time, made at hand-over."""
    due = _Due(planned, num_single=1, together=_READ_TOGETHER)
    for group in due:
        due.waiting.clear()
        feeding, num_fed = feed(group), 0
        while num_fed < len(group):
            try:
                fed, tensors, num_loss_tokens = next(feeding)
            except Exception as error:
                failed = Failed.of(group[num_fed].address, error)
                raise failed.raised(where(failed.address)) from error
            fed = with_tensors(fed, tensors, num_loss_tokens)
            num_fed += 1
            yield replace(fed, tensors=fed.tensors.pin_memory()) if pin else fed
    if due.failure is not None:
        raise due.failure


class _Due:
    """What is planned, in groups, as the DataLoader's sampler; groups that were not answered yet are kept.

    The DataLoader holds this and not the reading, so that a reading that is dropped ends its workers at once. The first
    groups are of one microbatch, so that the first microbatch is there as soon as it can be.

    Parameters
    ----------
    num_single
        How many groups of one come first, each time it is gone through.
    together
        Microbatches of a group.
    """

    def __init__(self, planned: Iterable[Planned], *, num_single: int, together: int) -> None:
        self._planned = iter(planned)
        self._num_single = num_single
        self._together = together
        self.waiting: deque[Sequence[Planned]] = deque()
        self.failure: Exception | None = None
        """Of the plan; it is raised when all before it is handed over."""
        self._over = False

    def __iter__(self) -> Iterator[Sequence[Planned]]:
        yield from list(self.waiting)
        num_groups = 0
        while not self._over:
            group = self._group(1 if num_groups < self._num_single else self._together)
            num_groups += 1
            if group:
                self.waiting.append(group)
                yield group

    def _group(self, size: int) -> Sequence[Planned]:
        group: list[Planned] = []
        try:
            while len(group) < size:
                group.append(next(self._planned))
        except StopIteration:
            self._over = True
        except Exception as error:  # noqa: BLE001 - raised in its turn
            self.failure, self._over = error, True
        return group


class _ByWorkers:
    """One DataLoader over what is planned."""

    def __init__(
        self,
        dataset: WorkerDataset,
        workers: Workers,
        planned: Iterable[Planned],
        *,
        where: Callable[[Address], str],
    ) -> None:
        self._dataset = dataset
        self._where = where
        self._settings = workers
        together = max(1, workers.prefetch_factor // _GROUPS_AHEAD)
        self._groups_ahead = -(-workers.prefetch_factor // together)
        self._due = _Due(planned, num_single=workers.number * self._groups_ahead, together=together)
        self._ready: deque[Fed | Failed] = deque()
        """Answers that came with those before them, and were not handed over yet."""
        self._answers: Iterator[torch.Tensor] | None = None
        self._processes: list[Any] = []
        self._num_answers = 0
        """Groups that were answered since the workers were started."""
        self._closed = False
        self.waiting_since: float | None = None
        """Since when the consumer waits for a microbatch."""
        self.given_up = False
        """The wait was too long, and the workers were killed."""

    def start(self) -> None:
        """Start the workers; they begin to read at once."""
        settings = self._settings
        context = multiprocessing.get_context(settings.start_method)
        if settings.start_method == "forkserver":
            preload(context)
        with warnings.catch_warnings():
            # How many workers a machine bears is for who asked for them to say.
            warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)
            # Workers open everything for themselves, and hold no lock of this process.
            warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
            loader: DataLoader[torch.Tensor] = DataLoader(
                self._dataset,
                batch_size=None,
                sampler=self._due,
                num_workers=settings.number,
                prefetch_factor=self._groups_ahead,
                collate_fn=_as_it_is,
                pin_memory=settings.pin_memory,
                timeout=_POLL_SECONDS,
                worker_init_fn=begin_worker,
                multiprocessing_context=context,
                generator=torch.Generator(),
            )
            self._answers = iter(loader)
        self._processes = list(getattr(self._answers, "_workers", ()))
        self._num_answers = 0
        leave_signals_alone(self._answers)
        watched = (weakref.ref(self), self._processes)
        threading.Thread(target=_watch, args=watched, name="dataguard-watch", daemon=True).start()

    def __iter__(self) -> Iterator[Fed]:
        return self

    def __next__(self) -> Fed:
        if self._closed:
            raise StopIteration
        if not self._ready:
            self._receive()
        answer = self._ready.popleft()
        if isinstance(answer, Failed):
            raise answer.raised(self._where(answer.address))
        return answer

    def _receive(self) -> None:
        """Wait for the next group."""
        if self._answers is None:
            self.start()
        try:
            block = self._answer()
        except StopIteration:
            if self._due.failure is not None:
                raise self._due.failure from None
            raise
        self._ready += received(block)
        planned = self._due.waiting.popleft()
        self._num_answers += 1
        first = self._ready[0]
        address = first.address if isinstance(first, Failed) else first.planned.address
        assert address == planned[0].address, "workers answer in order"

    def _answer(self) -> torch.Tensor:
        assert self._answers is not None
        began = self.waiting_since = time.monotonic()
        while True:
            try:
                block = next(self._answers)
            except StopIteration:
                raise
            except Exception as error:
                waited = time.monotonic() - began
                if self.given_up or waited >= self.limit_seconds():
                    raise self._hanging(waited) from error
                self._look_for_dead(error)
                if "timed out" not in str(error):
                    self._wait_for_death(error)
                    raise WorkerDied(
                        f"the answer of {self._worker(self._num_answers)} did not come through",
                        found=f"{type(error).__name__}: {message_of(error)}; {self._told_due()}",
                        todo=_TODO,
                    ) from error
            else:
                self.waiting_since = None
                return block

    def limit_seconds(self) -> float:
        """How long the consumer waits now: until each worker has answered once, for its start as well."""
        begun = self._num_answers >= len(self._processes)
        limit = self._settings.timeout_seconds * (len(self._due.waiting[0]) if self._due.waiting else 1)
        return limit if begun else max(limit, _STARTED_SECONDS)

    def _wait_for_death(self, error: Exception) -> None:
        """A worker whose connection broke is dying, but may not be seen as dead yet."""
        stop = time.monotonic() + _JOINED_SECONDS
        while time.monotonic() < stop:
            time.sleep(0.05)
            self._look_for_dead(error)

    def _look_for_dead(self, error: Exception) -> None:
        """WorkerDied where one is dead, naming what it was at."""
        for number, process in enumerate(self._processes):
            if process.is_alive():
                continue
            # What it has answered and nobody took yet went with it: it held the memory of that.
            groups = (group for i, group in enumerate(self._due.waiting) if self._turn(i) == number)
            held = [self._where(each.address) for group in groups for each in group]
            raise WorkerDied(
                f"worker {number} of {len(self._processes)} (process {process.pid}) {how_it_ended(process.exitcode)}",
                found=f"it had {' and '.join(held) or 'nothing'}; {self._told_due()}",
                todo=_TODO
                + often_because(
                    process.exitcode,
                    imported=not self._num_answers and self._settings.start_method != "fork",
                ),
            ) from error

    def _hanging(self, waited: float) -> WorkerDied:
        # Where the watch gave up, this process hung at the answer of any of them.
        who = f"one of {len(self._processes)} workers" if self.given_up else self._worker(self._turn(0))
        self.give_up()
        return WorkerDied(
            f"{who} has not answered for {waited:,.0f} seconds",
            found=self._told_due(),
            allowed=f"{self.limit_seconds():g} seconds (worker_timeout_seconds={self._settings.timeout_seconds:g})",
            todo=_TODO + "; a transform that is slow needs more workers or a longer time-out",
        )

    def give_up(self) -> None:
        """Wait for the workers no more."""
        self.given_up = True
        for process in self._processes:
            process.kill()

    def _turn(self, ahead: int) -> int:
        """Which worker has the group that stands so far behind the next one: they take turns."""
        return (self._num_answers + ahead) % len(self._processes)

    def _worker(self, number: int) -> str:
        number %= len(self._processes)
        return f"worker {number} of {len(self._processes)} (process {self._processes[number].pid})"

    def _told_due(self) -> str:
        return (
            f"{self._where(self._due.waiting[0][0].address)} was due next" if self._due.waiting else "nothing was due"
        )

    def pause(self) -> None:
        """End the workers; what they were ahead is read again by those that are started next."""
        answers, self._answers = self._answers, None
        if answers is None:
            return
        shut_down = getattr(answers, "_shutdown_workers", None)
        if shut_down is not None:
            shut_down()
        del answers
        for process in self._processes:
            process.join(_JOINED_SECONDS)
            if process.is_alive():
                process.kill()
                process.join(_JOINED_SECONDS)
        self._processes = []

    def close(self) -> None:
        """End the workers for good."""
        self._closed = True
        self.pause()


_TODO = "resume from the last checkpoint; all that was handed over is recorded"


def _watch(reading: weakref.ref[_ByWorkers], processes: list[Any]) -> None:
    """Give up workers that somebody has waited for too long, where he waits in a call that knows no time-out.

    Such is the one that fetches the memory of an answer from a worker: one that was stopped after it answered never
    gives it.
    """
    while True:
        time.sleep(_POLL_SECONDS)
        waiting = reading()
        if waiting is None or waiting._processes is not processes or waiting.given_up:
            return
        since = waiting.waiting_since
        if since is not None and time.monotonic() - since > waiting.limit_seconds() + _GRACE_SECONDS:
            waiting.give_up()
            return
        del waiting


def _as_it_is(block: Any) -> Any:
    return block
