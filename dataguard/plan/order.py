"""Which sample of a source stands at the s-th place of a source lane in epoch e, and back?

1. The source's blocks (those with samples) are put in an order keyed by (source, epoch); their samples in that order
   form a sequence of N places, of which each source lane owns a contiguous part.
2. Within a lane's part, windows of `window_samples` consecutive places (the last is shorter) are permuted by a key
   for (source, epoch, lane, window). A window holds the samples of ``max(2, window_blocks / L_i)`` average blocks.
3. The place gives a block by binary search in the prefix sums of the ordered blocks, and a sample in it.

``shuffle = all`` makes one window of the whole part; ``shuffle = none`` leaves out both permutations.
Only the tables of a few epochs (two integers a block each) are kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dataguard.core.keys import derive_key
from dataguard.core.permute import permute, unpermute
from dataguard.plan.document import Shuffle
from dataguard.plan.lanes import LaneSplit
from dataguard.plan.tables import SourceTable

__all__ = ["ArrayPermutation", "SourceOrder", "groups", "window_samples"]

ArrayPermutation = Callable[[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]], NDArray[np.int64]]
"""`core.permute.permute` over arrays, or its bulk twin."""

_CACHED_EPOCHS = 3
_CACHED_KEYS = 1 << 14


def groups(values: NDArray[np.integer]) -> list[tuple[int, NDArray[np.intp] | slice]]:
    """Each value that occurs, rising, with the indices at which it does: a slice of all where there is one value.

    >>> groups(np.array([3, 3])), groups(np.array([7, 3, 7]))[1][1]
    ([(3, slice(None, None, None))], array([0, 2]))
    """
    if not len(values):
        return []
    low = int(values.min())
    if low == values.max():
        return [(low, slice(None))]
    return [(value, np.flatnonzero(values == value)) for value in np.unique(values).tolist()]


def window_samples(*, window_blocks: int, source_lanes: int, num_samples: int, num_blocks: int) -> int:
    """Samples that are shuffled together: those of max(2, window_blocks / L_i) average blocks, at least 1.

    >>> window_samples(window_blocks=256, source_lanes=64, num_samples=1_000_000, num_blocks=1_000)
    4000
    """
    return max(1, max(2, window_blocks // source_lanes) * num_samples // num_blocks)


class _Epoch:
    """The ordered blocks of one epoch."""

    __slots__ = ("blocks", "starts")

    def __init__(self, blocks: NDArray[np.signedinteger], starts: NDArray[np.int64]) -> None:
        self.blocks = blocks  # ordinals in the table, in the epoch's order
        self.starts = starts  # first place of each, and N


class SourceOrder:
    """The order of one generation of a source. Safe to share between threads."""

    def __init__(
        self,
        table: SourceTable,
        split: LaneSplit,
        *,
        seed: int,
        window_blocks: int,
        shuffle: Shuffle,
        permutation: ArrayPermutation = permute,
    ) -> None:
        self.table = table
        self.split = split
        self._seed = seed
        self._name = table.manifest.sources[table.source].name
        self._shuffled = shuffle != "none"
        self._permute = permutation
        longest = -(-split.num_samples // split.source_lanes)
        self.window = (
            longest
            if shuffle == "all"
            else window_samples(
                window_blocks=window_blocks,
                source_lanes=split.source_lanes,
                num_samples=table.num_samples,
                num_blocks=table.num_blocks,
            )
        )
        """Places of a window; the last of a lane's part may be shorter."""
        self._windows_a_lane = -(-longest // self.window)
        self._epochs: OrderedDict[int, _Epoch] = OrderedDict()
        self._lock = threading.Lock()
        self._window_key = lru_cache(_CACHED_KEYS)(self._derive_window_key)
        self._last_windows = np.zeros(split.source_lanes, dtype=[("name", "<i8"), ("key", "<u8")])
        self._last_windows["name"] = -1

    def places(
        self, epochs: NDArray[np.int64], lanes: NDArray[np.int64], ordinals: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Places in 0:N of the s-th ordinals of source lanes: int64, shape (n,).

        Parameters
        ----------
        epochs, lanes, ordinals
            Epoch, source lane, and s within the lane's part, int64, shape (n,).
        """
        start, stop = self.split.part(lanes)
        if not self._shuffled:
            return np.asarray(start + ordinals)
        window, within = np.divmod(ordinals, self.window)
        first = window * self.window
        sizes = np.minimum(self.window, stop - start - first)
        return np.asarray(start + first + self._permute(sizes, self._window_keys(epochs, lanes, window), within))

    def samples(
        self, epochs: NDArray[np.int64], places: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """(block, shard, row) of the manifest at places of epochs, each int64, shape (n,)."""
        ordinals = np.empty(len(places), dtype=np.int64)
        offsets = np.empty(len(places), dtype=np.int64)
        for epoch, mine in groups(epochs):
            order = self._epoch(epoch)
            rank = np.searchsorted(order.starts, places[mine], side="right") - 1
            ordinals[mine] = order.blocks[rank]
            offsets[mine] = places[mine] - order.starts[rank]
        return self.table.rows(ordinals, offsets)

    def find(self, epoch: int, block: int, offset: int) -> tuple[int, int, int]:
        """(place, source lane, s) at which a sample stands in an epoch: the inverse of `places` and `samples`.

        Parameters
        ----------
        block, offset
            As `SourceTable.find` gives them.
        """
        rank = block
        if self._shuffled:
            rank = permute(self.table.num_blocks, self._block_key(epoch), block)
        place = int(self._epoch(epoch).starts[rank]) + offset
        lane = self.split.owner(place)
        start, stop = self.split.part(lane)
        within = place - start
        if not self._shuffled:
            return place, lane, within
        window = within // self.window
        first = window * self.window
        size = min(self.window, stop - start - first)
        return place, lane, first + unpermute(size, self._window_key(epoch, lane, window), within - first)

    def _epoch(self, epoch: int) -> _Epoch:
        if not self._shuffled:
            epoch = 0
        with self._lock:
            found = self._epochs.get(epoch)
            if found is not None:
                self._epochs.move_to_end(epoch)
                return found
        num_blocks = self.table.num_blocks
        if self._shuffled:
            key = np.array(self._block_key(epoch), dtype=np.uint64)
            rank = self._permute(np.array(num_blocks), key, np.arange(num_blocks))
            blocks: NDArray[np.signedinteger] = np.empty(num_blocks, dtype=np.int32 if num_blocks < 2**31 else np.int64)
            blocks[rank] = np.arange(num_blocks)
            counts = np.diff(self.table.starts)[blocks]
            found = _Epoch(blocks, np.concatenate([[0], np.cumsum(counts)]))
        else:
            found = _Epoch(np.arange(num_blocks, dtype=np.int64), self.table.starts)
        with self._lock:
            self._epochs[epoch] = found
            while len(self._epochs) > _CACHED_EPOCHS:
                self._epochs.popitem(last=False)
        return found

    def _window_keys(
        self, epochs: NDArray[np.int64], lanes: NDArray[np.int64], windows: NDArray[np.int64]
    ) -> NDArray[np.uint64]:
        """Keys of windows. Whoever walks a lane stays in a window for long, so the last of each lane is kept."""
        names = (epochs * self.split.source_lanes + lanes) * self._windows_a_lane + windows
        with self._lock:
            last = self._last_windows[lanes]
        keys = last["key"]
        missing = np.flatnonzero(last["name"] != names)
        if not len(missing):
            return keys
        _, first, which = np.unique(names[missing], return_index=True, return_inverse=True)
        chosen = missing[first]
        triples = zip(epochs[chosen].tolist(), lanes[chosen].tolist(), windows[chosen].tolist(), strict=True)
        found = np.array([self._window_key(*triple) for triple in triples], dtype=np.uint64)
        keys[missing] = found[which]
        newest = np.empty(len(chosen), dtype=last.dtype)
        newest["name"], newest["key"] = names[chosen], found
        with self._lock:
            # Where a lane comes twice either will do: name and key are assigned as one.
            self._last_windows[lanes[chosen]] = newest
        return keys

    def _block_key(self, epoch: int) -> int:
        return derive_key("block-order", self._seed, self._name, epoch)

    def _derive_window_key(self, epoch: int, lane: int, window: int) -> int:
        return derive_key("window-order", self._seed, self._name, epoch, lane, window)
