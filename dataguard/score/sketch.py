"""How are the values of a signal over a whole corpus kept in little memory, so that the result knows no order?

As counts of fixed buckets. A bucket is what shares the sign, the exponent and the first 7 bits behind the leading one
of a float64: each octave has 128 of equal width, so that every value lies within 1/256 of the middle of its bucket.
Buckets are never merged, moved or sampled, and counts are integers: adding the same values in any order and any pieces,
by one or by many who are merged, gives the same sketch.

Memory is 8 bytes a bucket between the smallest and the largest magnitude met: 1 KB an octave, 40 KB for fractions down
to 10^-12, 4 MB were a signal to reach every float there is. It does not grow with the number of values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataguard.errors import UsageError

__all__ = ["RELATIVE_ERROR", "Sketch", "buckets_of", "middles_of", "of_rank", "rank_of"]

RELATIVE_ERROR = 2.0**-8
"""A quantile told by a sketch differs from the exact one by this share of it at most."""

_SHIFT = 52 - 7
_FIRST = 1 << 7
"""Key of the smallest normal float64; anything nearer to zero is counted as zero."""


def buckets_of(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Bucket of each finite value: in the order of the values, 0 for zero, of opposite sign for opposite values.

    >>> buckets_of(np.array([0.0, 1.0, 1.007, 1.008, -1.0])).tolist()
    [0, 130944, 130944, 130945, -130944]
    """
    magnitudes = np.abs(values).view(np.int64) >> _SHIFT
    magnitudes[magnitudes < _FIRST] = 0
    return np.where(values < 0, -magnitudes, magnitudes)


def middles_of(buckets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Middle of each bucket.

    >>> middles_of(np.array([130944])).tolist()
    [1.00390625]
    """
    middles = ((np.abs(buckets) << _SHIFT) | (1 << (_SHIFT - 1))).view(np.float64)
    return np.where(buckets == 0, 0.0, np.copysign(middles, buckets))


def rank_of(permille: int, count: int) -> int:
    """Rank, from 1, of a quantile among `count` values: the least that has `permille` of them at or below it.

    >>> rank_of(500, 4), rank_of(0, 4), rank_of(1000, 4)
    (2, 1, 4)
    """
    return max(1, -(-permille * count // 1000))


def of_rank(values: NDArray[np.float64], counts: NDArray[np.int64], rank: int) -> float:
    """The value of a rank, from 1, among `values` (in order) that occur `counts` times."""
    return float(values[np.searchsorted(np.cumsum(counts), rank)])


class _Side:
    """Counts of the buckets on one side of zero, between the smallest and the largest key met."""

    __slots__ = ("counts", "first")

    def __init__(self) -> None:
        self.first = 0
        self.counts: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def add(self, first: int, counts: NDArray[np.int64]) -> None:
        """Add counts of the keys from `first` on."""
        if not len(counts):
            return
        if not len(self.counts):
            self.first = first
        low = min(self.first, first)
        high = max(self.first + len(self.counts), first + len(counts))
        if high - low > len(self.counts):
            grown = np.zeros(high - low, dtype=np.int64)
            grown[self.first - low : self.first - low + len(self.counts)] = self.counts
            self.first, self.counts = low, grown
        self.counts[first - self.first : first - self.first + len(counts)] += counts


class Sketch:
    """Counts of the values of one signal. Not for several threads at once: give each its own and merge them.

    >>> sketch = Sketch()
    >>> sketch.add(np.array([3, 1, 0, 3]))
    >>> sketch.count, sketch.smallest, sketch.largest
    (4, 0.0, 3.0)
    >>> keys, counts = sketch.buckets()
    >>> counts.tolist()
    [1, 1, 2]
    """

    __slots__ = ("_above", "_below", "_num_zeros", "count", "largest", "smallest")

    def __init__(self) -> None:
        self.count = 0
        self.smallest = np.inf
        """Exact; inf where there is no value."""
        self.largest = -np.inf
        self._num_zeros = 0
        self._above = _Side()
        self._below = _Side()

    def add(self, values: NDArray[Any]) -> None:
        """Count values, shape (n,), integers or floats.

        Raises
        ------
        UsageError
            A value is not finite.
        """
        if not len(values):
            return
        # Adding zero makes a zero of its negative twin, which would otherwise stand or not stand by order of arrival.
        reals = np.asarray(values, dtype=np.float64) + 0.0
        smallest, largest = float(reals.min()), float(reals.max())
        if not (np.isfinite(smallest) and np.isfinite(largest)):
            raise UsageError("a value that is not finite", found=f"{smallest} to {largest}", allowed="finite numbers")
        buckets = buckets_of(reals)
        above, below = buckets[buckets > 0], -buckets[buckets < 0]
        for side, keys in ((self._above, above), (self._below, below)):
            if len(keys):
                first = int(keys.min())
                side.add(first, np.bincount(keys - first))
        self._num_zeros += len(buckets) - len(above) - len(below)
        self.count += len(buckets)
        self.smallest, self.largest = min(self.smallest, smallest), max(self.largest, largest)

    def merge(self, other: Sketch) -> None:
        """Count what another has counted."""
        self._above.add(other._above.first, other._above.counts)
        self._below.add(other._below.first, other._below.counts)
        self._num_zeros += other._num_zeros
        self.count += other.count
        self.smallest, self.largest = min(self.smallest, other.smallest), max(self.largest, other.largest)

    def buckets(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Keys of the buckets that hold something, ascending, and how much each holds."""
        below, above = np.flatnonzero(self._below.counts)[::-1], np.flatnonzero(self._above.counts)
        zero = np.zeros(min(1, self._num_zeros), dtype=np.int64)
        keys = np.concatenate([-(below + self._below.first), zero, above + self._above.first])
        counts = np.concatenate([self._below.counts[below], zero + self._num_zeros, self._above.counts[above]])
        return keys.astype(np.int64), counts.astype(np.int64)

    @classmethod
    def of_buckets(
        cls, keys: NDArray[np.int64], counts: NDArray[np.int64], *, smallest: float, largest: float
    ) -> Sketch:
        """The sketch whose `buckets`, `smallest` and `largest` these are."""
        made = cls()
        for side, mine in ((made._above, keys > 0), (made._below, keys < 0)):
            magnitudes = np.abs(keys[mine])
            if len(magnitudes):
                first = int(magnitudes.min())
                dense = np.zeros(int(magnitudes.max()) - first + 1, dtype=np.int64)
                dense[magnitudes - first] = counts[mine]
                side.add(first, dense)
        made._num_zeros = int(counts[keys == 0].sum())
        made.count = int(counts.sum())
        made.smallest, made.largest = smallest, largest
        return made
