"""How are JSON lines scanned to blocks and read again, plain, gzipped or as zstd?

A block is a run of lines of about `block_bytes` (lines.py); its records and what is wrong with them come from
records.py, in the scan and in every read alike, by the shortcut of bulk_lines.py where there is much to be read.
Offsets count in the decoded stream, so a block of a plain file is one byte range and is read by it; a block of a
compressed file is reached by decoding what stands before it.

A file that is text or JSON but not one object a line is told as a whole, as ``not-json-lines``, besides its rejected
lines: one JSON array or pretty-printed objects (a first line that only opens, a last line that only closes), or no
line at all that is an object. Under a name that promises JSON lines such a file is damaged; one that is merely called
``.json`` is of another kind and is not recognised.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from dataguard.corpus.formats.bulk_lines import BulkLines
from dataguard.corpus.formats.content import text_digest
from dataguard.corpus.formats.fields import columns_of
from dataguard.corpus.formats.lines import ByteRanges, LineBlock, LineCutter
from dataguard.corpus.formats.protocol import (
    BlockPlace,
    Finding,
    ReadBlock,
    ScanEnd,
    ScannedBlock,
    ScanOptions,
    ShardFile,
)
from dataguard.corpus.formats.records import DecodedLines
from dataguard.corpus.formats.streams import DecodedStream
from dataguard.corpus.formats.tokens import FileRanges
from dataguard.corpus.formats.zstd_file import framed_file
from dataguard.errors import ShardDamaged

__all__ = ["JsonLines"]

_PROMISING_NAMES = (".jsonl", ".ndjson", ".jsonlines")
_COMPRESSED_NAMES = re.compile(r"\.(gz|gzip|zst|zstd)$", re.IGNORECASE)
_UTF8_BOM = b"\xef\xbb\xbf"
_BEGINS_OBJECT = re.compile(rb'[ \t\r]*\{[ \t\r]*"')
_OBJECT = msgspec.json.Decoder(msgspec.defstruct("_Object", []))
_NO_OBJECT = frozenset({"invalid-json", "invalid-utf8", "not-an-object"})


class JsonLines:
    """JSON lines: `Format` of text, one JSON object a line."""

    name: str = "jsonl"
    kind: Literal["text", "tokens"] = "text"
    random_access: bool = True

    def recognise(self, head: bytes, path: str) -> int:
        """2 where a line of the head is a JSON object, 1 where only the name says so, else 0.

        >>> JsonLines().recognise(b'{"text": "a"}', "x"), JsonLines().recognise(b"plain", "x.jsonl.gz")
        (2, 1)
        >>> JsonLines().recognise(b'{' + bytes([10]) + b'  "indent": 2', "state.json")
        0
        """
        lines = [line for line in head.removeprefix(_UTF8_BOM).split(b"\n") if line.strip()]
        opens_only = bool(lines) and not lines[0].strip(b"[{ \t\r")  # an array, or objects printed over several lines
        if not opens_only and any(_is_object(line) for line in lines):
            return 2
        if len(lines) == 1 and not head.endswith(b"\n") and _BEGINS_OBJECT.match(lines[0]):
            return 2  # the beginning of a long line
        name = _COMPRESSED_NAMES.sub("", path.lower())
        if name.endswith(_PROMISING_NAMES):
            return 1
        is_one_document = head.removeprefix(_UTF8_BOM).lstrip()[:1] in (b"{", b"[")
        return int(name.endswith(".json") and not is_one_document)

    def scan(self, shard: ShardFile, options: ScanOptions) -> Iterator[ScannedBlock | ScanEnd]:
        """Blocks in row order, then exactly one ScanEnd."""
        decoder = _decoder(options)
        census = _Census()
        row = line = num_blank = 0
        with shard.open() as file:
            stream = DecodedStream.of(shard, file, options)
            cutter = LineCutter(stream, block_bytes=options.block_bytes, max_record_bytes=options.max_record_bytes)
            for block in cutter:
                content = block.content
                if content is None:
                    decoded = decoder.too_large(block.size_bytes)
                else:
                    decoded = decoder.decode(content, is_scan=True)
                census.count(block, decoded)
                num_blank += decoded.num_blank
                num_rows = len(decoded.text)
                if num_rows:
                    content_bytes, digest = text_digest(decoded.text)
                    yield ScannedBlock(
                        place=BlockPlace(
                            first_row=row,
                            num_rows=num_rows,
                            offset_bytes=block.offset_bytes,
                            size_bytes=block.size_bytes,
                        ),
                        content_bytes=content_bytes,
                        digest=digest,
                        rejected=tuple(
                            Finding(
                                code=entry.code,
                                detail=entry.detail,
                                row=row + entry.row,
                                line=line + entry.line + 1,
                                offset_bytes=block.offset_bytes + entry.offset_bytes,
                            )
                            for entry in decoded.rejected
                        ),
                    )
                row += num_rows
                line += decoded.num_lines
        yield ScanEnd(findings=(*cutter.findings(), *census.findings()), ignored_lines=num_blank)

    def read(self, shard: ShardFile, place: BlockPlace, options: ScanOptions, *, fields: bool = False) -> ReadBlock:
        """The rows of one block. ShardDamaged where they cannot be read any more."""
        if shard.compression != "none":
            return next(self.read_all(shard, [place], options, fields=fields))
        content = None
        if not _is_over(place, options):
            content = shard.read_at(place.offset_bytes, place.size_bytes) if place.num_rows else b""
        return _read_block(shard, place, content, _decoder(options), options, fields=fields)

    def read_all(
        self, shard: ShardFile, places: Sequence[BlockPlace], options: ScanOptions, *, fields: bool = False
    ) -> Iterator[ReadBlock]:
        """These blocks, given in row order, decoding the shard once at most."""
        decoder = _decoder(options)
        with shard.open() as file:
            stream = DecodedStream.of(shard, file, options)
            framed = framed_file(shard, file, options)
            ranges = ByteRanges(stream) if framed is None else FileRanges(framed)
            for place in places:
                content: bytes | bytearray | None = b""
                if _is_over(place, options):
                    content = None
                elif place.num_rows:
                    content = ranges.take(place.offset_bytes, place.size_bytes)
                    if len(content) != place.size_bytes:
                        why = "; ".join(finding.detail for finding in stream.findings) or "the decoded stream ends"
                        raise _damaged(shard, place, f"{why}, {len(content):,} bytes of the block could be read")
                yield _read_block(shard, place, content, decoder, options, fields=fields)


class _Census:
    """What kinds of lines a shard holds, and whether that makes it a file of JSON lines at all."""

    def __init__(self) -> None:
        self._num_rows = 0
        self._num_objects = 0
        self._first: tuple[bytes, bool] | None = None  # beginning of the first record, and whether it is JSON
        self._last: tuple[bytes, bool] = (b"", True)

    def count(self, block: LineBlock, decoded: DecodedLines) -> None:
        """Take a block into account."""
        num_rows = len(decoded.text)
        if not num_rows:
            return
        codes = {entry.row: entry.code for entry in decoded.rejected}
        self._num_rows += num_rows
        self._num_objects += num_rows - sum(code in _NO_OBJECT for code in codes.values())
        content = b"" if block.content is None else block.content
        is_no_json = [codes.get(row) in ("invalid-json", "invalid-utf8") for row in (0, num_rows - 1)]
        if self._first is None:
            self._first = (bytes(content[:4096]).lstrip().split(b"\n")[0], not is_no_json[0])
        self._last = (bytes(content[-4096:]).rstrip().split(b"\n")[-1], not is_no_json[1])

    def findings(self) -> list[Finding]:
        """The finding about the shard as a whole, if there is one."""
        if self._first is None:
            return []
        (first, is_first_json), (last, is_last_json) = self._first, self._last
        is_one_document = (not is_first_json and not is_last_json) and (
            (first[:1] == b"[" and last[-1:] == b"]") or (not first.strip(b"[{ \t\r") and not last.strip(b"]} \t\r"))
        )
        if self._num_objects and not is_one_document:
            return []
        if first[:1] == b"[":
            what = "one JSON array"
        elif is_one_document:
            what = "JSON printed over several lines"
        elif b"\0" in first or first[:2] in (b"\xff\xfe", b"\xfe\xff"):
            what = "text in another encoding than UTF-8"
        else:
            what = "no line that is a JSON object"
        detail = f"{self._num_rows:,} lines hold {what}; the first begins with {first[:40]!r}"
        return [Finding(code="not-json-lines", detail=detail, offset_bytes=0)]


def _decoder(options: ScanOptions) -> BulkLines:
    return _decoder_for(options.text_field, options.max_record_bytes, options.max_depth)


# a decoder has a type of its own, which takes longer to make than a block to decode
_decoder_for = functools.lru_cache(maxsize=64)(BulkLines)


def _is_over(place: BlockPlace, options: ScanOptions) -> bool:
    """Whether a block is one record over the limit, that need not be read to be rejected again."""
    return place.num_rows == 1 and place.size_bytes > max(options.max_record_bytes, 2 * options.block_bytes)


def _read_block(
    shard: ShardFile,
    place: BlockPlace,
    content: bytes | bytearray | None,
    decoder: BulkLines,
    options: ScanOptions,
    *,
    fields: bool,
) -> ReadBlock:
    decoded = decoder.too_large(place.size_bytes) if content is None else decoder.decode(content)
    if len(decoded.text) != place.num_rows:
        raise _damaged(shard, place, f"the block holds {len(decoded.text):,} records")
    if not fields:
        return ReadBlock(text=decoded.text)
    view = memoryview(b"" if content is None else content)
    rejected = {entry.row for entry in decoded.rejected}
    bounds = enumerate(zip(decoded.starts.tolist(), decoded.stops.tolist(), strict=True))
    records = [None if row in rejected else view[start:stop] for row, (start, stop) in bounds]
    return ReadBlock(text=decoded.text, fields=columns_of(records, text_field=options.text_field))


def _damaged(shard: ShardFile, place: BlockPlace, found: str) -> ShardDamaged:
    rows = f"rows {place.first_row:,}:{place.first_row + place.num_rows:,}"
    return ShardDamaged(
        f"{rows} of shard {shard.name} cannot be read any more",
        found=found,
        allowed=f"{place.num_rows:,} records in bytes {place.offset_bytes:,}:{place.offset_bytes + place.size_bytes:,}",
        todo="see whether the file was changed: dataguard manifest verify",
    )


def _is_object(line: bytes) -> bool:
    try:
        _OBJECT.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
