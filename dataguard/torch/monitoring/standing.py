"""Is the step that a trainer names the one that was delivered to it?

Trainer and loader both count steps. What was handed over last stands in `Run.progress`, where the loader beside the
monitor puts it; a step logged that is another one means that the two counters have parted, and whatever is concluded
from such a log about data would be about other data. So it is an error, and names both.

Which rank this is: the one that was given; else the loader's; else the one rank that is delivered to in this process;
else that of the process group; else 0.
"""

from __future__ import annotations

import operator
import warnings
from typing import Any, Protocol, SupportsIndex

import torch.distributed as dist

from dataguard.core.address import Address
from dataguard.errors import AttemptError, UsageError
from dataguard.plan.attempts import AttemptPlan
from dataguard.plan.steps import Steps
from dataguard.run.progress import Progress
from dataguard.run.run import Run
from dataguard.torch.ranks.place import group_of

__all__ = ["Delivers", "Standing"]


class Delivers(Protocol):
    """What delivers to a rank in this process: a GuardedLoader, or a Loader."""

    @property
    def run(self) -> Run:
        """The run that is recorded."""

    @property
    def rank(self) -> int:
        """The data-parallel rank."""


class Standing:
    """At which step of which attempt a rank of this process stands.

    Parameters
    ----------
    run, rank, loader
        As `Monitor` takes them.
    ahead
        Steps by which the loader may be ahead of the one logged.
    """

    def __init__(self, run: Run, rank: int | None, loader: Delivers | None, ahead: int) -> None:
        if loader is not None:
            if not isinstance(getattr(loader, "run", None), Run) or not hasattr(loader, "rank"):
                raise UsageError(
                    f"a {type(loader).__name__} does not say what it delivers",
                    allowed="the GuardedLoader, or what guard() made",
                )
            if loader.run.run_id != run.run_id:
                raise UsageError(
                    "monitor and loader are of different runs",
                    found=f"the loader records {loader.run.path}, the monitor {run.path}",
                )
            if rank not in (None, loader.rank):
                raise UsageError(f"rank {rank} was given, and the loader is that of rank {loader.rank}")
            run = loader.run  # its progress is kept there
            if not getattr(loader, "records", True):
                raise _not_here(loader.rank)
        self.run = run
        self.notes: tuple[str, ...] = ()
        """What an engineer should know."""
        self._rank = rank
        self._loader = loader
        self._ahead = ahead
        self._undelivered: int | None = None
        """The attempt, where nothing is delivered in this process."""
        self._known: tuple[int, AttemptPlan, Steps] | None = None

    @property
    def rank(self) -> int:
        """The data-parallel rank of this process, as far as is known by now; `settle` ends that."""
        if self._rank is not None:
            return self._rank
        if self._loader is not None:
            return self._loader.rank
        if len(self.run.progress) == 1:
            return next(iter(self.run.progress))
        group = group_of(None)
        return 0 if group is None else dist.get_rank(group)

    def settle(self) -> int:
        """The rank, for good: something is written for it.

        Raises
        ------
        UsageError
            Another process of the replica logs for the rank.
        """
        rank = self.rank
        progress = self.run.progress.get(rank)
        if progress is not None and not progress.records:
            raise _not_here(rank)
        self._rank = rank
        return rank

    @property
    def progress(self) -> Progress | None:
        """What was handed over to the rank in this process; None where nothing delivers to it here."""
        return self.run.progress.get(self.rank)

    @property
    def attempt(self) -> int:
        """The attempt that delivers to the rank; where nothing does in this process, the newest, which is told once.

        Raises
        ------
        AttemptError
            The loader has not begun.
        NotInRun
            No attempt has begun.
        """
        progress = self.progress
        if progress is not None:
            return progress.attempt
        if self._loader is not None:
            raise AttemptError(
                f"nothing can be logged yet: the loader of rank {self.rank} has not begun",
                todo="log a step after its microbatches were handed over",
            )
        if self._undelivered is None:
            self._undelivered = self.run.newest_leaf()
            note = (
                f"nothing delivers to rank {self.rank} of {self.run.path} in this process: what is logged goes to the "
                f"newest attempt, {self._undelivered}, and its steps cannot be held against what was delivered"
            )
            self.notes = (note,)
            warnings.warn(note, stacklevel=5)
        return self._undelivered

    @property
    def plan(self) -> AttemptPlan:
        """The attempt's plan."""
        return self._facts()[0]

    @property
    def steps(self) -> Steps:
        """The steps of the attempt's lineage."""
        return self._facts()[1]

    def _facts(self) -> tuple[AttemptPlan, Steps]:
        attempt = self.attempt
        if self._known is None or self._known[0] != attempt:
            self._known = (attempt, self.run.attempts().attempt(attempt), self.run.steps_of(attempt))
        return self._known[1:]

    # -- is it that step

    def step_of(self, label: SupportsIndex) -> int:
        """The step, counted from 0, that a trainer calls `label`; it is one that was just delivered.

        Raises
        ------
        AttemptError
            It is another one.
        UsageError
            It is no whole number.
        """
        step = _whole(label) - self.run.first_label
        progress = self.progress
        if progress is None or progress.step != step:
            self._check(step, progress)
        return step

    def slots_of(self, microbatch: Any) -> tuple[int, range]:
        """Step and slots of a microbatch that was just delivered, given itself or by its address.

        Raises
        ------
        AttemptError
            It is of another attempt, rank or step, or was not handed over yet.
        UsageError
            It is neither.
        """
        address = microbatch if isinstance(microbatch, Address) else getattr(microbatch, "address", None)
        if not isinstance(address, Address):
            raise UsageError(
                f"a {type(microbatch).__name__} does not say which microbatch it is",
                allowed="the TensorMicrobatch that was handed over, or its address",
            )
        attempt = getattr(microbatch, "attempt", self.attempt)
        if (attempt, address.rank) != (self.attempt, self.rank):
            raise AttemptError(
                f"a microbatch of attempt {attempt}, rank {address.rank} was logged by the monitor of attempt "
                f"{self.attempt}, rank {self.rank}",
                todo="log each microbatch on the rank that it was handed to",
            )
        progress = self.progress
        if progress is None or progress.step != address.step:
            self._check(address.step, progress)
        elif address.microbatch >= progress.num_microbatches:
            raise AttemptError(
                f"microbatch {address.microbatch} of step {self.run.label(address.step):,} was logged, and was not "
                "handed over yet",
                found=f"of that step the rank was handed {_counted(progress.num_microbatches)}",
            )
        slots = getattr(microbatch, "slots", None)
        if slots is None:
            size = self.steps.size_of(address.step)
            slots = self.plan.geometry.slots(global_batch=size, rank=address.rank, microbatch=address.microbatch)
        progress = self.progress
        short = None if progress is None else progress.short.get((address.step, address.microbatch))
        return address.step, slots if short is None else slots[:short]

    def _check(self, step: int, progress: Progress | None) -> None:
        """AttemptError where a step other than the newest may not be logged."""
        label, rank, attempt = step + self.run.first_label, self.rank, self.attempt
        where = f"rank {rank} of attempt {attempt}"
        first = self.plan.fork_step
        if progress is None:
            if step < first:
                raise AttemptError(
                    f"step {label:,} was logged, and attempt {attempt} begins at step {self.run.label(first):,}",
                    todo="the two counters have parted; see what the trainer counts from",
                )
            return
        if progress.step is None:
            raise AttemptError(
                f"step {label:,} was logged, and nothing has been delivered to {where} yet",
                found=f"the attempt begins with step {self.run.label(first):,}",
                todo="log a step after its microbatches were handed over",
            )
        if first <= step < progress.step and self._is_so_far_behind(step, progress.step):
            return
        newest = self.run.label(progress.step)
        raise AttemptError(
            f"step {label:,} was logged, and the step delivered to {where} is {newest:,}",
            found=f"of step {newest:,} the rank was handed {_counted(progress.num_microbatches)}, of later ones none",
            allowed=f"step {newest:,}" + (f", or up to {self._ahead:,} before it" if self._ahead else ""),
            todo=f"the two counters have parted; {self._advice(label - newest)}",
        )

    def _is_so_far_behind(self, step: int, newest: int) -> bool:
        """Whether a step was delivered at most `ahead` steps before the newest one."""
        at = step
        for _ in range(self._ahead):
            at = self.steps.next_delivered(at + 1)
            if at >= newest:
                break
        return self._ahead > 0 and at == newest and self.steps.next_delivered(step) == step

    def _advice(self, difference: int) -> str:
        first = self.run.first_label
        if difference == 1 and first == 0:
            return "if the trainer counts from 1, create the run with first_label=1"
        if difference == -1 and first == 1:
            return "run.label(microbatch.step) is what the trainer calls a step; microbatch.step counts from 0"
        if difference == -1:
            return "if the trainer asks for the next batch before it logs the last, Monitor(..., ahead=1)"
        return "the trainer must count as the loader does, from the state that was loaded on"


def _not_here(rank: int) -> UsageError:
    """Two processes that log for one rank would write over each other; the one that records has all of it."""
    return UsageError(
        f"this process does not log for rank {rank}: another one of its replica records, and logs",
        allowed="one monitor for each data-parallel rank, where loader.records is true",
        todo="make a Monitor, and watch a model with it, where loader.records is true alone",
    )


def _counted(num_microbatches: int) -> str:
    return f"{num_microbatches:,} microbatch{'' if num_microbatches == 1 else 'es'}"


def _whole(label: SupportsIndex) -> int:
    try:
        number = operator.index(label)
    except TypeError:
        number = None
    if number is None or isinstance(label, bool):
        raise UsageError(f"step {label!r} cannot be", allowed="a whole number, as the trainer counts")
    return number
