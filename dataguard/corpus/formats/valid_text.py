"""Which rows of a column of bytes are not UTF-8?

Arrow says so of a whole column: row by row it is found by halving. Where many columns are looked at, a compiled kernel
says it of each row, at a multiple of the speed. The answer is the same. Whoever goes through a shard counts its text
with `SHORTCUT.worth`, which loads the kernel when that pays off (bulk.py).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dataguard.corpus.formats.bulk import Shortcut, only_compiled
from dataguard.corpus.formats.content import one_text

__all__ = ["SHORTCUT", "Utf8Kernel", "rows_not_utf8"]


class Utf8Kernel:
    r"""The compiled kernel. Importing and compiling happen when one is made.

    >>> Utf8Kernel().rows_not_utf8(pa.array([b"a", b"\xff", None, b"\xe2\x82\xac"], pa.large_binary()))
    [1]
    """

    def __init__(self) -> None:
        from dataguard.corpus.kernels import utf8

        self._mark = only_compiled(utf8.mark_not_utf8)
        self.rows_not_utf8(one_text(b"a"))

    def rows_not_utf8(self, text: pa.LargeBinaryArray) -> list[int]:
        """See the function of that name."""
        num_rows = len(text)
        validity, offsets, values = text.buffers()
        if not num_rows or values is None:
            return []
        is_bad = np.zeros(num_rows, np.bool_)
        starts = np.frombuffer(offsets, np.int64, num_rows + 1, 8 * text.offset)
        data = np.frombuffer(values, np.uint8)
        for array in (starts, data):
            array.flags.writeable = False  # one compiled variant, whatever the buffers are of
        if not self._mark(data, starts, is_bad):
            return []
        if validity is not None and text.null_count:
            is_bad &= np.asarray(text.is_valid())
        return np.flatnonzero(is_bad).tolist()


SHORTCUT = Shortcut(Utf8Kernel, after_bytes=1 << 30)
"""The kernel of this process. Arrow is fast at this: it takes more than elsewhere until loading the kernel pays off."""


def rows_not_utf8(text: pa.LargeBinaryArray) -> list[int]:
    r"""Rows that are neither null nor UTF-8, ascending; offsets must have been checked. Loads nothing.

    >>> rows_not_utf8(pa.array([b"a", b"\xff", None, b"\xed\xa0\x80"], pa.large_binary()))
    [1, 3]
    """
    return _by_halves(text, 0) if SHORTCUT.loaded is None else SHORTCUT.loaded.rows_not_utf8(text)


def _by_halves(text: pa.LargeBinaryArray, first_row: int) -> list[int]:
    try:
        text.cast(pa.large_string())
    except pa.ArrowInvalid:
        if len(text) == 1:
            return [first_row]
        middle = len(text) // 2
        return _by_halves(text[:middle], first_row) + _by_halves(text[middle:], first_row + middle)
    return []
