"""How many of the letters of a document are vowels?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["vowel_fraction"]

_IS_VOWEL = np.zeros(256, dtype=np.int64)
_IS_VOWEL[np.frombuffer(b"aeiouAEIOU", dtype=np.uint8)] = 1


def vowel_fraction(values: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Vowels / bytes of each document, float64, shape (n,).

    >>> vowel_fraction(np.frombuffer(b"aabbxy", dtype=np.uint8), np.array([0, 4, 6])).tolist()
    [0.5, 0.0]
    """
    before = np.concatenate([[0], np.cumsum(_IS_VOWEL[values])])
    lengths = np.diff(offsets)
    return np.diff(before[offsets]) / np.maximum(lengths, 1)
