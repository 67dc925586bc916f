"""Where does one block of lines end and the next begin?

Lines end at LF and nowhere else. The blocks of a stream depend on its lines alone, never on the chunks they came in:

1. A block ends with the line that reaches `block_bytes`.
2. A line longer than `block_bytes` is a block by itself.
3. Such a line that is also longer than `max_record_bytes` is passed over without being held: its block has a size and
   no content.

What follows the last LF is a line too, unless the stream broke off there: half a record is none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from dataguard.corpus.formats.protocol import Finding
from dataguard.corpus.formats.streams import DecodedStream

__all__ = ["ByteRanges", "LineBlock", "LineCutter"]

_UTF8_BOM = b"\xef\xbb\xbf"
_HAND_OVER_BYTES = 1 << 23  # above this a block is handed over as it is held, below it is copied out


@dataclass(frozen=True, slots=True, kw_only=True)
class LineBlock:
    """Some whole lines of a decoded stream."""

    offset_bytes: int
    size_bytes: int
    content: bytes | bytearray | None
    """The lines with their endings; None where this is one line over the limit."""


class LineCutter:
    r"""Cuts one decoded stream into blocks of lines, once.

    Every decoded byte lies in exactly one block, but for a UTF-8 byte order mark at the beginning and for what follows
    the last LF of a stream that broke off (`half_bytes`).

    Parameters
    ----------
    stream
        Not yet iterated; its `findings` are known when the last block has been taken.
    block_bytes, max_record_bytes
        As in `ScanOptions`.

    Examples
    --------
    >>> import io
    >>> from dataguard.corpus.formats.protocol import ScanOptions
    >>> stream = DecodedStream(io.BytesIO(b"1\n22\n333\n4"), 10, "none", ScanOptions())
    >>> [bytes(block.content) for block in LineCutter(stream, block_bytes=3, max_record_bytes=100)]
    [b'1\n22\n', b'333\n', b'4']
    """

    def __init__(self, stream: DecodedStream, *, block_bytes: int, max_record_bytes: int) -> None:
        self.half_bytes = 0
        """Bytes of the record that the end of a broken stream cut."""
        self._stream = stream
        self._block_bytes = block_bytes
        self._max_record_bytes = max_record_bytes
        self._held = bytearray()
        self._offset = 0  # of the first held byte
        self._searched = 0  # held bytes in which no line was found to end the block
        self._over_bytes = 0  # bytes passed over of a line over the limit

    def __iter__(self) -> Iterator[LineBlock]:
        is_begun = False
        for chunk in self._stream:
            if self._over_bytes:
                end = chunk.find(b"\n") + 1
                self._over_bytes += end or len(chunk)
                if not end:
                    continue
                yield self._pass_over()
                chunk = chunk[end:]
            self._held += chunk
            if not is_begun:
                if len(self._held) < len(_UTF8_BOM) and _UTF8_BOM.startswith(self._held):
                    continue
                is_begun = True
                if self._held.startswith(_UTF8_BOM):
                    self._drop(len(_UTF8_BOM))
            while block := self._next(is_end=False):
                yield block
        if self._stream.is_cut:
            whole_bytes = self._held.rfind(b"\n") + 1
            self.half_bytes = self._over_bytes + len(self._held) - whole_bytes
            del self._held[whole_bytes:]
        elif self._over_bytes:
            yield self._pass_over()
        while block := self._next(is_end=True):
            yield block

    def findings(self) -> tuple[Finding, ...]:
        """The findings of the stream, with what its end did to the records; known after the last block."""
        if not self.half_bytes:
            return self._stream.findings
        where = self._stream.decoded_bytes - self.half_bytes
        lost = f"; the record that begins at decoded byte {where:,} is cut after {self.half_bytes:,} bytes and left out"
        return tuple(dataclasses.replace(finding, detail=finding.detail + lost) for finding in self._stream.findings)

    def _next(self, *, is_end: bool) -> LineBlock | None:
        """The next block of what is held; None where nothing is held, or more must be seen."""
        num_held = len(self._held)
        if num_held < self._block_bytes:
            return self._take(num_held) if is_end and num_held else None
        end = self._held.find(b"\n", max(self._block_bytes - 1, self._searched)) + 1
        if is_end:
            end = end or num_held
        self._searched = num_held
        line = self._held.rfind(b"\n", 0, self._block_bytes - 1) + 1  # where the line that ends at `end` begins
        line_bytes = (end or num_held) - line
        if line_bytes > self._block_bytes:
            if line:
                return self._take(line)
            if line_bytes > self._max_record_bytes:
                self._over_bytes = line_bytes
                del self._held[:line_bytes]
                self._searched = 0
                return self._pass_over() if end else None
        return self._take(end) if end else None

    def _take(self, num_bytes: int) -> LineBlock:
        offset = self._offset
        content: bytes | bytearray
        if num_bytes >= _HAND_OVER_BYTES:
            content = self._held
            self._held = self._held[num_bytes:]
            del content[num_bytes:]
            self._offset += num_bytes
            self._searched = 0
        else:
            content = bytes(memoryview(self._held)[:num_bytes])
            self._drop(num_bytes)
        return LineBlock(offset_bytes=offset, size_bytes=num_bytes, content=content)

    def _drop(self, num_bytes: int) -> None:
        del self._held[:num_bytes]
        self._offset += num_bytes
        self._searched = 0

    def _pass_over(self) -> LineBlock:
        block = LineBlock(offset_bytes=self._offset, size_bytes=self._over_bytes, content=None)
        self._offset += self._over_bytes
        self._over_bytes = 0
        return block


class ByteRanges:
    """Byte ranges of one decoded stream, taken in ascending order, passing over what lies between them.

    >>> import io
    >>> from dataguard.corpus.formats.protocol import ScanOptions
    >>> ranges = ByteRanges(DecodedStream(io.BytesIO(b"0123456789"), 10, "none", ScanOptions()))
    >>> bytes(ranges.take(2, 3)), bytes(ranges.take(8, 5))
    (b'234', b'89')
    """

    def __init__(self, stream: DecodedStream) -> None:
        self._chunks = iter(stream)
        self._held = bytearray()
        self._offset = 0  # of the first held byte

    def take(self, offset_bytes: int, size_bytes: int) -> bytearray:
        """Bytes from an offset on, fewer only where the stream ends."""
        assert offset_bytes >= self._offset, "ranges are taken in ascending order"
        while self._offset + len(self._held) <= offset_bytes:
            self._offset += len(self._held)
            self._held = bytearray(next(self._chunks, b""))
            if not self._held:
                return bytearray()
        del self._held[: offset_bytes - self._offset]
        self._offset = offset_bytes
        while len(self._held) < size_bytes and (chunk := next(self._chunks, b"")):
            self._held += chunk
        taken = self._held
        self._held = taken[size_bytes:]
        self._offset += min(size_bytes, len(taken))
        del taken[size_bytes:]
        return taken

    def drain(self, offset_bytes: int) -> int:
        """Pass over the rest of the stream: how many bytes of it lie from an offset on."""
        end = self._offset + len(self._held)
        for chunk in self._chunks:
            end += len(chunk)
        self._held.clear()
        return max(end - offset_bytes, 0)
