"""Would a column of a Parquet file decode to more than its stored bytes can stand for?

Two ways lead from a few kilobytes to gigabytes, and both are told before they are gone:

1. Pages that decompress to far more than they store. The footer says what a column chunk decompresses to.
2. A dictionary whose entries are long and named by thousands of rows. The footer does not say so; where it leaves room
   for it, the column is read as a dictionary, whose size is that of the pages, and its spelling out is counted.

The footer is read here a second time, by its own few rules (Thrift's compact protocol): Arrow's view of a column chunk
ends the process where a damaged footer contradicts itself in a chunk's statistics. A footer may also lie about what its
pages hold; then the decoder takes what they say, at most 2 GiB a page, and `--isolate` is there for such files.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataguard.corpus.formats.protocol import ScanOptions

__all__ = ["Chunk", "chunks_of", "expansion_of_column", "expansion_of_pages", "may_hide_more"]

_TAIL_BYTES = 8  # the footer's size and the magic number
_DICTIONARY_BYTES = 1 << 20  # writers give up dictionaries that grow beyond
_BYTES_A_ROW = 16  # more than any index into a dictionary takes
_MOST_NESTING = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One column of one row group, as the footer has it."""

    name: str
    """Path of the column, with dots."""
    num_values: int
    stored_bytes: int
    decoded_bytes: int
    """What its pages decompress to."""
    dictionary_bytes: int
    """Stored bytes of its dictionary, -1 where it has none."""


def chunks_of(file: BinaryIO) -> list[list[Chunk]]:
    """The column chunks of every row group, in order; nothing where the footer cannot be read."""
    end = file.seek(0, 2)
    file.seek(max(end - _TAIL_BYTES, 0))
    size = int.from_bytes(file.read(4), "little")
    if not 0 < size <= end - _TAIL_BYTES:
        return []
    file.seek(end - _TAIL_BYTES - size)
    try:
        footer = _Compact(file.read(size)).struct(0)
        return [[_chunk(chunk[3]) for chunk in group[1]] for group in footer[4]]
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, struct.error):
        return []


def expansion_of_pages(chunks: list[Chunk], name: str, options: ScanOptions) -> str:
    """Why a column of a row group, or what is in it, may not be decompressed; empty where it may."""
    mine = [chunk for chunk in chunks if f"{chunk.name}.".startswith(f"{name}.")]
    stored, decoded = (sum(getattr(chunk, kind) for chunk in mine) for kind in ("stored_bytes", "decoded_bytes"))
    return _told(name, stored, decoded, options)


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


def _chunk(found: dict[int, Any]) -> Chunk:
    """A column chunk from its fields by their numbers in the format's definition."""
    dictionary = found.get(11, 0)
    return Chunk(
        name=".".join(part.decode("utf-8", "backslashreplace") for part in found[3]),
        num_values=found[5],
        stored_bytes=found[7],
        decoded_bytes=found[6],
        dictionary_bytes=found[9] - dictionary if 0 < dictionary < found[9] else -1,
    )


class _Compact:
    """Values in Thrift's compact protocol; IndexError, ValueError or KeyError where they make no sense."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def struct(self, depth: int) -> dict[int, Any]:
        """The fields of a structure by their numbers."""
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            kind = head & 15
            number = number + (head >> 4) if head >> 4 else self._number()
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _MOST_NESTING:
            raise ValueError("nested too deep")
        if kind in (1, 2, 3):
            return self._byte()
        if kind in (4, 5, 6):
            return self._number()
        if kind == 7:
            return struct.unpack("<d", self._bytes(8))[0]
        if kind == 8:
            return self._bytes(self._varint())
        if kind in (9, 10):
            head = self._byte()
            size = head >> 4 if head >> 4 < 15 else self._varint()
            if size > len(self._content):
                raise ValueError("a list longer than the footer")
            return [self._value(head & 15, depth + 1) for _ in range(size)]
        if kind == 12:
            return self.struct(depth + 1)
        raise ValueError(f"no type has the number {kind}")

    def _byte(self) -> int:
        self._at += 1
        return self._content[self._at - 1]

    def _bytes(self, size: int) -> bytes:
        if size > len(self._content) - self._at:
            raise ValueError("the footer ends within a value")
        self._at += size
        return self._content[self._at - size : self._at]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 70:
                raise ValueError("a number of too many bytes")

    def _number(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)
