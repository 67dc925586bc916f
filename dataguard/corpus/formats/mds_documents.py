"""Where in the run of ids of an MDS shard does each sample begin?

A sample's ids are as many as its bytes say, so nothing but all samples before it tells where it begins. Whoever asks
for documents asks again and again; so a shard is gone through once, and how far the run has come at each sample is
kept while the shard is in use, for as long as its file is the same.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable

import numpy as np
from numpy.typing import NDArray

from dataguard.corpus.formats.identity import identity_of
from dataguard.corpus.formats.protocol import ShardFile
from dataguard.corpus.formats.tokens import Boundaries

__all__ = ["boundaries_among", "sample_starts"]

_MOST_KEPT_BYTES = 1 << 26


class _Kept:
    """Of the shards in use, which ends with them. Bounded, and without a lock, as in parquet.py."""

    def __init__(self) -> None:
        self._kept: weakref.WeakKeyDictionary[ShardFile, tuple[Hashable, NDArray[np.int64]]] = (
            weakref.WeakKeyDictionary()
        )
        self._num_bytes = 0

    def get(self, shard: ShardFile, kind: Hashable) -> NDArray[np.int64] | None:
        """What is known of a shard as it is now."""
        found = self._kept.get(shard)
        return found[1] if found is not None and found[0] == kind else None

    def put(self, shard: ShardFile, kind: Hashable, starts: NDArray[np.int64]) -> None:
        """Keep it for as long as its shard lives, or until there is too much."""
        self._num_bytes += starts.nbytes
        if self._num_bytes > _MOST_KEPT_BYTES:
            self._kept.clear()
            self._num_bytes = starts.nbytes
        self._kept[shard] = (kind, starts)


_KEPT = _Kept()


def sample_starts(shard: ShardFile, kind: Hashable, count: Callable[[], NDArray[np.int64]]) -> NDArray[np.int64]:
    """The first id of every sample and, last, the number of ids: shape (samples + 1,).

    Parameters
    ----------
    shard
        Whose samples are meant.
    kind
        Of which ids, where a shard has several: the answer is kept for the last that was asked for.
    count
        Goes through the shard: how many ids each sample has, shape (samples,).
    """
    now = (kind, identity_of(shard))
    starts = _KEPT.get(shard, now)
    if starts is None:
        lengths = count()
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
        _KEPT.put(shard, now, starts)
    return starts


def boundaries_among(starts: NDArray[np.int64], first_row: int, stop_row: int) -> Boundaries:
    """The samples that the ids ``first_row:stop_row`` hold, wholly or in part, and empty ones that stand in it.

    >>> found = boundaries_among(np.array([0, 4, 4, 10, 12]), 3, 10)
    >>> found.first_document, found.documents.tolist()
    (0, [[0, 4], [4, 4], [4, 10]])
    """
    begins, ends = starts[:-1], starts[1:]
    held = (begins < stop_row) & ((ends > first_row) | ((begins == ends) & (begins >= first_row)))
    places = np.flatnonzero(held)
    first = int(places[0]) if len(places) else 0
    spans = np.stack([begins[places], ends[places]], axis=1)
    return Boundaries(first_document=first, documents=spans, first_sequence=first, sequences=spans)
