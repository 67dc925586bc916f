"""How is a Parquet file scanned by row groups, and a row group read again?

A row group is a block; one without rows is none, and moves no row number. The text column, or member of a struct, may
have any type of Arrow that holds strings, bytes or lists of them, so shards of one source may differ in it: its content
becomes large binary, values uncopied where Arrow allows it. A null is a rejected row, and so is a value that is not
UTF-8, whatever the column promises (Arrow does not look). Page checksums are verified where the writer stored them.

A row group that cannot be decoded loses its rows and no others: they are all rejected, and the shard is flagged. So
it is too when a row group is read again: rows that cannot be decoded are null, and whoever was promised such a row
finds the promise broken.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from dataguard.corpus.formats.columns import TextColumn, other_columns, text_of_column, text_path
from dataguard.corpus.formats.content import text_digest
from dataguard.corpus.formats.identity import identity_of
from dataguard.corpus.formats.parquet_limits import Bounds, words_or_raise
from dataguard.corpus.formats.protocol import (
    BlockPlace,
    Finding,
    ReadBlock,
    ScanEnd,
    ScannedBlock,
    ScanOptions,
    ShardFile,
)
from dataguard.corpus.formats.valid_text import SHORTCUT as utf8  # noqa: N811 - what it is a shortcut to
from dataguard.errors import ShardDamaged

__all__ = ["Parquet"]

_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
_TAIL_BYTES = 8  # the footer's size and the magic number
_LEAST_FILE_BYTES = len(_MAGIC) + _TAIL_BYTES
_MOST_FOOTER_BYTES = 1 << 26
_MOST_LOST_ROWS = 1 << 20  # rows of undecodable row groups that are listed one by one, in all of a shard


class Parquet:
    """Parquet files: `Format` of text, one row group a block."""

    name: str = "parquet"
    kind: Literal["text", "tokens"] = "text"
    random_access: bool = True

    def recognise(self, head: bytes, path: str) -> int:
        """3 where the head has Parquet's magic number, 1 where only the name says so, else 0.

        >>> Parquet().recognise(b"PAR1", "x"), Parquet().recognise(b"", "x.parquet"), Parquet().recognise(b"", "x")
        (3, 1, 0)
        """
        if head[:4] in (_MAGIC, _ENCRYPTED_MAGIC):
            return 3
        return int(path.lower().endswith((".parquet", ".pq")))

    def scan(self, shard: ShardFile, options: ScanOptions) -> Iterator[ScannedBlock | ScanEnd]:
        """Blocks in row order, then exactly one ScanEnd."""
        if shard.compression != "none":
            detail = f"a Parquet file inside {shard.compression}: decompress it, Parquet compresses its own pages"
            yield ScanEnd(findings=(Finding(code="compressed-container", detail=detail),))
            return
        with shard.open() as file:
            opened = _open(shard, file)
            if isinstance(opened, Finding):
                yield ScanEnd(findings=(opened,))
                return
            if other := opened.bounds.other_file(file):
                yield ScanEnd(findings=(Finding(code="bad-footer", detail=other),))
                return
            path = text_path(opened.file.schema_arrow, options.text_field)
            if isinstance(path, Finding):
                yield ScanEnd(findings=(path,))
                return
            yield from self._scan_groups(opened, path, options)

    def _scan_groups(
        self, known: _Opened, path: tuple[str, ...], options: ScanOptions
    ) -> Iterator[ScannedBlock | ScanEnd]:
        row = num_read = num_lost = 0
        lost: list[str] = []
        opened = known.file
        for group in range(opened.metadata.num_row_groups):
            num_rows = opened.metadata.row_group(group).num_rows
            told = known.expansion(group, path, options)
            if told:
                yield ScanEnd(findings=(Finding(code="expands-too-much", detail=f"row group {group:,}: {told}"),))
                return
            column = _read_text(opened, group, num_rows, path, options)
            if isinstance(column, str):
                lost.append(f"row group {group:,} (rows {row:,}:{row + num_rows:,}): {column}")
                num_lost += num_rows
                if (
                    num_rows < 0 or num_lost > _MOST_LOST_ROWS
                ):  # too many to be listed one by one, or not to be believed
                    yield ScanEnd(findings=(Finding(code="unreadable-groups", detail=lost[-1]),))
                    return
                column = _lost_rows(num_rows, column)
            else:
                num_read += 1
            if not num_rows:
                continue
            content_bytes, digest = text_digest(column.text)
            utf8.worth(content_bytes, is_scan=True)
            yield ScannedBlock(
                place=BlockPlace(first_row=row, num_rows=num_rows, group=group),
                content_bytes=content_bytes,
                digest=digest,
                rejected=tuple(Finding(code=code, detail=detail, row=row + at) for at, code, detail in column.rejected),
            )
            row += num_rows
        findings = []
        if lost:
            code = "damaged-groups" if num_read else "unreadable-groups"
            detail = f"{len(lost):,} of {len(lost) + num_read:,} row groups cannot be decoded: {'; '.join(lost[:3])}"
            findings.append(Finding(code=code, detail=detail))
        if row != opened.metadata.num_rows:
            detail = f"{opened.metadata.num_rows:,} rows in the file, {row:,} rows in its row groups"
            findings.append(Finding(code="wrong-row-count", detail=detail))
        yield ScanEnd(findings=tuple(findings))

    def read(self, shard: ShardFile, place: BlockPlace, options: ScanOptions, *, fields: bool = False) -> ReadBlock:
        """The rows of one block. ShardDamaged where the file is none of Parquet any more."""
        return next(self.read_all(shard, [place], options, fields=fields))

    def read_all(
        self, shard: ShardFile, places: Sequence[BlockPlace], options: ScanOptions, *, fields: bool = False
    ) -> Iterator[ReadBlock]:
        """These blocks, given in row order, with the footer read once."""
        with shard.open() as file:
            opened = _open(shard, file)
            if isinstance(opened, Finding):
                raise ShardDamaged(f"shard {shard.name} cannot be read any more", found=opened.detail)
            path = text_path(opened.file.schema_arrow, options.text_field)
            if isinstance(path, Finding):
                raise ShardDamaged(f"shard {shard.name} cannot be read any more", found=path.detail)
            for place in places:
                yield _read_block(shard, opened, place, path, options, fields=fields)


def _read_block(
    shard: ShardFile, known: _Opened, place: BlockPlace, path: tuple[str, ...], options: ScanOptions, *, fields: bool
) -> ReadBlock:
    opened = known.file
    if place.num_rows == 0:
        empty = opened.schema_arrow.empty_table()
        return ReadBlock(text=pa.array([], pa.large_binary()), fields=other_columns(empty, path) if fields else None)
    num_groups = opened.metadata.num_row_groups
    stored = opened.metadata.row_group(place.group).num_rows if 0 <= place.group < num_groups else None
    if stored != place.num_rows:
        raise ShardDamaged(
            f"row group {place.group:,} of shard {shard.name} cannot be read any more",
            found=f"{num_groups:,} row groups" if stored is None else f"{stored:,} rows",
            allowed=f"a row group of {place.num_rows:,} rows",
            todo="see whether the file was changed: dataguard manifest verify",
        )
    told = known.expansion(place.group, path, options)
    if told:
        raise ShardDamaged(f"row group {place.group:,} of shard {shard.name} expands too much", found=told)
    column = _read_text(opened, place.group, place.num_rows, path, options)
    if isinstance(column, str):
        column = _lost_rows(place.num_rows, column)
    others = _read_others(known, place, path, options) if fields else None
    return ReadBlock(text=column.text, fields=others)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """A file with its footer read."""

    file: pq.ParquetFile
    raw: BinaryIO
    bounds: Bounds
    is_local: bool

    def expansion(self, group: int, path: tuple[str, ...], options: ScanOptions) -> str:
        """Why the text of a row group may not be decoded, empty where it may."""
        return self.bounds.expansion(self.file.metadata, self.raw, group, path, options, is_local=self.is_local)


def _open(shard: ShardFile, file: BinaryIO) -> _Opened | Finding:
    """The file with its footer read, or what is wrong with it."""
    known = _FOOTERS.get(shard)
    try:
        footer, bounds = _footer_alone(file) if known is None else known
        opened = pq.ParquetFile(file, metadata=footer, page_checksum_verification=True, pre_buffer=False)
    except Exception as error:  # noqa: BLE001 - whatever a foreign reader raises is about this file
        words = words_or_raise(error)
        code = "encrypted" if "encrypt" in words or "decrypt" in words else "bad-footer"
        return Finding(code=code, detail=f"{words} ({shard.size_bytes:,} bytes)")
    if known is None:
        _FOOTERS.put(shard, opened.metadata, bounds)
    return _Opened(file=opened, raw=file, bounds=bounds, is_local=shard.local_path is not None)


def _footer_alone(file: BinaryIO) -> tuple[pq.FileMetaData | None, Bounds]:
    """The footer and nothing else; None where Arrow itself has to say what is wrong with the end of the file.

    Arrow takes 64 KiB from the end whatever the footer's size, and the whole footer again where that was too little:
    for ranks that read a few blocks of every shard that is more than the blocks.
    """
    end = file.seek(0, os.SEEK_END)
    if end < _LEAST_FILE_BYTES:
        return None, Bounds()
    file.seek(end - _TAIL_BYTES)
    tail = file.read(_TAIL_BYTES)
    size = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or not 0 < size <= end - _LEAST_FILE_BYTES:
        return None, Bounds()
    file.seek(end - _TAIL_BYTES - size)
    footer = file.read(size)
    if len(footer) != size:
        return None, Bounds()
    return pq.read_metadata(pa.BufferReader(footer + tail)), Bounds(footer)


class _Footers:
    """Footers of the shards in use: a block is read without reading the footer again.

    They hold the smallest and the largest value of every row group, so they can weigh as much as the blocks that one
    rank reads of a shard. All readers of a process share those of local files, which are known by inode, size and time
    of change; anything else is known to the `ShardFile` that read it.

    Bounded, and without a lock: whatever two threads do to it at once, a footer is found or it is read again.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[pq.FileMetaData, Bounds]] = {}
        self._num_bytes = 0

    def get(self, shard: ShardFile) -> tuple[pq.FileMetaData, Bounds] | None:
        """The footer of a shard as it is now, and what was found out about it, if it is known."""
        return self._kept.get(identity_of(shard))

    def put(self, shard: ShardFile, footer: pq.FileMetaData, bounds: Bounds) -> None:
        """Keep a footer until there are too many."""
        self._num_bytes += footer.serialized_size
        if self._num_bytes > _MOST_FOOTER_BYTES:
            self._kept.clear()
            self._num_bytes = footer.serialized_size
        self._kept[identity_of(shard)] = footer, bounds


_FOOTERS = _Footers()


def _read_text(
    opened: pq.ParquetFile, group: int, num_rows: int, path: tuple[str, ...], options: ScanOptions
) -> TextColumn | str:
    """The text of one row group, or why it cannot be decoded."""
    try:
        table = opened.read_row_group(group, columns=[".".join(path)], use_threads=False)
        if table.num_rows != num_rows:
            return f"the footer says {num_rows:,} rows, its pages hold {table.num_rows:,}"
        table.validate()
        return text_of_column(table.column(path[0]), path, options.max_record_bytes)
    except Exception as error:  # noqa: BLE001 - whatever a foreign reader raises is about this row group
        return words_or_raise(error)


def _read_others(known: _Opened, place: BlockPlace, path: tuple[str, ...], options: ScanOptions) -> pa.Table:
    """The other columns of one row group; one that cannot be decoded, or expands too much, is all null."""
    opened, group, num_rows = known.file, place.group, place.num_rows
    names = [name for name in opened.schema_arrow.names if (name,) != path]
    columns: dict[str, Any] = {}
    for name in dict.fromkeys(names):
        if known.bounds.expansion_of_others(known.raw, group, name, options):
            columns[name] = pa.nulls(num_rows)
            continue
        try:
            column = opened.read_row_group(group, columns=[name], use_threads=False).column(name)
            column.validate()
        except Exception as error:  # noqa: BLE001 - a preview does without the column
            words_or_raise(error)
            column = None
        columns[name] = column if column is not None and len(column) == num_rows else pa.nulls(num_rows)
    others = pa.table(columns)
    is_whole = len(path) > 1 and pa.types.is_struct(others.schema.field(path[0]).type)
    return other_columns(others, path) if is_whole else others


def _lost_rows(num_rows: int, why: str) -> TextColumn:
    text = pa.nulls(num_rows, pa.large_binary())
    return TextColumn(text=text, rejected=tuple((at, "unreadable-group", why) for at in range(num_rows)))
