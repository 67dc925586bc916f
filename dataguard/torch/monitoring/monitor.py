"""How does a trainer log what it sees, on each rank, so that triage can hold it against the data?

`Monitor.log` keeps a few numbers of a step, `Monitor.log_samples` the loss of each sample. What is logged is checked
against what was delivered (`standing`), taken from its device without waiting (`values`), and written to the run's
telemetry at once, or as soon as it is there (`sink`). With it goes how long the trainer waited for the step's data.
Those who scrape are answered by each rank (`scraped`, `serving`).
Each rank has its own monitor: the mean over ranks hides the one that is ill. With a detector each logged loss is judged
at once, by all ranks alike (`detecting`).
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, SupportsIndex

import torch

from dataguard.core.address import Address
from dataguard.core.trainer import TrainerFacts
from dataguard.errors import UsageError
from dataguard.run.noting import note_checkpoint, note_facts
from dataguard.run.run import Run
from dataguard.torch.monitoring.decision import Decision, SkipBudget
from dataguard.torch.monitoring.judging import Judging
from dataguard.torch.monitoring.keeping import DATA_WAIT, Keeping
from dataguard.torch.monitoring.serving import LOOPBACK
from dataguard.torch.monitoring.standing import Delivers, Standing
from dataguard.torch.monitoring.values import Value, take, take_samples
from dataguard.torch.watching.watch import Watch, watch
from dataguard.triage.detect import Detector, DetectorSettings

__all__ = ["DATA_WAIT", "Monitor"]


class Monitor:
    r"""Logs what one rank sees in training.

    Parameters
    ----------
    run
        The run that the loader records.
    rank
        This data-parallel rank. Default: the loader's; without one, that of what is delivered in this process, else of
        the process group, else 0.
    loader
        The loader of this rank. It need not be given where it was made with the same `Run` object; it can be made
        before or after the monitor. Where nothing is delivered in this process, what is logged goes to the newest
        attempt, with a warning, since its steps cannot be held against anything.
    every
        Keep steps whose label is a multiple of this; all others are checked and left out.
    ahead
        Steps that the loader may have been asked for beyond the one that is logged. A trainer that fetches the next
        batch before it logs the last one needs 1.
    detector
        Judge each logged loss: True for the default detector, `DetectorSettings`, or a `Detector`. Then `log` gives a
        `Decision`, waits for the step's numbers (once, for all of them), and is collective where there is a process
        group: every rank logs the loss of the same steps.
    alerts
        Who is told what was found, by rank 0: callables, URLs of webhooks, paths of files for lines of JSON
        (`dataguard.triage.alerts`).
    cooldown_steps
        After an alert, others of its key are counted for so many steps instead of sent.
    budget
        Which updates `Decision.skip_update` leaves out, and how many before training stops (`SkipBudget`).
    group
        The data-parallel group that the detector speaks through. Default: the default group, where one was made.
    prometheus_port, prometheus_host
        Answer scrapes of Prometheus, each rank at this port plus its place on its machine (``LOCAL_RANK``); 0 takes a
        free one (`prometheus_address`). Default host: this machine alone; ``0.0.0.0`` lets whoever reaches it read.

    Raises
    ------
    UsageError
        The loader is of another run or rank, or `every`, `ahead`, the detector or who is to be told cannot be.
    EnvironmentFailed
        The port for scrapes is taken.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import torch
    >>> from dataguard import Corpus, Geometry, Plan
    >>> from dataguard.corpus import build_manifest_file
    >>> from dataguard.torch import ByteTransform, GuardedLoader
    >>> here = pathlib.Path(tempfile.mkdtemp())
    >>> (here / "web").mkdir()
    >>> _ = (here / "web" / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    >>> _ = build_manifest_file([str(here / "web")], here / "M.parquet")
    >>> run = Run.open(here / "run", plan=Plan(Corpus.open(here / "M.parquet"), seed=17, global_batch=2))
    >>> geometry = Geometry(world_size=1, microbatch_size=2)
    >>> with GuardedLoader(run, geometry=geometry, transform=ByteTransform(8), steps=2) as loader:
    ...     monitor = Monitor(run, loader=loader)
    ...     for step, microbatch in enumerate(loader):
    ...         losses = torch.tensor([2.0, 3.0])
    ...         monitor.log_samples(microbatch, losses)
    ...         monitor.log(step, loss=losses.mean(), lr=0.001)
    >>> from dataguard.run.telemetry_reading import telemetry_of_lineage
    >>> telemetry_of_lineage(run, names=["loss"])[["step", "name", "slot", "value"]].tolist()[:3]
    [(0, b'loss', 0, 2.0), (0, b'loss', 1, 3.0), (0, b'loss', -1, 2.5)]

    A counter that has parted from the loader's is refused:

    >>> monitor.log(2, loss=2.5)
    Traceback (most recent call last):
        ...
    dataguard.errors.AttemptError: step 2 was logged, and the step delivered to rank 0 of attempt 1 is 1
      found: of step 1 the rank was handed 1 microbatch, of later ones none
      allowed: step 1
      next: the two counters have parted; if the trainer counts from 1, create the run with first_label=1
    >>> monitor.close()
    """

    def __init__(
        self,
        run: Run,
        rank: int | None = None,
        loader: Delivers | None = None,
        every: int = 1,
        *,
        ahead: int = 0,
        detector: Detector | DetectorSettings | bool | None = None,
        alerts: Iterable[Any] = (),
        cooldown_steps: int = 100,
        budget: SkipBudget | None = None,
        group: Any = None,
        prometheus_port: int | None = None,
        prometheus_host: str = LOOPBACK,
    ) -> None:
        for name, value, least in (("every", every, 1), ("ahead", ahead, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(f"{name} {value!r} cannot be", allowed=f"a whole number of at least {least}")
        self._standing = Standing(run, rank, loader, ahead)
        self._every = every
        self._ahead = ahead
        self._watches: list[Watch] = []
        self._judging = Judging.of(
            self._standing, detector, alerts=alerts, cooldown_steps=cooldown_steps, budget=budget, group=group
        )
        self._keeping = Keeping(self._standing, self._judging, port=prometheus_port, host=prometheus_host)
        # Who drops a monitor, or ends without closing it, loses nothing: what is still on its way is waited for.
        self._let_go = weakref.finalize(self, self._keeping.close)

    @property
    def rank(self) -> int:
        """The data-parallel rank that it logs for; settled when it first does."""
        return self._standing.rank

    @property
    def step_in_hand(self) -> int | None:
        """The newest step of which something was handed over, as the trainer calls it; None before the first."""
        progress = self._standing.progress
        return None if progress is None or progress.step is None else self._standing.run.label(progress.step)

    @property
    def notes(self) -> tuple[str, ...]:
        """What an engineer should know of what is logged."""
        return self._standing.notes + (() if self._judging is None else self._judging.notes)

    @property
    def decision(self) -> Decision | None:
        """What was decided about the newest step that was judged; None before the first, and without a detector."""
        return None if self._judging is None else self._judging.newest

    @property
    def num_pending(self) -> int:
        """Values that are still on their way from a device."""
        return self._keeping.num_pending

    @property
    def prometheus_address(self) -> str | None:
        """Where scrapes are answered, ``host:port``; None where nobody asked for it."""
        return self._keeping.address

    def log(
        self,
        step: SupportsIndex,
        /,
        *,
        loss: Value | None = None,
        grad_norm: Value | None = None,
        lr: Value | None = None,
        **more: Value | None,
    ) -> Decision | None:
        """Keep numbers of a step; with a detector, judge them.

        With a detector, log before the optimizer's step, the loss and the gradient norm in one call: the loss is what
        a step is judged by, once. Where a loss scaler is used, give its scale as ``loss_scale``.

        Parameters
        ----------
        step
            The step as the trainer counts, from the run's `first_label` on: the one whose microbatches were handed
            over last. It may be logged several times; of two values of one name the later counts.
        loss, grad_norm, lr, more
            One number each: Python or NumPy numbers, tensors of one element on any device. Tensors keep no graph; CUDA
            is not waited for (but by a detector). None is left out, NaN and infinity are kept. Names: up to 64 bytes.

        Returns
        -------
        Decision or None
            What was found, and whether the update is to be skipped: the same on all ranks. None without a detector, and
            where the loss was not given.

        Raises
        ------
        AttemptError
            The step is not the one that was delivered; the message names both.
        AnswerNo
            More updates would be skipped than the budget allows: training stops, on all ranks at this step.
        RanksDisagree
            With a detector: ranks log different steps.
        UsageError
            A value is no number or not just one, or a name cannot be kept.
        WriteFailed
            The disk did not take it.
        WriterConflict
            A newer attempt has begun, another process logs for this rank, or this process is a fork.
        """
        number = self._standing.step_of(step)
        label = number + self._standing.run.first_label
        self._keeping.stepped(label)
        if label % self._every and self._judging is None:
            return None
        values = {"loss": loss, "grad_norm": grad_norm, "lr": lr, **more}
        if DATA_WAIT in values:
            raise UsageError(f"{DATA_WAIT} is recorded by the monitor itself", todo="give yours another name")
        if self._judging is None:
            self._keeping.put([number], take(values), with_wait=True)
            return None
        taken, seen = self._judging.take(label, values)
        if label % self._every == 0:
            self._keeping.put([number], taken, with_wait=True)  # written before anybody is waited for
        decision = self._judging.judge(label, seen)
        self._keeping.decided(decision)
        return None if loss is None else decision

    def log_samples(self, address: Address | Any, losses: Any) -> None:
        """Keep the loss of each sample of a microbatch: the most direct evidence there is of which sample did it.

        Parameters
        ----------
        address
            The microbatch as it was handed over (`TensorMicrobatch`), or its `Address`.
        losses
            One number a slot, shape (microbatch_size,), slots that deliver nothing included: a tensor on any device,
            an array or a list. Of a batch of a guarded loader, one a sample that it holds.

        Raises
        ------
        AttemptError
            The microbatch was not delivered to this rank, or is not of the step that was.
        UsageError
            Another shape, or no numbers.
        WriteFailed, WriterConflict
            As for `log`.
        """
        step, slots = self._standing.slots_of(address)
        taken = take_samples("loss", losses, len(slots))
        if (step + self._standing.run.first_label) % self._every == 0:
            self._keeping.put([step], taken, slots=slots)

    def record(self, step: SupportsIndex, values: Mapping[str, Value | None]) -> None:
        """Keep numbers of a step whatever `every` says: for what samples by a rhythm of its own.

        The step, the values and what is raised are as for `log`.
        """
        number = self._standing.step_of(step)
        self._keeping.put([number], take(values))
        if self._judging is not None:
            self._judging.hold(number + self._standing.run.first_label, values)

    def watch(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
        *,
        every: int = 100,
        step: Callable[[], int] | None = None,
        logits: Callable[[Any], torch.Tensor | None] | None = None,
        heads: bool | None = None,
    ) -> Watch:
        """Sample what goes on inside a model, every so many steps: see `dataguard.torch.watching.watch`.

        Parameters
        ----------
        model
            The module that the training loop calls (the wrapper, where there is one).
        optimizer
            One, several, or none: without one nothing about updates is sampled.
        every
            Steps whose label is a multiple of this are sampled, whatever the monitor's own `every` says.
        step
            Gives the step that the model is trained on now, as the trainer calls it. Default: `step_in_hand`; a trainer
            that fetches the next batch ahead must say it.
        logits
            Finds the logits in what the model gives, or says None. Default: its ``logits``, else its first tensor of
            two or more dimensions.
        heads
            Whether each attention head has a value of its own. Default: where the model has at most 512 of them.

        Returns
        -------
        Watch
            The handle: `remove` takes every hook off, its ``notes`` say what cannot be seen. `close` removes it, too.

        Raises
        ------
        UsageError
            `every` cannot be, something is no module or optimizer, or the loader runs `ahead` and nobody says the step.
        """
        if self._ahead and step is None:
            raise UsageError(
                "the step that the model is trained on cannot be told from what was handed over",
                found=f"ahead={self._ahead}: the next batch may have been fetched before the pass begins",
                todo="say it: watch(..., step=lambda: trainer.state.global_step), or the like",
            )
        watched = watch(self, model, optimizer, every=every, step=step, logits=logits, heads=heads)
        self._watches.append(watched)
        if self._judging is not None:
            self._judging.every = math.gcd(*(each.every for each in self._watches))
        return watched

    # -- what the run is told

    def checkpoint(self, next_step: int, path: str | os.PathLike[str]) -> None:
        """Tell the run where a checkpoint is kept, so that triage can name it; only that of rank 0 writes.

        `next_step` is the first step that its model was not trained on, as the trainer calls it; what is raised is as
        for `dataguard.run.noting.note_checkpoint`.
        """
        if self.rank == 0:
            note_checkpoint(self._standing.run, next_step, path, attempt=self._standing.attempt)

    def describe(self, facts: TrainerFacts) -> None:
        """Tell the run what the trainer is: model, optimizer, schedule, precision, changes that are planned.

        Every rank says it (rank 0 writes), before the first step or at any time later: changes that are planned are no
        events to the detector. What is raised is as for `dataguard.run.noting.note_facts`.
        """
        if self.rank == 0:
            progress = self._standing.progress
            note_facts(self._standing.run, facts, attempt=None if progress is None else progress.attempt)
        if self._judging is not None:
            self._judging.describe(facts)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs to go on judging as if nothing had happened: JSON-able, bounded, that of any rank.

        It belongs beside the loader's state of the same step. Without a detector it is empty.
        """
        return {} if self._judging is None else self._judging.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint, on any number of ranks, also at an earlier step than the last one judged.

        Raises
        ------
        UsageError
            It is no state of a monitor, or of a detector with other settings.
        """
        if self._judging is not None and state:
            self._judging.load_state_dict(state)

    # -- the end

    def flush(self) -> None:
        """Wait for values that are on their way from a device, and write them.

        Raises
        ------
        WriteFailed
            The disk did not take them; they are kept for another try.
        """
        self._keeping.flush()

    def close(self) -> None:
        """Write all there is, durably, and let go of the file; closing twice is fine. Nothing can be logged afterwards.

        Raises
        ------
        WriteFailed
            The disk did not take it.
        """
        for watched in self._watches:
            watched.remove()
        self._watches.clear()
        self._keeping.close()
        if self._judging is not None:
            self._judging.close()
        self._let_go.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()
