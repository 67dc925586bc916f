"""How likely is so much by chance? Exact tails, and an honest one beyond everything that was seen.

Nothing here is fitted to incidents. Counts have exact tails (hypergeometric, by log-gamma). Where one value lies beyond
all of a background, ranks alone say no more than 1 in (n + 1); a tail has to be assumed, and the one assumed is
exponential in the scale that the caller chose (of a logarithm that is a power law), no lighter than the background
shows at two thresholds, and with its own uncertainty added (`Tail`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dataguard.core.robust import MAD_TO_SIGMA

__all__ = [
    "LEAST_CHANCE",
    "LEAST_TAIL",
    "Tail",
    "binomial_tail",
    "hypergeometric_tail",
    "location_scale",
    "normal_tail",
    "z_of_chance",
]

_FIRST_TAIL = 0.9
_SECOND_TAIL = 0.975
_LEAST_IN_TAIL = 8
LEAST_TAIL = 32
"""Values of which a tail can be told: three of them lie above the 90 % quantile."""
LEAST_CHANCE = 1e-12
"""Nothing is called less likely by a tail that was assumed."""
_SURE = 2.326
"""Standard deviations that the scale of a tail is taken larger by: 99 % of estimates are then no smaller than it is."""


def hypergeometric_tail(hits: int, draws: int, marked: int, total: int) -> float:
    """P(at least `hits` marked among `draws` drawn without putting back, of `total` with `marked` marked ones).

    >>> round(hypergeometric_tail(2, 2, 2, 4), 6), hypergeometric_tail(0, 3, 1, 9)
    (0.166667, 1.0)
    """
    lowest, highest = max(0, draws + marked - total), min(draws, marked)
    if hits <= lowest:
        return 1.0
    if hits > highest:
        return 0.0
    whole = _log_choose(total, draws)
    tail = (
        math.exp(_log_choose(marked, k) + _log_choose(total - marked, draws - k) - whole)
        for k in range(hits, highest + 1)
    )
    return min(1.0, math.fsum(tail))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def normal_tail(z: float) -> float:
    """P(a standard normal number is at least z).

    >>> round(normal_tail(1.96), 4)
    0.025
    """
    return 0.5 * math.erfc(z / math.sqrt(2))


def z_of_chance(p: float) -> float:
    """The z that a normal number exceeds with chance `p`, to 1e-9; infinite for 0.

    >>> round(z_of_chance(0.025), 3)
    1.96
    """
    if p <= 0:
        return math.inf
    low, high = -40.0, 40.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if normal_tail(middle) > p else (low, middle)
    return high


def location_scale(values: NDArray[np.float64]) -> tuple[float, float]:
    """Median, and a robust standard deviation: from the MAD, else from the middle 90 %, else 0 (no spread is known).

    >>> location_scale(np.array([1.0, 2.0, 3.0, 4.0, 100.0]))
    (3.0, 1.4826)
    """
    if not len(values):
        return math.nan, 0.0
    median = float(np.median(values))
    scale = MAD_TO_SIGMA * float(np.median(np.abs(values - median)))
    if scale == 0 and len(values) > 1:
        low, high = np.quantile(values, [0.05, 0.95]).tolist()
        scale = (high - low) / (2 * 1.645)
    return median, scale


class Tail:
    """The upper tail of a background: P(one more value of its kind is at least so large), by an honest guess.

    Inside of what was seen that is (1 + how many are as large) / (n + 1). Beyond it the tail goes on exponentially from
    its 90 % quantile, with the mean excess over that or over the 97.5 % quantile, whichever is larger (a tail heavier
    than exponential has a larger one further out), made larger by 2.3 standard errors of it. A background whose tail
    has no spread, or of fewer than 32 values, says nothing beyond its ranks.

    >>> tail = Tail(np.arange(1.0, 101.0))
    >>> tail.chances(np.array([50.0, 100.5, 200.0, np.inf])).round(4).tolist()
    [0.5149, 0.0099, 0.0, 0.0]
    """

    def __init__(self, background: NDArray[np.float64]) -> None:
        self._values = np.sort(background)
        self._parts: list[tuple[float, float, float]] = []
        n = len(background)
        for level in (_FIRST_TAIL, _SECOND_TAIL) if n >= LEAST_TAIL else ():
            start = float(np.quantile(self._values, level))
            above = self._values[self._values > start] - start
            if len(above) >= (_LEAST_IN_TAIL if level == _SECOND_TAIL else 3):
                scale = float(above.mean()) * (1 + _SURE / math.sqrt(len(above)))
                self._parts.append((start, scale, len(above) / n))

    def chances(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of each value, shape as given; no less than `LEAST_CHANCE`."""
        n = len(self._values)
        as_large = n - np.searchsorted(self._values, values, side="left")
        ranked: NDArray[np.float64] = (1 + as_large) / (n + 1)
        if not self._parts:
            return ranked
        slowest = np.zeros(values.shape)
        for start, scale, share in self._parts:
            slowest = np.maximum(slowest, share * np.exp(-np.maximum(values - start, 0.0) / scale))
        return np.where(as_large == 0, np.minimum(ranked, np.maximum(slowest, LEAST_CHANCE)), ranked)

    def chance(self, value: float) -> float:
        """Of one value."""
        return float(self.chances(np.array([value]))[0])


def binomial_tail(hits: int, trials: int, chance: float) -> float:
    """P(at least `hits` of so many independent trials, each with this chance).

    >>> round(binomial_tail(2, 3, 0.5), 6), binomial_tail(0, 0, 0.1)
    (0.5, 1.0)
    """
    if hits <= 0:
        return 1.0
    if hits > trials or chance <= 0:
        return 0.0
    if chance >= 1:
        return 1.0
    low, high = math.log(chance), math.log1p(-chance)
    return min(
        1.0,
        math.fsum(math.exp(_log_choose(trials, k) + k * low + (trials - k) * high) for k in range(hits, trials + 1)),
    )


def first_of_all_tail(hits: int, draws: int, others: int) -> float:
    """P(the `hits` largest of all are among `draws` of them, where `others` more are of the same kind).

    >>> round(first_of_all_tail(3, 8, 240), 9), first_of_all_tail(0, 8, 240)
    (2.2297e-05, 1.0)
    """
    if hits <= 0:
        return 1.0
    return math.exp(_log_choose(draws, hits) - _log_choose(draws + others, hits))


def stratified_tail(strata: Iterable[tuple[int, int, int]], hits: int) -> float:
    """P(at least `hits` marked are drawn, over strata of (draws, marked, total) that are drawn from one by one).

    >>> round(stratified_tail([(1, 1, 2), (1, 1, 2)], 2), 6), stratified_tail([], 0)
    (0.25, 1.0)
    """
    chances = np.ones(1)
    for draws, marked, total in strata:
        if not draws or not marked:
            continue
        low, high = max(0, draws + marked - total), min(draws, marked)
        whole = _log_choose(total, draws)
        own = np.zeros(high + 1)
        for k in range(low, high + 1):
            own[k] = math.exp(_log_choose(marked, k) + _log_choose(total - marked, draws - k) - whole)
        chances = np.convolve(chances, own)
    return min(1.0, float(chances[max(0, hits) :].sum())) if hits < len(chances) else 0.0
