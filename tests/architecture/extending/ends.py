"""With which token does a sample end?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["last_token"]


def last_token(ids: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The last id of each row, 0 of an empty one; int64, shape (n,).

    >>> last_token(np.array([1, 2, 3]), np.array([0, 2, 2, 3])).tolist()
    [2, 0, 3]
    """
    last = np.zeros(len(offsets) - 1, dtype=np.int64)
    has_any = np.diff(offsets) > 0
    last[has_any] = ids[offsets[1:][has_any] - 1]
    return last
