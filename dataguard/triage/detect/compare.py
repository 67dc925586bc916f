"""Do the spikes of two runs belong to their data?

Runs that were fed the same batches in the same order spike at the same steps, however else they differ. So:

1. Each loss is held against its neighbours (median and scaled MAD of up to 100 points on either side, itself left out,
   about the line through the medians of the two sides): here both sides are known.
2. A spike of one log *recurs* where the other stands out at the same step by `_STANDS_OUT`. How often it does so
   anywhere (its share of all common steps) is the chance for one spike; the binomial tail is the chance that so many
   would recur by accident.
3. What both logs do from step to step is correlated as well, even where nothing spikes: the rank correlation of how the
   deviations differ between the two points of a pair tells it, in standard errors 1 / sqrt(n) of n pairs. (Pairs, since
   any two curves share the slow part: that training falls.)

One data order is said where spikes recur with p < 1e-6 in either direction, or where the deviations correlate by more
than six standard errors and 0.1; another order where neither is so, and there was enough to see it.
"""

from __future__ import annotations

from math import exp, inf, lgamma, log, log1p, sqrt

import numpy as np
from numpy.typing import NDArray

from dataguard.core.robust import MAD_TO_SIGMA
from dataguard.core.spikes import EventClass
from dataguard.run.logs import TrainingLog
from dataguard.triage.detect.answers import Comparison, SharedSpike
from dataguard.triage.detect.detection import Detection, judged_log

__all__ = ["binomial_tail_log10", "compare", "deviations"]

_EITHER_SIDE = 100
_STANDS_OUT = 3.0
_CHANCE_LOG10 = -6.0
_LEAST_CORRELATION = 0.1
_CORRELATION_SIGMAS = 6.0
_LEAST_PAIRS = 50
_LEAST_SPIKES = 5
_OTHER_ORDER_LOG10 = -2.0
_AT_ONCE = 4096
_RISING = {EventClass.HARD_BATCH, EventClass.TRANSIENT_SPIKE, EventClass.ABSORBING_SHIFT}


def compare(first: TrainingLog, second: TrainingLog, found: tuple[Detection, Detection]) -> Comparison:
    """Two logs of which the events are known."""
    series = [_finite(judged_log(log)) for log in (first, second)]
    common, *places = np.intersect1d(series[0][0], series[1][0], assume_unique=True, return_indices=True)
    excess, sigmas = [], []
    for (_, values), place in zip(series, places, strict=True):
        own_excess, own_sigmas = deviations(values)
        excess.append(own_excess[place])
        sigmas.append(own_sigmas[place])
    spikes = [_spike_steps(detection, common) for detection in found]
    high = [each >= _STANDS_OUT for each in sigmas]
    recurring, expected, chances = [], [], []
    for own, others in ((0, 1), (1, 0)):
        share = float(high[others].mean()) if len(common) else 0.0
        num_spikes, num_again = int(spikes[own].sum()), int((spikes[own] & high[others]).sum())
        recurring.append(num_again)
        expected.append(share * num_spikes)
        chances.append(binomial_tail_log10(num_again, num_spikes, share))
    is_shared = (spikes[0] & high[1]) | (spikes[1] & high[0])
    num_pairs = len(common) // 2
    moves = [each[1 : 2 * num_pairs : 2] - each[0 : 2 * num_pairs : 2] for each in sigmas]
    correlation = _rank_correlation(moves[0], moves[1])
    correlated = None if correlation is None else correlation * sqrt(num_pairs)
    return Comparison(
        num_common_steps=len(common),
        num_spikes=(int(spikes[0].sum()), int(spikes[1].sum())),
        num_recurring=(recurring[0], recurring[1]),
        expected_by_chance=(expected[0], expected[1]),
        log10_chance=(chances[0], chances[1]),
        correlation=correlation,
        correlation_sigmas=correlated,
        one_data_order=_one_order(chances, spikes, correlation, num_pairs),
        shared=tuple(
            SharedSpike(
                step=int(common[i]),
                size_nats=(float(excess[0][i]), float(excess[1][i])),
                sigmas=(float(sigmas[0][i]), float(sigmas[1][i])),
                is_event=(bool(spikes[0][i]), bool(spikes[1][i])),
            )
            for i in np.flatnonzero(is_shared).tolist()
        ),
    )


def deviations(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of each point, shape (n,): above the median of its neighbours, and the same in their robust standard deviations.

    Where neighbours are all alike a deviation has no scale, and counts as none.

    >>> values = np.tile([1.0, 1.1], 300)
    >>> values[300] = 3.0
    >>> excess, sigmas = deviations(values)
    >>> int(sigmas.argmax()), round(float(excess.max()), 2)
    (300, 1.95)
    """
    num = len(values)
    side = min(_EITHER_SIDE, max(0, (num - 1) // 2))
    if side < 1:
        return np.zeros(num), np.zeros(num)
    # At the ends the window is that of the nearest point that has both sides.
    windows = np.lib.stride_tricks.sliding_window_view(values, 2 * side + 1)  # windows x points
    medians = np.concatenate(
        [
            np.median(each, axis=1)
            for each in np.array_split(np.lib.stride_tricks.sliding_window_view(values, side), 1 + num // _AT_ONCE)
        ]
    )
    middle, scale = np.empty(num), np.empty(num)
    for first in range(0, num, _AT_ONCE):
        points = np.arange(first, min(first + _AT_ONCE, num))
        which = np.clip(points - side, 0, len(windows) - 1)
        slope = (medians[which + side + 1] - medians[which]) / (side + 1)
        # windows x points: each without its trend, as seen from the point that is judged.
        part = windows[which] - slope[:, None] * (which[:, None] + np.arange(2 * side + 1) - points[:, None])
        part[np.arange(len(points)), points - which] = np.nan
        middle[points] = np.nanmedian(part, axis=1)
        scale[points] = MAD_TO_SIGMA * np.nanmedian(np.abs(part - middle[points, None]), axis=1)
    excess = values - middle
    return excess, np.divide(excess, scale, out=np.zeros(num), where=scale > 0)


def binomial_tail_log10(at_least: int, num: int, chance: float) -> float:
    """Decimal logarithm of the chance of at least so many hits in `num` trials; -1e9 where it is impossible.

    >>> round(binomial_tail_log10(1, 10, 0.5), 6), round(10 ** binomial_tail_log10(2, 2, 0.1), 6)
    (-0.000424, 0.01)
    """
    if at_least <= 0:
        return 0.0
    if chance <= 0:
        return -1e9
    if chance >= 1:
        return 0.0
    terms = [
        lgamma(num + 1) - lgamma(k + 1) - lgamma(num - k + 1) + k * log(chance) + (num - k) * log1p(-chance)
        for k in range(at_least, num + 1)
    ]
    most = max(terms, default=-inf)
    total = sum(exp(term - most) for term in terms)
    return min(0.0, (most + log(total)) / log(10))


def _finite(log: TrainingLog) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    steps, values = log.series("loss")
    good = np.isfinite(values)
    return steps[good], values[good]


def _spike_steps(detection: Detection, common: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Of the common steps, whether an event that rises has its peak there."""
    peaks = [event.peak for event in detection.events if event.signal == "loss" and event.event_class in _RISING]
    return np.isin(common, np.array(peaks, np.int64))


def _rank_correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float | None:
    if len(first) < _LEAST_PAIRS:
        return None
    ranks = [each.argsort().argsort().astype(np.float64) for each in (first, second)]
    if any(each.std() == 0 or np.ptp(values) == 0 for each, values in zip(ranks, (first, second), strict=True)):
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _one_order(
    chances: list[float], spikes: list[NDArray[np.bool_]], correlation: float | None, num_pairs: int
) -> bool | None:
    if min(chances) <= _CHANCE_LOG10:
        return True
    if correlation is not None:
        error = 1 / sqrt(num_pairs)
        if correlation > max(_LEAST_CORRELATION, _CORRELATION_SIGMAS * error):
            return True
        if _CORRELATION_SIGMAS * error < _LEAST_CORRELATION:
            return False
    if min(int(each.sum()) for each in spikes) >= _LEAST_SPIKES and min(chances) > _OTHER_ORDER_LOG10:
        return False
    return None
