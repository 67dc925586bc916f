"""What do a Parquet footer and the headers of its pages say of places and sizes?

Both are read here by their own few rules (Thrift's compact protocol), and no more of them than is asked for: Arrow's
view of a column chunk ends the process where a damaged footer contradicts itself in a chunk's statistics, and Arrow has
no view of a page header at all. Nothing that stands there is believed: it is compared with limits before Arrow decodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

__all__ = ["Chunk", "chunks_in", "footer_of", "other_file_in", "page_bytes"]

_TAIL_BYTES = 8  # the footer's size and the magic number
_MOST_NESTING = 32
_FIRST_HEADER_BYTES = 128
_SEAM = b"PAR1PAR1"  # the last bytes of one file and the first of another
_AT_ONCE_BYTES = 1 << 20
_MOST_HEADER_BYTES = 1 << 24


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
    start_bytes: int = -1
    """Where its first page lies in the file, as Arrow reckons it; -1 where that is not known."""


def footer_of(file: BinaryIO) -> bytes:
    """The footer of a file, empty where its size makes no sense."""
    end = file.seek(0, 2)
    file.seek(max(end - _TAIL_BYTES, 0))
    size = int.from_bytes(file.read(4), "little")
    if not 0 < size <= end - _TAIL_BYTES:
        return b""
    file.seek(end - _TAIL_BYTES - size)
    return file.read(size)


def chunks_in(footer: bytes) -> list[list[Chunk]]:
    """The column chunks of every row group of a footer, in order; nothing where it cannot be read."""
    compact = _Compact(footer)

    def group() -> Any:
        return compact.fields({1: lambda: compact.structs(chunk)}).get(1, [])

    def chunk() -> Any:
        return _chunk(compact.fields({3: lambda: compact.fields(meta)})[3])

    number = compact.number
    meta = {3: compact.strings, 5: number, 6: number, 7: number, 9: number, 11: number}
    try:
        groups: list[list[Chunk]] = compact.fields({4: lambda: compact.structs(group)})[4]
    except (IndexError, KeyError, ValueError):
        return []
    return groups


def other_file_in(file: BinaryIO, chunks: list[list[Chunk]]) -> int:
    """Where another file ends in front of the one that the footer is of, -1 where none does.

    Two files put together end as a good one does, but places in the second footer count from the second file. What lies
    between the last column chunk and the footer is looked through: no more than indexes and filters in a good file.
    """
    end = file.seek(0, 2)
    file.seek(max(end - _TAIL_BYTES, 0))
    stop = end - _TAIL_BYTES - int.from_bytes(file.read(4), "little")
    at = max((chunk.start_bytes + chunk.stored_bytes for group in chunks for chunk in group), default=0)
    file.seek(max(at, 0))
    held = b""
    while at < stop:
        part = file.read(min(_AT_ONCE_BYTES, stop - at))
        if not part:
            break
        held = held[-len(_SEAM) - 3 :] + part
        at += len(part)
        for found in re.finditer(_SEAM, held):
            seam = at - len(held) + found.start()
            if _is_footer(file, seam - 4, int.from_bytes(held[max(found.start() - 4, 0) : found.start()], "little")):
                return seam + 4
        file.seek(at)
    return -1


def _is_footer(file: BinaryIO, stop: int, size: int) -> bool:
    """Whether the bytes of that number before `stop` are a footer: texts in an index may hold anything else."""
    if not 0 < size <= stop:
        return False
    file.seek(stop - size)
    compact = _Compact(file.read(size))
    try:
        return {1, 3} <= set(compact.fields({1: compact.number, 3: compact.number})) and compact.at == size
    except (IndexError, ValueError):
        return False


def page_bytes(file: BinaryIO, chunk: Chunk, *, most_bytes: int) -> int:
    """What the pages of a chunk say that they decompress to, together.

    Pages are looked at until they are more than `most_bytes`, or end, or make no sense: then Arrow says why.

    Parameters
    ----------
    file
        Seekable; a few hundred bytes of each page are read.
    chunk
        Whose pages are meant.
    most_bytes
        Where counting may stop.
    """
    raw: Any = getattr(file, "raw", file)  # a buffer would read ten times as much
    at, stop, total = chunk.start_bytes, chunk.start_bytes + chunk.stored_bytes, 0
    before = raw.tell()
    while 0 <= at < stop and total <= most_bytes:
        found = _page(raw, at, stop)
        if found is None or min(found) < 0:
            break
        header_bytes, decoded, stored = found
        total += decoded
        at += header_bytes + stored
    raw.seek(before)  # where the buffer believes it to be: what it reads next would be other bytes
    return total


def _page(raw: Any, at: int, stop: int) -> tuple[int, int, int] | None:
    """(bytes of its header, decoded bytes, stored bytes) of a page; None where it has no header that makes sense."""
    content = b""
    wanted = _FIRST_HEADER_BYTES
    while wanted <= _MOST_HEADER_BYTES:
        raw.seek(at + len(content))
        more = raw.read(max(min(wanted, stop - at) - len(content), 0))
        if not more:
            return None
        content += more
        compact = _Compact(content)
        try:
            fields = compact.fields({2: compact.number, 3: compact.number})
            return compact.at, fields[2], fields[3]
        except IndexError:  # a longer header, as those with long statistics are: it got as far as what is missing
            wanted = max(compact.at, len(content)) + _FIRST_HEADER_BYTES
        except (KeyError, ValueError):
            return None
    return None


def _chunk(found: dict[int, Any]) -> Chunk:
    """A column chunk from its fields by their numbers in the format's definition."""
    dictionary = found.get(11, 0)
    has_dictionary = 0 < dictionary < found[9]
    return Chunk(
        name=".".join(part.decode("utf-8", "backslashreplace") for part in found[3]),
        num_values=found[5],
        stored_bytes=found[7],
        decoded_bytes=found[6],
        dictionary_bytes=found[9] - dictionary if has_dictionary else -1,
        start_bytes=dictionary if has_dictionary else found[9],
    )


class _Compact:
    """Values in Thrift's compact protocol; IndexError where they end too early, ValueError where they make no sense."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.at = 0

    def fields(self, wanted: Mapping[int, Callable[[], Any]]) -> dict[int, Any]:
        """The wanted fields of a structure by their numbers, each read by what is said; all others are passed over."""
        fields: dict[int, Any] = {}
        number = 0
        while True:
            head = self._content[self.at]
            self.at += 1
            if not head:
                return fields
            number = number + (head >> 4) if head >> 4 else self.number()
            kind = head & 15
            read = wanted.get(number)
            if read is not None and kind > 2:
                fields[number] = read()
            else:
                self._skip(kind, 0)

    def structs(self, read: Callable[[], Any]) -> list[Any]:
        """A list of structures, each read by what is said."""
        kind, size = self._list()
        if kind != 12:
            raise ValueError("a list of something else")
        return [read() for _ in range(size)]

    def strings(self) -> list[bytes]:
        """A list of strings."""
        kind, size = self._list()
        if kind != 8:
            raise ValueError("a list of something else")
        found = []
        for _ in range(size):
            length = self._varint()
            found.append(self._content[self.at : self.at + length])
            self.at += length
        return found

    def number(self) -> int:
        """A whole number."""
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def _skip(self, kind: int, depth: int) -> None:
        content = self._content
        if kind in (4, 5, 6):
            while content[self.at] > 127:
                self.at += 1
            self.at += 1
        elif kind == 8:
            size = self._varint()
            self.at += size
        elif kind == 12:
            if depth > _MOST_NESTING:
                raise ValueError("nested too deep")
            while head := content[self.at]:
                self.at += 1
                if not head >> 4:
                    self.number()
                self._skip(head & 15, depth + 1)
            self.at += 1
        elif kind in (9, 10):
            kind, size = self._list()
            if depth > _MOST_NESTING:
                raise ValueError("nested too deep")
            for _ in range(size):
                if kind in (1, 2):
                    self.at += 1
                else:
                    self._skip(kind, depth + 1)
        elif kind == 7:
            self.at += 8
        elif kind == 3:
            self.at += 1
        elif kind not in (1, 2):  # as fields of a structure these two are their own values
            raise ValueError(f"no type has the number {kind}")

    def _list(self) -> tuple[int, int]:
        """(type of the entries, how many)."""
        head = self._content[self.at]
        self.at += 1
        size = head >> 4 if head >> 4 < 15 else self._varint()
        if size > len(self._content):
            raise ValueError("a list longer than what it stands in")
        return head & 15, size

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._content[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 70:
                raise ValueError("a number of too many bytes")
