"""How is a WebDataset read, a tar archive whose members of one key make one record?

1. The key of a member is its path up to the first dot of its base name, the rest (in lower case) is its ending:
   ``a/0001.seg.txt`` is the ``seg.txt`` of record ``a/0001``. Members of one key lie together, and are a record in the
   order of the archive. Folders, links, devices, names without a key and ``__meta__`` names are no records' members;
   they are counted.
2. The text of a record is its member with the ending that ``--text-field`` names; for the usual ``text`` also ``txt``;
   else that field of its ``json`` member. A member may be compressed by itself (``txt.gz``, ``json.zst``).
3. A block is a run of whole records of about `block_bytes` of the archive. In a plain archive it is one byte range,
   and read by it; only the members that are asked for are read.

The record at a cut is none, and without an end mark the last record is left out too: a member of it may be missing.
A key that comes again later begins another record, and the shard is flagged. Other fields are the members of the JSON
object, every other member by its ending, and the key as ``__key__``.
"""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, BinaryIO, Literal

import msgspec
import pyarrow as pa
import xxhash

from dataguard.corpus.formats.content import is_utf8, one_text, text_digest
from dataguard.corpus.formats.fields import columns_of
from dataguard.corpus.formats.jsontext import decode_deep, nesting_depth
from dataguard.corpus.formats.protocol import (
    BlockPlace,
    Finding,
    ReadBlock,
    ScanEnd,
    ScannedBlock,
    ScanOptions,
    ShardFile,
)
from dataguard.corpus.formats.records import RecordDecoder, Rejection
from dataguard.corpus.formats.streams import DecodedStream, detect_compression
from dataguard.corpus.formats.tar import BLOCK_BYTES, TarBytes, TarEnd, TarMember, is_header, members_of, readable_name
from dataguard.corpus.formats.text import text_trouble
from dataguard.corpus.formats.zstd_file import framed_file
from dataguard.errors import ShardDamaged

__all__ = ["WebDataset"]

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_UTF8_BOM = b"\xef\xbb\xbf"
_KEYED = re.compile(rb"((?:.*/)?[^./]+)\.([^/]*)", re.DOTALL)
_META = re.compile(rb"(?:^|/)__[^/]*__(?:$|[/.])")
_COMPRESSED = re.compile(r"\.(gz|zst)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """A member of a record, with what was read of it."""

    ending: str
    header_bytes: int
    content: bytes | bytearray | None
    """None where nobody asked for it, or it is over the limit."""
    trouble: Rejection | None = None


@dataclass(slots=True, kw_only=True)
class _Record:
    key: bytes
    start_bytes: int
    members: list[_Member] = field(default_factory=list)


class WebDataset:
    """Tar archives of keyed members: `Format` of text."""

    name: str = "webdataset"
    kind: Literal["text", "tokens"] = "text"
    random_access: bool = True

    def recognise(self, head: bytes, path: str) -> int:
        """3 where the head begins with a header whose check sum is right, 1 where only the name says so, else 0.

        >>> WebDataset().recognise(b"", "x.tar"), WebDataset().recognise(b"x" * 600, "x")
        (1, 0)
        """
        if is_header(head[:512]):
            return 3
        return int(path.lower().endswith((".tar", ".tgz")))

    def scan(self, shard: ShardFile, options: ScanOptions) -> Iterator[ScannedBlock | ScanEnd]:
        """Blocks in row order, then exactly one ScanEnd."""
        census = _Census(options)
        end = TarEnd()
        with shard.open() as file:
            stream = None if shard.compression == "none" else DecodedStream.of(shard, file, options)
            source = TarBytes(file if stream is None else stream)
            held: list[_Record] = []
            block_start = stop = row = 0
            for record, stop in _records(source, end, options, census=census):
                held.append(record)
                if stop - block_start >= options.block_bytes:
                    yield _scanned(held, block_start, stop, row, options)
                    row += len(held)
                    held, block_start = [], stop
            if held:
                yield _scanned(held, block_start, stop, row, options)
            findings = census.findings()
            if not census.is_over:
                findings += _ends(stream, end, census.lost)
        yield ScanEnd(findings=tuple(findings), ignored_lines=census.num_ignored)

    def read(self, shard: ShardFile, place: BlockPlace, options: ScanOptions, *, fields: bool = False) -> ReadBlock:
        """The rows of one block. ShardDamaged where they cannot be read any more."""
        return next(self.read_all(shard, [place], options, fields=fields))

    def read_all(
        self, shard: ShardFile, places: Sequence[BlockPlace], options: ScanOptions, *, fields: bool = False
    ) -> Iterator[ReadBlock]:
        """These blocks, given in row order, decoding the shard once at most."""
        with shard.open() as file:
            at_random = file if shard.compression == "none" else framed_file(shard, file, options)
            source = at_random or TarBytes(DecodedStream.of(shard, file, options))
            for place in places:
                yield _read_block(shard, source, place, options, fields=fields)


class _Census:
    """What a whole shard held besides its records."""

    def __init__(self, options: ScanOptions) -> None:
        self.num_ignored = 0
        self.num_members = 0
        self.lost: bytes = b""
        """Key of a record that was left out at the end."""
        self._max_members = options.max_members
        self._keys: set[int] = set()
        self._again: tuple[int, bytes, int] | None = None

    @property
    def is_over(self) -> bool:
        """Whether there are too many members."""
        return self.num_members > self._max_members

    def count(self, record: _Record) -> None:
        """Take a whole record into account."""
        key = xxhash.xxh3_64_intdigest(record.key)
        if key in self._keys:
            number, first, at = self._again or (0, record.key, record.start_bytes)
            self._again = (number + 1, first, at)
        self._keys.add(key)

    def findings(self) -> list[Finding]:
        """What is wrong with the shard beyond its end."""
        if self.is_over:
            detail = f"more than {self._max_members:,} members, which is the limit"
            return [Finding(code="too-many-members", detail=detail)]
        if self._again is None:
            return []
        number, first, at = self._again
        detail = (
            f"{number:,} records have the key of an earlier one, the first is {readable_name(first)} at byte {at:,}"
        )
        return [Finding(code="repeated-key", detail=detail, offset_bytes=at)]


def _ends(stream: DecodedStream | None, end: TarEnd, lost: bytes) -> list[Finding]:
    """What is wrong with the end of a shard: of its compressed stream, and of the archive in it."""
    told = f"; record {readable_name(lost)} may lack members and is left out" if lost else ""
    findings = list(stream.findings) if stream is not None else []
    is_cut_by_stream = bool(findings) and end.code == "cut-short"
    if end.code and not is_cut_by_stream:
        # without one whole header there is no sign that this is, or was about to be, an archive
        code = "not-an-archive" if end.offset_bytes < BLOCK_BYTES and not end.is_complete else end.code
        findings.append(Finding(code=code, detail=end.detail, offset_bytes=end.offset_bytes))
    return [dataclasses.replace(finding, detail=finding.detail + told) for finding in findings]


def _records(
    source: TarBytes,
    end: TarEnd,
    options: ScanOptions,
    *,
    census: _Census,
    all_members: bool = False,
    stop_bytes: int | None = None,
) -> Iterator[tuple[_Record, int]]:
    """(record, one past its last byte) in the order of the archive; the record at a cut is none."""
    record: _Record | None = None
    for member in members_of(source, end, stop_bytes=stop_bytes):
        census.num_members += 1
        if census.is_over:
            return
        keyed = _keyed(member)
        if keyed is None:
            census.num_ignored += 1
            continue
        key, ending = keyed
        if record is not None and record.key != key:
            census.count(record)
            yield record, member.header_bytes
            record = None
        if record is None:
            record = _Record(key=key, start_bytes=member.header_bytes)
        record.members.append(_taken(source, member, ending, options, is_wanted=all_members))
    if record is None:
        return
    if not end.is_complete:
        census.lost = record.key
        return
    census.count(record)
    yield record, end.stop_bytes


def _keyed(member: TarMember) -> tuple[bytes, str] | None:
    """(key, ending) of a member, None where it belongs to no record."""
    if not member.is_file or _META.search(member.name):
        return None
    found = _KEYED.fullmatch(member.name)
    return None if found is None else (found[1], found[2].decode("utf-8", "backslashreplace").lower())


def _taken(source: TarBytes, member: TarMember, ending: str, options: ScanOptions, *, is_wanted: bool) -> _Member:
    """A member with its bytes, where they may be the record's text or were asked for."""
    plain = _COMPRESSED.sub("", ending)
    if not (is_wanted or plain in _endings(options.text_field) or plain == "json"):
        return _Member(ending=ending, header_bytes=member.header_bytes, content=None)
    if member.has_holes:
        detail = f"member {readable_name(member.name)} is stored without its holes; put it into the archive as it is"
        trouble = Rejection(code="member-with-holes", detail=detail, row=0, line=0, offset_bytes=member.header_bytes)
        return _Member(ending=plain, header_bytes=member.header_bytes, content=None, trouble=trouble)
    if member.size_bytes > options.max_record_bytes:
        return _over(ending, member, member.size_bytes, options)
    content = source.take(member.size_bytes)
    if plain == ending or len(content) < member.size_bytes:  # cut: found to be so by who reads on
        return _Member(ending=ending, header_bytes=member.header_bytes, content=content)
    stream = DecodedStream(io.BytesIO(content), len(content), detect_compression(content[:8]), options)
    decoded = bytearray()
    for chunk in stream:
        decoded += chunk
        if len(decoded) > options.max_record_bytes:
            return _over(plain, member, len(decoded), options)
    if stream.findings:
        detail = f"member {readable_name(member.name)}: {stream.findings[0].detail}"
        trouble = Rejection(code="damaged-member", detail=detail, row=0, line=0, offset_bytes=member.header_bytes)
        return _Member(ending=plain, header_bytes=member.header_bytes, content=None, trouble=trouble)
    return _Member(ending=plain, header_bytes=member.header_bytes, content=decoded)


def _over(ending: str, member: TarMember, size_bytes: int, options: ScanOptions) -> _Member:
    name = readable_name(member.name)
    detail = f"member {name} has {size_bytes:,} bytes or more, allowed are {options.max_record_bytes:,}"
    trouble = Rejection(code="record-too-large", detail=detail, row=0, line=0, offset_bytes=member.header_bytes)
    return _Member(ending=ending, header_bytes=member.header_bytes, content=None, trouble=trouble)


def _endings(text_field: str) -> tuple[str, ...]:
    """Endings of members that are text, the one that counts first."""
    return ("text", "txt") if text_field == "text" else (text_field.lower(),)


def _text_of(record: _Record, options: ScanOptions) -> bytes | bytearray | memoryview | Rejection:
    by_ending: dict[str, _Member] = {}
    for member in record.members:
        if member.ending in by_ending:
            detail = f"record {readable_name(record.key)} has two members with the ending {member.ending!r}"
            return Rejection(code="duplicate-member", detail=detail, row=0, line=0, offset_bytes=member.header_bytes)
        by_ending[member.ending] = member
    asked = _endings(options.text_field)
    found = next((by_ending[ending] for ending in (*asked, "json") if ending in by_ending), None)
    if found is None:
        there = ", ".join(by_ending)
        what = " or ".join(asked)
        detail = f"record {readable_name(record.key)} has no member {what}, and no json; there are: {there}"
        return Rejection(code="missing-text", detail=detail, row=0, line=0, offset_bytes=record.start_bytes)
    if found.trouble is not None:
        return found.trouble
    content = found.content
    assert content is not None, "what may be text is read"
    where = f"record {readable_name(record.key)}, member {found.ending}"
    if found.ending in asked:
        trouble = text_trouble(content)
        if trouble is not None:
            return Rejection(
                code="invalid-utf8", detail=f"{where}: {trouble[0]}", row=0, line=0, offset_bytes=found.header_bytes
            )
        return memoryview(content)[len(_UTF8_BOM) :] if content.startswith(_UTF8_BOM) else content
    text = _decoder_for(options.text_field, options.max_record_bytes, options.max_depth).decode_document(
        memoryview(content)[len(_UTF8_BOM) if content.startswith(_UTF8_BOM) else 0 :]
    )
    if isinstance(text, Rejection):
        return Rejection(
            code=text.code, detail=f"{where}: {text.detail}", row=0, line=0, offset_bytes=found.header_bytes
        )
    return text


_decoder_for = lru_cache(maxsize=64)(RecordDecoder)


def _texts(records: Sequence[_Record], options: ScanOptions) -> tuple[pa.LargeBinaryArray, list[tuple[int, Rejection]]]:
    """The text of records, null where one is rejected, and why it is."""
    texts: list[Any] = []
    rejected: list[tuple[int, Rejection]] = []
    for at, record in enumerate(records):
        text = _text_of(record, options)
        if isinstance(text, Rejection):
            rejected.append((at, text))
            texts.append(None)
        else:
            texts.append(text)
    if len(texts) == 1 and texts[0] is not None:
        return one_text(texts[0]), rejected
    plain = [bytes(text) if isinstance(text, memoryview) else text for text in texts]
    return pa.array(plain, pa.large_binary()), rejected


def _scanned(records: Sequence[_Record], start: int, stop: int, row: int, options: ScanOptions) -> ScannedBlock:
    text, rejected = _texts(records, options)
    content_bytes, digest = text_digest(text)
    return ScannedBlock(
        place=BlockPlace(first_row=row, num_rows=len(records), offset_bytes=start, size_bytes=stop - start),
        content_bytes=content_bytes,
        digest=digest,
        rejected=tuple(
            Finding(code=why.code, detail=why.detail, row=row + at, offset_bytes=why.offset_bytes)
            for at, why in rejected
        ),
    )


def _read_block(
    shard: ShardFile, opened: BinaryIO | TarBytes, place: BlockPlace, options: ScanOptions, *, fields: bool
) -> ReadBlock:
    if not place.num_rows:
        return ReadBlock(text=pa.array([], pa.large_binary()), fields=pa.table({}) if fields else None)
    start, stop = place.offset_bytes, place.offset_bytes + place.size_bytes
    source = opened if isinstance(opened, TarBytes) else TarBytes(opened, start_bytes=start, stop_bytes=stop)
    source.skip(start - source.offset)
    end = TarEnd()
    found = _records(source, end, options, census=_Census(options), all_members=fields, stop_bytes=stop)
    records = [record for record, _ in found]
    if len(records) != place.num_rows or end.code:
        rows = f"rows {place.first_row:,}:{place.first_row + place.num_rows:,}"
        raise ShardDamaged(
            f"{rows} of shard {shard.name} cannot be read any more",
            found=end.detail or f"{len(records):,} records",
            allowed=f"{place.num_rows:,} records in bytes {start:,}:{stop:,}",
            todo="see whether the file was changed: dataguard manifest verify",
        )
    text, _ = _texts(records, options)
    return ReadBlock(text=text, fields=_fields(records, text, options) if fields else None)


def _fields(records: Sequence[_Record], text: pa.LargeBinaryArray, options: ScanOptions) -> pa.Table:
    """What else the records hold: the key, the members of the JSON object, every other member by its ending."""
    asked = _endings(options.text_field)
    is_out = [value is None for value in text.to_pylist()] if text.null_count else [False] * len(records)
    objects: list[bytes | bytearray | None] = [None] * len(records)
    others: dict[str, list[bytes | bytearray | None]] = {}
    is_in_json = False
    for row, record in enumerate(records):
        contents = {member.ending: member.content for member in record.members if not is_out[row]}
        source = next((ending for ending in asked if ending in contents), None)
        is_in_json |= source is None
        for ending, content in contents.items():
            if content is None or ending == source:
                continue
            if ending == "json" and _is_object(content, options):
                objects[row] = content
            else:
                others.setdefault(ending, [None] * len(records))[row] = content
    columns = {"__key__": pa.array([readable_name(record.key) for record in records], pa.string())}
    table = columns_of(objects, text_field=options.text_field if is_in_json else "")
    columns |= {name: table.column(name) for name in table.column_names}
    for ending, contents_of_rows in others.items():
        is_text = all(content is None or is_utf8(content) for content in contents_of_rows)
        name = ending if ending not in columns else f".{ending}"
        columns[name] = pa.array(contents_of_rows, pa.large_string() if is_text else pa.large_binary())
    return pa.table(columns)


def _is_object(content: bytes | bytearray, options: ScanOptions) -> bool:
    if not is_utf8(content) or nesting_depth(content) > options.max_depth:
        return False
    try:
        decode_deep(_OBJECT, content)
    except msgspec.DecodeError:
        return False
    return True
