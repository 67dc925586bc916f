"""What is each code point, in a table small enough for a processor's cache?

Two levels: code points are cut into blocks of 128, and equal blocks are kept once. About 40 KB for all 1,114,112.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from dataguard.score.kernels import text_classes as classes
from dataguard.score.unicode_ranges import ALPHABETIC, DECIMAL_DIGIT, UNSPACED, WHITE_SPACE, Ranges

__all__ = ["NONTEXT", "class_table"]

_PLANES = range(0, 0x110000, 0x10000)

NONTEXT: Ranges = (
    (0x80, 0xA0),
    (0xE000, 0xF900),
    (0xFDD0, 0xFDF0),
    (0xFEFF, 0xFF00),
    (0xFFFD, 0xFFFE),
    *((plane + 0xFFFE, plane + 0x10000) for plane in _PLANES),
    (0xF0000, 0xFFFFE),
    (0x100000, 0x10FFFE),
)
"""C1 controls, private use, noncharacters, U+FFFD and the byte order mark (which a kernel lets pass at the start)."""


@cache
def class_table() -> tuple[NDArray[np.uint16], NDArray[np.uint8]]:
    """Where each block of 128 code points begins (in blocks), and the classes of the distinct blocks.

    >>> index, table = class_table()
    >>> bool(table[(int(index[0x0663 >> 7]) << 7) | 0x0663 & 127] & classes.IS_DIGIT)
    True
    """
    of_point = np.zeros(0x110000, dtype=np.uint8)
    for ranges, bit in (
        (WHITE_SPACE, classes.IS_WHITE),
        (DECIMAL_DIGIT, classes.IS_DIGIT),
        (ALPHABETIC, classes.IS_ALPHABETIC),
        (UNSPACED, classes.IS_UNSPACED),
        (NONTEXT, classes.IS_NONTEXT),
        (((0xFFFD, 0xFFFE),), classes.IS_REPLACEMENT),
        (((0x2026, 0x2027),), classes.IS_ELLIPSIS),
    ):
        for start, stop in ranges:
            of_point[start:stop] |= bit
    # as NumPy's unique rows, which takes a hundred times as long at the start of every process
    rows = [of_point[start : start + 128].tobytes() for start in range(0, len(of_point), 128)]
    numbers = {row: number for number, row in enumerate(sorted(set(rows)))}
    index = np.array([numbers[row] for row in rows], np.uint16)
    return index, np.frombuffer(b"".join(numbers), np.uint8).copy()  # kernels take writable arrays
