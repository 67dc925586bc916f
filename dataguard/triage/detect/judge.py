"""What does the next row of a log mean, given all that came before it?

For each row, in this order:

1. The clock (`Stalls`) and what is not finite (`Faults`).
2. Loss and logarithm of the gradient norm against what was expected of them (`Tracker`). Beyond the threshold an
   `Episode` begins: both windows freeze, and what was expected is held against all that follows.
3. `num_quiet` points in a row that do not stand out end it; they enter the windows. An episode that stays for
   `num_settle` points and no longer moves has settled on another level, which becomes the one that is expected.
4. What settles on another level right after a told change is the change's own, and no event; one that comes back from
   its own, or goes on moving, is an event there as anywhere.
5. The aftermath of an episode is awaited until `num_aftermath` points came or the next one begins: only then is it
   known what it was (`classified`).
6. Slow climbs (`DriftWatch`) of loss, gradient norm and attention logits.

Rows come in order of their steps here; `Detector` sees to that.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite, log, sqrt
from typing import Any, Literal

from dataguard.core.spikes import SpikeEvent
from dataguard.triage.detect.drift import ATTENTION_LOGITS, DriftWatch
from dataguard.triage.detect.episode import Episode, classified
from dataguard.triage.detect.faults import Faults, Stalls
from dataguard.triage.detect.settings import DetectorSettings
from dataguard.triage.detect.tracker import Judged, Tracker
from dataguard.triage.detect.window import SortedWindow, median_of

__all__ = ["Judge", "Noticed"]

_NUM_STRIDES = 64
_LEAST_STRIDES = 8
_MEDIAN_ERROR = 1.2533
_STILL = 3.0
"""An episode no longer moves where the medians of its last two halves differ by less than so many standard errors."""
_CHECK_EVERY = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """Something that a row made known."""

    kind: Literal["began", "ended"]
    """``began``: the event goes on, and its class is what it looks like so far. ``ended``: it is over, and enough came
    after it (or the next one began) to tell what it was."""
    event: SpikeEvent


class Judge:
    """The default detector, for rows in order of their steps."""

    def __init__(self, settings: DetectorSettings, changes: tuple[int, ...] = ()) -> None:
        self._settings = settings
        self.changes = changes
        self.newest: int | None = None
        self.num_points = 0
        """Points of the loss, whatever they hold."""
        self._loss = Tracker(settings)
        self._grad = Tracker(settings, is_skewed=True)
        self._loss_drift = DriftWatch("loss", settings)
        self._drifts: dict[str, DriftWatch] = {}
        self._faults = Faults(settings)
        self._stalls = Stalls(settings)
        self._strides = SortedWindow(_NUM_STRIDES)
        self._back: deque[list[Any]] = deque(maxlen=settings.num_reach_back)
        """The last points: step, sigmas of the loss, sigmas and value of the logarithm of the gradient norm."""
        self._episode: Episode | None = None
        self._pending: Episode | None = None
        self._change: int | None = None
        self._is_gap = False
        self._num_since_change = 0
        self.settled: list[list[float]] = []
        """Told changes after which the loss settled elsewhere: step, nats."""

    def observe(
        self, step: int, loss: float | None, grad_norm: float | None, time: float | None, more: Mapping[str, float]
    ) -> list[Noticed]:
        """A row whose step is behind all others."""
        assert self.newest is None or step > self.newest, "rows come in order of their steps"
        noticed: list[Noticed] = []
        self._look_for_change(step)
        stall = self._stalls.see(step, time)
        if stall is not None:
            noticed += (Noticed(kind="began", event=replace(stall, is_open=True)), Noticed(kind="ended", event=stall))
        for begins, event in self._faults.see(step, loss, grad_norm, more):
            noticed.append(Noticed(kind="began" if begins else "ended", event=event))
        self.newest = step
        self.num_points += loss is not None
        is_zero = grad_norm == 0.0
        value = loss if loss is not None and isfinite(loss) else None
        grad = log(grad_norm) if grad_norm is not None and isfinite(grad_norm) and grad_norm > 0 else None
        if value is not None or grad is not None or is_zero:
            if self._episode is None:
                self._watch(step, value, grad, grad_norm, noticed, is_zero=is_zero)
            else:
                self._follow(step, value, grad, noticed, is_zero=is_zero)
            self._num_since_change += 1
        self._look_for_drift(step, value, grad, more, noticed)
        return noticed

    def smallest_spike(self) -> float | None:
        """How far above what is expected of it the next loss would have to lie to stand out, in nats."""
        episode = self._episode
        if episode is not None and episode.loss is not None:
            return episode.threshold * episode.loss.up
        return self._loss.smallest_visible()

    def open_events(self) -> list[SpikeEvent]:
        """What goes on at the end of the log, and what still waits for its aftermath."""
        newest = self.newest
        if newest is None:
            return []
        events = self._faults.open_events()
        for episode in (self._pending, self._episode):
            if episode is not None:
                events.append(classified(episode, self._settings, newest=newest))
        for drift in (self._loss_drift, *self._drifts.values()):
            event = drift.open_event(newest)
            if event is not None:
                events.append(event)
        return events

    def _look_for_change(self, step: int) -> None:
        """Whether a told change, or a gap of many steps, lies before this row."""
        before = self.newest
        if before is None:
            return
        stride = step - before
        strides = self._strides
        place = bisect_right(self.changes, step)
        told = self.changes[place - 1] if place and self.changes[place - 1] > before else None
        is_gap = len(strides) >= _LEAST_STRIDES and stride > self._settings.num_level * strides.median()
        if told is not None or is_gap:
            self._change, self._is_gap, self._num_since_change = (step if told is None else told), told is None, 0
            self._loss_drift.restart()
            for drift in self._drifts.values():
                drift.restart()
        if not is_gap:
            strides.push(float(stride))

    def _watch(
        self, step: int, value: float | None, grad: float | None, grad_norm: float | None, noticed: list[Noticed],
        *, is_zero: bool,
    ) -> None:  # fmt: skip
        """A row outside of any episode."""
        settings = self._settings
        quantum = None if grad is None or grad_norm is None else 1.0 / grad_norm
        loss_judged = None if value is None else self._loss.judge(value)
        grad_judged = None if grad is None else self._grad.judge(grad, quantum=quantum)
        stands_out = loss_judged is not None and abs(loss_judged.sigmas) >= self._loss.threshold()
        grad_stands_out = (
            grad_judged is not None
            and grad_judged.sigmas >= self._grad.threshold()
            and grad_judged.excess >= log(settings.grad_norm_factor)
        )
        zero_stands_out = is_zero and self._grad.is_ready
        if not (stands_out or grad_stands_out or zero_stands_out):
            self._keep_after(value, grad, noticed)
            self._accept(value, grad, grad_norm)
            self._remember(step, loss_judged, grad_judged, grad)
            return
        self._end_pending(step, noticed)
        self._loss.flush()
        self._grad.flush()
        newest_loss = value if value is not None else 0.0
        has_loss = self._loss.num_accepted > 0
        frozen = self._loss.freeze(newest_loss) if has_loss else None
        episode = Episode(
            start=step,
            threshold=self._loss.threshold(),
            loss=frozen,
            grad=self._grad.freeze(grad or 0.0, quantum=quantum) if self._grad.num_accepted else None,
            inflation=self._inflation(frozen.up) if frozen is not None else 1.0,
            change=self._change if self._num_since_change < settings.num_change else None,
            onset=self._onset(),
            grad_most=max((each[3] for each in self._back if each[3] is not None), default=None),
        )
        self._episode = episode
        episode.take(step, value, grad, loss_judged, grad_judged, settings, is_zero=is_zero)
        self._tell(episode, noticed)

    def _follow(
        self, step: int, value: float | None, grad: float | None, noticed: list[Noticed], *, is_zero: bool
    ) -> None:
        """A row within an episode."""
        episode = self._episode
        assert episode is not None, "no episode is on"
        settings = self._settings
        loss_judged = grad_judged = None
        if value is not None and episode.loss is not None:
            loss_judged = episode.loss.judge(value, episode.num_points)
        if grad is not None and episode.grad is not None:
            grad_judged = episode.grad.judge(grad, episode.num_points)
        episode.take(step, value, grad, loss_judged, grad_judged, settings, is_zero=is_zero)
        if episode.num_quiet >= settings.num_quiet:
            self._come_back(episode, noticed)
        elif self._has_settled(episode):
            self._settle(episode, step, noticed)
        elif episode.change is not None and not episode.is_told and len(episode.recent) >= settings.num_history * 2:
            episode.change = None  # it goes on moving: no mere change of level
            self._tell(episode, noticed)

    def _come_back(self, episode: Episode, noticed: list[Noticed]) -> None:
        """The episode is over; its quiet points enter the windows, and its aftermath is awaited."""
        num = episode.num_quiet
        for value in episode.values[-num:]:
            self._loss.accept(value)
        for grad in episode.grad_values[-num:]:
            self._grad.accept(grad)
        episode.stop = episode.last_out + 1
        episode.recent, episode.values, episode.grad_values = [], [], []
        self._episode = None
        self._tell(replace(episode, change=None), noticed)
        episode.is_told = True
        self._pending = episode
        self._back.clear()

    def _has_settled(self, episode: Episode) -> bool:
        settings = self._settings
        if episode.change is not None:
            limit = settings.num_history
        else:  # the longer it lasts, the longer it must have been still
            limit = max(settings.num_settle, min(settings.num_window, episode.num_points // 2))
        if episode.num_points >= settings.num_most_open:
            return True
        if len(episode.recent) < limit or episode.num_points % _CHECK_EVERY:
            return False
        if episode.loss is None:
            return True
        half = limit // 2
        moved = median_of(episode.recent[-half:]) - median_of(episode.recent[-limit:-half])
        error = episode.loss.up * episode.inflation * _MEDIAN_ERROR * sqrt(2 / half)
        return abs(moved) < _STILL * error

    def _settle(self, episode: Episode, step: int, noticed: list[Noticed]) -> None:
        """Another level is what is expected from now on."""
        settings = self._settings
        num = settings.num_history if episode.change is not None else settings.num_settle
        values, grads = episode.values[-num:], episode.grad_values[-num:]
        excess = median_of(episode.recent[-num // 2 :]) if episode.recent else 0.0
        is_own = episode.change is not None and (not self._is_gap or excess < 0)
        episode.stop, episode.is_settled = step + 1, True
        if is_own:
            self.settled.append([float(episode.change or 0), excess])
            del self.settled[: -settings.num_window]
        else:
            self._tell(replace(episode, change=None), noticed)
            noticed.append(Noticed(kind="ended", event=classified(episode, settings, newest=step)))
        self._episode = None
        self._loss.restart(values)
        self._grad.restart(grads)
        self._loss_drift.restart()
        self._back.clear()

    def _tell(self, episode: Episode, noticed: list[Noticed]) -> None:
        """That an episode began, once; where it may be the doing of a change only when that is known."""
        if episode.is_told or episode.change is not None:
            return
        episode.is_told = True
        newest = self.newest
        assert newest is not None, "an episode has rows"
        event = classified(replace(episode, stop=None), self._settings, newest=newest)
        noticed.append(Noticed(kind="began", event=event))

    def _keep_after(self, value: float | None, grad: float | None, noticed: list[Noticed]) -> None:
        pending = self._pending
        if pending is None:
            return
        if value is not None and pending.loss is not None:
            num_after = pending.num_before_after + len(pending.after)
            pending.after.append(pending.loss.excess(value, num_after))
        if grad is not None and pending.grad is not None and len(pending.grad_after) < self._settings.num_reach_back:
            pending.grad_after.append(pending.grad.excess(grad, 0))
        if len(pending.after) >= self._settings.num_aftermath:
            assert self.newest is not None, "it has rows"
            self._end_pending(self.newest, noticed)

    def _end_pending(self, step: int, noticed: list[Noticed]) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            noticed.append(Noticed(kind="ended", event=classified(pending, self._settings, newest=step)))

    def _accept(self, value: float | None, grad: float | None, grad_norm: float | None) -> None:
        if value is not None:
            self._loss.accept(value)
        if grad is not None:
            self._grad.accept(grad, decimals_of=grad_norm)

    def _remember(self, step: int, loss: Judged | None, grad: Judged | None, value: float | None) -> None:
        back = self._back
        back.append([step, None if loss is None else loss.sigmas, None if grad is None else grad.sigmas, value])

    def _onset(self) -> int | None:
        """The first of the points before that stand out by the exit threshold, with no more than one quiet between."""
        least = self._settings.exit_threshold
        found, num_quiet = None, 0
        for step, loss, grad, _ in reversed(self._back):
            if (loss is not None and abs(loss) >= least) or (grad is not None and grad >= least):
                found, num_quiet = int(step), 0
            else:
                num_quiet += 1
                if num_quiet > 1:
                    break
        return found

    def _inflation(self, scale: float) -> float:
        """By how much medians of blocks of this loss differ more than those of white noise would."""
        noise = self._loss_drift.noise()
        if noise is None or not scale:
            return 1.0
        return max(1.0, noise / (scale * _MEDIAN_ERROR * sqrt(2 / self._loss_drift.block_points)))

    def _look_for_drift(
        self, step: int, value: float | None, grad: float | None, more: Mapping[str, float], noticed: list[Noticed]
    ) -> None:
        signals: list[tuple[DriftWatch, float]] = []
        if value is not None:
            signals.append((self._loss_drift, value))
        if grad is not None:
            signals.append((self._drift("grad_norm"), grad))
        for name, logit in more.items():
            if name.startswith(ATTENTION_LOGITS) and isfinite(logit) and logit > 0:
                signals.append((self._drift(name), log(logit)))
        for drift, point in signals:
            found = drift.add(step, point)
            if found is not None:
                noticed.append(Noticed(kind="began" if found[0] else "ended", event=found[1]))

    def _drift(self, name: str) -> DriftWatch:
        if name not in self._drifts:
            self._drifts[name] = DriftWatch(name, self._settings)
        return self._drifts[name]

    def state(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "newest": self.newest,
            "num_points": self.num_points,
            "loss": self._loss.state(),
            "grad": self._grad.state(),
            "loss_drift": self._loss_drift.state(),
            "drifts": [drift.state() for drift in self._drifts.values()],
            "faults": self._faults.state(),
            "stalls": self._stalls.state(),
            "strides": list(self._strides.arrived),
            "back": [list(each) for each in self._back],
            "episode": None if self._episode is None else self._episode.state(),
            "pending": None if self._pending is None else self._pending.state(),
            "change": [self._change, self._is_gap, self._num_since_change],
            "settled": [list(each) for each in self.settled],
        }

    @classmethod
    def of_state(cls, settings: DetectorSettings, changes: tuple[int, ...], state: dict[str, Any]) -> Judge:
        """What `state` gave."""
        judge = cls(settings, changes)
        judge.newest, judge.num_points = state["newest"], state["num_points"]
        judge._loss.load(state["loss"])
        judge._grad.load(state["grad"])
        judge._loss_drift.load(state["loss_drift"])
        for each in state["drifts"]:
            judge._drift(each["name"]).load(each)
        judge._faults.load(state["faults"])
        judge._stalls.load(state["stalls"])
        judge._strides = SortedWindow(_NUM_STRIDES, state["strides"])
        judge._back.extend(list(each) for each in state["back"])
        for name in ("episode", "pending"):
            if state[name] is not None:
                setattr(judge, f"_{name}", Episode.of_state(_copied(state[name])))
        judge._change, judge._is_gap, judge._num_since_change = state["change"]
        judge.settled = [list(each) for each in state["settled"]]
        return judge


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, list) else value for name, value in state.items()}
