"""How likely is so much by chance? Exact tails, and an honest one beyond everything that was seen.

Nothing here is fitted to incidents. Counts have exact tails (hypergeometric, by log-gamma). Where one value lies beyond
all of a background, ranks alone say no more than 1 in (n + 1); a tail has to be assumed, and the one assumed is
exponential in the scale that the caller chose (of a logarithm that is a power law), no lighter than the background
shows at two thresholds, and with its own uncertainty added (`tail_chance`).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["MAD_TO_SIGMA", "hypergeometric_tail", "location_scale", "normal_tail", "tail_chance", "z_of_chance"]

MAD_TO_SIGMA = 1.4826
_FIRST_TAIL = 0.9
_SECOND_TAIL = 0.975
_LEAST_IN_TAIL = 8
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


def tail_chance(value: float, background: NDArray[np.float64]) -> float:
    """P(one more value of the background's kind is at least `value`), never less than an honest guess.

    Inside of what was seen that is (1 + how many are as large) / (n + 1). Beyond it the tail goes on exponentially from
    its 90 % quantile, with the mean excess over that or over the 97.5 % quantile, whichever is larger (a tail heavier
    than exponential has a larger one further out), made larger by 2.3 standard errors of it. A background whose tail
    has no spread says nothing beyond its ranks.

    >>> many = np.arange(1.0, 101.0)
    >>> tail_chance(200.0, many) < 1e-3, round(tail_chance(50.0, many), 4)
    (True, 0.5149)
    """
    n = len(background)
    ranked = (1 + int(np.count_nonzero(background >= value))) / (n + 1)
    if n < 4 * _LEAST_IN_TAIL or value <= float(background.max()):
        return ranked
    slowest = 0.0
    for level in (_FIRST_TAIL, _SECOND_TAIL):
        start = float(np.quantile(background, level))
        above = background[background > start] - start
        if len(above) < _LEAST_IN_TAIL:
            continue
        scale = float(above.mean()) * (1 + _SURE / math.sqrt(len(above)))
        slowest = max(slowest, len(above) / n * math.exp(-(value - start) / scale))
    return min(ranked, slowest) if slowest > 0 else ranked
