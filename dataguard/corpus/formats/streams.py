"""Which bytes does a compressed shard hold, and how did its stream end?

A gzip stream is any number of members, a zstd stream any number of frames (skippable and empty ones among them), and
what lies after the last of them is part of the answer. Decoding goes in three steps:

1. `detect_compression` looks at the first bytes, never at the name.
2. `DecodedStream` yields decoded chunks of at most a few MiB, whatever the ratio: a gzip member is inflated under an
   output limit, a zstd frame is fed a few blocks at a time (a block never holds more than 128 KiB).
3. After the last chunk, `findings` and `is_cut` tell how it ended. Damage is no exception: everything before it is
   delivered first, and the reader of records decides that the record at the cut is none.

Checksums are verified by the decoders. Zero bytes after the last gzip member are padding, as they are for gzip(1).
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Literal

from dataguard.corpus.formats.protocol import Finding, ScanOptions, ShardFile

__all__ = ["DecodedStream", "decode_head", "detect_compression"]

Compression = Literal["none", "gzip", "zstd"]

CHUNK_BYTES = 1 << 20
"""Decoded chunks have about this size (the last, and those before damage, may be smaller; none is over 3 MiB)."""

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE_MAGIC = b"\x2a\x4d\x18"  # after one byte of 0x50 to 0x5f
_ZSTD_HEADER_BYTES = 18  # the longest frame header
_ZSTD_BLOCK_BYTES = 1 << 17  # the most that one block holds, stored or decoded
_BLOCKS_AT_ONCE = 8


def detect_compression(head: bytes) -> Compression:
    """The compression of a file that begins with `head` (8 bytes are enough).

    A file that ends within the magic number counts as what it was about to become.

    >>> detect_compression(bytes.fromhex("1f8b08")), detect_compression(b'{"text": 1}'), detect_compression(b"")
    ('gzip', 'none', 'none')
    >>> detect_compression(bytes.fromhex("28b52ffd")), detect_compression(bytes.fromhex("512a4d18"))
    ('zstd', 'zstd')
    """
    if _may_begin(head, _GZIP_MAGIC):
        return "gzip"
    if _may_begin(head, _ZSTD_MAGIC) or _is_skippable(head[:4]):
        return "zstd"
    return "none"


def decode_head(head: bytes, max_bytes: int) -> bytes:
    """The first `max_bytes` decoded bytes, at most, of a file that begins with `head`: what formats are told by.

    >>> decode_head(zlib.compress(b"one line", wbits=31)[:-9], 3)
    b'one'
    """
    stream = DecodedStream(io.BytesIO(head), len(head), detect_compression(head), ScanOptions())
    decoded = b""
    for chunk in stream:
        decoded += chunk
        if len(decoded) >= max_bytes:
            break
    return decoded[:max_bytes]


class DecodedStream:
    """The decoded bytes of one shard, once, in chunks. Holds no more than a few MiB and the decoder's window.

    Parameters
    ----------
    file
        The raw file at its beginning; it stays the caller's to close.
    size_bytes
        Its size, for messages about what was left unread.
    compression, options
        As detected, and as the source asks; of the options the window and the expansion matter here.

    Examples
    --------
    >>> packed = zlib.compress(b"a", wbits=31) + zlib.compress(b"b", wbits=31) + b"junk"
    >>> stream = DecodedStream(io.BytesIO(packed), len(packed), "gzip", ScanOptions())
    >>> b"".join(stream), [(finding.code, finding.detail) for finding in stream.findings], stream.is_cut
    (b'ab', [('trailing-bytes', 'trailing bytes after last gzip member (4 bytes)')], False)
    """

    def __init__(self, file: BinaryIO, size_bytes: int, compression: Compression, options: ScanOptions) -> None:
        self.findings: tuple[Finding, ...] = ()
        """How the stream ended, known when the last chunk has been taken; empty for a clean end."""
        self.is_cut = False
        """Whether the stream broke off, so that what follows the last line end is no whole record."""
        self.decoded_bytes = 0
        self._input = _Input(file)
        self._size_bytes = size_bytes
        self._compression: Compression = compression
        self._options = options

    @classmethod
    def of(cls, shard: ShardFile, file: BinaryIO, options: ScanOptions) -> DecodedStream:
        """The stream of a shard whose raw file was opened as `file`."""
        return cls(file, shard.size_bytes, shard.compression, options)

    def __iter__(self) -> Iterator[bytes]:
        pieces = {"none": self._plain, "gzip": self._gzip, "zstd": self._zstd}[self._compression]()
        held: list[bytes] = []
        held_bytes = 0
        for piece in pieces:  # many small members or frames make one chunk
            held.append(piece)
            held_bytes += len(piece)
            self.decoded_bytes += len(piece)
            if self._compression != "none" and self.decoded_bytes > self._options.free_expansion_bytes:
                # of what was taken so far: a bomb is told before it has gone off
                allowed_bytes = self._options.may_expand_to(self._input.offset)
                if self.decoded_bytes > allowed_bytes:
                    self._bomb(allowed_bytes)
                    break
            if held_bytes >= CHUNK_BYTES:
                yield held[0] if len(held) == 1 else b"".join(held)
                held, held_bytes = [], 0
        if held_bytes:
            yield b"".join(held)

    def _end(self, code: str, detail: str, *, is_cut: bool) -> None:
        self.findings = (Finding(code=code, detail=detail, offset_bytes=self.decoded_bytes),)
        self.is_cut = is_cut

    def _bomb(self, allowed_bytes: int) -> None:
        self._end(
            "expands-too-much",
            f"the first {self._input.offset:,} of {self._size_bytes:,} bytes decode to {self.decoded_bytes:,} bytes "
            f"and more, allowed are {allowed_bytes:,}: {self._options.max_expansion:,} times as many",
            is_cut=True,
        )

    def _truncated(self, what: str) -> None:
        self._end(
            "truncated-stream",
            f"{what} is cut: the file ends after {self._input.offset:,} bytes, "
            f"of which {self.decoded_bytes:,} decoded bytes could be read",
            is_cut=True,
        )

    def _trailing(self, what: str, since: int) -> None:
        """Whatever begins at raw byte `since` is neither padding nor another member."""
        num_bytes = max(self._size_bytes, self._input.offset) - since
        self._end("trailing-bytes", f"trailing bytes after last {what} ({num_bytes:,} bytes)", is_cut=False)

    def _plain(self) -> Iterator[bytes]:
        while chunk := self._input.take(CHUNK_BYTES):
            yield chunk

    def _gzip(self) -> Iterator[bytes]:
        source = self._input
        last_end = 0  # raw offset where the last whole member ended
        is_first = True
        while True:
            if not is_first:
                source.skip_zeros()
            head = source.peek(len(_GZIP_MAGIC))
            if not head and not is_first:
                return
            if not _may_begin(head, _GZIP_MAGIC):
                if not is_first:
                    self._trailing("gzip member", last_end)
                elif not head:
                    self._truncated("the first gzip member")
                else:
                    self._end("bad-stream-header", f"not a gzip file: it begins with {source.peek(8)!r}", is_cut=True)
                return
            decoder = zlib.decompressobj(wbits=31)
            started = False
            step_bytes = 1 << 12  # grows with the member, so that what is read past its end stays in proportion
            while not decoder.eof:
                piece = decoder.unconsumed_tail
                if not piece:
                    piece = source.take(step_bytes)
                    step_bytes = min(2 * step_bytes, 1 << 18)
                    if not piece:
                        if content := decoder.flush():
                            yield content
                        self._truncated("a gzip member")
                        return
                try:
                    content = decoder.decompress(piece, CHUNK_BYTES)
                except zlib.error as error:
                    self._gzip_error(str(error), last_end, is_first=is_first, started=started)
                    return
                if content:
                    started = True
                    yield content
            source.put_back(decoder.unused_data)
            last_end = source.offset
            is_first = False

    def _gzip_error(self, message: str, last_end: int, *, is_first: bool, started: bool) -> None:
        where = f"in a gzip member, after {self.decoded_bytes:,} decoded bytes"
        if "incorrect data check" in message or "incorrect length check" in message:
            what = "CRC-32" if "data check" in message else "length"
            self._end("bad-checksum", f"{what} of the content differs from the stored one {where}", is_cut=True)
        elif not started and ("header" in message or "compression method" in message):
            if is_first:
                self._end("bad-stream-header", f"not a gzip file: {message}", is_cut=True)
            else:
                self._trailing("gzip member", last_end)
        else:
            self._end("corrupt-stream", f"{message} {where}", is_cut=True)

    def _zstd(self) -> Iterator[bytes]:
        source = self._input
        last_end = 0
        is_first = True
        while True:
            head = source.peek(len(_ZSTD_MAGIC))
            if not head and not is_first:
                return
            if _is_skippable(head):
                size = source.peek(8)[4:]
                if len(size) < 4 or not source.skip(8 + int.from_bytes(size, "little")):
                    source.drain()
                    self._truncated("a skippable zstd frame")
                    return
            elif head == _ZSTD_MAGIC:
                yield from self._zstd_frame()
                if self.findings:
                    return
            elif not head or (len(head) < 4 and (_may_begin(head, _ZSTD_MAGIC) or _may_begin_skippable(head))):
                source.drain()
                self._truncated("a zstd frame")
                return
            elif is_first:
                self._end("bad-stream-header", f"not a zstd file: it begins with {source.peek(8)!r}", is_cut=True)
                return
            else:
                self._trailing("zstd frame", last_end)
                return
            last_end = source.offset
            is_first = False

    def _zstd_frame(self) -> Iterator[bytes]:
        """The content of one frame; what is wrong with it ends the stream."""
        import zstandard

        source = self._input
        head = source.peek(_ZSTD_HEADER_BYTES)
        where = f"in the zstd frame at byte {source.offset:,}"
        try:
            header_bytes = zstandard.frame_header_size(head)
            header = zstandard.get_frame_parameters(head)
        except zstandard.ZstdError as error:
            if len(head) < _ZSTD_HEADER_BYTES:
                source.drain()
                self._truncated("a zstd frame")
            else:
                words = _zstd_words(error)
                code = "window-too-large" if "too much memory" in words else "corrupt-stream"
                self._end(code, f"{words} {where}", is_cut=True)
            return
        if header.window_size > self._options.max_window_bytes:
            self._end(
                "window-too-large",
                f"a window of {header.window_size:,} bytes is needed {where}, "
                f"allowed are {self._options.max_window_bytes:,}",
                is_cut=True,
            )
            return
        # zstd's own limit counts in powers of two from 1 KiB; the exact limit was checked above
        limit = max(1 << 10, self._options.max_window_bytes)
        decoder = zstandard.ZstdDecompressor(max_window_size=limit).decompressobj()
        pieces = [source.take(header_bytes)]
        is_last = is_whole = False
        while not is_last:
            num_blocks = 0
            while num_blocks < _BLOCKS_AT_ONCE and not is_last:
                block_header = int.from_bytes(source.peek(3), "little")
                kind, size = block_header >> 1 & 3, block_header >> 3
                stored_bytes = 3 + (1 if kind == 1 else min(size, _ZSTD_BLOCK_BYTES + 1))
                piece = source.take(stored_bytes)
                pieces.append(piece)
                num_blocks += 1
                is_whole = len(piece) >= 3 and len(piece) == stored_bytes
                is_last = not is_whole or bool(block_header & 1)
            if is_last and is_whole and header.has_checksum:
                piece = source.take(4)
                pieces.append(piece)
                is_whole = len(piece) == 4
            try:
                content = decoder.decompress(b"".join(pieces))
            except zstandard.ZstdError as error:
                words = _zstd_words(error)
                code = "bad-checksum" if "checksum" in words else "corrupt-stream"
                need = f", dictionary {header.dict_id} is needed" if header.dict_id else ""
                self._end(code, f"{words} {where}, after {self.decoded_bytes:,} decoded bytes{need}", is_cut=True)
                return
            pieces = []
            if content:
                yield content
        if not is_whole:
            self._truncated("a zstd frame")
        elif not decoder.eof:
            self._end("corrupt-stream", f"the last block does not end the frame {where}", is_cut=True)


class _Input:
    """A raw file read in large pieces, with a look ahead; its offset is that of the next byte to be taken."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._held = b""
        self._start = 0  # of the held bytes, what is not yet taken
        self.offset = 0

    def _fill(self, num_bytes: int) -> int:
        """Hold at least `num_bytes` if the file has them; returns how many are held."""
        have = len(self._held) - self._start
        if have >= num_bytes:
            return have
        parts = [self._held[self._start :]] if have else []  # a part alone is held as it is
        while have < num_bytes:
            part = self._file.read(max(num_bytes - have, CHUNK_BYTES))
            if not part:
                break
            parts.append(part)
            have += len(part)
        self._held = parts[0] if len(parts) == 1 else b"".join(parts)
        self._start = 0
        return have

    def peek(self, num_bytes: int) -> bytes:
        """The next bytes, fewer only at the end of the file."""
        self._fill(num_bytes)
        return self._held[self._start : self._start + num_bytes]

    def take(self, num_bytes: int) -> bytes:
        """The next bytes, fewer only at the end of the file."""
        content = self.peek(num_bytes)
        self._start += len(content)
        self.offset += len(content)
        return content

    def put_back(self, content: bytes) -> None:
        """Give back bytes that were taken last."""
        if len(content) <= self._start:
            self._start -= len(content)
        else:
            self._held = content + self._held[self._start :]
            self._start = 0
        self.offset -= len(content)

    def skip(self, num_bytes: int) -> bool:
        """Pass over bytes; False where the file ends before."""
        while num_bytes:
            passed = len(self.take(min(num_bytes, CHUNK_BYTES)))
            if not passed:
                return False
            num_bytes -= passed
        return True

    def skip_zeros(self) -> None:
        """Pass over zero bytes, however many."""
        while self._fill(1) and not self._held[self._start]:
            rest = len(self._held[self._start :].lstrip(b"\0"))
            passed = len(self._held) - self._start - rest
            self._start += passed
            self.offset += passed

    def drain(self) -> None:
        """Pass over everything that is left, so that the offset tells where the file ends."""
        while self.take(CHUNK_BYTES):
            pass


def _may_begin(head: bytes, magic: bytes) -> bool:
    """Whether a file that begins with `head` begins with `magic`, or ends within it."""
    return bool(head) and head[: len(magic)] == magic[: len(head)]


def _is_skippable(head: bytes) -> bool:
    return len(head) == 4 and head[0] & 0xF0 == 0x50 and head[1:] == _SKIPPABLE_MAGIC


def _may_begin_skippable(head: bytes) -> bool:
    return bool(head) and head[0] & 0xF0 == 0x50 and _SKIPPABLE_MAGIC.startswith(head[1:])


def _zstd_words(error: Exception) -> str:
    """What zstd says, without the binding's prefix."""
    return str(error).removeprefix("zstd decompressor error: ").removeprefix("decompression error: ")
