"""What are the median and the scale of the last points, while points come and go one at a time?

A window keeps its points twice: in the order of arrival and sorted. Adding and dropping a point is a bisection; the
median, the median absolute deviation and the tails are read off the sorted list.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable

__all__ = ["SortedWindow", "median_of"]


def median_of(values: Iterable[float]) -> float:
    """The median of a few finite values.

    >>> median_of([3.0, 1.0, 2.0, 10.0])
    2.5
    """
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


class SortedWindow:
    """The last `size` finite values.

    >>> window = SortedWindow(4)
    >>> for value in (1.0, 9.0, 2.0, 3.0, 4.0):
    ...     window.push(value)
    >>> window.median(), window.mad(), list(window.arrived)
    (3.5, 1.0, [9.0, 2.0, 3.0, 4.0])
    """

    __slots__ = ("arrived", "ordered", "size")

    def __init__(self, size: int, values: Iterable[float] = ()) -> None:
        self.size = size
        self.arrived: deque[float] = deque(values)
        self.ordered = sorted(self.arrived)

    def __len__(self) -> int:
        return len(self.ordered)

    def push(self, value: float, *, keep: int | None = None) -> None:
        """Add a value; the oldest go until no more than `keep` (default: `size`) are left."""
        self.arrived.append(value)
        insort(self.ordered, value)
        most = self.size if keep is None else min(keep, self.size)
        while len(self.ordered) > most:
            self.drop()

    def drop(self) -> float:
        """Take the oldest value out."""
        gone = self.arrived.popleft()
        del self.ordered[bisect_left(self.ordered, gone)]
        return gone

    def clear(self) -> None:
        """Forget all."""
        self.arrived.clear()
        self.ordered.clear()

    def median(self) -> float:
        """Of at least one value."""
        ordered = self.ordered
        half = len(ordered) // 2
        return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2

    def mad(self) -> float:
        """Median absolute deviation from the median, in O(log n): the two sides of the median are sorted already."""
        ordered, middle = self.ordered, self.median()
        num = len(ordered)
        wanted = num // 2  # 0-based rank of the upper middle one
        split = bisect_left(ordered, middle)
        num_below, num_above = split, num - split
        # The `wanted + 1` least distances are `below` of the left side and the rest of the right side.
        low, high = max(0, wanted + 1 - num_above), min(num_below, wanted + 1)
        while low < high:
            below = (low + high) // 2
            above = wanted - below  # one of the right side more than would be taken with below + 1
            if above < num_above and middle - ordered[split - below - 1] < ordered[split + above] - middle:
                low = below + 1
            else:
                high = below
        below, above = low, wanted + 1 - low
        left = middle - ordered[split - below] if below else -1.0
        right = ordered[split + above - 1] - middle if above else -1.0
        most = max(left, right)
        if num % 2:
            return most
        # Of an even number the mean of the two middle ones: the one below is the greatest of what remains.
        if left >= right:
            below -= 1
        else:
            above -= 1
        left = middle - ordered[split - below] if below else -1.0
        right = ordered[split + above - 1] - middle if above else -1.0
        return (most + max(left, right)) / 2

    def upper(self, share: float) -> float:
        """The value below which `share` of the values lie."""
        return self.ordered[min(len(self.ordered) - 1, int(share * len(self.ordered)))]

    def lower(self, share: float) -> float:
        """The value above which `share` of the values lie."""
        return self.ordered[max(0, len(self.ordered) - 1 - int(share * len(self.ordered)))]
