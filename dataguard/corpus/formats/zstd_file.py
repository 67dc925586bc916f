"""How is a shard of many zstd frames read at random, as if it lay there decoded?

`FramedFile` is the decoded stream of such a shard as a seekable file: what is read is decoded from the frames that hold
it and no others (zstd_frames.py tells which). Frames are decoded to their ends, so their check sums are verified, and
each must decode to what was said of it. The frames decoded last are held, for reads go on where the one before stopped.
"""

from __future__ import annotations

import io
import os
from typing import BinaryIO, cast

from dataguard.corpus.formats.lines import ByteRanges
from dataguard.corpus.formats.protocol import ScanOptions, ShardFile
from dataguard.corpus.formats.streams import DecodedStream
from dataguard.corpus.formats.tokens import FileRanges
from dataguard.corpus.formats.zstd_frames import Frames, frames_of
from dataguard.errors import ShardDamaged

__all__ = ["FramedFile", "framed_file", "ranges_of"]

_MOST_HELD_BYTES = 1 << 25


def framed_file(shard: ShardFile, file: BinaryIO, options: ScanOptions) -> BinaryIO | None:
    """The decoded stream of a shard whose raw file was opened as `file`; None where its frames do not help."""
    frames = frames_of(shard)
    return cast("BinaryIO", FramedFile(shard, file, frames, options)) if frames is not None else None


class FramedFile(io.RawIOBase):
    """The decoded stream of a shard, seekable. The raw file stays the caller's to close.

    Reading raises ShardDamaged where a frame is not what was said of it.
    """

    def __init__(self, shard: ShardFile, file: BinaryIO, frames: Frames, options: ScanOptions) -> None:
        self._shard = shard
        self._file = file
        self._frames = frames
        self._options = options
        self._at = 0
        self._held = b""
        self._start = 0  # of the first held byte

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next byte is read."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """As a file does, from its beginning, from here or from its end."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._frames.decoded_bytes}[whence]
        if base + offset < 0:
            raise ValueError(f"there is no byte {base + offset:,}")
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        """The next bytes, fewer only at the end."""
        end = self._frames.decoded_bytes
        stop = end if size < 0 else min(self._at + size, end)
        parts: list[bytes] = []
        while self._at < stop:
            if not self._start <= self._at < self._start + len(self._held):
                self._decode(self._at, stop)
            part = self._held[self._at - self._start : stop - self._start]
            parts.append(part)
            self._at += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _decode(self, start: int, stop: int) -> None:
        """Hold the frames of a range, or of the beginning of it."""
        frames = self._frames
        first, last = frames.holding(start, stop)
        most = int(frames.decoded[first]) + _MOST_HELD_BYTES
        while last - first > 1 and frames.decoded[last] > most:
            last -= 1
        at, end = int(frames.stored[first]), int(frames.stored[last])
        self._held = b""
        self._file.seek(at)
        stored = self._file.read(end - at)
        expected = int(frames.decoded[last] - frames.decoded[first])
        stream = DecodedStream(io.BytesIO(stored), len(stored), "zstd", self._options)
        chunks: list[bytes] = []
        for chunk in stream:
            chunks.append(chunk)
            if stream.decoded_bytes > expected:
                break
        if stream.decoded_bytes != expected or stream.findings:
            told = "; ".join(finding.detail for finding in stream.findings)
            raise ShardDamaged(
                f"the zstd frames from byte {at:,} of shard {self._shard.name} on are not as they were said to be",
                found=told or f"{stream.decoded_bytes:,} decoded bytes",
                allowed=f"{expected:,} decoded bytes in {end - at:,} stored ones",
            )
        self._held = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        self._start = int(frames.decoded[first])


def ranges_of(shard: ShardFile, file: BinaryIO, options: ScanOptions) -> ByteRanges | FileRanges:
    """The decoded bytes of a shard, in any order where that can be, else in ascending order.

    Parameters
    ----------
    shard, file
        A shard, and its raw file at its beginning.
    options
        As its scan was told.
    """
    if shard.compression == "none":
        return FileRanges(file)
    framed = framed_file(shard, file, options)
    return FileRanges(framed) if framed is not None else ByteRanges(DecodedStream.of(shard, file, options))
