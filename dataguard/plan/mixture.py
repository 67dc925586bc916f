"""Which source fills the t-th place of a lane, and the how-many-th draw of that source is it?

A mixture gives each of its sources a whole weight w; W is their sum. Within a lane, places of the mixture are counted
t' = 0, 1, ... and cut into blocks of B (256).

1. *Counts.* ``C_i(n)`` is how often source i comes among the first n: sources are peeled one at a time in order of
   descending weight (ties by name), each taking ``ceil(r w / W)`` of the r that remain, and leaving ``W - w``. Whole
   numbers of any size; the error is below 2.
2. *Quota.* In block k source i owns ``C_i(f + (k+1) B) - C_i(f + k B)`` places, with a phase f keyed by (mixture,
   lane), so that a rare source does not come in all lanes at once.
3. *Deal.* The quotas laid end to end, in the order of the peel, are dealt to the places of the block by a keyed
   permutation of [0, B) for (mixture, lane, k).
4. *Draw.* The draw number is ``C_i(f + k B) - C_i(f)`` + how many earlier places of the block went to source i. It
   never decreases with t', so whatever has been consumed is a prefix, and a mixture may end anywhere.

The inverse goes back through the counts: draw j is reached at the smallest n with ``C_i(n) = j + 1``.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataguard.core.keys import derive_key
from dataguard.core.permute import permute
from dataguard.errors import NotInRun
from dataguard.plan.document import Mixture
from dataguard.plan.order import ArrayPermutation

__all__ = ["BLOCK", "LARGEST_POSITION", "Dealer", "Peel"]

BLOCK = 256
"""B, places of a mixture block."""

LARGEST_POSITION = 2**60
"""Positions lie below it, so that no count of the arithmetic leaves 64 bits."""

_CACHED_BYTES = 16 << 20  # of dealt blocks; a lane stays within one for B of its places
_FEWEST_CACHED = 2048  # however many sources: twice the default's most lanes
_BYTES_AROUND = 512  # of a cached block's objects
_BUILT_AT_ONCE = 1024  # bounds the temporaries of a bulk build to a few MB


class Peel:
    """The closed-form counts of a mixture's sources.

    >>> peel = Peel({"web": 2, "code": 1})
    >>> peel.names, [peel.counts(n) for n in range(4)]
    (('web', 'code'), [(0, 0), (1, 0), (2, 0), (2, 1)])
    >>> [peel.reached(0, j) for j in range(2)], peel.reached(1, 0)
    ([1, 2], 3)
    """

    def __init__(self, weights: dict[str, int]) -> None:
        ordered = sorted(weights.items(), key=lambda item: (-item[1], item[0].encode()))
        self.names = tuple(name for name, _ in ordered)
        """Sources in the order of the peel."""
        self._weights = tuple(weight for _, weight in ordered)
        self.total = sum(self._weights)
        """W."""

    def counts(self, n: int) -> tuple[int, ...]:
        """How often each source comes among the first n; they sum to n."""
        found = []
        remaining, weight_left = n, self.total
        for weight in self._weights:
            count = -(-remaining * weight // weight_left)
            found.append(count)
            remaining -= count
            weight_left -= weight
        return tuple(found)

    def counts_of(self, numbers: Sequence[int]) -> NDArray[Any]:
        """`counts` of many n, shape (n, sources): int64 where 64 bits suffice on the way, else Python integers."""
        if max([1, *numbers]) * self.total >= 2**63:
            return np.array([self.counts(n) for n in numbers], dtype=object)
        found = np.empty((len(numbers), len(self.names)), dtype=np.int64)
        remaining, weight_left = np.array(numbers, dtype=np.int64), self.total
        for i, weight in enumerate(self._weights):
            found[:, i] = -(-remaining * weight // weight_left)
            remaining = remaining - found[:, i]
            weight_left -= weight
        return found

    def reached(self, source: int, count: int) -> int:
        """The smallest n with ``count + 1`` of a source (its place in `names`) among the first n."""
        weight_left = self.total - sum(self._weights[:source])
        n = count * weight_left // self._weights[source] + 1
        for weight in reversed(self._weights[:source]):
            # What an upper source leaves of n is floor(n * weight_left / above), so go back by the ceiling.
            above = weight_left + weight
            n = -(-n * above // weight_left)
            weight_left = above
        return n


@dataclass(frozen=True, slots=True, eq=False)
class _Dealt:
    """One dealt mixture block of one lane."""

    source: NDArray[np.signedinteger]
    """Source of each place, as its place in the peel, shape (B,)."""
    rank: NDArray[np.signedinteger]
    """Earlier places of the block that went to the same source, shape (B,)."""
    base: NDArray[np.int64]
    """Draws of each source before the block, shape (sources,)."""


class Dealer:
    """One mixture: which source comes at a place of a lane, and back. Safe to share between threads.

    Parameters
    ----------
    seed
        Of the root.
    mixture
        Its start names it in all keys.
    block
        B; another than 256 is for tests alone.
    permutation
        `core.permute.permute`, or its bulk twin.
    """

    def __init__(
        self, seed: int, mixture: Mixture, *, block: int = BLOCK, permutation: ArrayPermutation = permute
    ) -> None:
        self.peel = Peel(mixture.weights)
        self.names = self.peel.names
        self.num_sources = len(self.names)
        self.start = mixture.start
        self._seed = seed
        self._block = block
        self._permute = permutation
        self._dtype = np.int16 if max(block, self.num_sources) < 2**15 else np.int32
        self._most_cached = max(_FEWEST_CACHED, _CACHED_BYTES // (_BYTES_AROUND + 4 * block + 8 * self.num_sources))
        self._dealt: OrderedDict[tuple[int, int], _Dealt] = OrderedDict()
        self._lock = threading.Lock()

    def deal(self, lanes: NDArray[np.int64], places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Source (its place in `names`) and draw number since the mixture's start, each int64, shape (n,).

        Parameters
        ----------
        lanes, places
            Stream lane and t', int64, shape (n,).
        """
        if self.num_sources == 1:
            # All places are dealt to it, so the count is the place itself.
            return np.zeros(len(places), dtype=np.int64), places
        tables, which, within = self._tables_of(lanes, places)
        source = np.stack([table.source for table in tables])[which, within].astype(np.int64)
        rank = np.stack([table.rank for table in tables])[which, within]
        base = np.stack([table.base for table in tables])[which, source]
        return source, base + rank

    def drawn(self, lanes: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Draws of every source among the first `places` places of each lane: int64, shape (n, sources)."""
        if self.num_sources == 1:
            return places[:, None].copy()
        tables, which, within = self._tables_of(lanes, places)
        base = np.stack([table.base for table in tables])[which]
        source = np.stack([table.source for table in tables])[which]
        row, place = np.nonzero(np.arange(self._block)[None, :] < within[:, None])
        earlier = np.bincount(row * self.num_sources + source[row, place], minlength=base.size)
        return base + earlier.reshape(base.shape)

    def places(self, lanes: Sequence[int], source: int, draws: Sequence[int]) -> list[int]:
        """Where (t') each lane makes a draw of one source: the inverse of `deal`."""
        if self.num_sources == 1:
            return list(draws)
        wanted = []
        for lane, draw in zip(lanes, draws, strict=True):
            phase = self._phase(lane)
            place = self.peel.reached(source, self.peel.counts(phase)[source] + draw) - 1 - phase
            if place >= LARGEST_POSITION:
                raise NotInRun(
                    f"draw {draw:,} of source {self.names[source]!r} lies past the last position", allowed="0:2^60"
                )
            wanted.append((lane, place // self._block))
        found = []
        for (_, k), table, draw in zip(wanted, self._tables(wanted), draws, strict=True):
            rank = draw - int(table.base[source])
            found.append(k * self._block + int(np.flatnonzero(table.source == source)[rank]))
        return found

    def _tables_of(
        self, lanes: NDArray[np.int64], places: NDArray[np.int64]
    ) -> tuple[list[_Dealt], NDArray[np.int64], NDArray[np.int64]]:
        k, within = np.divmod(places, self._block)
        pairs = np.empty(len(k), dtype=[("k", "<i8"), ("lane", "<i8")])
        pairs["k"], pairs["lane"] = k, lanes
        distinct, which = np.unique(pairs, return_inverse=True)
        return self._tables([(lane, k) for k, lane in distinct.tolist()]), which, within

    def _tables(self, wanted: Sequence[tuple[int, int]]) -> list[_Dealt]:
        """The dealt blocks of (lane, k) pairs, from the cache or built, in the order asked for."""
        with self._lock:
            found = [self._dealt.get(pair) for pair in wanted]
            for pair, table in zip(wanted, found, strict=True):
                if table is not None:
                    self._dealt.move_to_end(pair)
        missing = [i for i, table in enumerate(found) if table is None]
        for start in range(0, len(missing), _BUILT_AT_ONCE):
            part = missing[start : start + _BUILT_AT_ONCE]
            for i, table in zip(part, self._build([wanted[i] for i in part]), strict=True):
                found[i] = table
        if missing:
            with self._lock:
                for i in missing[-self._most_cached :]:
                    self._dealt[wanted[i]] = found[i]  # type: ignore[assignment]
                while len(self._dealt) > self._most_cached:
                    self._dealt.popitem(last=False)
        return [table for table in found if table is not None]

    def _build(self, wanted: Sequence[tuple[int, int]]) -> list[_Dealt]:
        size, num_sources = self._block, self.num_sources
        phases = [self._phase(lane) for lane, _ in wanted]
        starts = [phase + k * size for phase, (_, k) in zip(phases, wanted, strict=True)]
        before = self.peel.counts_of(starts)
        base = (before - self.peel.counts_of(phases)).astype(np.int64)
        quota = (self.peel.counts_of([start + size for start in starts]) - before).astype(np.int64)
        keys = [derive_key("mixture-deal", self._seed, self.start, lane, k) for lane, k in wanted]
        # axes of all below: (block asked for, place in it)
        dealt = self._permute(np.array(size), np.array(keys, dtype=np.uint64)[:, None], np.arange(size)[None, :])
        stops = np.cumsum(quota, axis=1)
        # Rows end to end, each shifted by its own number of places, so that one search serves all of them.
        rows = np.arange(len(wanted))[:, None]
        reached = np.searchsorted((stops + rows * size).ravel(), (dealt + rows * size).ravel(), side="right")
        source = (reached.reshape(dealt.shape) - rows * num_sources).astype(self._dtype)
        # Sorted by source (stably, so by place within one), a place's rank counts from where its source begins.
        order = np.argsort(source, axis=1, kind="stable")
        by_source = np.take_along_axis(source, order, axis=1).astype(np.int64)
        ranks = np.arange(size)[None, :] - np.take_along_axis(stops - quota, by_source, axis=1)
        rank = np.empty_like(source)
        np.put_along_axis(rank, order, ranks.astype(self._dtype), axis=1)
        return [_Dealt(source[row], rank[row], base[row]) for row in range(len(wanted))]

    def _phase(self, lane: int) -> int:
        """A lane's f."""
        return derive_key("mixture-phase", self._seed, self.start, lane) % self.peel.total
