"""Which samples of two collections are byte for byte the same?

Both are told to a `DuplicateFinder` of their own, which gives them back in the order of their digests. So one pass over
both finds what they share, whatever their sizes, and memory stays bounded also where half of one side is one record:

1. One side is reduced to its different digests, each with a bit for every source that holds it.
2. The other side goes by, a bounded number of samples at a time, and each is looked up in the digests at hand, which
   move on with it.

That is done twice, each side in either part: what of the audited corpus is in the evaluation data, and what of the
evaluation data is in the audited corpus. Both go into ``overlap.parquet``, a row a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dataguard.audit.duplicates import DuplicateFinder, Piece
from dataguard.audit.parquet import parquet_writer

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["OVERLAP_KEY", "OVERLAP_VERSION", "Counts", "Side", "shared", "write_overlap"]

OVERLAP_KEY = b"dataguard.overlap"
"""The schema's metadata of ``overlap.parquet``: its version."""
OVERLAP_VERSION = 1

_AT_ONCE = 1 << 16
"""Samples that are looked up at once."""
_BITS = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Side:
    """One of the two collections."""

    name: str
    """``audited`` or ``evaluation``."""
    finder: DuplicateFinder
    source_of: NDArray[np.int64]
    """Of each shard, as the finder was told shards: the number of its source."""
    sources: Sequence[str]
    against: Sequence[str | None]
    """What each source was named by."""
    shards: Sequence[str]


@dataclass(slots=True, kw_only=True, eq=False)
class Counts:
    """What one side has in common with the other. A sources of this side, B of the other."""

    pairs: NDArray[np.int64]
    """Records of each source of this side that each of the other holds: int64, shape (A, B)."""
    records: NDArray[np.int64]
    """Records of each source that any of the other side holds: int64, shape (A,)."""
    content_bytes: NDArray[np.int64]
    all_records: NDArray[np.int64]
    """Whatever was told, shared or not."""
    all_bytes: NDArray[np.int64]
    contents: int = 0
    """Different contents that are shared."""

    @classmethod
    def of(cls, side: Side, other: Side) -> Counts:
        """Nothing counted."""
        num = len(side.sources)
        pairs = np.zeros((num, len(other.sources)), np.int64)
        return cls(pairs=pairs, **{name: np.zeros(num, np.int64) for name in _BY_SOURCE})  # type: ignore[arg-type]


_BY_SOURCE = ("records", "content_bytes", "all_records", "all_bytes")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Digests:
    """Some different digests, in order, with the sources that hold them."""

    entries: NDArray[np.void]
    """One of each."""
    sources: NDArray[np.uint64]
    """A bit a source: shape (n, words)."""


def write_overlap(sink: BinaryIO, audited: Side, evaluation: Side) -> tuple[Counts, Counts]:
    """Write ``overlap.parquet``: a row for every record of either side that the other has; and count.

    Audited records first, each side in the order of digests, and of equal ones in the order of the corpus.

    Returns
    -------
    tuple
        The counts of the audited side and of the evaluation side.
    """
    import pyarrow as pa

    word = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema(
        [
            ("digest", pa.binary(16)),
            ("side", word),
            ("against", word),
            ("source", word),
            ("shard", word),
            ("row", pa.int64()),
            ("content_bytes", pa.int64()),
        ],
        metadata={OVERLAP_KEY: str(OVERLAP_VERSION).encode()},
    )
    counts = Counts.of(audited, evaluation), Counts.of(evaluation, audited)
    with parquet_writer(sink, schema) as writer:
        for side, other, counted in ((audited, evaluation, counts[0]), (evaluation, audited, counts[1])):
            waiting: list[NDArray[np.void]] = []
            for entries, is_copy, bits in shared(side, other):
                found: NDArray[np.bool_] = np.asarray(bits.any(axis=1))
                _count(counted, side, entries, is_copy, bits, found)
                waiting.append(entries[found])
                if sum(map(len, waiting)) >= _AT_ONCE:
                    writer.write_table(_table(schema, side, np.concatenate(waiting)))
                    waiting = []
            if any(map(len, waiting)):
                writer.write_table(_table(schema, side, np.concatenate(waiting)))
    return counts


def shared(side: Side, other: Side) -> Iterator[tuple[NDArray[np.void], NDArray[np.bool_], NDArray[np.uint64]]]:
    """All samples of a side in the order of digests, some at a time: which of the other's sources hold each.

    Yields
    ------
    tuple
        Entries, whether an equal one stands before it on its own side, and a bit a source of the other side, shape
        (n, words).
    """
    words = -(-len(other.sources) // _BITS)
    digests = _digests(other, words)
    have = next(digests, None)
    for entries, is_copy in _slices(side.finder.pieces()):
        bits = np.zeros((len(entries), words), np.uint64)
        last = _key(entries[-1])
        while have is not None:
            _look_up(entries, have, bits)
            if _key(have.entries[-1]) >= last:
                break  # the samples to come may be equal to the last of these
            have = next(digests, None)
        yield entries, is_copy, bits


def _slices(pieces: Iterable[Piece]) -> Iterator[tuple[NDArray[np.void], NDArray[np.bool_]]]:
    for piece in pieces:
        for start in range(0, len(piece.entries), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            yield piece.entries[part], piece.is_copy[part]


def _digests(side: Side, words: int) -> Iterator[_Digests]:
    """The different digests of a side, each once, however many samples have it."""
    held: _Digests | None = None  # the last one, which may go on
    for entries, is_copy in _slices(side.finder.pieces()):
        source = side.source_of[entries["shard"]]
        bits = np.zeros((len(entries), words), np.uint64)
        bits[np.arange(len(entries)), source // _BITS] = np.uint64(1) << (source % _BITS).astype(np.uint64)
        starts = np.flatnonzero(~is_copy)
        goes_on = int(starts[0]) if len(starts) else len(entries)
        if goes_on:
            assert held is not None, "a copy stands behind what it is a copy of"
            merged = np.bitwise_or.reduce(bits[:goes_on], axis=0)[None, :] | held.sources
            held = _Digests(entries=held.entries, sources=merged)
        if not len(starts):
            continue
        if held is not None:
            yield held
        ored = np.bitwise_or.reduceat(bits, starts, axis=0)
        if len(starts) > 1:
            yield _Digests(entries=entries[starts[:-1]], sources=ored[:-1])
        held = _Digests(entries=entries[starts[-1:]].copy(), sources=ored[-1:].copy())
    if held is not None:
        yield held


def _look_up(entries: NDArray[np.void], have: _Digests, bits: NDArray[np.uint64]) -> None:
    """Note of each sample the sources of its digest, where that is among those at hand."""
    high = np.ascontiguousarray(have.entries["high"])
    place = np.searchsorted(high, entries["high"], side="left")
    left = np.arange(len(entries))
    while len(left):
        # the first half of a digest is nearly always enough; where it is not, equal halves stand beside each other
        left, place = left[place < len(high)], place[place < len(high)]
        same = high[place] == entries["high"][left]
        left, place = left[same], place[same]
        equal = (have.entries["low"][place] == entries["low"][left]) & (
            have.entries["kind"][place] == entries["kind"][left]
        )
        bits[left[equal]] |= have.sources[place[equal]]
        left, place = left[~equal], place[~equal] + 1


def _count(
    counts: Counts,
    side: Side,
    entries: NDArray[np.void],
    is_copy: NDArray[np.bool_],
    bits: NDArray[np.uint64],
    found: NDArray[np.bool_],
) -> None:
    source, content = side.source_of[entries["shard"]], entries["content_bytes"]
    num = len(side.sources)
    counts.all_records += np.bincount(source, minlength=num)
    counts.records += np.bincount(source[found], minlength=num)
    np.add.at(counts.all_bytes, source, content)
    np.add.at(counts.content_bytes, source[found], content[found])
    counts.contents += int((found & ~is_copy).sum())
    if not found.any():
        return
    for other in range(counts.pairs.shape[1]):
        holds = (bits[:, other // _BITS] >> np.uint64(other % _BITS) & np.uint64(1)).astype(bool)
        counts.pairs[:, other] += np.bincount(source[holds], minlength=num)


def _key(entry: np.void) -> tuple[int, int, int]:
    return int(entry["high"]), int(entry["low"]), int(entry["kind"])


def _table(schema: pa.Schema, side: Side, entries: NDArray[np.void]) -> pa.Table:
    import pyarrow as pa

    source = side.source_of[entries["shard"]]
    digests = np.stack([entries["high"], entries["low"]], axis=1).astype(">u8").tobytes()
    columns: list[Any] = [
        pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(entries), [None, pa.py_buffer(digests)]),
        _words(np.zeros(len(entries), np.int64), lambda _number: side.name),
        _words(source, lambda number: side.against[number]),
        _words(source, lambda number: side.sources[number]),
        _words(entries["shard"], lambda number: side.shards[number]),
        pa.array(np.ascontiguousarray(entries["row"])),
        pa.array(np.ascontiguousarray(entries["content_bytes"])),
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _words(numbers: NDArray[Any], name: Callable[[int], str | None]) -> pa.Array:
    """Names of numbers, with a dictionary of those alone that occur; null where one has none."""
    import pyarrow as pa

    present, places = np.unique(np.asarray(numbers, np.int64), return_inverse=True)
    words = [name(int(number)) for number in present]
    indices = pa.array(places.astype(np.int32), mask=np.array([word is None for word in words], bool)[places])
    return pa.DictionaryArray.from_arrays(indices, pa.array([word or "" for word in words], pa.string()))
