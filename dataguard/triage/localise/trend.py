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
    """The level at each step asked for, between known steps by a line, behind the last one the median of the last few.

    Parameters
    ----------
    steps
        Ascending, of `values`; at least one.

    >>> levels_at(np.array([0, 1, 2]), np.array([3.0, 2.0, 1.0]), np.array([1, 5])).tolist()
    [2.0, 2.0]
    """
    behind = float(np.median(values[-(AROUND_STEPS + 1) :]))
    between = np.interp(asked, steps, levels(values))
    answer: NDArray[np.float64] = np.where(asked > steps[-1], behind, between)
    return answer
