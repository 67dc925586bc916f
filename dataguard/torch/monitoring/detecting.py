"""How does the detector of training logs run in training, the same on every rank?

Once a step all ranks show each other their numbers (`judged`, one collective), and from then on all of them do the same
with them:

1. Loss and gradient norm are averaged over ranks, the largest attention logits taken, and given to the `Detector`.
2. Each rank is held against the others, or against its own past (`rank_outliers`): the mean hides the one that is ill.
3. What follows for this step's update is decided (`decision`), within a budget.

So the state is the same everywhere, and what rank 0 saves in a checkpoint is that of all ranks, on any number of them.
Rank 0 alone writes to the journal (`SpikeFound`, once for each event, when its class is known; those that are open when
the monitor is closed, as far as they are known then) and sends alerts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.core.trainer import TrainerFacts
from dataguard.errors import UsageError
from dataguard.run.events import SpikeFound, TrainerDescribed
from dataguard.run.notes import noted
from dataguard.run.noting import note_once
from dataguard.run.run import Run
from dataguard.torch.monitoring.decision import Decision, SkipBudget, Skips
from dataguard.torch.monitoring.gathering import Gathering
from dataguard.torch.monitoring.judged import LOSS_SCALE, Layout, Seen, reduced, row_of
from dataguard.torch.monitoring.rank_outliers import RankWatch
from dataguard.torch.monitoring.telling import alert_of_event, alert_of_rank
from dataguard.triage.alerts import Alerts
from dataguard.triage.detect import Detector, DetectorSettings

__all__ = ["ATTENTION", "Detecting", "detector_of"]

ATTENTION = "attention_logit_max/"
_MOST_LONE = 1024
_FORMAT = "dataguard-monitor-1"

Judges = Detector | DetectorSettings
"""A detector of one's own, or the settings of one that is made when the first step is logged."""


def detector_of(given: Any) -> Judges | None:
    """What `Monitor(detector=...)` was given; None where it is off.

    >>> detector_of(True).name, detector_of(None)
    ('default', None)
    """
    if given is None or given is False:
        return None
    if given is True:
        return DetectorSettings()
    if isinstance(given, Detector | DetectorSettings):
        return given
    raise UsageError(
        f"a {type(given).__name__} does not detect anything", allowed="True, DetectorSettings, a Detector, or None"
    )


class Detecting:
    """The detector of one monitor; made when the first step is logged, since the attempt is known then.

    Parameters
    ----------
    run
        The run, for its journal.
    judges
        The detector, or its settings.
    gathering
        The other ranks.
    alerts, budget
        Who is told, and which updates are left out.
    """

    def __init__(
        self,
        run: Run,
        judges: Judges,
        gathering: Gathering,
        *,
        alerts: Alerts,
        budget: SkipBudget,
    ) -> None:
        self._run = run
        self._gathering = gathering
        self._alerts = alerts
        self._skips = Skips(budget)
        self._detector = judges if isinstance(judges, Detector) else Detector(judges)
        for step in sorted(self._changes_told()):
            self._detector.add_change(step)
        self._ranks = {name: RankWatch(name, gathering.num_rows) for name in ("loss", "grad_norm")}
        self._watched = self._agreed = Layout()
        self._rising: dict[tuple[str, int], float] = {}
        """Signal and start of rises that go on -> the value that began each."""
        self._noted: dict[tuple[str, int], None] = {}
        self._lone: dict[int, int] = {}
        """Step -> the one rank that lay high there."""
        self._seconds = 0.0
        self._clock: float | None = None
        self.newest: Decision | None = None
        """The last step that was judged."""

    @property
    def world_size(self) -> int:
        """Ranks of the attempt that it was made for."""
        return self._gathering.world_size

    # -- what is known beforehand

    def _changes_told(self) -> frozenset[int]:
        """Steps at which something changes by intention: the same on all ranks, whoever reads the journal when."""
        told: set[int] = set()
        if self._gathering.rank == 0:
            read = self._run.read()
            told |= {change.step for _, note in noted(read.entries, TrainerDescribed) for change in note.facts.changes}
            if len(self._run.attempts(read)):
                for plan in self._run.attempts(read).lineage():
                    starts = [each.start for each in plan.mixtures] + [each.start for each in plan.batch_sizes]
                    if plan.fork_step and plan.start_position in starts:
                        told.add(self._run.label(plan.fork_step))
        shared: frozenset[int] = self._gathering.from_first(frozenset(told))
        return shared

    def add_changes(self, facts: TrainerFacts) -> None:
        """The trainer plans changes from now on; every rank says so."""
        for change in facts.changes:
            self._detector.add_change(change.step)

    def watches(self, names: Iterable[str], every: int) -> None:
        """Names that this rank samples every so many steps."""
        self._watched = Layout(names=tuple(sorted({*self._watched.names, *names})), every=every)

    # -- one step

    def judge(self, label: int, values: Mapping[str, float], sampled: Mapping[str, float], *, attempt: int) -> Decision:
        """Judge a step, with all ranks; collective.

        Parameters
        ----------
        label
            The step as the trainer calls it.
        values
            Of this rank: ``loss``, and ``grad_norm`` and ``loss_scale`` where they are known.
        sampled
            Largest attention logits by name, where they were sampled at this step.
        attempt
            In which it was trained.

        Raises
        ------
        AnswerNo
            The budget of skipped updates is used up; on all ranks at once.
        RanksDisagree
            Ranks log different steps.
        WriteFailed
            The journal cannot be written (rank 0).
        """
        agreed = self._agreed
        if self._gathering.num_rows == 1:
            agreed = self._watched  # nobody else is to know it first
        row = row_of(label, values, seconds=self._tick(), watched=self._watched, agreed=agreed, sampled=sampled)
        seen = reduced(label, self._gathering.gather(row), agreed)
        self._agreed = self._watched if seen.agree_on_names else Layout()
        return self._judge(label, seen, attempt)

    def _judge(self, label: int, seen: Seen, attempt: int) -> Decision:
        if self._detector.newest is not None and label <= self._detector.newest:
            self._go_back(label)
        noticed = self._detector.observe(
            label, loss=seen.mean_loss, grad_norm=seen.mean_grad_norm, time=seen.seconds, more=seen.more
        )
        outliers = (*self._ranks["loss"].observe(seen.loss), *self._ranks["grad_norm"].observe(seen.grad_norm))
        self._note_lone(label, seen)
        began = tuple(self._with_rank(each.event) for each in noticed if each.kind == "began")
        ended = tuple(self._with_rank(each.event) for each in noticed if each.kind == "ended")
        reason = self._reason(label, seen, began)
        for event in ended:
            self._rising.pop((event.signal, event.start), None)
        skips = bool(reason) and not self._gathering.is_alone
        decision = Decision(
            step=label,
            loss=float("nan") if seen.mean_loss is None else seen.mean_loss,
            grad_norm=seen.mean_grad_norm,
            began=began,
            ended=ended,
            nonfinite_ranks=seen.nonfinite,
            outliers=outliers,
            skip_update=skips,
            reason=reason if skips else "",
        )
        self.newest = decision
        self._tell(decision, attempt)
        if skips:
            self._skips.add(label, reason)
        else:
            self._skips.keep(label)
        return decision

    def _go_back(self, label: int) -> None:
        """What was found from a step on is found again, since the trainer went back to it."""
        self._rising = {key: value for key, value in self._rising.items() if key[1] < label}
        self._noted = {key: None for key in self._noted if key[1] < label}
        self._lone = {step: rank for step, rank in self._lone.items() if step < label}

    def _tick(self) -> float:
        """Seconds of training so far: what lies between two attempts is no stall."""
        now = time.monotonic()
        if self._clock is not None:
            self._seconds += now - self._clock
        self._clock = now
        return self._seconds

    def _reason(self, label: int, seen: Seen, began: tuple[SpikeEvent, ...]) -> str:
        """Why the update should be left out; empty where it should not."""
        now = {"loss": seen.mean_loss, "grad_norm": seen.mean_grad_norm}
        rises = self._rises(label, now, began)
        on = self._skips.budget.on
        if on == "never":
            return ""
        if seen.nonfinite:
            # A loss scaler leaves out an update whose gradients overflow, and must be let to lower its scale.
            if not seen.nonfinite_losses and LOSS_SCALE in seen.more:
                return ""
            what = "loss" if seen.nonfinite_losses else "gradient norm"
            where = seen.nonfinite_losses or seen.nonfinite
            shown = ", ".join(map(str, where[:8])) + (f" and {len(where) - 8:,} more" if len(where) > 8 else "")
            return (
                f"{what} is not finite on rank {shown}" if self._gathering.world_size > 1 else f"{what} is not finite"
            )
        return rises if on == "spike" else ""

    def _rises(self, label: int, now: Mapping[str, float | None], began: tuple[SpikeEvent, ...]) -> str:
        """Whether a rise begins at this step, or one that goes on is no lower than where it began."""
        for (signal, start), first in self._rising.items():
            value = now[signal]
            if value is not None and value >= first:
                return f"{signal} {value:.4g} is no lower than at step {start:,}, where it rose"
        reason = ""
        for event in began:
            value = now.get(event.signal)
            is_rise = event.event_class not in (EventClass.LOSS_DIP, EventClass.STALL, EventClass.CREEPING_DRIFT)
            if value is not None and np.isfinite(value) and is_rise and event.peak == label:
                self._rising[event.signal, event.start] = value
                reason = f"{event.signal} {value:.4g} stands out"
        return reason

    # -- which rank

    def _note_lone(self, label: int, seen: Seen) -> None:
        lone = self._ranks["loss"].lone
        if len(seen.nonfinite) == 1:
            lone = seen.nonfinite[0]
        elif seen.nonfinite:
            lone = None
        if lone is not None and self._gathering.num_rows > 1:
            self._lone[label] = lone
            while len(self._lone) > _MOST_LONE:
                del self._lone[next(iter(self._lone))]

    def _with_rank(self, event: SpikeEvent) -> SpikeEvent:
        """The event with the rank that alone showed its peak, where there is one."""
        rank = self._lone.get(event.peak)
        if rank is None or event.rank is not None or event.event_class is EventClass.CREEPING_DRIFT:
            return event
        return replace(event, rank=rank)

    # -- who is told

    def _tell(self, decision: Decision, attempt: int) -> None:
        """On every rank, so that all hold the same state; only those of rank 0 reach somebody."""
        run = str(self._run.path)
        for event in decision.ended:
            self._note(event, attempt)
        for is_over, events in ((False, decision.began), (True, decision.ended)):
            for event in events:
                self._alerts.send(alert_of_event(event, run, attempt, decision.step, is_over=is_over))
        for outlier in decision.outliers:
            if outlier.is_persistent:
                self._alerts.send(alert_of_rank(outlier, run, attempt, decision.step, self._gathering.world_size))

    def _note(self, event: SpikeEvent, attempt: int) -> None:
        """Write an event into the journal, once."""
        key = (event.signal, event.start)
        if key in self._noted:
            return
        self._noted[key] = None
        while len(self._noted) > self._detector.settings.num_most_events:
            del self._noted[next(iter(self._noted))]
        if self._gathering.rank != 0:
            return
        step = self._run.step(event.peak)
        plans = self._run.attempts()
        plan = plans.attempt(attempt)
        while step < plan.fork_step and plan.parent is not None:
            plan = plans.attempt(plan.parent)  # it began before this attempt did
        note = SpikeFound(
            attempt=plan.number,
            event_class=event.event_class,
            start=self._run.step(event.start),
            stop=self._run.step(event.stop),
            peak=step,
            size_nats=event.size_nats,
            sigmas=event.sigmas,
            aftermath_nats=event.aftermath_nats,
            grad_norm_ratio=event.grad_norm_ratio,
            signal=event.signal,
            rank=event.rank,
            detector=self._detector.settings.name,
        )
        note_once(self._run, note)

    def close(self, attempt: int) -> None:
        """Write down what is not over yet."""
        for event in self._detector.finish():
            self._note(self._with_rank(event), attempt)

    # -- checkpoint

    def state_dict(self) -> dict[str, Any]:
        """JSON-able, bounded, and the same on all ranks but for their clocks."""
        return {
            "format": _FORMAT,
            "detector": self._detector.state_dict(),
            "ranks": {name: watch.state_dict() for name, watch in self._ranks.items()},
            "skips": self._skips.state_dict(),
            "rising": [[signal, start, value] for (signal, start), value in self._rising.items()],
            "noted": [list(key) for key in self._noted],
            "lone": [list(each) for each in self._lone.items()],
            "seconds": self._seconds,
        }

    @staticmethod
    def check(state: Mapping[str, Any]) -> None:
        """UsageError where it is no state of this kind."""
        if not isinstance(state, Mapping) or state.get("format") != _FORMAT:
            raise UsageError("this is no state of a monitor", todo="give what Monitor.state_dict() gave")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint, on any number of ranks."""
        self.check(state)
        self._detector.load_state_dict(state["detector"])
        for name, watch in self._ranks.items():
            watch.load_state_dict(state["ranks"][name])
        self._skips.load_state_dict(state["skips"])
        self._rising = {(str(signal), int(start)): float(value) for signal, start, value in state["rising"]}
        self._noted = {(str(signal), int(start)): None for signal, start in state["noted"]}
        self._lone = {int(step): int(rank) for step, rank in state["lone"]}
        self._seconds, self._clock = float(state["seconds"]), None
