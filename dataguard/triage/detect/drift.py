"""Does a signal climb, so slowly that every window follows it?

A trailing mean follows a drift and cannot see it. So block medians of the *whole* past are kept (`num_drift_blocks` of
them at most: when there are more, neighbours are merged and blocks become twice as long), and after each block the
newest two are compared with the lowest two neighbours of all that came before:

1. The rise is more than six robust standard deviations of the difference of two blocks (the lowest of 128 blocks lies
   2.7 standard deviations of a block below their mean by luck, the newest above it by 4 once in 30,000: 4.7 of a
   difference together; wander between blocks needs the rest).
2. From the lowest block on the blocks climb: Mann and Kendall's test, above 4 standard deviations (3e-5), over at least
   `_LEAST_BLOCKS`.
3. It matters. A gradient norm has at least doubled. An attention logit has at least doubled and is beyond 16.6, where
   the softmax of a float32 rounds everything but its maximum to zero (ln 2**-24). Of the loss any rise matters that
   passes the first two: training lowers it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import exp, log, sqrt
from typing import Any

from dataguard.core.robust import MAD_TO_SIGMA
from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.triage.detect.settings import DetectorSettings
from dataguard.triage.detect.window import median_of

__all__ = ["ATTENTION_LOGITS", "DriftWatch", "kendall_sigmas"]

ATTENTION_LOGITS = "attention_logit_max"
"""Names of telemetry that begin so are largest attention logits, of a layer or head."""

_RISE_FACTOR = 6.0
_KENDALL = 4.0
_LEAST_BLOCKS = 12
"""Twelve that all climb are the fewest whose Kendall sum is beyond 4 standard deviations (4.5)."""
_LEAST_LOG_RISE = log(2.0)
_LEAST_LOGIT = 24 * log(2.0)
_NUM_FALLING = 12
"""Blocks in a row without a new height that end a climb: as many as it takes to see one."""


def kendall_sigmas(values: list[float]) -> float:
    """Mann and Kendall's sum over all pairs, in standard deviations of one without any trend.

    >>> round(kendall_sigmas([float(i) for i in range(12)]), 2), kendall_sigmas([1.0, 1.0, 1.0])
    (4.53, 0.0)
    """
    num = len(values)
    total = sum((b > a) - (b < a) for i, a in enumerate(values) for b in values[i + 1 :])
    deviation = sqrt(num * (num - 1) * (2 * num + 5) / 18)
    return total / deviation if deviation else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Climb:
    low: float
    first: int
    noise: float


class DriftWatch:
    """Block medians of one signal's whole past, and the climb that is on.

    `name` says what it is of: ``loss`` (as it is), ``grad_norm`` and ``attention_logit_max...`` (as logarithms, so
    what is not above zero is left out by the caller).
    """

    def __init__(self, name: str, settings: DetectorSettings) -> None:
        self.name = name
        self._settings = settings
        self._block_points = settings.num_drift_block
        self._filling: list[float] = []
        self._filling_first = 0
        self._medians: list[float] = []
        self._firsts: list[int] = []
        self._climb: _Climb | None = None
        self._most = 0.0
        self._most_step = 0
        self._num_falling = 0

    def add(self, step: int, value: float) -> tuple[bool, SpikeEvent] | None:
        """A point; what is noticed by it: (whether it begins, the event)."""
        if not self._filling:
            self._filling_first = step
        self._filling.append(value)
        if len(self._filling) < self._block_points:
            return None
        self._medians.append(median_of(self._filling))
        self._firsts.append(self._filling_first)
        self._filling = []
        noticed = self._go_on(step) if self._climb is not None else self._begin(step)
        if len(self._medians) > self._settings.num_drift_blocks:
            self._merge()
        return noticed

    def open_event(self, step: int) -> SpikeEvent | None:
        """The climb that is on, up to step `step`."""
        return None if self._climb is None else self._event(step + 1, is_open=True)

    def restart(self) -> None:
        """Forget the past: another level begins."""
        self._filling, self._medians, self._firsts = [], [], []
        self._block_points = self._settings.num_drift_block
        self._climb, self._num_falling = None, 0

    def noise(self) -> float | None:
        """Robust standard deviation of the difference of neighbouring blocks; None where there are too few."""
        if len(self._medians) < _LEAST_BLOCKS:
            return None
        steps = [b - a for a, b in pairwise(self._medians)]
        middle = median_of(steps)
        return MAD_TO_SIGMA * median_of(abs(each - middle) for each in steps)

    @property
    def block_points(self) -> int:
        """Points of a block, now."""
        return self._block_points

    def _begin(self, step: int) -> tuple[bool, SpikeEvent] | None:
        medians = self._medians
        noise = self.noise()
        if noise is None:
            return None
        pairs = [(a + b) / 2 for a, b in pairwise(medians)]
        low = min(pairs[:-1])
        place = len(pairs) - 2 - pairs[-2::-1].index(low)
        rise = pairs[-1] - low
        if rise <= _RISE_FACTOR * noise or rise <= 0 or not self._matters(rise, pairs[-1]):
            return None
        climbing = medians[place:]
        if len(climbing) < _LEAST_BLOCKS or kendall_sigmas(climbing) <= _KENDALL:
            return None
        self._climb = _Climb(low=low, first=self._firsts[place], noise=noise)
        self._most, self._most_step, self._num_falling = pairs[-1], step, 0
        return True, self._event(step + 1, is_open=True)

    def _go_on(self, step: int) -> tuple[bool, SpikeEvent] | None:
        newest = (self._medians[-1] + self._medians[-2]) / 2
        if newest > self._most:
            self._most, self._most_step, self._num_falling = newest, step, 0
            return None
        self._num_falling += 1
        if self._num_falling < _NUM_FALLING:
            return None
        ended = self._event(self._most_step + 1, is_open=False)
        self.restart()
        return False, ended

    def _matters(self, rise: float, newest: float) -> bool:
        if self.name == "loss":
            return True
        if rise < _LEAST_LOG_RISE:
            return False
        return not self.name.startswith(ATTENTION_LOGITS) or newest > log(_LEAST_LOGIT)

    def _event(self, stop: int, *, is_open: bool) -> SpikeEvent:
        climb = self._climb
        assert climb is not None, "no climb is on"
        rise = self._most - climb.low
        return SpikeEvent(
            event_class=EventClass.CREEPING_DRIFT,
            start=climb.first,
            stop=stop,
            peak=self._most_step,
            size_nats=rise if self.name == "loss" else None,
            sigmas=rise / climb.noise if climb.noise else None,
            grad_norm_ratio=exp(min(700.0, rise)) if self.name == "grad_norm" else None,
            is_open=is_open,
            signal=self.name,
        )

    def _merge(self) -> None:
        medians, firsts = self._medians, self._firsts
        whole = len(medians) // 2 * 2
        self._medians = [(medians[i] + medians[i + 1]) / 2 for i in range(0, whole, 2)] + medians[whole:]
        self._firsts = [firsts[i] for i in range(0, whole, 2)] + firsts[whole:]
        self._block_points *= 2

    def state(self) -> dict[str, Any]:
        """All of it, for JSON."""
        climb = self._climb
        return {
            "name": self.name,
            "block_points": self._block_points,
            "filling": list(self._filling),
            "filling_first": self._filling_first,
            "medians": list(self._medians),
            "firsts": list(self._firsts),
            "climb": None if climb is None else [climb.low, climb.first, climb.noise],
            "most": self._most,
            "most_step": self._most_step,
            "num_falling": self._num_falling,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Become what `state` gave."""
        self._block_points = state["block_points"]
        self._filling, self._filling_first = list(state["filling"]), state["filling_first"]
        self._medians, self._firsts = list(state["medians"]), list(state["firsts"])
        climb = state["climb"]
        self._climb = None if climb is None else _Climb(low=climb[0], first=climb[1], noise=climb[2])
        self._most, self._most_step = state["most"], state["most_step"]
        self._num_falling = state["num_falling"]
