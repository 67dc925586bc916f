"""Where do the messages of an Arrow IPC stream or file lie, and what is each?

Arrow's own readers say what a batch holds, but not where it lies; this module reads just enough of a message's
metadata (a flatbuffer: tables that point to their fields) to know its place, kind and size. Every number is checked
against what is there before it is followed: a file may be damaged, or made to do harm.

A message is a prefix, metadata and a body. The prefix is ``FF FF FF FF`` and the metadata's size, or, before format
version 0.15, the size alone; a size of 0 ends the stream. A file is ``ARROW1``, two zeros, a stream, and a footer that
lists the places of its dictionaries and record batches, the footer's size, and ``ARROW1`` again.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

__all__ = ["FILE_MAGIC", "Footer", "IpcBroken", "Message", "expanded_bytes", "is_schema", "message_at", "read_footer"]

FILE_MAGIC = b"ARROW1"
_CONTINUATION = b"\xff\xff\xff\xff"
MessageKind = Literal["schema", "dictionary", "batch"]

_KINDS: dict[int, MessageKind] = {1: "schema", 2: "dictionary", 3: "batch"}
_NEWEST_VERSION = 4  # metadata V5
_TAIL_BYTES = 4 + len(FILE_MAGIC)
_BLOCK = struct.Struct("<qi4xq")


class IpcBroken(Exception):  # noqa: N818 - becomes a finding of the shard
    """A message that makes no sense, or is cut off."""

    def __init__(self, detail: str, *, is_cut: bool = False) -> None:
        super().__init__(detail)
        self.is_cut = is_cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message and its place."""

    kind: MessageKind
    offset_bytes: int
    metadata_bytes: int
    """The prefix included."""
    body_bytes: int
    num_rows: int = 0
    """Of a record batch, as it says itself."""
    dictionary: int = 0
    """Of a dictionary: which one it is."""
    is_delta: bool = False
    """Of a dictionary: whether it adds to the one that is there."""

    @property
    def size_bytes(self) -> int:
        """Of the whole message."""
        return self.metadata_bytes + self.body_bytes

    @property
    def stop_bytes(self) -> int:
        """One past its last byte."""
        return self.offset_bytes + self.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """What the end of a file says."""

    offset_bytes: int
    """Where the footer begins: the messages lie before it."""
    dictionaries: tuple[tuple[int, int], ...]
    batches: tuple[tuple[int, int], ...]
    """(offset, size) of each message, as the footer has them."""


def message_at(file: BinaryIO, offset_bytes: int, stop_bytes: int) -> Message | int:
    """The message that begins at an offset; where the stream says that it ends there, one past its end mark.

    Parameters
    ----------
    file
        Seekable.
    offset_bytes, stop_bytes
        Where the message begins, and where the bytes that belong to messages end.

    Raises
    ------
    IpcBroken
        There is no whole message, or none that makes sense.
    """
    file.seek(offset_bytes)
    prefix = file.read(max(min(8, stop_bytes - offset_bytes), 0))
    first = 8 if prefix[:4] == _CONTINUATION else 4
    if len(prefix) < first:
        raise IpcBroken(f"a message is cut off at byte {stop_bytes:,}", is_cut=True)
    (size,) = struct.unpack_from("<i", prefix, first - 4)
    if size == 0:
        return offset_bytes + first
    if size < 0:
        raise IpcBroken(f"the message at byte {offset_bytes:,} has {size:,} bytes of metadata")
    if offset_bytes + first + size > stop_bytes:
        detail = f"the message at byte {offset_bytes:,} has {size:,} bytes of metadata, the bytes end at {stop_bytes:,}"
        raise IpcBroken(detail, is_cut=True)
    metadata = (prefix[first:] + file.read(max(size - (len(prefix) - first), 0)))[:size]
    if len(metadata) != size:
        raise IpcBroken(f"the metadata at byte {offset_bytes:,} is cut off", is_cut=True)
    message = _message(metadata, offset_bytes, first)
    if message.stop_bytes > stop_bytes:
        ends = f"should end at byte {message.stop_bytes:,}, the bytes end at {stop_bytes:,}"
        raise IpcBroken(f"the message at byte {offset_bytes:,} {ends}", is_cut=True)
    return message


def is_schema(head: bytes) -> bool:
    """Whether the first bytes of something are those of a stream's schema, as far as they go."""
    first = 8 if head[:4] == _CONTINUATION else 4
    if len(head) < first + 4:
        return False
    (size,) = struct.unpack_from("<i", head, first - 4)
    try:
        return size > 0 and _message(head[first : first + size], 0, first).kind == "schema"
    except IpcBroken:
        return False


def read_footer(file: BinaryIO, size_bytes: int) -> Footer:
    """The footer of a file of a given size.

    Raises
    ------
    IpcBroken
        There is none, or it makes no sense.
    """
    if size_bytes < 8 + _TAIL_BYTES:
        raise IpcBroken(f"{size_bytes:,} bytes are too few for a footer")
    file.seek(size_bytes - _TAIL_BYTES)
    tail = file.read(_TAIL_BYTES)
    if tail[4:] != FILE_MAGIC:
        raise IpcBroken(f"it ends with {tail[4:]!r}, expected {FILE_MAGIC!r}")
    (size,) = struct.unpack_from("<i", tail)
    start = size_bytes - _TAIL_BYTES - size
    if size <= 0 or start < 8:
        raise IpcBroken(f"the footer should have {size:,} bytes, in a file of {size_bytes:,}")
    file.seek(start)
    root = _Table.root(file.read(size))
    return Footer(offset_bytes=start, dictionaries=_blocks(root, 2, start), batches=_blocks(root, 3, start))


def expanded_bytes(message: Any, metadata_bytes: int) -> int:
    """How many bytes the buffers of a batch or dictionary say they are decoded, 0 where they are not compressed.

    Parameters
    ----------
    message
        A bytes-like: the whole message.
    metadata_bytes
        Its prefix and metadata.
    """
    view = memoryview(message)
    first = 8 if bytes(view[:4]) == _CONTINUATION else 4
    root = _Table.root(bytes(view[first:metadata_bytes]))
    batch = root.table(2)
    if root.number(1, "B") == 2:
        batch = batch.table(1)
    if not batch.has(3):
        return 0
    body = view[metadata_bytes:]
    total = 0
    for offset, size in batch.structs(2, struct.Struct("<qq")):
        if size >= 8:
            if not 0 <= offset <= len(body) - 8:
                raise IpcBroken(f"a buffer lies at byte {offset:,} of a body of {len(body):,}")
            (decoded,) = struct.unpack_from("<q", body, offset)
            total += size if decoded == -1 else max(decoded, 0)
    return total


def _message(metadata: bytes, offset_bytes: int, first: int) -> Message:
    root = _Table.root(metadata)
    kind = _KINDS.get(root.number(1, "B"))
    body_bytes = root.number(3, "q")
    version = root.number(0, "h")
    if version > _NEWEST_VERSION:
        raise IpcBroken(
            f"the message at byte {offset_bytes:,} is of metadata version V{version + 1}, known are V1 to V5"
        )
    if kind is None or body_bytes < 0:
        raise IpcBroken(f"the message at byte {offset_bytes:,} is of no kind that is known")
    header = root.table(2)
    return Message(
        kind=kind,
        offset_bytes=offset_bytes,
        metadata_bytes=first + len(metadata),
        body_bytes=body_bytes,
        num_rows=header.number(0, "q") if kind == "batch" else 0,
        dictionary=header.number(0, "q") if kind == "dictionary" else 0,
        is_delta=kind == "dictionary" and bool(header.number(2, "B")),
    )


def _blocks(footer: _Table, number: int, stop: int) -> tuple[tuple[int, int], ...]:
    blocks = []
    for offset, metadata_bytes, body_bytes in footer.structs(number, _BLOCK):
        if offset < 8 or metadata_bytes <= 0 or body_bytes < 0 or offset + metadata_bytes + body_bytes > stop:
            raise IpcBroken(f"the footer names a message at byte {offset:,}, which cannot be")
        blocks.append((offset, metadata_bytes + body_bytes))
    return tuple(blocks)


class _Table:
    """A table of a flatbuffer: fields by their numbers."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._fields = at - self._number("i", at)
        self._fields_bytes = self._number("H", self._fields)

    @classmethod
    def root(cls, data: bytes) -> _Table:
        """The outermost table."""
        if len(data) < 4:
            raise IpcBroken("the metadata is cut off")
        return cls(data, struct.unpack_from("<I", data)[0])

    def has(self, number: int) -> bool:
        """Whether a field is there."""
        return self._place(number) > 0

    def number(self, number: int, kind: str) -> int:
        """A field that is a number, 0 where it is left out."""
        place = self._place(number)
        return self._number(kind, place) if place else 0

    def table(self, number: int) -> _Table:
        """A field that is a table."""
        place = self._place(number)
        if not place:
            raise IpcBroken("the metadata has no header")
        return _Table(self._data, place + self._number("I", place))

    def structs(self, number: int, form: struct.Struct) -> list[tuple[int, ...]]:
        """A field that is a list of structs, empty where it is left out."""
        place = self._place(number)
        if not place:
            return []
        at = place + self._number("I", place)
        count = self._number("I", at)
        if at + 4 + count * form.size > len(self._data):
            raise IpcBroken("the metadata is cut off")
        return [form.unpack_from(self._data, at + 4 + i * form.size) for i in range(count)]

    def _place(self, number: int) -> int:
        """Where a field lies, 0 where it is left out."""
        at = 4 + 2 * number
        if at + 2 > self._fields_bytes:
            return 0
        step = self._number("H", self._fields + at)
        return self._at + step if step else 0

    def _number(self, kind: str, at: int) -> int:
        try:
            if at >= 0:
                (value,) = struct.unpack_from("<" + kind, self._data, at)
                return int(value)
        except struct.error:
            pass
        raise IpcBroken("the metadata points out of itself")
