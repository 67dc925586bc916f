"""In which frames of a zstd shard do its decoded bytes lie?

A frame is decoded by itself, so a shard of many small frames has its rows within reach, once it is known where each
frame begins, stored and decoded. Two things tell that without decoding anything:

1. **A seek table** at the end of the file, as the seekable format of zstd has it: a skippable frame that lists the
   stored and decoded size of every frame. One or two reads, wherever the file lies.
2. **The frames themselves**: a frame's header says what it decodes to (where its writer knew), and each block's header
   how far it is to the next. A few bytes every 128 KiB of content, so only of files of this machine.

Neither is believed. What a frame decodes to is compared with what was said of it (zstd_file.py), blocks with their
digests by whoever reads them; where anything differs the shard is read from its beginning, as if nothing had been known
(`distrust`). Frames too large to be decoded for the sake of one block are as good as unknown.
"""

from __future__ import annotations

import struct
import weakref
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dataguard.corpus.formats.protocol import ShardFile

__all__ = ["Frames", "distrust", "frames_of"]

_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE_MAGIC = b"\x2a\x4d\x18"  # after one byte of 0x50 to 0x5f
_TABLE_MAGIC = b"\x5e\x2a\x4d\x18"
_FOOTER = struct.Struct("<IB4s")  # frames, descriptor, magic number
_FOOTER_MAGIC = b"\xb1\xea\x92\x8f"
_HAS_CHECKSUMS, _RESERVED = 0x80, 0x7C
_HEADER_BYTES = 18  # the longest frame header
_MOST_FRAME_BYTES = 1 << 24
"""Decoded bytes of a frame that may be decoded for one block in it."""
_MOST_KEPT_BYTES = 1 << 26


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frames:
    """The frames of a shard, in order; some may be empty."""

    stored: NDArray[np.int64]
    """Where each begins in the file, and where the last ends. Shape (frames + 1,)."""
    decoded: NDArray[np.int64]
    """Where each begins in the decoded stream, and where that ends. Shape (frames + 1,)."""

    @property
    def decoded_bytes(self) -> int:
        """Of the whole stream."""
        return int(self.decoded[-1])

    @property
    def largest_bytes(self) -> int:
        """Decoded bytes of the largest frame."""
        return int(np.diff(self.decoded).max(initial=0))

    def holding(self, start: int, stop: int) -> tuple[int, int]:
        """Which frames (half-open) hold the decoded bytes ``start:stop``, at least one of which there is.

        >>> frames = Frames(stored=np.array([0, 7, 9, 20]), decoded=np.array([0, 10, 10, 30]))
        >>> frames.holding(0, 10), frames.holding(10, 11), frames.holding(9, 30)
        ((0, 1), (2, 3), (0, 3))
        """
        first = int(np.searchsorted(self.decoded, start, side="right")) - 1
        return first, int(np.searchsorted(self.decoded, stop, side="left"))


class _Kept:
    """The frames of the shards in use, which end with them. Bounded, and without a lock, as in parquet.py."""

    def __init__(self) -> None:
        self._kept: weakref.WeakKeyDictionary[ShardFile, Frames | None] = weakref.WeakKeyDictionary()
        self._num_bytes = 0

    def get(self, shard: ShardFile) -> Frames | None:
        """Those of this very `ShardFile`; KeyError where nobody has looked."""
        return self._kept[shard]

    def put(self, shard: ShardFile, frames: Frames | None) -> None:
        """Keep them for as long as their shard lives, or until there are too many."""
        num_bytes = 16 * len(frames.stored) if frames is not None else 0
        self._num_bytes += num_bytes
        if self._num_bytes > _MOST_KEPT_BYTES:
            self._kept.clear()
            self._num_bytes = num_bytes
        self._kept[shard] = frames


_KEPT = _Kept()


def frames_of(shard: ShardFile) -> Frames | None:
    """The frames of a shard, None where it has none that help: it is no zstd, or says too little, or they are large.

    Raises
    ------
    OSError
        The file cannot be read.
    """
    if shard.compression != "zstd":
        return None
    try:
        return _KEPT.get(shard)
    except KeyError:
        pass
    with shard.open() as file:
        frames = _from_table(file, shard.size_bytes)
        if frames is None and shard.local_path is not None:
            frames = _from_headers(file)
    if frames is not None and not 0 < frames.largest_bytes <= min(frames.decoded_bytes - 1, _MOST_FRAME_BYTES):
        frames = None  # one frame holds everything, or nothing does
    _KEPT.put(shard, frames)
    return frames


def distrust(shard: ShardFile) -> None:
    """Know nothing of a shard's frames from now on: what was known proved wrong."""
    _KEPT.put(shard, None)


def _from_table(file: BinaryIO, size_bytes: int) -> Frames | None:
    """What the seek table at the end of a file says; None where there is none, or none of the whole file."""
    tail = _read(file, max(size_bytes - _FOOTER.size, 0), _FOOTER.size)
    if len(tail) < _FOOTER.size:
        return None
    num_frames, descriptor, magic = _FOOTER.unpack(tail)
    if magic != _FOOTER_MAGIC or descriptor & _RESERVED:
        return None
    width = 3 if descriptor & _HAS_CHECKSUMS else 2
    table_bytes = 8 + 4 * width * num_frames + _FOOTER.size
    start = size_bytes - table_bytes
    if start < 0 or table_bytes > _MOST_KEPT_BYTES:
        return None
    table = _read(file, start, table_bytes)
    if len(table) < table_bytes or table[:4] != _TABLE_MAGIC or int.from_bytes(table[4:8], "little") != table_bytes - 8:
        return None
    # axes: frame, (stored bytes, decoded bytes, check sum where there are any)
    entries = np.frombuffer(table, "<u4", width * num_frames, 8).reshape(num_frames, width).astype(np.int64)
    frames = _frames(entries[:, 0], entries[:, 1])
    return frames if int(frames.stored[-1]) == start else None  # else files with tables were put together


def _from_headers(file: BinaryIO) -> Frames | None:
    """What the frames of a file say, one behind the other; None where one of them does not, or makes no sense."""
    import zstandard

    raw = getattr(file, "raw", file)  # a few bytes here and there: a buffer would read a hundred times as many
    stored: list[int] = []
    decoded: list[int] = []
    at = 0
    while head := _read(raw, at, _HEADER_BYTES):
        start = at
        if len(head) >= 8 and head[0] & 0xF0 == 0x50 and head[1:4] == _SKIPPABLE_MAGIC:
            at += 8 + int.from_bytes(head[4:8], "little")
            content_bytes = 0
        elif head[:4] == _MAGIC:
            try:
                header = zstandard.get_frame_parameters(head)
                at += zstandard.frame_header_size(head)
            except zstandard.ZstdError:
                return None
            content_bytes = header.content_size
            if not 0 <= content_bytes <= _MOST_FRAME_BYTES:  # of one that says nothing it is the largest number
                return None
            end = _end_of_blocks(raw, at)
            if end is None:
                return None
            at = end + (4 if header.has_checksum else 0)
        else:
            return None
        stored.append(at - start)
        decoded.append(content_bytes)
    if at != raw.seek(0, 2):
        return None
    return _frames(np.array(stored, np.int64), np.array(decoded, np.int64))


def _end_of_blocks(raw: Any, at: int) -> int | None:
    """Where the blocks of a frame end, None where they do not."""
    while True:
        head = _read(raw, at, 3)
        if len(head) < 3:
            return None
        value = int.from_bytes(head, "little")
        kind, size = value >> 1 & 3, value >> 3
        if kind == 3:
            return None
        at += 3 + (1 if kind == 1 else size)
        if value & 1:
            return at


def _frames(stored: NDArray[np.int64], decoded: NDArray[np.int64]) -> Frames:
    return Frames(
        stored=np.concatenate([np.zeros(1, np.int64), np.cumsum(stored)]),
        decoded=np.concatenate([np.zeros(1, np.int64), np.cumsum(decoded)]),
    )


def _read(file: Any, offset_bytes: int, size_bytes: int) -> bytes:
    """A range of a file, fewer bytes only where it ends."""
    file.seek(offset_bytes)
    content: bytes = file.read(size_bytes)
    while 0 < len(content) < size_bytes and (part := file.read(size_bytes - len(content))):
        content += part
    return content
