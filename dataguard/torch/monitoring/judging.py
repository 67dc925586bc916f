"""Which call of a monitor judges a step, and by which of the numbers that it was given?

A trainer may log a step in several calls. The one that gives the loss judges it, once; gradient norm and loss scale
count if they come with it or before. What hooks sampled in the step's forward passes (largest attention logits by
block) is taken with it: all in one copy from the device, and then one wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from dataguard.core.trainer import MonitoringFacts, TrainerFacts
from dataguard.errors import UsageError
from dataguard.run.noting import note_facts
from dataguard.torch.monitoring.decision import Decision, SkipBudget
from dataguard.torch.monitoring.detecting import ATTENTION, Detecting, Judges, detector_of
from dataguard.torch.monitoring.gathering import Gathering
from dataguard.torch.monitoring.judged import LOSS_SCALE
from dataguard.torch.monitoring.standing import Standing
from dataguard.torch.monitoring.values import Taken, Value, take
from dataguard.triage.alerts import Alerts
from dataguard.triage.respond import facts_of

__all__ = ["Judging"]

_JUDGED_BY = ("loss", "grad_norm", LOSS_SCALE)


class Judging:
    """The judging side of a monitor; made by `of`."""

    def __init__(
        self, standing: Standing, judges: Judges, *, alerts: Alerts, cooldown_steps: int, budget: SkipBudget, group: Any
    ) -> None:
        self._standing = standing
        self._judges = judges
        self._alerts = alerts
        self._cooldown_steps = cooldown_steps
        self._budget = budget
        self._group = group
        self._detecting: Detecting | None = None
        self._state: Mapping[str, Any] | None = None
        """Loaded before the first step was logged."""
        self._step: tuple[int, int] | None = None
        """Attempt and label of the step in hand, and what is known of it so far."""
        self._early: dict[str, Value] = {}
        self._has_norm = False
        self._held: dict[str, Value] = {}
        self._is_judged = False
        self._notes: list[str] = []
        self.every = 1
        """Steps whose label is a multiple of this are sampled by hooks."""

    @classmethod
    def of(
        cls,
        standing: Standing,
        detector: Any,
        *,
        alerts: Iterable[Any],
        cooldown_steps: int,
        budget: SkipBudget | None,
        group: Any,
    ) -> Self | None:
        """What a monitor was given, checked at once; None without a detector."""
        sinks = Alerts(alerts, cooldown_steps=cooldown_steps)
        judges = detector_of(detector)
        if judges is None:
            if sinks.num_sinks:
                raise UsageError("alerts were asked for, and nothing detects", todo="Monitor(..., detector=True)")
            return None
        return cls(
            standing,
            judges,
            alerts=sinks,
            cooldown_steps=cooldown_steps,
            budget=SkipBudget() if budget is None else budget,
            group=group,
        )

    @property
    def newest(self) -> Decision | None:
        """The newest decision."""
        return None if self._detecting is None else self._detecting.newest

    @property
    def notes(self) -> tuple[str, ...]:
        """What an engineer should know."""
        return (*self._notes, *self._alerts.notes)

    def num_alerts(self) -> tuple[int, int]:
        """Alerts that were sent, and that somebody who is told did not get."""
        return self._alerts.num_sent, self._alerts.num_not_taken

    def hold(self, label: int, values: Mapping[str, Value | None]) -> None:
        """Keep what hooks sampled of a step, until it is judged."""
        self._turn_to(label)
        self._held |= {
            name: value
            for name, value in values.items()
            if value is not None and name.startswith(ATTENTION) and "/head=" not in name
        }

    def take(self, label: int, values: Mapping[str, Value | None]) -> tuple[Taken, dict[str, float]]:
        """The numbers of a call, to be kept, and all that the step is judged by.

        The latter are waited for; there are none where the loss is still to come or the step was judged.
        """
        self._turn_to(label)
        given = {name: value for name, value in values.items() if value is not None}
        if self._is_judged or "loss" not in given:
            if self._is_judged and "grad_norm" in given and not self._has_norm:
                self._note("a gradient norm was logged after its step was judged: give it with the loss, in one call")
            self._early |= {name: given[name] for name in _JUDGED_BY if name in given}
            return take(given), {}
        early = {name: value for name, value in self._early.items() if name not in given}
        more = {**early, **self._held}
        numbers = take({**given, **{f"known {name}": value for name, value in more.items()}}).settle()
        found = dict(zip([*given, *more], numbers.tolist(), strict=True))
        self._has_norm = "grad_norm" in found
        seen = {name: value for name, value in found.items() if name in _JUDGED_BY or name in self._held}
        return Taken(names=list(given), numbers=numbers[: len(given)]), seen

    def judge(self, label: int, seen: Mapping[str, float]) -> Decision | None:
        """Judge a step by what `take` gave; what was decided before, where it was judged already."""
        if not seen:
            return self.newest if self._is_judged else None
        detecting = self._begun()
        sampled = {name: value for name, value in seen.items() if name.startswith(ATTENTION)}
        if sampled:
            detecting.watches(sampled, self.every)
        self._is_judged = True
        values = {name: value for name, value in seen.items() if name in _JUDGED_BY}
        return detecting.judge(label, values, sampled, attempt=self._standing.attempt)

    def describe(self, facts: TrainerFacts) -> None:
        """Changes that the trainer plans; what is said before the first step is found in the journal then."""
        if self._detecting is not None:
            self._detecting.add_changes(facts)

    def close(self) -> None:
        """Write down what is not over yet, and give alerts on their way a short time."""
        if self._detecting is not None:
            self._detecting.close(self._standing.attempt)
        self._alerts.close()

    def state_dict(self) -> dict[str, Any]:
        """That of the detector; what was loaded, while nothing was judged since."""
        if self._detecting is None:
            return {} if self._state is None else dict(self._state)
        return {**self._detecting.state_dict(), "alerts": self._alerts.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from it: at once, or when the first step is logged."""
        Detecting.check(state)
        if self._detecting is None:
            self._state = dict(state)
        else:
            self._load(self._detecting, state)

    def _load(self, detecting: Detecting, state: Mapping[str, Any]) -> None:
        detecting.load_state_dict(state)
        self._alerts.load_state_dict(state["alerts"])
        self._step = None

    def _begun(self) -> Detecting:
        standing = self._standing
        if self._detecting is not None and self._detecting.world_size != standing.plan.geometry.world_size:
            self._state, self._detecting = self.state_dict(), None  # another attempt of this process
        if self._detecting is None:
            gathering = Gathering(self._group, rank=standing.settle(), world_size=standing.plan.geometry.world_size)
            if gathering.is_alone:
                self._note(
                    f"there is no process group: the detector of rank {gathering.rank} of {gathering.world_size} sees "
                    "this rank alone, and no update is skipped"
                )
            if gathering.rank == 0:
                self._describe_itself()
            else:
                self._alerts = Alerts(cooldown_steps=self._cooldown_steps)  # the same state, and nobody is told twice
            made = Detecting(
                standing.run,
                self._judges,
                gathering,
                alerts=self._alerts,
                budget=self._budget,
            )
            if self._state is not None:
                self._load(made, self._state)
                self._state = None
            self._detecting = made
        return self._detecting

    def _describe_itself(self) -> None:
        """That a detector looks at the loss, once: until it has found something, nothing else in the run tells."""
        run = self._standing.run
        if facts_of(run.read().entries).monitoring.spike_detector is not True:
            note_facts(
                run, TrainerFacts(monitoring=MonitoringFacts(spike_detector=True)), attempt=self._standing.attempt
            )

    def _turn_to(self, label: int) -> None:
        step = (self._standing.attempt, label)
        if step != self._step:
            self._step, self._is_judged = step, False
            self._early.clear()
            self._held.clear()

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)
