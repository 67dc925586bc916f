"""Which messages make up an Arrow IPC shard, and what does decoding one of its batches take?

A batch is decoded from a little stream put together for it: the schema, the dictionaries that are in force, and the
batch itself. So a batch of a stream is read at random like one of a file, each is decoded by Arrow's own reader, and
one that cannot be decoded harms no other.

- **File**: the footer lists the batches; the messages are walked as well, so that a batch that the footer does not
  list is told, and a footer with another schema than the message in front. Without a footer (the file was cut, or never
  finished) the walk alone says what is there.
- **Stream**: the messages are walked from the first to the end mark. A stream may, by the letter, end without one;
  it is told, since a stream that was cut between two batches looks just like it.
- **Dictionaries**: of a stream those that stand before the batch, a later one in the place of an earlier one, deltas
  added to it; of a file all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa

from dataguard.corpus.formats.ipc_messages import FILE_MAGIC, Footer, IpcBroken, Message, message_at, read_footer
from dataguard.corpus.formats.protocol import Finding

__all__ = ["IpcLayout", "has_dictionaries", "read_layout", "read_schema"]

_FILE_START_BYTES = 8
_MOST_PADDING_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class IpcLayout:
    """The messages of one shard."""

    is_file: bool
    schema: pa.Schema
    schema_message: bytes
    """As it stands in the shard."""
    dictionaries: tuple[Message, ...]
    batches: tuple[Message, ...]
    findings: tuple[Finding, ...]

    def dictionaries_of(self, offset_bytes: int) -> tuple[Message, ...]:
        """The dictionaries that a batch at an offset takes, in the order in which they are to be read."""
        first: dict[int, Message] = {}
        deltas: list[Message] = []
        for message in self.dictionaries:
            if not self.is_file and message.offset_bytes > offset_bytes:
                break
            if message.is_delta:
                deltas.append(message)
            else:
                first[message.dictionary] = message
                deltas = [delta for delta in deltas if delta.dictionary != message.dictionary]
        return (*sorted(first.values(), key=lambda message: message.offset_bytes), *deltas)


def read_schema(file: BinaryIO, size_bytes: int) -> tuple[pa.Schema, bytes, int]:
    """The schema of a shard, its message, and where the next message begins.

    Raises
    ------
    IpcBroken
        There is none.
    """
    file.seek(0)
    head = file.read(_FILE_START_BYTES)
    start = _FILE_START_BYTES if head.startswith(FILE_MAGIC) else 0
    try:
        message = message_at(file, start, size_bytes)
    except IpcBroken as error:
        raise IpcBroken(f"it begins with {head!r}, and {error}", is_cut=error.is_cut) from error
    if isinstance(message, int) or message.kind != "schema":
        raise IpcBroken("it does not begin with a schema")
    file.seek(start)
    content = file.read(message.size_bytes)
    try:
        schema = pa.ipc.open_stream(content).schema if not message.body_bytes else None
    except (pa.ArrowException, OSError, ValueError, LookupError, OverflowError) as error:
        raise IpcBroken(f"its schema cannot be read: {(str(error) or type(error).__name__).splitlines()[0]}") from error
    if schema is None:
        raise IpcBroken("its schema has a body")
    return schema, content, message.stop_bytes


def has_dictionaries(schema: pa.Schema) -> bool:
    """Whether anything in a schema is spelled by a dictionary.

    >>> has_dictionaries(pa.schema([("a", pa.list_(pa.dictionary(pa.int8(), pa.string())))]))
    True
    """
    kinds: list[Any] = [field.type for field in schema]
    while kinds:
        kind = kinds.pop()
        if isinstance(kind, pa.BaseExtensionType):
            kinds.append(kind.storage_type)
        elif pa.types.is_dictionary(kind):
            return True
        elif pa.types.is_run_end_encoded(kind):
            kinds.append(kind.value_type)
        else:
            kinds.extend(kind.field(i).type for i in range(kind.num_fields))
    return False


def read_layout(file: BinaryIO, size_bytes: int) -> IpcLayout:
    """All messages of a shard.

    Raises
    ------
    IpcBroken
        Not even a schema is there.
    """
    schema, schema_message, first = read_schema(file, size_bytes)
    file.seek(0)
    is_file = file.read(len(FILE_MAGIC)) == FILE_MAGIC
    footer: Footer | None = None
    listed: list[Message] = []
    findings: list[Finding] = []
    if is_file:
        try:
            footer = read_footer(file, size_bytes)
            places = (*footer.dictionaries, *footer.batches)
            listed = [_listed(file, place, footer.offset_bytes) for place in places]
            findings += _other_schema(file, schema)
        except IpcBroken as error:
            footer = None
            findings.append(Finding(code="bad-arrow-footer", detail=str(error), offset_bytes=size_bytes))
    walked, end, wrong = _walk(file, first, footer.offset_bytes if footer else size_bytes)
    if footer is None:
        listed = walked
        if wrong is not None:
            findings.append(wrong)
        elif not is_file and not _is_padding(file, end, size_bytes):
            detail = f"the stream ends at byte {end:,} of {size_bytes:,}"
            findings.append(Finding(code="trailing-bytes", detail=detail, offset_bytes=end))
    else:
        known = {message.offset_bytes for message in listed}
        unlisted = [message.offset_bytes for message in walked if message.offset_bytes not in known]
        if unlisted or (wrong is not None and known and end < max(known)):
            at = unlisted[0] if unlisted else end
            detail = (
                f"{len(unlisted):,} messages, the first at byte {at:,}" if unlisted else str(wrong and wrong.detail)
            )
            findings.append(Finding(code="unlisted-batches", detail=detail, offset_bytes=at))
        elif wrong is None and not _is_padding(file, end, footer.offset_bytes):  # two files put together, for one
            detail = f"the messages end at byte {end:,}, the footer begins at byte {footer.offset_bytes:,}"
            findings.append(Finding(code="trailing-bytes", detail=detail, offset_bytes=end))
    return IpcLayout(
        is_file=is_file,
        schema=schema,
        schema_message=schema_message,
        dictionaries=tuple(message for message in listed if message.kind == "dictionary"),
        batches=tuple(message for message in listed if message.kind == "batch"),
        findings=tuple(findings),
    )


def _walk(file: BinaryIO, first: int, stop: int) -> tuple[list[Message], int, Finding | None]:
    """Messages one behind the other, where they end, and what is wrong with that."""
    messages: list[Message] = []
    at = first
    try:
        while at < stop:
            message = message_at(file, at, stop)
            if isinstance(message, int):
                return messages, message, None
            if message.kind == "schema":
                detail = f"there is a second schema at byte {at:,}"
                return messages, at, Finding(code="bad-arrow-message", detail=detail, offset_bytes=at)
            messages.append(message)
            at = message.stop_bytes
    except IpcBroken as error:
        code = "cut-short" if error.is_cut else "bad-arrow-message"
        return messages, at, Finding(code=code, detail=str(error), offset_bytes=at)
    return messages, at, Finding(code="cut-short", detail=f"no end mark at byte {at:,}", offset_bytes=at)


def _listed(file: BinaryIO, place: tuple[int, int], stop: int) -> Message:
    """A message where the footer says that it lies."""
    offset, size = place
    message = message_at(file, offset, stop)
    if isinstance(message, int) or message.size_bytes != size or message.kind == "schema":
        raise IpcBroken(f"the footer lists {size:,} bytes at byte {offset:,}, where there is no such message")
    return message


def _other_schema(file: BinaryIO, schema: pa.Schema) -> list[Finding]:
    """The finding that a file's footer has another schema than the message in front; readers take one or the other."""
    try:
        told = pa.ipc.open_file(file).schema
        is_same = told.equals(schema)
        both = () if is_same else (told, schema)
        shown = [", ".join(f"{field.name}: {field.type}" for field in list(each)[:8]) for each in both]
    except (pa.ArrowException, OSError, ValueError, LookupError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        words = (str(error) or type(error).__name__).splitlines()[0]
        return [Finding(code="footer-disagrees", detail=f"the schema in the footer cannot be read: {words}"[:300])]
    if is_same:
        return []
    detail = f"the footer says {shown[0] or 'no columns'}; the message in front says {shown[1] or 'no columns'}"
    return [Finding(code="footer-disagrees", detail=detail[:600])]


def _is_padding(file: BinaryIO, start: int, stop: int) -> bool:
    file.seek(start)
    return start == stop or (stop - start < _MOST_PADDING_BYTES and not file.read(stop - start).strip(b"\0"))
