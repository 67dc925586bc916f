"""Which documents does a column of Arrow hold, and which of its rows hold none?

Strings, large strings, views, bytes of any kind, dictionaries and runs of them, lists of them, and columns of nothing
but nulls all lead to one form: large binary, a null where the row is rejected. A value must be valid UTF-8, whatever
its type. The column may be a member of a struct; what a path means stands in textfield.py.

Nothing in a column is believed before it was looked at: lengths and offsets are checked before a value is touched, for
files that were damaged or made to do harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataguard.corpus.formats.content import text_lengths
from dataguard.corpus.formats.protocol import Finding
from dataguard.corpus.formats.textfield import ALLOWED, LIST_SEPARATOR, path_of
from dataguard.corpus.formats.valid_text import rows_not_utf8

__all__ = ["TextColumn", "other_columns", "text_of_column", "text_path"]

_MOST_SHOWN = 20
_BYTES_OF = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TextColumn:
    """The text of some rows."""

    text: pa.LargeBinaryArray
    """One entry a row, null where it is rejected."""
    rejected: tuple[tuple[int, str, str], ...]
    """(row in the column, reason code, detail), in row order."""


def text_path(schema: pa.Schema, text_field: str) -> tuple[str, ...] | Finding:
    """The names on the way to the text column of a schema, or what is wrong with it.

    >>> text_path(pa.schema([("meta", pa.struct([("body", pa.string())]))]), "meta.body")
    ('meta', 'body')
    >>> text_path(pa.schema([("id", pa.int64()), ("meta", pa.struct([("body", pa.string())]))]), "text").detail
    "no column 'text'; there are: id, meta.body"
    """
    try:
        _read_names(schema)
    except UnicodeDecodeError as error:
        return Finding(code="missing-column", detail=f"a column has a name that is not UTF-8: {error.object[:40]!r}")
    path = (text_field,) if text_field in schema.names else path_of(text_field)
    fields: Sequence[pa.Field] = list(schema)
    kind: Any = None
    for depth, name in enumerate(path):
        found = [field for field in fields if field.name == name]
        if not found and depth and _lists_structs(kind):
            return _many_texts(".".join(path[:depth]), kind, text_field)
        if not found:
            shown = _names(schema)
            listed = ", ".join(shown[:_MOST_SHOWN]) + (", ..." if len(shown) > _MOST_SHOWN else "")
            return Finding(code="missing-column", detail=f"no column {text_field!r}; there are: {listed or 'none'}")
        if len(found) > 1:
            called = ".".join(path[: depth + 1])
            return Finding(code="duplicate-column", detail=f"{len(found):,} columns are called {called!r}")
        kind = _stored(found[0].type)
        fields = list(kind) if pa.types.is_struct(kind) else ()
    if not _holds_text(kind):
        return Finding(code="not-a-text-column", detail=f"column {text_field!r} is of type {found[0].type}")
    return path


def _lists_structs(kind: pa.DataType) -> bool:
    return _is_list(kind) and pa.types.is_struct(_stored(kind.value_type))


def _many_texts(column: str, kind: pa.DataType, text_field: str) -> Finding:
    """A path that leads through a list: every row has many texts, and how they are one is not for a reader to say."""
    members = ", ".join(member.name for member in _stored(kind.value_type))
    detail = (
        f"no column {text_field!r}: {column!r} is a list of structs ({members}), so each row has many texts; "
        f"{ALLOWED.format('structs')}: write the text of each row (of a chat, say, with its roles) to a column of its "
        "own"
    )
    return Finding(code="missing-column", detail=detail)


def text_of_column(column: pa.ChunkedArray, path: Sequence[str], max_record_bytes: int) -> TextColumn:
    r"""The text of a column.

    Parameters
    ----------
    column
        The column of the outermost name in `path`.
    path
        As `text_path` gave it.
    max_record_bytes
        A longer text is rejected.

    Raises
    ------
    pa.ArrowException
        Where its buffers make no sense.

    Examples
    --------
    >>> text_of_column(pa.chunked_array([pa.array(["a", None]).dictionary_encode()]), ["x"], 1 << 30).text.to_pylist()
    [b'a', None]
    >>> column = pa.chunked_array([[{"b": ["one", "two"]}, {"b": []}, None]])
    >>> text_of_column(column, ["a", "b"], 1 << 30).text.to_pylist()
    [b'one\ntwo', b'', None]
    """
    chunks = [_bytes(_member(chunk, path[1:])) for chunk in column.chunks if len(chunk)]
    text = chunks[0] if len(chunks) == 1 else pa.concat_arrays([pa.array([], pa.large_binary()), *chunks])
    reasons: dict[int, tuple[str, str]] = {}
    if text.null_count:
        nulls = np.flatnonzero(np.asarray(text.is_null()))
        reasons |= dict.fromkeys(nulls.tolist(), ("null-text", "the value is null"))
    lengths = text_lengths(text)
    for row in np.flatnonzero(lengths > max_record_bytes).tolist():
        detail = f"{int(lengths[row]):,} bytes, allowed are {max_record_bytes:,}"
        reasons[row] = ("record-too-large", detail)
    for row in rows_not_utf8(text):
        reasons.setdefault(row, ("invalid-utf8", f"the value's {int(lengths[row]):,} bytes are not UTF-8"))
    if reasons:
        is_out = np.zeros(len(text), dtype=bool)
        is_out[list(reasons)] = True
        # a null may hide bytes; taken anew, it has none
        text = text.take(pa.array(np.arange(len(text)), mask=is_out))
    return TextColumn(text=text, rejected=tuple((row, *reasons[row]) for row in sorted(reasons)))


def other_columns(columns: pa.Table, path: Sequence[str]) -> pa.Table:
    """All of a table but its text: a struct that holds the text keeps its other members.

    >>> other_columns(pa.table({"a": [{"b": "x", "c": 1}], "d": [2]}), ["a", "b"]).to_pylist()
    [{'a': {'c': 1}, 'd': 2}]
    """
    at = columns.schema.get_field_index(path[0])
    if at < 0:
        return columns
    rest = None if len(path) == 1 else _without(columns.column(at).combine_chunks(), path[1:])
    return columns.remove_column(at) if rest is None else columns.set_column(at, path[0], rest)


def _without(struct: Any, path: Sequence[str]) -> pa.Array | None:
    """A struct without one of its members, None where it has no other."""
    if isinstance(struct, pa.ChunkedArray):
        struct = pa.concat_arrays(struct.chunks) if struct.num_chunks else pa.array([], struct.type)
    struct = _storage(struct)
    members = {field.name: pc.struct_field(struct, [i]) for i, field in enumerate(struct.type)}
    if len(path) > 1:
        inner = _without(members[path[0]], path[1:])
        if inner is not None:
            members[path[0]] = inner
    if len(path) == 1 or inner is None:
        del members[path[0]]
    if not members:
        return None
    return pa.StructArray.from_arrays(list(members.values()), names=list(members), mask=struct.is_null())


def _names(schema: pa.Schema) -> list[str]:
    """What the columns are called, members that can hold text by their paths."""
    names = []
    for field in schema:
        kind = _stored(field.type)
        inner = (
            [member.name for member in kind if _holds_text(_stored(member.type))] if pa.types.is_struct(kind) else []
        )
        names += [f"{field.name}.{name}" for name in inner] or [field.name]
    return names


def _read_names(fields: Iterable[pa.Field]) -> None:
    """UnicodeDecodeError where a name is not UTF-8, however deep it stands."""
    for field in fields:
        assert field.name is not None
        kind = _stored(field.type)
        _read_names(kind.field(i) for i in range(kind.num_fields))


def _stored(kind: pa.DataType) -> pa.DataType:
    return _stored(kind.storage_type) if isinstance(kind, pa.BaseExtensionType) else kind


def _holds_text(kind: pa.DataType, *, in_list: bool = False) -> bool:
    kind = _stored(kind)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _holds_text(kind.value_type, in_list=in_list)
    if _is_list(kind):
        return not in_list and _holds_text(kind.value_type, in_list=True)
    checks = ("null", "string", "large_string", "string_view", "binary", "large_binary", "binary_view")
    return any(getattr(pa.types, f"is_{check}")(kind) for check in (*checks, "fixed_size_binary"))


def _is_list(kind: pa.DataType) -> bool:
    checks = ("list", "large_list", "fixed_size_list", "list_view", "large_list_view")
    return any(getattr(pa.types, f"is_{check}")(kind) for check in checks)


def _storage(chunk: Any) -> Any:
    return _storage(chunk.storage) if isinstance(chunk.type, pa.BaseExtensionType) else chunk


def _member(chunk: Any, path: Sequence[str]) -> Any:
    """What lies at a path in a struct, null where anything above it is."""
    chunk.validate()
    for name in path:
        struct = _storage(chunk)
        chunk = pc.struct_field(struct, [struct.type.get_field_index(name)])
    return chunk


def _bytes(chunk: Any) -> pa.LargeBinaryArray:
    """One chunk as large binary, its values uncopied where that can be, its offsets checked."""
    kind = chunk.type
    if isinstance(kind, pa.BaseExtensionType):
        return _bytes(chunk.storage)
    if pa.types.is_dictionary(kind):
        # the values first: a dictionary of strings, spelled out, may be more than 32-bit offsets reach
        return pa.DictionaryArray.from_arrays(chunk.indices, _bytes(chunk.dictionary)).dictionary_decode()
    if pa.types.is_run_end_encoded(kind):
        chunk.validate(full=True)
        return _bytes(pc.run_end_decode(chunk))
    if pa.types.is_null(kind):
        return pa.nulls(len(chunk), pa.large_binary())
    if _is_list(kind):
        return _joined(chunk)
    if kind in _BYTES_OF:  # as bytes, so that its offsets are checked and each row's UTF-8 is judged by itself
        chunk = pa.Array.from_buffers(_BYTES_OF[kind], len(chunk), chunk.buffers(), -1, chunk.offset)
    chunk.validate(full=True)
    return chunk.cast(pa.large_binary())


def _joined(lists: Any) -> pa.LargeBinaryArray:
    """Lists of strings, each as one text."""
    kind = lists.type
    values = _bytes(lists.values)
    if pa.types.is_fixed_size_list(kind):
        sound: Any = pa.list_(pa.large_binary(), kind.list_size)
    elif pa.types.is_list_view(kind):
        sound = pa.list_view(pa.large_binary())
    elif pa.types.is_large_list_view(kind):
        sound = pa.large_list_view(pa.large_binary())
    else:
        sound = pa.large_list(pa.large_binary()) if pa.types.is_large_list(kind) else pa.list_(pa.large_binary())
    rebuilt = pa.Array.from_buffers(
        sound, len(lists), lists.buffers()[: sound.num_buffers], -1, lists.offset, children=[values]
    )
    rebuilt.validate(full=True)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):  # Arrow joins no others
        return pc.binary_join(rebuilt, pa.scalar(LIST_SEPARATOR, pa.large_binary()))
    texts = [
        None if entries is None or None in entries else LIST_SEPARATOR.join(entries) for entries in rebuilt.to_pylist()
    ]
    return pa.array(texts, pa.large_binary())
