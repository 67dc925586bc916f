"""Which documents does a block of JSON lines hold, and which of its records hold none?

A record is a line that is not blank. It must be one JSON object in UTF-8 whose text field is a string, or a list of
strings; otherwise it is rejected with a reason, and keeps its row. What a field named by a path means stands in
textfield.py.

1. The whole block is looked at once as an array of bytes: where lines begin and end, how many brackets and how many
   spellings of the text field's name each holds, whether all of it is UTF-8.
2. Where nothing is out of the ordinary, one call decodes all lines. A JSON value could begin on one line and end on
   another only between ``}`` and ``{``, which no JSON allows; so a block whose every line begins with ``{`` and ends
   with ``}``, and which holds as many values as lines, holds one value a line.
3. Otherwise each line is decoded by itself and its trouble named.

Only the text field is built; other fields are validated (syntax, escapes, nesting) and passed over. Numbers are read as
JSON spells them, of any size. NaN and Infinity are no JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataguard.corpus.formats.content import is_utf8, one_text
from dataguard.corpus.formats.jsontext import (
    count_key,
    decode_deep,
    nesting_depth,
    patch_lone_surrogates,
    unescape,
    utf8_break,
)
from dataguard.corpus.formats.line_arrays import LARGE_BYTES, LineArrays
from dataguard.corpus.formats.plain_lines import PlainLines
from dataguard.corpus.formats.textfield import ALLOWED, LIST_SEPARATOR, path_of

__all__ = ["MAX_DEPTH", "DecodedLines", "RecordDecoder", "Rejection"]

MAX_DEPTH = 512
"""Arrays and objects of a record may nest this deep: far beyond any data, and within every decoder's own limit."""

_MAY_FOLLOW_KEY = np.zeros(256, dtype=bool)
_MAY_FOLLOW_KEY[list(b": \t\r\n")] = True

_QUOTE, _OPEN, _CLOSE, _LIST = b'"{}['
_ABSENT = msgspec.Raw(b"")
_LOOK_BYTES = 64  # of a list, for what its first entry is


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """One rejected record, counted from the beginning of its block."""

    code: str
    detail: str
    row: int
    line: int
    offset_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedLines:
    """What a block of lines holds."""

    text: pa.LargeBinaryArray
    """One entry a record, null where it is rejected."""
    rejected: tuple[Rejection, ...]
    starts: NDArray[np.int64]
    """Where each record begins in the block, shape (records,)."""
    stops: NDArray[np.int64]
    """One past where each record ends, its line ending left out, shape (records,)."""
    num_lines: int
    num_blank: int
    """Lines that are no records: they hold nothing but spaces and tabs."""


class _MemberOfAnyName:
    """Takes one member of an object under a name that msgspec gives no field: with a quote, a backslash, a control."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._object = msgspec.json.Decoder(dict[str, msgspec.Raw])

    def decode(self, record: Any) -> Any:
        return SimpleNamespace(text=self._object.decode(record).get(self._name, _ABSENT))


def _member(name: str) -> Any:
    """A decoder of an object whose answer has the raw JSON of the member `name` as `text`, empty where it is not."""
    try:
        kind = msgspec.defstruct("_Raw", [("text", msgspec.Raw, _ABSENT)], rename={"text": name})
    except ValueError:
        return _MemberOfAnyName(name)
    return msgspec.json.Decoder(kind)


class RecordDecoder:
    r"""Decodes blocks of lines for one text field. Stateless between calls, safe for several threads.

    Parameters
    ----------
    text_field
        The name of a key of the outermost object.
    max_record_bytes
        Longer lines, their endings included, are rejected.
    max_depth
        Records whose arrays and objects nest deeper are rejected.

    Examples
    --------
    >>> decoded = RecordDecoder("text", 1 << 30).decode(b'{"text": "a"}\n\n7\n')
    >>> decoded.text.to_pylist(), [(entry.row, entry.line, entry.code) for entry in decoded.rejected]
    ([b'a', None], [(1, 2, 'not-an-object')])
    """

    def __init__(self, text_field: str, max_record_bytes: int, max_depth: int = MAX_DEPTH) -> None:
        self._field = text_field
        self._max_record_bytes = max_record_bytes
        self._max_depth = max_depth
        path = path_of(text_field)
        names = dict.fromkeys((text_field, *path))
        # a name of plain characters has one spelling without escapes; any other is looked for key by key
        is_plain = text_field.isascii() and text_field.isprintable() and not set(text_field) & set('"\\')
        record: Any = str
        for name in reversed(path) if is_plain else ():
            record = msgspec.defstruct("_Strings", [("text", record)], rename={"text": name})
        self._strings: Any = msgspec.json.Decoder(record)
        self._any = msgspec.json.Decoder(msgspec.Raw)
        self._list = msgspec.json.Decoder(list[msgspec.Raw])
        self._members: dict[str, Any] = {name: _member(name) for name in names}
        self._path = path
        self._keys = {name: f'"{name}"'.encode() if is_plain else b"" for name in names}
        self._escaped = {b"%02x" % ord(char) for char in text_field}
        max_line_bytes = min(LARGE_BYTES, max_record_bytes)
        self._plain = PlainLines(text_field, max_line_bytes, max_depth) if is_plain and len(path) == 1 else None

    def decode(self, content: Any) -> DecodedLines:
        """The records of a block: whole lines in a bytes-like, the last of them with or without its LF."""
        if self._plain is not None and (plain := self._plain.decode(content)) is not None:
            num_lines = len(plain.starts)
            return DecodedLines(
                text=plain.text,
                rejected=(),
                starts=plain.starts,
                stops=plain.stops,
                num_lines=num_lines,
                num_blank=0,
            )
        lines = LineArrays(content)
        keys = self._keys_per_line(lines)
        is_valid = content.isascii() or is_utf8(content)
        if is_valid and keys is not None and (text := self._decode_at_once(lines, keys)) is not None:
            return DecodedLines(
                text=text,
                rejected=(),
                starts=lines.starts,
                stops=lines.stops,
                num_lines=lines.num_lines,
                num_blank=0,
            )
        return self._decode_one_by_one(lines, keys, is_valid=is_valid)

    def decode_document(self, content: Any) -> bytes | bytearray | Rejection:
        """The text of one JSON object over any number of lines, as it lies in a file of its own."""
        record = memoryview(content)
        try:
            self._check_form(record, len(record), is_valid=is_utf8(record), is_deep_looking=True)
            text = self._text(record, 2)
        except _Rejected as trouble:
            return Rejection(code=trouble.code, detail=trouble.detail, row=0, line=0, offset_bytes=0)
        return text.encode() if isinstance(text, str) else text

    def too_large(self, size_bytes: int) -> DecodedLines:
        """A block of one record over the limit, of which no byte is held."""
        detail = f"{size_bytes:,} bytes, allowed are {self._max_record_bytes:,}"
        return DecodedLines(
            text=pa.array([None], pa.large_binary()),
            rejected=(Rejection(code="record-too-large", detail=detail, row=0, line=0, offset_bytes=0),),
            starts=np.array([0]),
            stops=np.array([size_bytes]),
            num_lines=1,
            num_blank=0,
        )

    def _keys_per_line(self, lines: LineArrays) -> NDArray[np.int64] | None:
        """How often each line spells the text field where a key may stand, None where bytes alone do not tell.

        Of a path the name that stands most often counts, and 0 where each stands once at most and one not at all; a
        line that may have a field of the whole name counts 2.
        """
        if not all(self._keys.values()) or lines.longest_bytes > LARGE_BYTES:
            return None
        escapes = lines.find(b"\\u00")
        escapes = escapes[escapes + 6 <= len(lines.data)]
        if len(escapes):
            digits = np.unique(np.stack([lines.data[escapes + 4], lines.data[escapes + 5]], axis=1), axis=0)
            if any(bytes(pair).lower() in self._escaped for pair in digits):
                return None
        counts = np.stack([self._count_keys(lines, self._keys[name]) for name in self._path])
        found: NDArray[np.int64] = counts.max(axis=0)
        found[(found == 1) & ~counts.all(axis=0)] = 0
        if len(self._path) > 1:
            found[self._count_keys(lines, self._keys[self._field]) > 0] = 2
        return found

    def _count_keys(self, lines: LineArrays, key: bytes) -> NDArray[np.int64]:
        places = lines.find(key)
        after = lines.data[np.minimum(places + len(key), len(lines.data) - 1)]
        return lines.per_line(places[_MAY_FOLLOW_KEY[after]])

    def _decode_at_once(self, lines: LineArrays, keys: NDArray[np.int64]) -> pa.LargeBinaryArray | None:
        """All lines of a block of valid UTF-8 in one call, None where one of them is out of the ordinary."""
        num_lines = lines.num_lines
        if not (
            num_lines
            and lines.longest_bytes <= min(LARGE_BYTES, self._max_record_bytes)
            and bool((lines.stops > lines.starts).all())
            and bool((lines.data[lines.starts] == _OPEN).all())
            and bool((lines.data[lines.stops - 1] == _CLOSE).all())
            and bool((keys >= 1).all())
            and all(nesting_depth(lines.view(i)) <= self._max_depth for i in lines.with_brackets(self._max_depth))
        ):
            return None
        try:
            records = self._strings.decode_lines(lines.content)
        except (msgspec.DecodeError, RecursionError):
            return None
        if len(records) != num_lines:
            return None
        if not all(self._is_plain(lines.view(i)) for i in np.flatnonzero(keys > 1).tolist()):
            return None
        for _ in self._path:
            records = [record.text for record in records]
        return pa.array(records, pa.large_string()).view(pa.large_binary())

    def _is_plain(self, record: memoryview) -> bool:
        """Whether a record that is valid JSON, and has a string where the path leads, has nothing else to be asked."""
        if len(self._path) > 1 and self._count(record, self._field):
            return False
        try:
            self._raw_text(record, is_counted=False)
        except _Rejected:
            return False
        return True

    def _count(self, container: memoryview, name: str) -> int:
        """How often an object that is valid JSON has a field."""
        return count_key(container, name, plain=self._keys[name] if len(container) <= LARGE_BYTES else b"")

    def _decode_one_by_one(self, lines: LineArrays, keys: NDArray[np.int64] | None, *, is_valid: bool) -> DecodedLines:
        deep_looking = set(lines.with_brackets(self._max_depth))
        num_keys = [2] * lines.num_lines if keys is None else keys.tolist()  # 2: look closer
        texts: list[str | bytes | bytearray | None] = []
        rejected: list[Rejection] = []
        is_record = np.ones(lines.num_lines, dtype=bool)
        view = memoryview(lines.content)
        bounds = zip(lines.starts.tolist(), lines.stops.tolist(), lines.ends.tolist(), strict=True)
        for line, (start, stop, end) in enumerate(bounds):
            record = view[start:stop]
            if start == stop or (record[0] in b" \t\r" and not bytes(record).strip(b" \t\r")):
                is_record[line] = False
                continue
            try:
                self._check_form(record, end - start, is_valid=is_valid, is_deep_looking=line in deep_looking)
                texts.append(self._text(record, num_keys[line]))
            except _Rejected as trouble:
                rejected.append(
                    Rejection(code=trouble.code, detail=trouble.detail, row=len(texts), line=line, offset_bytes=start)
                )
                texts.append(None)
        if len(texts) == 1 and texts[0] is not None and not isinstance(texts[0], str):
            text = one_text(texts[0])
        else:
            text = pa.array(texts, pa.large_binary())
        return DecodedLines(
            text=text,
            rejected=tuple(rejected),
            starts=lines.starts[is_record],
            stops=lines.stops[is_record],
            num_lines=lines.num_lines,
            num_blank=lines.num_lines - len(texts),
        )

    def _check_form(self, record: memoryview, size_bytes: int, *, is_valid: bool, is_deep_looking: bool) -> None:
        """_Rejected where a record is too large, no UTF-8 or too deep to be decoded."""
        if size_bytes > self._max_record_bytes:
            raise _Rejected("record-too-large", f"{size_bytes:,} bytes, allowed are {self._max_record_bytes:,}")
        if not is_valid and (bad := utf8_break(record)) >= 0:
            raise _Rejected("invalid-utf8", f"byte {record[bad]:#04x} at byte {bad:,} of the record")
        if is_deep_looking and (depth := nesting_depth(record)) > self._max_depth:
            raise _Rejected("too-deep", f"{depth:,} brackets are open at once, allowed are {self._max_depth:,}")

    def _text(self, record: memoryview, num_keys: int) -> str | bytes | bytearray:
        """The text of one record of valid UTF-8 and allowed depth."""
        raw = self._raw_text(record, is_counted=num_keys <= 1)
        if raw[0] == _QUOTE:
            return unescape(raw) if len(raw) > LARGE_BYTES else msgspec.json.decode(raw, type=str)
        if raw[0] == _LIST:
            return LIST_SEPARATOR.join([self._entry(memoryview(entry)) for entry in decode_deep(self._list, raw)])
        raise self._no_string(raw)

    def _entry(self, raw: memoryview) -> bytes | bytearray:
        """One string of a list."""
        if raw[0] != _QUOTE:
            raise self._no_string(raw)
        return unescape(raw)

    def _no_string(self, raw: memoryview) -> _Rejected:
        if bytes(raw[:4]) == b"null":
            return _Rejected("null-text", f"the field {self._field!r} is null, or holds one")
        return _Rejected("not-a-string", f"the field {self._field!r} should be a string, found {_excerpt(raw)}")

    def _raw_text(self, record: memoryview, *, is_counted: bool) -> memoryview:
        """The JSON value that the text field has, or the path leads to; `is_counted` where no name can stand twice."""
        try:
            raw = memoryview(decode_deep(self._members[self._field], record).text)
        except msgspec.ValidationError:  # no object; what follows its first byte has not been looked at
            self._check_json(record)
            raise _Rejected("not-an-object", f"an object is expected, found {_excerpt(record)}") from None
        except msgspec.DecodeError:
            self._check_json(record)
            raise AssertionError("a text that is JSON was refused as none") from None
        if raw:
            self._check_once(record, self._field, is_counted=is_counted)
            return raw
        container = record
        for depth, name in enumerate(self._path if len(self._path) > 1 else ()):
            if depth and container[0] != _OPEN:
                if bytes(container[:4]) == b"null":
                    raise self._no_string(container)
                if container[0] == _LIST and bytes(container[1:_LOOK_BYTES]).lstrip()[:1] == b"{":
                    raise self._many_texts(".".join(self._path[:depth]))
                break
            raw = memoryview(decode_deep(self._members[name], container).text)
            if not raw:
                break
            self._check_once(container, name, is_counted=is_counted)
            container = raw
        else:
            if raw:
                return raw
        raise _Rejected("missing-text", f"no field {self._field!r} in {_excerpt(record)}")

    def _many_texts(self, where: str) -> _Rejected:
        told = f"no field {self._field!r}: {where!r} is a list of objects, so the record has many texts"
        return _Rejected("missing-text", f"{told}; {ALLOWED.format('objects')}")

    def _check_once(self, container: memoryview, name: str, *, is_counted: bool) -> None:
        if not is_counted and (count := self._count(container, name)) > 1:
            raise _Rejected("duplicate-text", f"the field {name!r} stands {count:,} times in the record")

    def _check_json(self, record: memoryview) -> None:
        """_Rejected where a record is no JSON, with the reason."""
        try:
            decode_deep(self._any, record)
        except msgspec.DecodeError as error:
            if record.tobytes().find(b"\\u") >= 0:
                try:
                    decode_deep(self._any, memoryview(patch_lone_surrogates(record)))
                except msgspec.DecodeError:
                    pass
                else:
                    raise _Rejected("lone-surrogate", f"half a surrogate pair in {_excerpt(record)}") from None
            raise _Rejected("invalid-json", f"{error}: {_excerpt(record)}") from None


class _Rejected(Exception):  # noqa: N818 - a verdict on its way to the table, never seen outside this module
    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code)
        self.code = code
        self.detail = detail


def _excerpt(content: memoryview) -> str:
    """The beginning of a record, for a message."""
    shown = bytes(content[:60]).decode(errors="backslashreplace")
    return repr(shown) if len(content) <= 60 else f"{shown!r}..."
