"""Where is a log not finite, and where does no row arrive?

NaN and infinity are events of their own (`Faults`), and never enter a window. A gradient norm that overflows while the
loss is finite is none where a loss scaler skipped the step: the scale fell in the same row or falls in the next. After
`num_most_skips` of them in a row it is a fault all the same.

A `Stalls` looks at the clock alone: a gap of `stall_factor` median step times, unless a gap of a third of it was seen
before (what a checkpoint or an evaluation takes is not known until the first of them), and `stall_least_seconds`. Time
that goes backwards says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.triage.detect.drift import ATTENTION_LOGITS
from dataguard.triage.detect.settings import DetectorSettings
from dataguard.triage.detect.window import SortedWindow

__all__ = ["LOSS_SCALES", "Faults", "Stalls"]

LOSS_SCALES = ("loss_scale", "grad_scale", "loss scale")
"""Names under which loss scalers are logged."""

_LEAST_GAPS = 16
_GAP_BEFORE = 3.0


class Faults:
    """The stretch of rows that are not finite, and overflows whose reason is still to come."""

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self._fault: list[Any] | None = None
        """start, stop, signal."""
        self._scale: float | None = None
        self._held: int | None = None
        self._num_skips = 0

    def see(
        self, step: int, loss: float | None, grad_norm: float | None, more: Mapping[str, float]
    ) -> list[tuple[bool, SpikeEvent]]:
        """A row; what is noticed by it: (whether it begins, the event)."""
        noticed: list[tuple[bool, SpikeEvent]] = []
        scale = next((more[name] for name in LOSS_SCALES if name in more), None)
        fell = scale is not None and self._scale is not None and scale < self._scale
        held, self._held = self._held, None
        if held is not None and not fell:
            self._extend(held, "grad_norm", noticed)
            self._num_skips = 0
        signal = _not_finite(loss, grad_norm, more)
        if signal == "grad_norm" and loss is not None and scale is not None and self._scale is not None:
            self._num_skips += 1
            if self._num_skips <= self._settings.num_most_skips:
                signal = None
                if not fell or held is not None:  # a fall is used up by the overflow before
                    self._held = step
        elif held is None:
            self._num_skips = 0
        if scale is not None:
            self._scale = scale
        if signal is not None:
            self._extend(step, signal, noticed)
        elif self._fault is not None and self._held is None and _has_value(loss, grad_norm):
            noticed.append((False, self._event(is_open=False)))
            self._fault = None
        return noticed

    def open_events(self) -> list[SpikeEvent]:
        """What goes on, or was never explained, at the end of the log."""
        if self._held is not None:
            ends = self._fault is not None
            self._extend(self._held, "grad_norm", [])
            event = self._event(is_open=True)
            if not ends:
                self._fault = None
            return [event]
        return [] if self._fault is None else [self._event(is_open=True)]

    def _extend(self, step: int, signal: str, noticed: list[tuple[bool, SpikeEvent]]) -> None:
        if self._fault is None:
            self._fault = [step, step + 1, signal]
            noticed.append((True, self._event(is_open=True)))
        else:
            self._fault[1] = step + 1

    def _event(self, *, is_open: bool) -> SpikeEvent:
        assert self._fault is not None, "nothing is wrong"
        start, stop, signal = self._fault
        return SpikeEvent(
            event_class=EventClass.HARD_FAULT,
            start=start,
            stop=stop,
            peak=start,
            size_nats=None,
            sigmas=None,
            is_open=is_open,
            signal=signal,
        )

    def state(self) -> dict[str, Any]:
        """All of it, for JSON."""
        fault = None if self._fault is None else list(self._fault)
        return {"fault": fault, "scale": self._scale, "held": self._held, "num_skips": self._num_skips}

    def load(self, state: dict[str, Any]) -> None:
        """Become what `state` gave."""
        self._fault = None if state["fault"] is None else list(state["fault"])
        self._scale, self._held, self._num_skips = state["scale"], state["held"], state["num_skips"]


def _not_finite(loss: float | None, grad_norm: float | None, more: Mapping[str, float]) -> str | None:
    if loss is not None and not isfinite(loss):
        return "loss"
    if grad_norm is not None and not isfinite(grad_norm):
        return "grad_norm"
    for name, value in more.items():
        if name.startswith(ATTENTION_LOGITS) and not isfinite(value):
            return name
    return None


def _has_value(loss: float | None, grad_norm: float | None) -> bool:
    return loss is not None or grad_norm is not None


class Stalls:
    """Gaps between rows, by their own clock."""

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self._gaps = SortedWindow(settings.num_window)
        self._longest = 0.0
        self._newest: float | None = None
        self._newest_step = 0

    def see(self, step: int, time: float | None) -> SpikeEvent | None:
        """A row at `time` (seconds, from anywhere); the stall that it ended."""
        if time is None or not isfinite(time):
            return None
        before, self._newest = self._newest, time
        step_before, self._newest_step = self._newest_step, step
        if before is None or time <= before:
            return None
        # A row stands for the steps since the last one, which all had to be waited for.
        gap = (time - before) / max(1, step - step_before)
        settings = self._settings
        whole = time - before
        found = None
        if len(self._gaps) >= _LEAST_GAPS:
            least = max(settings.stall_factor * self._gaps.median(), _GAP_BEFORE * self._longest)
            if gap > least and whole > settings.stall_least_seconds:
                found = SpikeEvent(
                    event_class=EventClass.STALL,
                    start=step,
                    stop=step + 1,
                    peak=step_before,
                    size_nats=None,
                    sigmas=None,
                    signal="time",
                )
        self._gaps.push(gap)
        # The first gaps of a run (compilation, caches) say nothing about later ones.
        if len(self._gaps) > _LEAST_GAPS // 2:
            self._longest = max(self._longest, gap)
        return found

    def state(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "gaps": list(self._gaps.arrived),
            "longest": self._longest,
            "newest": self._newest,
            "newest_step": self._newest_step,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Become what `state` gave."""
        self._gaps = SortedWindow(self._settings.num_window, state["gaps"])
        self._longest = state["longest"]
        self._newest, self._newest_step = state["newest"], state["newest_step"]
