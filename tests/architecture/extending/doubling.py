"""Did the loss double from one point to the next?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["doubling"]


def doubling(loss: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Loss at least twice that of the point before. A NaN is not above anything: two points are not judged.

    >>> doubling(np.array([1.0, 2.5, 2.0])).tolist()
    [False, True, False]
    """
    alarms = np.zeros(len(loss), np.bool_)
    with np.errstate(invalid="ignore"):
        alarms[1:] = loss[1:] >= 2 * loss[:-1]
    return alarms
