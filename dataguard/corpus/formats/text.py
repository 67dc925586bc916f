"""How is a plain text file read, that is one record as a whole?

Nothing in its bytes tells such a file from any other, so it is read only where it is asked for (``--format text``).
The record is every decoded byte, line ends included; a UTF-8 byte order mark at the beginning is no content, as
everywhere. An empty file is an empty record, as an empty string is one in JSON.

What is not UTF-8 is rejected with the place of the first bad byte. UTF-16 is told as such, with and without its mark:
spelled in it, plain English is valid UTF-8 of which every second byte is a NUL, and that is nobody's text. A file
whose compressed stream breaks off is half a record, which is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pyarrow as pa

from dataguard.corpus.formats.content import is_utf8, one_text, text_digest
from dataguard.corpus.formats.jsontext import utf8_break
from dataguard.corpus.formats.protocol import (
    BlockPlace,
    Finding,
    ReadBlock,
    ScanEnd,
    ScannedBlock,
    ScanOptions,
    ShardFile,
)
from dataguard.corpus.formats.streams import DecodedStream
from dataguard.errors import ShardDamaged

__all__ = ["PlainText", "text_trouble"]

_UTF8_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_LOOK_BYTES = 64


class PlainText:
    """Plain text: `Format` of text, one record a file."""

    name: str = "text"
    kind: Literal["text", "tokens"] = "text"
    random_access: bool = True

    def recognise(self, head: bytes, path: str) -> int:  # noqa: ARG002 - any file could be one
        """Always 0: it must be asked for.

        >>> PlainText().recognise(b"plain", "x.txt")
        0
        """
        return 0

    def scan(self, shard: ShardFile, options: ScanOptions) -> Iterator[ScannedBlock | ScanEnd]:
        """One block of one row, then exactly one ScanEnd."""
        with shard.open() as file:
            stream = DecodedStream.of(shard, file, options)
            content = _take(stream, options)
        if stream.is_cut:
            yield ScanEnd(findings=stream.findings)
            return
        text, rejection = _record(content, stream.decoded_bytes, options)
        content_bytes, digest = text_digest(text)
        yield ScannedBlock(
            place=BlockPlace(first_row=0, num_rows=1, offset_bytes=0, size_bytes=stream.decoded_bytes),
            content_bytes=content_bytes,
            digest=digest,
            rejected=() if rejection is None else (rejection,),
        )
        yield ScanEnd(findings=stream.findings)

    def read(self, shard: ShardFile, place: BlockPlace, options: ScanOptions, *, fields: bool = False) -> ReadBlock:
        """The record. ShardDamaged where it cannot be read any more."""
        return next(self.read_all(shard, [place], options, fields=fields))

    def read_all(
        self, shard: ShardFile, places: Sequence[BlockPlace], options: ScanOptions, *, fields: bool = False
    ) -> Iterator[ReadBlock]:
        """The block of this shard, which has only one."""
        for place in places:
            if not place.num_rows:
                yield ReadBlock(text=pa.array([], pa.large_binary()), fields=pa.table({}) if fields else None)
                continue
            with shard.open() as file:
                stream = DecodedStream.of(shard, file, options)
                content = _take(stream, options)
            if stream.is_cut or stream.decoded_bytes != place.size_bytes:
                why = "; ".join(finding.detail for finding in stream.findings)
                raise ShardDamaged(
                    f"shard {shard.name} cannot be read any more",
                    found=why or f"{stream.decoded_bytes:,} bytes of text",
                    allowed=f"{place.size_bytes:,} bytes of text",
                    todo="see whether the file was changed: dataguard manifest verify",
                )
            text, _ = _record(content, stream.decoded_bytes, options)
            yield ReadBlock(text=text, fields=pa.table({}) if fields else None)


def text_trouble(content: Any) -> tuple[str, int] | None:
    r"""Why bytes are no text in UTF-8, and where they begin not to be; None where they are.

    >>> text_trouble(b"caf\xc3\xa9"), text_trouble(b"caf\xe9.")
    (None, ('byte 0xe9 at byte 3 is not UTF-8', 3))
    >>> text_trouble("plain".encode("utf-16-le"))
    ('every second byte is a NUL: this is UTF-16', 1)
    """
    view = memoryview(content)
    head = bytes(view[:_LOOK_BYTES])
    if head[:2] in _UTF16_BOMS:
        return "it begins with the mark of UTF-16", 0
    if len(head) >= 4 and len(view) % 2 == 0:
        for first in (1, 0):
            if not any(head[first::2]) and all(head[1 - first :: 2]):
                return "every second byte is a NUL: this is UTF-16", first
    if is_utf8(view):
        return None
    bad = utf8_break(view)
    return f"byte {view[bad]:#04x} at byte {bad:,} is not UTF-8", bad


def _take(stream: DecodedStream, options: ScanOptions) -> bytearray | None:
    """All decoded bytes, None where they are over the limit; the stream is at its end then."""
    content = bytearray()
    is_over = False
    for chunk in stream:
        if is_over:
            continue
        content += chunk
        if len(content) > options.max_record_bytes:
            is_over = True
            content = bytearray()
    return None if is_over else content


def _record(
    content: bytearray | None, size_bytes: int, options: ScanOptions
) -> tuple[pa.LargeBinaryArray, Finding | None]:
    """The row, null where it is rejected, and why it is."""
    nothing = pa.array([None], pa.large_binary())
    if content is None:
        detail = f"{size_bytes:,} bytes, allowed are {options.max_record_bytes:,}"
        return nothing, Finding(code="record-too-large", detail=detail, row=0, offset_bytes=0)
    trouble = text_trouble(content)
    if trouble is not None:
        detail, offset = trouble
        return nothing, Finding(code="invalid-utf8", detail=detail, row=0, offset_bytes=offset)
    has_mark = content.startswith(_UTF8_BOM)
    return one_text(memoryview(content)[len(_UTF8_BOM) if has_mark else 0 :]), None
