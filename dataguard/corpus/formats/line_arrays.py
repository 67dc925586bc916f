"""Where do the lines of a block begin and end, and what stands how often in each?

A block is looked at once as an array of bytes, never line by line; what is found is given as arrays of offsets.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LARGE_BYTES", "LineArrays"]

LARGE_BYTES = 1 << 22
"""Lines above this are decoded by themselves, in slices."""
_SLICE_BYTES = 1 << 18  # what is looked at in one go stays in the processor's cache
_LF, _CR, _OPEN = b"\n\r{"


class LineArrays:
    """The lines of a block as arrays of offsets, each of shape (lines,), int64."""

    def __init__(self, content: Any) -> None:
        self.content = content
        self.data = np.frombuffer(content, dtype=np.uint8)
        ends = _places(self.data, _LF) + 1
        if len(self.data) and (not len(ends) or ends[-1] != len(self.data)):
            ends = np.append(ends, len(self.data))
        self.ends = ends
        """One past each line, its LF included."""
        self.starts = np.concatenate([ends[:0], [0], ends[:-1]])[: len(ends)].astype(np.int64)
        self.stops = ends - (self.data[ends - 1] == _LF)
        """One past what each line holds without its ending, LF or CR LF."""
        self.stops -= (self.stops > self.starts) & (self.data[self.stops - 1] == _CR)

    @property
    def num_lines(self) -> int:
        """Lines, blank ones included."""
        return len(self.ends)

    @property
    def longest_bytes(self) -> int:
        """Of the longest line, its ending included."""
        return int((self.ends - self.starts).max(initial=0))

    def find(self, needle: bytes) -> NDArray[np.int64]:
        """Where a short, plain needle stands in the block, overlaps included."""
        found = _places(self.data[: max(len(self.data) - len(needle) + 1, 0)], needle[0])
        for i in range(1, len(needle)):
            if not len(found):
                break
            found = found[self.data[found + i] == needle[i]]
        return found

    def per_line(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many of these offsets (ascending) lie in each line."""
        return np.diff(np.searchsorted(places, np.append(self.starts, len(self.data))))

    def view(self, line: int) -> memoryview:
        """A line without its ending."""
        return memoryview(self.content)[self.starts[line] : self.stops[line]]

    def with_brackets(self, num_brackets: int) -> list[int]:
        """Lines with more opening brackets than that, those in strings included."""
        if self.longest_bytes > LARGE_BYTES:  # a list of its brackets would be larger than the line
            return list(range(self.num_lines))
        openings = _places(self.data, _OPEN, ignoring=0x20)  # bit 5 is all that '[' and '{' differ in
        if len(openings) <= num_brackets:
            return []
        return np.flatnonzero(self.per_line(openings) > num_brackets).tolist()


def _places(data: NDArray[np.uint8], byte: int, *, ignoring: int = 0) -> NDArray[np.int64]:
    """Where a byte stands, ignoring some of its bits; slice by slice, to need no second block of memory."""
    places = []
    for start in range(0, len(data), _SLICE_BYTES):
        piece = data[start : start + _SLICE_BYTES]
        places.append(np.flatnonzero((piece | ignoring if ignoring else piece) == byte) + start)
    return np.concatenate(places) if places else np.zeros(0, dtype=np.int64)
