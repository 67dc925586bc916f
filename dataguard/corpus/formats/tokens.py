"""How does a run of token ids become blocks, and a block ids again, whatever file the run lies in?

A run is ids of one integer type without a gap, so a block is a byte range and offsets are reckoned in Python's own
integers: nothing wraps at 2 or 4 GiB. The digest of a block is taken over little-endian ids of the stored width, so
byte order does not change it.

Where a shard knows its documents, it also tells which of them a range of tokens holds (`Boundaries`).
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataguard.core.digests import block_digest
from dataguard.corpus.formats.protocol import BlockPlace, Finding, ReadBlock, ScannedBlock, ScanOptions, ShardFile
from dataguard.errors import ShardDamaged

__all__ = [
    "Boundaries",
    "FileRanges",
    "IdTooLarge",
    "KnowsDocuments",
    "file_bytes",
    "native_ids",
    "read_run",
    "scan_run",
    "token_digest",
]


_MOST_ID = np.uint64((1 << 63) - 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Boundaries:
    """Which documents and sequences a range of tokens holds, wholly or in part; empty ones that stand in it too."""

    first_document: int
    """Ordinal in the shard of the first of them."""
    documents: NDArray[np.int64]
    """Token spans ``start:stop`` of the shard, whole ones even where the range cuts them. Shape (documents, 2)."""
    first_sequence: int
    sequences: NDArray[np.int64]
    """Likewise, of the sequences that the documents are made of. Shape (sequences, 2)."""


@runtime_checkable
class KnowsDocuments(Protocol):
    """A format of tokens whose shards know where documents begin."""

    def boundaries(self, shard: ShardFile, first_row: int, stop_row: int, options: ScanOptions) -> Boundaries:
        """What the tokens ``first_row:stop_row`` hold. ShardDamaged where that cannot be told any more."""
        ...


class IdTooLarge(Exception):  # noqa: N818 - becomes the finding of the shard
    """A run holds an id that no int64 can, so nobody can be given it."""

    def __init__(self, found: int, at: int) -> None:
        super().__init__(found)
        self.finding = Finding(code="id-too-large", detail=f"token {at:,} is {found:,}, allowed are ids below 2**63")


class Ranges(Protocol):
    """Byte ranges of one shard, decoded or plain."""

    def take(self, offset_bytes: int, size_bytes: int) -> bytes | bytearray:
        """Bytes from an offset on, fewer only where the file ends."""
        ...


class FileRanges:
    """Byte ranges of a plain file, in any order.

    >>> import io
    >>> FileRanges(io.BytesIO(b"0123456789")).take(8, 5)
    b'89'
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def take(self, offset_bytes: int, size_bytes: int) -> bytes:
        """Bytes from an offset on, fewer only where the file ends."""
        self._file.seek(offset_bytes)
        return self._file.read(size_bytes)


def file_bytes(file: BinaryIO) -> int:
    """The size of an open file, which is left at its beginning."""
    size_bytes = file.seek(0, os.SEEK_END)
    file.seek(0)
    return size_bytes


def native_ids(content: bytes | bytearray | memoryview, dtype: np.dtype[Any]) -> NDArray[Any]:
    r"""Stored bytes as ids of this machine's byte order, 1-D.

    >>> native_ids(b"\x00\x01\x01\x00", np.dtype(">u2")).tolist()
    [1, 256]
    """
    return np.frombuffer(content, dtype=dtype).astype(dtype.newbyteorder("="), copy=False)


def token_digest(ids: NDArray[Any]) -> bytes:
    """The digest of a block of ids (16 bytes), whatever their byte order."""
    little = np.ascontiguousarray(ids.astype(ids.dtype.newbyteorder("<"), copy=False))
    return block_digest(np.array([len(ids)]), little.view(np.uint8).data)


def scan_run(
    ranges: Ranges,
    *,
    dtype: np.dtype[Any],
    offset_bytes: int,
    num_tokens: int | None,
    block_tokens: int,
    num_documents: NDArray[np.int64] | None = None,
) -> Generator[ScannedBlock, None, int]:
    """Cut a run into blocks.

    Parameters
    ----------
    ranges
        Where the run lies.
    dtype
        Of the ids as stored.
    offset_bytes
        Where the run begins.
    num_tokens
        What it should hold; None where it ends with the file.
    block_tokens
        Tokens of a block; the last has fewer.
    num_documents
        Documents that begin in each block, shape (blocks,); None where none are known.

    Returns
    -------
    int
        Bytes of the run that are there: fewer than asked for where the file ends early, with a part of an id perhaps.

    Raises
    ------
    IdTooLarge
        At the first id that no int64 holds.
    """
    item_bytes, first = dtype.itemsize, 0
    while num_tokens is None or first < num_tokens:
        wanted = block_tokens if num_tokens is None else min(block_tokens, num_tokens - first)
        offset = offset_bytes + first * item_bytes
        content = ranges.take(offset, wanted * item_bytes)
        is_short = len(content) < wanted * item_bytes
        num_whole = len(content) // item_bytes
        if is_short and (num_tokens is not None or not num_whole):
            return first * item_bytes + len(content)
        num_bytes = num_whole * item_bytes
        ids = np.frombuffer(memoryview(content)[:num_bytes], dtype=dtype)
        if dtype.kind == "u" and item_bytes == 8 and (ids > _MOST_ID).any():
            at = int(np.argmax(ids > _MOST_ID))
            raise IdTooLarge(int(ids[at]), first + at)
        yield ScannedBlock(
            place=BlockPlace(
                first_row=first,
                num_rows=num_whole,
                offset_bytes=offset,
                size_bytes=num_bytes,
                group=-1 if num_documents is None else int(num_documents[first // block_tokens]),
            ),
            content_bytes=num_bytes,
            digest=token_digest(ids),
        )
        if is_short:
            return first * item_bytes + len(content)
        first += num_whole
    return first * item_bytes


def read_run(
    ranges: Ranges, shard: ShardFile, places: Sequence[BlockPlace], dtype: np.dtype[Any], *, fields: bool
) -> Iterator[ReadBlock]:
    """The ids of these blocks of a run, native-endian. ShardDamaged where they cannot be read any more."""
    for place in places:
        content = ranges.take(place.offset_bytes, place.size_bytes) if place.num_rows else b""
        if len(content) != place.num_rows * dtype.itemsize:
            raise ShardDamaged(
                f"tokens {place.first_row:,}:{place.first_row + place.num_rows:,} of shard {shard.name} "
                "cannot be read any more",
                found=f"{len(content):,} bytes of {dtype.str} ids",
                allowed=f"{place.num_rows * dtype.itemsize:,} bytes",
                todo="see whether the file was changed: dataguard manifest verify",
            )
        yield ReadBlock(tokens=native_ids(content, dtype), fields=pa.table({}) if fields else None)
