"""Would a column of a Parquet file decode to more than its stored bytes can stand for?

Three ways lead from a few kilobytes to gigabytes, and all are told before they are gone:

1. Pages that decompress to far more than they store, or rows by the million that store nothing. The footer says what a
   column chunk decompresses to, and how many values it has.
2. A footer that lies about that. Arrow decompresses what the header of a page says, so the headers are added up too:
   of files of this machine all of them, of others where the chunk is small enough to be taken at once. (A larger one
   may stand for more than any page can hold.)
3. A dictionary whose entries are long and named by thousands of rows. Nothing says so; where the footer leaves room
   for it, the column is read as a dictionary, whose size is that of the pages, and its spelling out is counted.

What is checked holds for reading as for scanning: a file may be another than the one that was scanned. `Bounds` keeps
what was found, so that a row group is looked at once for as long as its file is the same.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Hashable
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dataguard.corpus.formats.parquet_footer import Chunk, chunks_in, footer_of, other_file_in, page_bytes
from dataguard.corpus.formats.protocol import ScanOptions
from dataguard.errors import DataguardError

__all__ = ["Bounds", "expansion_of_column", "expansion_of_pages", "may_hide_more"]

_DICTIONARY_BYTES = 1 << 20  # writers give up dictionaries that grow beyond
_BYTES_A_ROW = 16  # more than any index into a dictionary takes
_OFFSET_BYTES = 8  # of a value that stores nothing, spelled out
_MOST_TAKEN_BYTES = 1 << 22
"""Of a chunk that lies elsewhere, for the sake of its headers."""


def expansion_of_pages(chunks: list[Chunk], name: str, options: ScanOptions) -> str:
    """Why a column of a row group, or what is in it, may not be decompressed; empty where it may."""
    mine = _of_column(chunks, name)
    stored = sum(chunk.stored_bytes for chunk in mine)
    decoded = sum(max(chunk.decoded_bytes, _OFFSET_BYTES * chunk.num_values) for chunk in mine)
    return _told(name, stored, decoded, options)


def expansion_of_headers(
    file: BinaryIO, chunks: list[Chunk], name: str, options: ScanOptions, *, is_local: bool
) -> str:
    """Why a column of a row group may not be decompressed, by the headers of its pages; empty where it may."""
    for chunk in _of_column(chunks, name):
        allowed = options.may_expand_to(chunk.stored_bytes)
        if is_local:
            decoded = page_bytes(file, chunk, most_bytes=allowed)
        elif 0 < chunk.stored_bytes <= _MOST_TAKEN_BYTES and chunk.start_bytes >= 0:
            file.seek(chunk.start_bytes)
            taken = io.BytesIO(file.read(chunk.stored_bytes))
            decoded = page_bytes(taken, dataclasses.replace(chunk, start_bytes=0), most_bytes=allowed)
        else:
            continue
        if told := _told(name, chunk.stored_bytes, decoded, options):
            return f"{told}, by the headers of its pages"
    return ""


def may_hide_more(chunks: list[Chunk], name: str, options: ScanOptions) -> bool:
    """Whether the rows of a column could spell out to too much, were each the longest entry of a dictionary.

    Not so where the writer gave the dictionary up, as writers do when its entries hardly repeat: such a chunk holds
    the values themselves.
    """
    for chunk in chunks:
        if chunk.name != name or chunk.dictionary_bytes < 0:
            continue
        if chunk.num_values * chunk.decoded_bytes > options.may_expand_to(chunk.stored_bytes) and (
            2 * chunk.dictionary_bytes >= chunk.stored_bytes
            or chunk.decoded_bytes < _DICTIONARY_BYTES + _BYTES_A_ROW * chunk.num_values
        ):
            return True
    return False


def expansion_of_column(
    column: pa.ChunkedArray, chunks: list[Chunk], path: tuple[str, ...], options: ScanOptions
) -> str:
    """Why a column that was read as a dictionary may not be spelled out; empty where it may, or where it is none."""
    decoded = 0
    for part in column.chunks:
        for name in path[1:]:
            part = part.field(name)
        if not pa.types.is_dictionary(part.type):
            return ""
        lengths = np.asarray(pc.fill_null(pc.binary_length(part.dictionary), 0)).astype(np.int64)
        indices = np.asarray(pc.drop_null(part.indices))
        decoded += int(lengths[indices].sum()) if len(lengths) else 0
    name = ".".join(path)
    return _told(name, sum(chunk.stored_bytes for chunk in chunks if chunk.name == name), decoded, options)


def _told(name: str, stored: int, decoded: int, options: ScanOptions) -> str:
    allowed = options.may_expand_to(stored)
    if decoded <= allowed:
        return ""
    return f"{stored:,} stored bytes of column {name!r} decode to {decoded:,} bytes, allowed are {allowed:,}"


def _of_column(chunks: list[Chunk], name: str) -> list[Chunk]:
    return [chunk for chunk in chunks if f"{chunk.name}.".startswith(f"{name}.")]


class Bounds:
    """What is known of one file, as long as it is the same. Safe for several threads: at worst something is done twice.

    >>> Bounds().expansion_of_others(io.BytesIO(b"none"), 0, "text", ScanOptions())
    ''
    """

    def __init__(self, footer: bytes | None = None) -> None:
        self._footer = footer  # until its chunks are known; where it was not read, the file is asked
        self._chunks: list[list[Chunk]] | None = None
        self._harmless: set[Hashable] = set()

    def expansion(
        self,
        footer: pq.FileMetaData,
        file: BinaryIO,
        group: int,
        path: tuple[str, ...],
        options: ScanOptions,
        *,
        is_local: bool,
    ) -> str:
        """Why the text of a row group may not be decoded, empty where it may (or where Arrow says what is wrong).

        Parameters
        ----------
        footer, file
            Of the shard.
        group, path
            Which text is meant.
        options
            Of the source.
        is_local
            Whether reading a few bytes here and there costs little.
        """
        known = (group, path, options.max_expansion, options.free_expansion_bytes)
        if known in self._harmless:
            return ""
        told = self._look(footer, file, group, path, options, is_local=is_local)
        if not told:
            self._harmless.add(known)
        return told

    def expansion_of_others(self, file: BinaryIO, group: int, name: str, options: ScanOptions) -> str:
        """Why another column may not be shown, by the footer alone; empty where it may."""
        return next((expansion_of_pages(known, name, options) for known in self._of_group(file, group)), "")

    def other_file(self, file: BinaryIO) -> str:
        """That another file lies in front of the one that the footer is of; empty where none does."""
        at = other_file_in(file, self._of_file(file))
        return "" if at < 0 else f"another Parquet file ends at byte {at:,}, so its places count from there"

    def _of_file(self, file: BinaryIO) -> list[list[Chunk]]:
        """The chunks of every row group, nothing where they are not known."""
        chunks = self._chunks
        if chunks is None:
            footer = self._footer
            chunks = self._chunks = chunks_in(footer_of(file) if footer is None else footer)
            self._footer = None
        return chunks

    def _of_group(self, file: BinaryIO, group: int) -> list[list[Chunk]]:
        """The chunks of a row group as one list, or nothing where they are not known."""
        return self._of_file(file)[group : group + 1]

    def _look(
        self,
        footer: pq.FileMetaData,
        file: BinaryIO,
        group: int,
        path: tuple[str, ...],
        options: ScanOptions,
        *,
        is_local: bool,
    ) -> str:
        name = ".".join(path)
        for chunks in self._of_group(file, group):
            told = expansion_of_pages(chunks, name, options)
            told = told or expansion_of_headers(file, chunks, name, options, is_local=is_local)
            if told or not may_hide_more(chunks, name, options):
                return told
            try:
                short = pq.ParquetFile(file, metadata=footer, pre_buffer=False, read_dictionary=[name])
                table = short.read_row_group(group, columns=[name], use_threads=False)
                table.validate()
                return expansion_of_column(table.column(path[0]), chunks, path, options)
            except Exception as error:  # noqa: BLE001 - told by whoever reads it for good
                words_or_raise(error)
        return ""


def words_or_raise(error: Exception) -> str:
    """What a foreign reader says of a file; raises again what comes from the storage beneath it."""
    if isinstance(error, DataguardError) or (isinstance(error, OSError) and error.errno is not None):
        raise error
    first_line = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first_line}"[:300]
