"""What is to be expected of the next point of one signal, and by how much may it miss that?

1. The trend is the line through the medians of the last `num_level` points and of as many before them. A training
   curve falls steeply at first, so both grow with the history (a sixteenth of it each).
2. What counts is the *residual* of a point: by how much it missed the line that was drawn before it came. Their median
   and scale, over at most `num_window` residuals and the newer half of the history, are what a new residual is judged
   by; so what the line does wrong (a curve that bends, noise of the medians) is part of the scale.
3. The scale is the largest of these: the median absolute deviation; the tails, as a normal distribution would have
   them; the digits that the log prints; and single precision. Which tails: events stand on the upper side of a loss,
   noise on both, so what is high is held against the lower tail alone (97.5 %), and what is low against both tails
   (97.5 and 99 %), as is all of a gradient norm, whose noise is skewed. For normal noise a tail adds 2 to 5 %.
4. A scale is itself uncertain: it comes from n residuals, and the noise goes on to change. `threshold` holds for one
   that is known; otherwise it is the quantile of Student's t distribution with the same tail, of as many degrees of
   freedom as the scale has: 1 / (1 / (0.65 n) + 2 x 0.05**2). That is 13.8 for 24 residuals, 6.7 for a full window.
5. Before there are `num_history` residuals the rule of early steps holds: a rise above the best value seen by more than
   `threshold` robust standard deviations (median absolute deviation, or tail at 90 %) of the first differences. A
   difference has sqrt(2) of the noise of a point, so 6 of them are 8.5 of a point, where own noise (4.3 at 1e-5) and
   the luck of the best of 32 (2.6) need 6.9.

Only what `accept` is given enters the window. A value that repeats itself for longer than the log's own repetitions
explain (p < 1e-9) is a logger that hangs: its repetitions wait outside, and are forgotten.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import ceil, expm1, log, log10, sqrt
from typing import Any

from dataguard.core.robust import MAD_TO_SIGMA
from dataguard.triage.detect.settings import DetectorSettings
from dataguard.triage.detect.window import SortedWindow, median_of

__all__ = ["LEAST_POINTS", "Frozen", "Judged", "Tracker", "student"]

LEAST_POINTS = 9
"""Before there are so many, nothing is judged."""
_SINGLE_PRECISION = 1e-6
_MOST_DECIMALS = 6
_TAILS = ((0.975, 1.959964), (0.99, 2.326348))
_LEVEL_SHARE = 16
"""Points of the history for each point of a median: the line through medians of h points misses a power of the step by
about (h / n)**2 of its height, 1e-3 here."""
_EFFICIENCY = 0.65
"""Degrees of freedom of the scale, for each residual. Of a MAD alone they are 0.37; of the larger of it and the tail
0.64 to 0.9 (simulated, 24 to 256 normal values), since a scale that is too small by chance has to be so twice."""
_LEVEL_CHANGE = 0.05
"""By how much the noise of a loss itself changes from one window to the next, beyond what the sampling of a scale
explains (standard deviation of its logarithm; 0 to 6 % over the public logs, all of their steps)."""
_EARLY_TAIL, _EARLY_QUANTILE = 0.9, 1.281552
_MEDIAN_ERROR = 1.2533
"""Standard error of a median of n normal values, times sqrt(n)."""
_REPEATS_LOG10_P = 9.0
_MOST_WAITING = 64


def student(normal: float, freedom: float) -> float:
    """The quantile of Student's t distribution where a normal one has `normal` (Wallace's approximation, 1959).

    >>> [round(student(4.7534, freedom), 1) for freedom in (9, 20, 100)]  # p = 1e-6
    [10.9, 6.6, 5.0]
    """
    corrected = normal * (8 * freedom + 3) / (8 * freedom + 1)
    return sqrt(freedom * expm1(corrected**2 / freedom))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One point against what was expected of it."""

    excess: float
    """Above what was expected, in the signal's own unit."""
    sigmas: float
    """The same in robust standard deviations of that side."""
    is_early: bool
    """Whether it was judged by the rule of early steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """What was expected when an event began, to be held against it and its aftermath.

    The trend goes on as it was bending: of four quarters of the history (its newer half, or `num_window` points) each
    moved the median by a share of what the one before did, and so do the next. It is never trusted for longer than two
    quarters.
    """

    level: float
    """At the first point of the event."""
    slope: float
    """A point, at the first of the event."""
    decay: float
    """By which the slope falls, a point."""
    num_points: int
    """That made the line; 0 for that of early steps."""
    up: float
    """Scale above."""
    down: float
    """Scale below."""

    def trend(self, num_after: int) -> float:
        """What the trend alone does in `num_after` points."""
        return self.slope * -expm1(-self.decay * num_after) / self.decay

    def excess(self, value: float, num_after: int) -> float:
        """Of the value that came `num_after` points after the first of the event."""
        return value - self.level - self.trend(num_after)

    def judge(self, value: float, num_after: int) -> Judged:
        """The same in scales."""
        excess = self.excess(value, num_after)
        return Judged(excess=excess, sigmas=excess / (self.up if excess >= 0 else self.down), is_early=False)

    def error(self, num_after: int, num_points: int) -> float:
        """Standard error of a median excess of `num_points` points around `num_after`, in scales, for white noise."""
        if not self.num_points:
            return sqrt(_MEDIAN_ERROR**2 / num_points + 1.0)
        quarter = self.num_points / 4
        far = 0.5 - expm1(-self.decay * num_after) / (self.decay * quarter)
        return _MEDIAN_ERROR * sqrt((1 + 1.25 * far**2) / quarter + 1 / num_points)


class Tracker:
    """Trend and scale of one signal.

    >>> tracker = Tracker(DetectorSettings())
    >>> for i in range(100):
    ...     tracker.accept(3.0 - 0.001 * i + 0.01 * (-1) ** i)
    >>> tracker.judge(2.9).sigmas < 3 < tracker.threshold() < tracker.judge(3.2).sigmas
    True
    """

    def __init__(self, settings: DetectorSettings, *, is_skewed: bool = False) -> None:
        self._settings = settings
        self._is_skewed = is_skewed
        self._newer = SortedWindow(settings.num_level + 1)
        self._older = SortedWindow(settings.num_level)
        self._residuals = SortedWindow(settings.num_window)
        self._differences = SortedWindow(settings.num_level * 2)
        self._values: deque[float] = deque(maxlen=settings.num_window)
        self._best = 0.0
        self.num_accepted = 0
        self._decimals = 0
        self._num_pairs = 0
        self._num_equal = 0
        self._waiting = 0
        self._prediction: float | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the window is relied on, and the rule of early steps is over."""
        return len(self._residuals) >= self._settings.num_history

    def threshold(self) -> float:
        """Robust standard deviations that begin an event, by how well the scale is known."""
        if not self.is_ready:
            return self._settings.threshold
        freedom = 1 / (1 / (_EFFICIENCY * len(self._residuals)) + 2 * _LEVEL_CHANGE**2)
        return student(self._settings.threshold, freedom)

    def judge(self, value: float, *, quantum: float | None = None) -> Judged | None:
        """A point against the past; None where there is too little of it."""
        floor = self._floor(value, quantum)
        if not self.is_ready or self._prediction is None:
            spread = self._early_spread(floor)
            if spread is None:
                return None
            excess = value - self._best
            return Judged(excess=excess, sigmas=max(0.0, excess) / spread, is_early=True)
        middle = self._residuals.median()
        excess = value - self._prediction - middle
        scale = self._scale(middle, floor, above=excess >= 0)
        return Judged(excess=excess, sigmas=excess / scale, is_early=False)

    def smallest_visible(self) -> float | None:
        """How far above what is expected of it the next point would have to lie to begin an event, in the signal's own
        unit; None where it would not be judged.

        >>> tracker = Tracker(DetectorSettings())
        >>> for i in range(100):
        ...     tracker.accept(3.0 + 0.01 * (-1) ** i)
        >>> least = tracker.smallest_visible()
        >>> tracker.judge(3.0 + least).sigmas >= tracker.threshold() > tracker.judge(3.0 + 0.9 * least).sigmas
        True
        """
        floor = self._floor(self._values[-1], None) if self._values else 0.0
        if not self.is_ready or self._prediction is None:
            spread = self._early_spread(floor)
            return None if spread is None else self.threshold() * spread
        return self.threshold() * self._scale(self._residuals.median(), floor, above=True)

    def accept(self, value: float, *, decimals_of: float | None = None) -> None:
        """Let a point into the window."""
        self._note_decimals(value if decimals_of is None else decimals_of)
        if self._values and value == self._values[-1]:
            limit = self._repeats_allowed()
            if limit is not None:
                self._waiting += 1
                if self._waiting >= limit:
                    self._waiting = limit  # for ever outside
                return
            self._num_pairs, self._num_equal = self._num_pairs + 1, self._num_equal + 1
            self._push(value)
            return
        self.flush()
        if self._values:
            self._num_pairs += 1
            if self._num_pairs >= 2 * self._settings.num_window:
                self._num_pairs, self._num_equal = self._num_pairs // 2, self._num_equal // 2
        self._push(value)

    def flush(self) -> None:
        """Let repetitions that waited into the window, unless they were too many to be the log's own."""
        num, self._waiting = self._waiting, 0
        limit = self._repeats_allowed()
        if num and (limit is None or num < limit):
            self._num_pairs, self._num_equal = self._num_pairs + num, self._num_equal + num
            for _ in range(num):
                self._push(self._values[-1])

    def freeze(self, value: float, *, quantum: float | None = None) -> Frozen:
        """What is expected from now on, were nothing to happen."""
        floor = self._floor(value, quantum)
        if not self.is_ready or self._prediction is None:
            spread = self._early_spread(floor) or floor or 1.0
            return Frozen(level=self._best, slope=0.0, decay=1.0, num_points=0, up=spread, down=spread)
        middle = self._residuals.median()
        quarter = max(2, min(len(self._values), self.num_accepted // 2) // 4)
        values = list(self._values)[-4 * quarter :]
        a, b, c, d = (median_of(values[i * quarter : (i + 1) * quarter]) for i in range(4))
        damping = min(1.0, max(0.0, (d - b) / (c - a))) if c != a else 0.0
        move = (d - c + damping * (c - b)) / 2
        slope = move * damping / quarter
        # A curve without noise is followed to a digit, a line that goes on without it is not.
        floor = max(floor, abs(slope))
        return Frozen(
            level=d + move * damping**0.75 / 2,
            slope=slope,
            decay=max(0.5, -log(max(damping, 0.05))) / quarter,
            num_points=4 * quarter,
            up=self._scale(middle, floor, above=True),
            down=self._scale(middle, floor, above=False),
        )

    def restart(self, values: list[float]) -> None:
        """Begin anew on another level, of which these points are known; the noise is what it was."""
        self._newer.clear()
        self._older.clear()
        self._differences.clear()
        self._values.clear()
        self._waiting = 0
        self._prediction = None
        kept = self._residuals
        self._residuals = SortedWindow(self._settings.num_window)
        self.num_accepted = 0
        for value in values:
            self._push(value)
        if len(self._residuals) < self._settings.num_history <= len(kept):
            self._residuals = kept

    def _push(self, value: float) -> None:
        if self._prediction is not None:
            most = max(self._settings.num_history, self.num_accepted // 2)
            self._residuals.push(value - self._prediction, keep=most)
        if self._values:
            self._differences.push(value - self._values[-1])
        self._best = min(self._best, value) if self.num_accepted else value
        self.num_accepted += 1
        self._values.append(value)
        size = max(4, min(self._settings.num_level, self.num_accepted // _LEVEL_SHARE))
        newer = self._newer
        newer.push(value)
        while len(newer) > size:
            self._older.push(newer.drop(), keep=size)
        num_newer, num_older = len(newer), len(self._older)
        if num_older >= 4 and num_newer >= 4:
            level = newer.median()
            self._prediction = level + (level - self._older.median()) * (num_newer + 1) / (num_newer + num_older)

    def _scale(self, middle: float, floor: float, *, above: bool) -> float:
        residuals = self._residuals
        scale = max(MAD_TO_SIGMA * residuals.mad(), floor)
        if above and not self._is_skewed:
            return max(scale, (middle - residuals.lower(_TAILS[0][0])) / _TAILS[0][1])
        for share, quantile in _TAILS:
            tail = max(residuals.upper(share) - middle, middle - residuals.lower(share))
            scale = max(scale, tail / quantile)
        return scale

    def _early_spread(self, floor: float) -> float | None:
        if len(self._differences) < LEAST_POINTS - 1:
            return None
        differences = self._differences
        middle = differences.median()
        tail = max(differences.upper(_EARLY_TAIL) - middle, middle - differences.lower(_EARLY_TAIL))
        return max(MAD_TO_SIGMA * differences.mad(), tail / _EARLY_QUANTILE, floor)

    def _floor(self, value: float, quantum: float | None) -> float:
        """Below which no scale is believed: a digit of the log, single precision."""
        digit = 10.0**-self._decimals if self._decimals < _MOST_DECIMALS else 0.0
        return max(digit if quantum is None else quantum * digit, _SINGLE_PRECISION * max(abs(value), 1e-6))

    def _note_decimals(self, value: float) -> None:
        while self._decimals < _MOST_DECIMALS and round(value, self._decimals) != value:
            self._decimals += 1

    def _repeats_allowed(self) -> int | None:
        """How many repetitions in a row are a logger that hangs; None where any number is the log's own."""
        if not self.is_ready:
            return None
        share = (self._num_equal + 1) / (self._num_pairs + 2)
        limit = ceil(_REPEATS_LOG10_P / -log10(share)) if share < 1 else _MOST_WAITING + 1
        return limit if limit <= _MOST_WAITING else None

    def state(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "newer": list(self._newer.arrived),
            "older": list(self._older.arrived),
            "residuals": list(self._residuals.arrived),
            "differences": list(self._differences.arrived),
            "values": list(self._values),
            "best": self._best,
            "num_accepted": self.num_accepted,
            "decimals": self._decimals,
            "num_pairs": self._num_pairs,
            "num_equal": self._num_equal,
            "waiting": self._waiting,
            "prediction": self._prediction,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Become what `state` gave."""
        settings = self._settings
        self._newer = SortedWindow(settings.num_level + 1, state["newer"])
        self._older = SortedWindow(settings.num_level, state["older"])
        self._residuals = SortedWindow(settings.num_window, state["residuals"])
        self._differences = SortedWindow(settings.num_level * 2, state["differences"])
        self._values = deque(state["values"], maxlen=settings.num_window)
        self._best = state["best"]
        self.num_accepted = state["num_accepted"]
        self._decimals = state["decimals"]
        self._num_pairs, self._num_equal = state["num_pairs"], state["num_equal"]
        self._waiting = state["waiting"]
        self._prediction = state["prediction"]
