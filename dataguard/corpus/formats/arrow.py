"""How is an Arrow IPC file or stream scanned by record batches, and a batch read again?

A record batch is a block; one without rows is none, and moves no row number. A block remembers where its message lies,
so that it is read again by one byte range, in a file and in a stream alike (ipc_layout.py tells how); only shards with
dictionaries are walked once more for them. Of a batch the text column alone is decoded, or the struct that holds it.

A batch that cannot be decoded loses its rows and no others. Text of any Arrow type leads to the same bytes as in
Parquet (columns.py), compressed bodies and the other byte order included. There are no checksums in Arrow data: a byte
that changed within a text is found by the digest of a later read and not by a first scan.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal

import pyarrow as pa

from dataguard.corpus.formats.columns import TextColumn, other_columns, text_of_column, text_path
from dataguard.corpus.formats.content import text_digest
from dataguard.corpus.formats.ipc_layout import IpcLayout, has_dictionaries, read_layout, read_schema
from dataguard.corpus.formats.ipc_messages import FILE_MAGIC, IpcBroken, Message, expanded_bytes, is_schema, message_at
from dataguard.corpus.formats.protocol import (
    BlockPlace,
    Finding,
    ReadBlock,
    ScanEnd,
    ScannedBlock,
    ScanOptions,
    ShardFile,
)
from dataguard.corpus.formats.spelled import may_repeat, spelled_bytes
from dataguard.corpus.formats.valid_text import SHORTCUT as utf8  # noqa: N811 - what it is a shortcut to
from dataguard.errors import DataguardError, ShardDamaged

__all__ = ["ArrowIpc"]

_MOST_LOST_ROWS = 1 << 20  # rows of undecodable batches that are listed one by one, in all of a shard
_FREE_ROWS = 1 << 24
_ROWS_A_BYTE = 1000  # more than any encoding of a text column takes
_MOST_KEPT_BYTES = 1 << 26
_NAMES = (".arrow", ".arrows", ".feather", ".ipc")


class _Expands(Exception):  # noqa: N818 - becomes a finding of the shard
    """A batch whose text would be far more than its stored bytes can stand for."""


class ArrowIpc:
    """Arrow IPC files and streams: `Format` of text, one record batch a block."""

    name: str = "arrow"
    kind: Literal["text", "tokens"] = "text"
    random_access: bool = True

    def recognise(self, head: bytes, path: str) -> int:
        """3 where the head is that of an Arrow file or stream, 1 where only the name says so, else 0.

        >>> ArrowIpc().recognise(b"ARROW1", "x"), ArrowIpc().recognise(b"", "x.arrow"), ArrowIpc().recognise(b"", "x")
        (3, 1, 0)
        """
        if head.startswith(FILE_MAGIC) or is_schema(head):
            return 3
        return int(path.lower().endswith(_NAMES))

    def scan(self, shard: ShardFile, options: ScanOptions) -> Iterator[ScannedBlock | ScanEnd]:
        """Blocks in row order, then exactly one ScanEnd."""
        if shard.compression != "none":
            detail = f"an Arrow file inside {shard.compression}: decompress it, Arrow compresses its own buffers"
            yield ScanEnd(findings=(Finding(code="compressed-container", detail=detail),))
            return
        with shard.open() as file:
            try:
                layout = read_layout(file, shard.size_bytes)
            except IpcBroken as error:
                yield ScanEnd(findings=(Finding(code="bad-arrow-header", detail=str(error), offset_bytes=0),))
                return
            path = text_path(layout.schema, options.text_field)
            if isinstance(path, Finding):
                yield ScanEnd(findings=(path,))
                return
            yield from self._scan_batches(_Opened(schema=layout.schema, path=path, layout=layout), file, options)

    def _scan_batches(self, opened: _Opened, file: BinaryIO, options: ScanOptions) -> Iterator[ScannedBlock | ScanEnd]:
        row = num_read = num_lost = 0
        lost: list[str] = []
        for number, message in enumerate(opened.layout.batches):
            num_rows = message.num_rows
            try:
                column = _read_text(opened, file, message, options)
            except _Expands as error:
                detail = f"record batch {number:,}: {error}"
                yield ScanEnd(findings=(Finding(code="expands-too-much", detail=detail),))
                return
            if isinstance(column, str):
                lost.append(f"record batch {number:,} (rows {row:,}:{row + num_rows:,}): {column}")
                num_lost += num_rows
                if (
                    num_rows < 0 or num_lost > _MOST_LOST_ROWS
                ):  # too many to be listed one by one, or not to be believed
                    yield ScanEnd(findings=(Finding(code="unreadable-batches", detail=lost[-1]),))
                    return
                column = _lost_rows(num_rows, column)
            else:
                num_read += 1
            if not num_rows:
                continue
            content_bytes, digest = text_digest(column.text)
            utf8.worth(content_bytes, is_scan=True)
            yield ScannedBlock(
                place=BlockPlace(
                    first_row=row,
                    num_rows=num_rows,
                    offset_bytes=message.offset_bytes,
                    size_bytes=message.size_bytes,
                    group=number,
                ),
                content_bytes=content_bytes,
                digest=digest,
                rejected=tuple(
                    Finding(code=code, detail=detail, row=row + at, offset_bytes=message.offset_bytes)
                    for at, code, detail in column.rejected
                ),
            )
            row += num_rows
        findings = list(opened.layout.findings)
        if lost:
            code = "damaged-batches" if num_read else "unreadable-batches"
            detail = (
                f"{len(lost):,} of {len(lost) + num_read:,} record batches cannot be decoded: {'; '.join(lost[:3])}"
            )
            findings.append(Finding(code=code, detail=detail))
        yield ScanEnd(findings=tuple(findings))

    def read(self, shard: ShardFile, place: BlockPlace, options: ScanOptions, *, fields: bool = False) -> ReadBlock:
        """The rows of one block. ShardDamaged where there is no such batch any more."""
        return next(self.read_all(shard, [place], options, fields=fields))

    def read_all(
        self, shard: ShardFile, places: Sequence[BlockPlace], options: ScanOptions, *, fields: bool = False
    ) -> Iterator[ReadBlock]:
        """These blocks, given in row order, with the schema read once."""
        with shard.open() as file:
            opened = _open(shard, file, options)
            for place in places:
                yield _read_block(shard, opened, file, place, options, fields=fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """What decoding any batch of a shard takes."""

    schema: pa.Schema
    path: tuple[str, ...]
    layout: IpcLayout
    """Without batches where no dictionary has to be found."""
    dictionaries: dict[tuple[Message, ...], bytes] = field(default_factory=dict, compare=False)
    """The schema and the dictionaries that were read last, by what they were."""

    @property
    def num_bytes(self) -> int:
        """About what it holds in memory."""
        return len(self.layout.schema_message) + 200 * (len(self.layout.batches) + len(self.layout.dictionaries))


class _Kept:
    """What was read of the shards in use, which ends with them. Bounded, and without a lock, as in parquet.py."""

    def __init__(self) -> None:
        self._kept: weakref.WeakKeyDictionary[ShardFile, tuple[str, _Opened]] = weakref.WeakKeyDictionary()
        self._num_bytes = 0

    def get(self, shard: ShardFile, text_field: str) -> _Opened | None:
        """Of this very `ShardFile` and text field, if it is still known."""
        found = self._kept.get(shard)
        return found[1] if found is not None and found[0] == text_field else None

    def put(self, shard: ShardFile, text_field: str, opened: _Opened) -> None:
        """Keep it for as long as its shard lives, or until there are too many."""
        self._num_bytes += opened.num_bytes
        if self._num_bytes > _MOST_KEPT_BYTES:
            self._kept.clear()
            self._num_bytes = opened.num_bytes
        self._kept[shard] = (text_field, opened)


_KEPT = _Kept()


def _open(shard: ShardFile, file: BinaryIO, options: ScanOptions) -> _Opened:
    known = _KEPT.get(shard, options.text_field)
    if known is not None:
        return known
    try:
        schema, message, _ = read_schema(file, shard.size_bytes)
        if has_dictionaries(schema):
            layout = read_layout(file, shard.size_bytes)
        else:
            layout = IpcLayout(
                is_file=False, schema=schema, schema_message=message, dictionaries=(), batches=(), findings=()
            )
    except IpcBroken as error:
        raise ShardDamaged(f"shard {shard.name} cannot be read any more", found=str(error)) from error
    path = text_path(schema, options.text_field)
    if isinstance(path, Finding):
        raise ShardDamaged(f"shard {shard.name} cannot be read any more", found=path.detail)
    opened = _Opened(schema=schema, path=path, layout=layout)
    _KEPT.put(shard, options.text_field, opened)
    return opened


def _read_block(
    shard: ShardFile, opened: _Opened, file: BinaryIO, place: BlockPlace, options: ScanOptions, *, fields: bool
) -> ReadBlock:
    if place.num_rows == 0:
        empty = opened.schema.empty_table()
        others = other_columns(empty, opened.path) if fields else None
        return ReadBlock(text=pa.array([], pa.large_binary()), fields=others)
    wrong = ""
    try:
        message = message_at(file, place.offset_bytes, shard.size_bytes)
    except IpcBroken as error:
        wrong = str(error)
    else:
        if isinstance(message, int) or message.kind != "batch":
            wrong = "no record batch"
        elif (message.num_rows, message.size_bytes) != (place.num_rows, place.size_bytes):
            wrong = f"a record batch of {message.num_rows:,} rows in {message.size_bytes:,} bytes"
    if wrong or isinstance(message, int):
        raise ShardDamaged(
            f"record batch {place.group:,} of shard {shard.name} cannot be read any more",
            found=f"at byte {place.offset_bytes:,}: {wrong}",
            allowed=f"a record batch of {place.num_rows:,} rows in {place.size_bytes:,} bytes",
            todo="see whether the file was changed: dataguard manifest verify",
        )
    try:
        column = _read_text(opened, file, message, options)
    except _Expands as error:
        raise ShardDamaged(f"record batch {place.group:,} of shard {shard.name} expands", found=str(error)) from error
    if isinstance(column, str):
        column = _lost_rows(place.num_rows, column)
    others = _read_others(opened, file, message, options) if fields else None
    return ReadBlock(text=column.text, fields=others)


def _read_text(opened: _Opened, file: BinaryIO, message: Message, options: ScanOptions) -> TextColumn | str:
    """The text of one batch, or why it cannot be decoded."""
    if not 0 <= message.num_rows <= max(_FREE_ROWS, _ROWS_A_BYTE * message.size_bytes):
        return f"it says that it has {message.num_rows:,} rows, in {message.size_bytes:,} bytes"
    try:
        index = opened.schema.get_field_index(opened.path[0])
        column = _decode(opened, file, message, index, options)
        if may_repeat(column.type):
            _check_spelled(opened, column, message, options)
        return text_of_column(pa.chunked_array([column]), opened.path, options.max_record_bytes)
    except _Expands:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a foreign reader raises is about this batch
        return _words(error)


def _check_spelled(opened: _Opened, column: Any, message: Message, options: ScanOptions) -> None:
    """_Expands where the text of a batch would be more than its stored bytes, and those it names, may stand for."""
    column.validate()
    spelled = spelled_bytes(column, opened.path[1:])
    named = opened.layout.dictionaries_of(message.offset_bytes) if opened.layout.dictionaries else ()
    stored = message.size_bytes + sum(each.size_bytes for each in named)
    if spelled > options.may_expand_to(stored):
        told = f"{stored:,} stored bytes, dictionaries included, spell out to {spelled:,.0f} bytes of text"
        raise _Expands(f"{told}, allowed are {options.may_expand_to(stored):,}")


def _read_others(opened: _Opened, file: BinaryIO, message: Message, options: ScanOptions) -> pa.Table:
    """The other columns of one batch; one that cannot be decoded is all null."""
    columns: dict[str, Any] = {}
    for index, name in enumerate(opened.schema.names):
        if (name,) == opened.path or name in columns:
            continue
        try:
            columns[name] = _decode(opened, file, message, index, options)
            columns[name].validate(full=True)
        except Exception as error:  # noqa: BLE001 - a preview does without the column
            _words(error)
            columns[name] = pa.nulls(message.num_rows)
    others = pa.table(columns)
    is_whole = len(opened.path) > 1 and pa.types.is_struct(others.schema.field(opened.path[0]).type)
    return other_columns(others, opened.path) if is_whole else others


def _decode(opened: _Opened, file: BinaryIO, message: Message, index: int, options: ScanOptions) -> Any:
    """One column of one batch."""
    before = _before(opened, file, message, options)
    start = len(before)
    stream = pa.allocate_buffer(start + message.size_bytes)  # of Arrow's pool, whose pages are warm
    content = memoryview(stream).cast("B")
    content[:start] = before
    _fill(file, message, content[start:], options)
    told = pa.ipc.IpcReadOptions(included_fields=[index], use_threads=False)
    batch = pa.ipc.open_stream(stream, options=told).read_next_batch()
    if batch.num_rows != message.num_rows:
        raise IpcBroken(f"it says that it has {message.num_rows:,} rows, {batch.num_rows:,} are decoded")
    return batch.column(0)


def _before(opened: _Opened, file: BinaryIO, message: Message, options: ScanOptions) -> bytes:
    """The schema, and the dictionaries that a batch takes."""
    if not opened.layout.dictionaries:
        return opened.layout.schema_message
    needed = opened.layout.dictionaries_of(message.offset_bytes)
    content = opened.dictionaries.get(needed)
    if content is None:
        content = b"".join([opened.layout.schema_message, *(_content(file, each, options) for each in needed)])
        opened.dictionaries.clear()  # batches one after the other take the same ones
        opened.dictionaries[needed] = content
    return content


def _content(file: BinaryIO, message: Message, options: ScanOptions) -> bytearray:
    content = bytearray(message.size_bytes)
    _fill(file, message, memoryview(content), options)
    return content


def _fill(file: BinaryIO, message: Message, target: memoryview, options: ScanOptions) -> None:
    """A message's bytes, as far as they may be decoded."""
    file.seek(message.offset_bytes)
    at = 0
    while at < len(target):
        num_read = file.readinto(target[at:])  # type: ignore[attr-defined]
        if not num_read:
            raise IpcBroken(f"the bytes end at byte {message.offset_bytes + at:,}", is_cut=True)
        at += num_read
    decoded = expanded_bytes(target, message.metadata_bytes)
    if decoded > options.may_expand_to(message.size_bytes):
        raise IpcBroken(
            f"its {message.size_bytes:,} bytes say that they decode to {decoded:,}, "
            f"allowed are {options.may_expand_to(message.size_bytes):,}"
        )


def _lost_rows(num_rows: int, why: str) -> TextColumn:
    text = pa.nulls(num_rows, pa.large_binary())
    return TextColumn(text=text, rejected=tuple((at, "unreadable-batch", why) for at in range(num_rows)))


def _words(error: Exception) -> str:
    """What a foreign reader says of a file; raises again what comes from the storage beneath it."""
    if isinstance(error, DataguardError) or (isinstance(error, OSError) and error.errno is not None):
        raise error
    if isinstance(error, IpcBroken):
        return str(error)
    first_line = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first_line}"[:300]
