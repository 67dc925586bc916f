"""Which integers lie inside a set of half-open spans, how many outside before a place, and which is the k-th outside?

A skip is a span of positions; the skips of an attempt are one merged set, so order and overlap of the skips given
never matter. Every question is answered by one binary search over the spans, whatever the numbers' size:

1. Spans are merged and sorted once; touching spans become one, so between two spans lies at least one integer.
2. ``_inside[i]`` is how many integers the first i spans hold, ``_outside[i] = start_i - _inside[i]`` how many integers
   lie outside before span i. Both rise.
3. Outside before p: p less what the spans before p hold. The k-th outside: k plus the spans that begin at or before
   it, i.e. those with ``_outside[i] <= k``.

Scalars are Python integers of any size; arrays are int64.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import overload

import numpy as np
from numpy.typing import NDArray

from dataguard.errors import SpanError

__all__ = ["Span", "SpanSet", "check_span"]

Span = tuple[int, int]
"""Half-open (start, stop)."""

Positions = NDArray[np.int64]


def check_span(start: int, stop: int, *, what: str = "range") -> Span:
    """Give (start, stop) back where it is a half-open range of at least one number from 0 up; refuse it otherwise.

    >>> check_span(40, 45)
    (40, 45)
    """
    for bound in (start, stop):
        if isinstance(bound, bool) or not isinstance(bound, int):
            raise SpanError(f"{what} {start!r}:{stop!r} cannot be", allowed="START:STOP in whole numbers")
    if start < 0:
        raise SpanError(f"{what} {start:,}:{stop:,} begins below 0", allowed="START of at least 0")
    if stop <= start:
        kind = "is empty" if start == stop else "runs backwards"
        raise SpanError(f"{what} {start:,}:{stop:,} {kind}", allowed=f"STOP above {start:,} (STOP itself is left out)")
    return start, stop


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tables:
    """The same spans for array questions; a row of "nothing" stands first, for places before all spans."""

    starts: Positions  # (spans,)
    stops: Positions  # (1 + spans,)
    offsets: Positions  # (1 + spans,): what the spans up to each one hold
    outside: Positions  # (spans,)


@dataclass(frozen=True, slots=True)
class SpanSet:
    """Merged half-open spans of integers from 0 up; build it with `SpanSet.of`.

    >>> skips = SpanSet.of([(8, 10), (2, 4), (3, 5)])
    >>> skips.spans
    ((2, 5), (8, 10))
    >>> skips.count_outside_before(9), skips.nth_outside(5), skips.skip_to_outside(3)
    (5, 10, 5)
    >>> skips.contains(np.arange(6)).tolist()
    [False, False, True, True, True, False]
    """

    spans: tuple[Span, ...] = ()
    """Sorted, with at least one integer between any two."""
    _starts: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _inside: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _outside: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _tables: _Tables | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        inside = [0]
        outside = []
        before = -1
        for start, stop in self.spans:
            check_span(start, stop, what="span")
            if start <= before:
                raise SpanError(f"spans are not merged and sorted: {self.spans}", todo="build the set with SpanSet.of")
            outside.append(start - inside[-1])
            inside.append(inside[-1] + stop - start)
            before = stop
        object.__setattr__(self, "_starts", tuple(start for start, _ in self.spans))
        object.__setattr__(self, "_inside", tuple(inside))
        object.__setattr__(self, "_outside", tuple(outside))

    @classmethod
    def of(cls, spans: Iterable[Span]) -> SpanSet:
        """Merge spans given in any order and overlap. SpanError for one that is empty, reversed or negative."""
        merged: list[Span] = []
        for start, stop in sorted(check_span(start, stop, what="span") for start, stop in spans):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
            else:
                merged.append((start, stop))
        return cls(tuple(merged))

    def __bool__(self) -> bool:
        return bool(self.spans)

    def __iter__(self) -> Iterator[Span]:
        return iter(self.spans)

    def __len__(self) -> int:
        """Give the number of spans."""
        return len(self.spans)

    @property
    def num_inside(self) -> int:
        """Integers that the spans hold."""
        return self._inside[-1]

    @property
    def stop(self) -> int:
        """One past the last integer inside; 0 where there is none."""
        return self.spans[-1][1] if self.spans else 0

    @overload
    def contains(self, place: int) -> bool: ...
    @overload
    def contains(self, place: Positions) -> NDArray[np.bool_]: ...
    def contains(self, place: int | Positions) -> bool | NDArray[np.bool_]:
        """Whether a place (or each of an array of places) lies inside."""
        if isinstance(place, np.ndarray):
            if not self.spans:
                return np.zeros(place.shape, dtype=bool)
            tables = self._as_arrays()
            inside: NDArray[np.bool_] = place < tables.stops[np.searchsorted(tables.starts, place, side="right")]
            return inside
        which_one = bisect_right(self._starts, place)
        return which_one > 0 and place < self.spans[which_one - 1][1]

    @overload
    def count_outside_before(self, place: int) -> int: ...
    @overload
    def count_outside_before(self, place: Positions) -> Positions: ...
    def count_outside_before(self, place: int | Positions) -> int | Positions:
        """How many integers of ``0:place`` lie outside."""
        if isinstance(place, np.ndarray):
            if not self.spans:
                return place.astype(np.int64)
            tables = self._as_arrays()
            which = np.searchsorted(tables.starts, place, side="right")
            ahead = np.maximum(tables.stops[which] - place, 0)  # of the span that holds the place
            counts: Positions = place - tables.offsets[which] + ahead
            return counts
        which_one = bisect_right(self._starts, place)
        if which_one == 0:
            return place
        start, stop = self.spans[which_one - 1]
        return place - self._inside[which_one - 1] - (min(place, stop) - start)

    @overload
    def nth_outside(self, number: int) -> int: ...
    @overload
    def nth_outside(self, number: Positions) -> Positions: ...
    def nth_outside(self, number: int | Positions) -> int | Positions:
        """Find the `number`-th (0-based) integer that lies outside."""
        if isinstance(number, np.ndarray):
            if not self.spans:
                return number.astype(np.int64)
            tables = self._as_arrays()
            places: Positions = number + tables.offsets[np.searchsorted(tables.outside, number, side="right")]
            return places
        return number + self._inside[bisect_right(self._outside, number)]

    def _as_arrays(self) -> _Tables:
        if self._tables is None:
            tables = _Tables(
                starts=np.array(self._starts, dtype=np.int64),
                stops=np.array([-1, *(stop for _, stop in self.spans)], dtype=np.int64),
                offsets=np.array(self._inside, dtype=np.int64),
                outside=np.array(self._outside, dtype=np.int64),
            )
            object.__setattr__(self, "_tables", tables)
            return tables
        return self._tables

    def skip_to_outside(self, place: int) -> int:
        """Find the first integer at or after `place` that lies outside."""
        which = bisect_right(self._starts, place)
        if which and place < self.spans[which - 1][1]:
            return self.spans[which - 1][1]
        return place

    def union(self, other: SpanSet) -> SpanSet:
        """All integers of either set, merged."""
        return SpanSet.of([*self.spans, *other.spans])

    def within(self, start: int, stop: int) -> SpanSet:
        """What of this set lies in ``start:stop``.

        >>> SpanSet.of([(2, 5), (8, 10)]).within(4, 9).spans
        ((4, 5), (8, 9))
        """
        first = max(0, bisect_right(self._starts, start) - 1)
        last = bisect_left(self._starts, stop)
        cut = [(max(a, start), min(b, stop)) for a, b in self.spans[first:last]]
        return SpanSet(tuple((a, b) for a, b in cut if a < b))

    def intersects(self, start: int, stop: int) -> bool:
        """Whether any integer of ``start:stop`` lies inside."""
        which = bisect_left(self._starts, stop)
        return which > 0 and start < stop and self.spans[which - 1][1] > start

    def covers(self, start: int, stop: int) -> bool:
        """Whether every integer of ``start:stop`` lies inside."""
        which = bisect_right(self._starts, start)
        return stop <= start or (which > 0 and stop <= self.spans[which - 1][1])
