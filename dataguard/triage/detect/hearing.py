"""How high must a spike have been to show at a step, and does one stand there that was not heard?

The detector's bar at a point is its threshold times the scale of its window (`Tracker.smallest_visible`). In the steep
begin of a training the window holds residuals of a curve that bends, and few of them: the bar may be many times the
noise there, and then "no event" says little. So:

1. A point's *local excess* is how far it lies above the median of the `_NUM_BEFORE` points before it. On a falling
   curve that median is too high, and the excess rather too small.
2. The *local scale* is that of the same statistic at the `num_level` points before: the median absolute deviation of
   each from the mean of those four earlier and four later, over sqrt(1.5), so that a curve that bends is no noise.
3. A MAD of n points has 0.37 n degrees of freedom, so Student's t tells what is improbable: `threshold` and
   `exit_threshold` are the quantiles with the tails that the settings of these names have.
4. The detector is *deaf* at a point if its bar lies above the local excess that those few points alone, with all that
   is allowed for their being few, would have made an event of (`threshold`, 16 scales of 32 points). Where the noise
   stays as it is, a full window has 7.5 and is never deaf.
5. Where it was deaf, a point above those before it that made no event is *unheard*: at a step that is asked for by
   `exit_threshold` (p = 1.3e-3), in a log as a whole by `threshold` (p = 1e-9, for nobody asked). A step that is asked
   for is unheard as well where the detector was not deaf, but the point lies above `threshold` local scales all the
   same (p = 3e-5).

All of it follows from the settings of the detector; nothing was fitted to any log.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from dataguard.core.robust import MAD_TO_SIGMA
from dataguard.core.spikes import SpikeEvent
from dataguard.triage.detect.settings import DetectorSettings
from dataguard.triage.detect.tracker import student

__all__ = ["Hearing", "Unheard", "hearing_of"]

_NUM_BEFORE = 8
"""Points whose median is the level: a spike of three leaves it where it was."""
_LAG = _NUM_BEFORE // 2
_BENDS_ERROR = sqrt(1.5)
_LEAST = 8
"""With fewer nothing is said; the detector judges by its window from `num_history` points on, which are as many."""
_MAD_EFFICIENCY = 0.37
"""Degrees of freedom of a MAD, for each point (of normal noise)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unheard:
    """Points that stand above those before them where the detector was deaf."""

    start: int
    stop: int
    """One past the last of them."""
    size_nats: float
    """Local excess of the one that stands out most."""
    sigmas: float
    """The same in local scales."""
    smallest_spike_nats: float
    """What a spike there would have needed to show."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hearing:
    """What each point of the loss of a log would have had to do to make an event; all arrays of shape (num_points,)."""

    steps: NDArray[np.int64]
    smallest: NDArray[np.float64]
    """Nats above what was expected; NaN where nothing was judged."""
    excess: NDArray[np.float64]
    """Local excess in nats; NaN where too few points lie before."""
    scale: NDArray[np.float64]
    """Local scale in nats; NaN as `excess`."""
    num_before: NDArray[np.int64]
    """Of how many points the scale is."""
    is_heard: NDArray[np.bool_]
    """Whether an event holds it."""
    settings: DetectorSettings

    def smallest_spike(self, step: int) -> float | None:
        """What a spike at a step needed to show, in nats; None where the step was not judged."""
        at = self._places(step, step + 1)
        return float(self.smallest[at[0]]) if len(at) and np.isfinite(self.smallest[at[0]]) else None

    def hardest(self) -> tuple[int, float] | None:
        """The step at which a spike needed most to show, and how many nats; None where none was judged."""
        if not np.isfinite(self.smallest).any():
            return None
        at = int(np.nanargmax(self.smallest))
        return int(self.steps[at]), float(self.smallest[at])

    def typical(self) -> float | None:
        """The median of what a spike needed to show, in nats; None where no step was judged."""
        return float(np.nanmedian(self.smallest)) if np.isfinite(self.smallest).any() else None

    def unheard(self, step: int | None = None) -> tuple[Unheard, ...]:
        """What stands out and made no event where the detector was deaf.

        Parameters
        ----------
        step
            The step in question. What counts is that step and the next (a cause may lie one step before what it does),
            as the module says; and, for it may have left another level, what stands out by `threshold` within the
            `num_aftermath` points before. Without it: all of the log, by `threshold`.
        """
        # What is improbable, by how many points the scale is of.
        freedom = [_MAD_EFFICIENCY * max(n, _LEAST) for n in range(self.settings.num_level + 1)]
        most = np.array([student(self.settings.threshold, each) for each in freedom])[self.num_before]
        least = np.array([student(self.settings.exit_threshold, each) for each in freedom])[self.num_before]
        with np.errstate(invalid="ignore"):  # NaN is below and above nothing
            is_open = ~self.is_heard & (self.scale > 0)
            is_deaf = is_open & (self.smallest > most * self.scale)
            found = is_deaf & (self.excess >= most * self.scale)
            asked = is_deaf & (self.excess >= least * self.scale)
            asked |= is_open & (self.excess >= self.settings.threshold * self.scale)
        if step is not None:
            near = self._places(step, step + 2)
            first = int(np.searchsorted(self.steps, step)) - self.settings.num_aftermath
            found[: max(0, first)] = False
            found[int(np.searchsorted(self.steps, step + 2)) :] = False
            found[near] |= asked[near]
        edges = np.flatnonzero(np.diff(np.r_[False, found, False].astype(np.int8))).reshape(-1, 2)
        return tuple(self._stretch(first, stop) for first, stop in edges.tolist())  # stretches x (first, stop)

    def _places(self, start: int, stop: int) -> NDArray[np.int64]:
        return np.flatnonzero((self.steps >= start) & (self.steps < stop))

    def _stretch(self, first: int, stop: int) -> Unheard:
        worst = first + int(np.argmax(self.excess[first:stop]))
        return Unheard(
            start=int(self.steps[first]),
            stop=int(self.steps[stop - 1]) + 1,
            size_nats=float(self.excess[worst]),
            sigmas=float(self.excess[worst] / self.scale[worst]),
            smallest_spike_nats=float(self.smallest[worst]),
        )


def hearing_of(
    steps: NDArray[np.int64],
    loss: NDArray[np.float64],
    smallest: NDArray[np.float64],
    events: Iterable[SpikeEvent],
    settings: DetectorSettings,
) -> Hearing:
    """How well the detector heard at each point of the loss of a log.

    Parameters
    ----------
    steps, loss
        Of all points in order, shape (n,); what is not finite is passed over.
    smallest
        What each needed to make an event, in nats, shape (n,); NaN where it was not judged.

    Examples
    --------
    >>> loss = 3 + 0.1 * np.random.default_rng(0).standard_normal(100)
    >>> loss[60] += 2.0
    >>> found = hearing_of(np.arange(100), loss, np.full(100, 2.6), (), DetectorSettings())
    >>> [(each.start, each.stop, round(each.size_nats), each.smallest_spike_nats) for each in found.unheard()]
    [(60, 61, 2, 2.6)]
    >>> hearing_of(np.arange(100), loss, np.full(100, 0.8), (), DetectorSettings()).unheard()
    ()
    """
    excess, scale = np.full((2, len(loss)), np.nan)
    num = np.zeros(len(loss), np.int64)
    good = np.flatnonzero(np.isfinite(loss))
    values = loss[good]
    if len(values) > _NUM_BEFORE + 2 * _LAG:
        levels = np.median(np.lib.stride_tricks.sliding_window_view(values[:-1], _NUM_BEFORE), axis=1)
        own = values[_NUM_BEFORE:] - levels
        excess[good[_NUM_BEFORE:]] = own
        bends = (own[_LAG:-_LAG] - (own[: -2 * _LAG] + own[2 * _LAG :]) / 2) / _BENDS_ERROR
        # A point is judged by those before it alone, as many as there are, up to `num_level`.
        first = good[_NUM_BEFORE + 2 * _LAG :]
        num[first] = np.minimum(np.arange(len(first)), settings.num_level)
        scale[first] = _trailing_mad(bends, settings.num_level)
    is_heard = np.zeros(len(loss), np.bool_)
    for event in events:
        begin = event.start if event.onset is None else min(event.start, event.onset)
        is_heard[np.searchsorted(steps, begin) : np.searchsorted(steps, event.stop)] = True
    return Hearing(
        steps=steps,
        smallest=smallest,
        excess=excess,
        scale=scale,
        num_before=num,
        is_heard=is_heard,
        settings=settings,
    )


def _trailing_mad(values: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """Scaled MAD (about zero) of the `most` values before each, of as many as there are; NaN of fewer than `_LEAST`."""
    away = np.abs(values)
    early = [float(np.median(away[:i])) if i >= _LEAST else np.nan for i in range(min(most, len(away)))]
    found = np.array(early)
    if len(away) > most:
        rest = np.median(np.lib.stride_tricks.sliding_window_view(away[:-1], most), axis=1)
        found = np.concatenate([found, rest])
    return np.asarray(MAD_TO_SIGMA * found, np.float64)
