"""What is the level of a loss that falls, at steps that are known and right behind them?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["AROUND_STEPS", "levels", "levels_at"]

AROUND_STEPS = 16
"""Steps to each side of which the median is the level: long enough that one event does not move it."""
_LEAST_AROUND = 2


def levels(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The median around each value, over windows that reach as far to one side as to the other.

    Towards the ends windows are shorter, down to two values to a side: there a long one-sided one would lie above a
    loss that falls, or below it.

    >>> levels(np.array([5.0, 4.0, 9.0, 2.0, 1.0])).tolist()
    [5.0, 4.5, 4.0, 3.0, 2.0]
    """
    n = len(values)
    found = np.empty(n)
    for i in range(n):
        half = max(_LEAST_AROUND, min(AROUND_STEPS, i, n - 1 - i))
        found[i] = np.median(values[max(0, i - half) : i + half + 1])
    return found


def levels_at(steps: NDArray[np.int64], values: NDArray[np.float64], asked: NDArray[np.int64]) -> NDArray[np.float64]:
    """The level at each step asked for: between known steps by a line, behind the last one as the last few go on.

    A loss that falls fast would lie below their median by then. They are carried on by the slope between the medians of
    their two halves, no further than they reach back.

    Parameters
    ----------
    steps
        Ascending, of `values`; at least one.

    Examples
    --------
    >>> levels_at(np.array([0, 1, 2]), np.array([3.0, 2.0, 1.0]), np.array([1, 5])).tolist()
    [2.0, 2.0]
    """
    last_steps, last = steps[-(AROUND_STEPS + 1) :], values[-(AROUND_STEPS + 1) :]
    middle, half = float(np.median(last_steps)), len(last) // 2
    slope = 0.0
    if half >= AROUND_STEPS // 2:
        run = float(np.median(last_steps[-half:]) - np.median(last_steps[:half]))
        slope = float(np.median(last[-half:]) - np.median(last[:half])) / run
    reach = np.minimum(asked, steps[-1] + len(last)) - middle
    behind = float(np.median(last)) + slope * reach
    between = np.interp(asked, steps, levels(values))
    answer: NDArray[np.float64] = np.where(asked > steps[-1], behind, between)
    return answer
