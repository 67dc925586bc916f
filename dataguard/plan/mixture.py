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

import numpy as np
from numpy.typing import NDArray

from dataguard.core.keys import derive_key
from dataguard.core.permute import permute
from dataguard.plan.document import Mixture

__all__ = ["BLOCK", "Dealer", "Peel"]

BLOCK = 256
"""B, places of a mixture block."""

_CACHED_BLOCKS = 8192  # about 1.1 KB each, and a lane is within one block for B steps
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

    source: NDArray[np.int16]
    """Source of each place, as its place in the peel, shape (B,)."""
    rank: NDArray[np.int16]
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
    """

    def __init__(self, seed: int, mixture: Mixture, *, block: int = BLOCK) -> None:
        self.peel = Peel(mixture.weights)
        self.names = self.peel.names
        self.num_sources = len(self.names)
        self.start = mixture.start
        self._seed = seed
        self._block = block
        self._dealt: OrderedDict[tuple[int, int], _Dealt] = OrderedDict()
        self._phases: dict[int, tuple[int, tuple[int, ...]]] = {}
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
        earlier = np.arange(self._block)[None, :] < within[:, None]
        for i in range(self.num_sources):
            base[:, i] += np.count_nonzero((source == i) & earlier, axis=1)
        return base

    def place(self, lane: int, source: int, draw: int) -> int:
        """Where (t') a lane makes a draw: the inverse of `deal` for one source of one lane."""
        if self.num_sources == 1:
            return draw
        phase, at_phase = self._phase(lane)
        k = (self.peel.reached(source, at_phase[source] + draw) - 1 - phase) // self._block
        table = self._tables([(lane, k)])[0]
        rank = draw - int(table.base[source])
        return k * self._block + int(np.flatnonzero(table.source == source)[rank])

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
                for i in missing[-_CACHED_BLOCKS:]:
                    self._dealt[wanted[i]] = found[i]  # type: ignore[assignment]
                while len(self._dealt) > _CACHED_BLOCKS:
                    self._dealt.popitem(last=False)
        return [table for table in found if table is not None]

    def _build(self, wanted: Sequence[tuple[int, int]]) -> list[_Dealt]:
        size = self._block
        base = np.empty((len(wanted), self.num_sources), dtype=np.int64)
        quota = np.empty_like(base)
        keys = np.empty(len(wanted), dtype=np.uint64)
        for row, (lane, k) in enumerate(wanted):
            phase, at_phase = self._phase(lane)
            before = self.peel.counts(phase + k * size)
            after = self.peel.counts(phase + (k + 1) * size)
            base[row] = [b - p for b, p in zip(before, at_phase, strict=True)]
            quota[row] = [a - b for a, b in zip(after, before, strict=True)]
            keys[row] = derive_key("mixture-deal", self._seed, self.start, lane, k)
        # dealt: axes (pair, place) -> where in the quotas laid end to end the place stands
        dealt = permute(np.full((1, 1), size), keys[:, None], np.arange(size)[None, :])
        stops = np.cumsum(quota, axis=1)
        source = (dealt[:, :, None] >= stops[:, None, :-1]).sum(axis=2, dtype=np.int16)
        rank = np.zeros((len(wanted), size), dtype=np.int16)
        for i in range(self.num_sources):
            mine = source == i
            rank[mine] = (np.cumsum(mine, axis=1, dtype=np.int16) - 1)[mine]
        return [_Dealt(source[row], rank[row], base[row]) for row in range(len(wanted))]

    def _phase(self, lane: int) -> tuple[int, tuple[int, ...]]:
        """A lane's f, and the counts at it."""
        if lane not in self._phases:
            phase = derive_key("mixture-phase", self._seed, self.start, lane) % self.peel.total
            self._phases[lane] = (phase, self.peel.counts(phase))
        return self._phases[lane]
