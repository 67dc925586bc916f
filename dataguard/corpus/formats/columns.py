"""Which documents does a column of Arrow hold, and which of its rows hold none?

Strings, large strings, views, bytes of any kind, dictionaries and runs of them, and columns of nothing but nulls all
lead to one form: large binary, a null where the row is rejected. A value must be valid UTF-8, whatever its type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataguard.corpus.formats.content import text_lengths
from dataguard.corpus.formats.protocol import Finding

__all__ = ["TextColumn", "check_text_column", "text_of_column"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextColumn:
    """The text of some rows."""

    text: pa.LargeBinaryArray
    """One entry a row, null where it is rejected."""
    rejected: tuple[tuple[int, str, str], ...]
    """(row in the column, reason code, detail), in row order."""


def check_text_column(schema: pa.Schema, text_field: str) -> Finding | None:
    """What is wrong with the text column of a schema, None where it can hold text.

    >>> check_text_column(pa.schema([("id", pa.int64())]), "text").detail
    "no column 'text'; there are: id"
    """
    fields = [field for field in schema if field.name == text_field]
    if not fields:
        shown = ", ".join(schema.names[:20]) + (", ..." if len(schema.names) > 20 else "")
        return Finding(code="missing-column", detail=f"no column {text_field!r}; there are: {shown or 'none'}")
    if len(fields) > 1:
        return Finding(code="duplicate-column", detail=f"{len(fields):,} columns are called {text_field!r}")
    if not _holds_text(fields[0].type):
        return Finding(code="not-a-text-column", detail=f"column {text_field!r} is of type {fields[0].type}")
    return None


def text_of_column(column: pa.ChunkedArray, max_record_bytes: int) -> TextColumn:
    """The text of a column whose type `check_text_column` has found no fault with.

    Raises
    ------
    pa.ArrowException
        Where its buffers make no sense.

    >>> text_of_column(pa.chunked_array([pa.array(["a", None, "b"]).dictionary_encode()]), 1 << 30).text.to_pylist()
    [b'a', None, b'b']
    """
    chunks = [_large_binary(chunk) for chunk in column.chunks if len(chunk)]
    text = chunks[0] if len(chunks) == 1 else pa.concat_arrays([pa.array([], pa.large_binary()), *chunks])
    reasons: dict[int, tuple[str, str]] = {}
    if text.null_count:
        nulls = np.flatnonzero(np.asarray(text.is_null()))
        reasons |= dict.fromkeys(nulls.tolist(), ("null-text", "the value is null"))
    lengths = text_lengths(text)
    for row in np.flatnonzero(lengths > max_record_bytes).tolist():
        detail = f"{int(lengths[row]):,} bytes, allowed are {max_record_bytes:,}"
        reasons[row] = ("record-too-large", detail)
    for row in _not_utf8(text, 0):
        reasons.setdefault(row, ("invalid-utf8", f"the value's {int(lengths[row]):,} bytes are not UTF-8"))
    if reasons:
        is_out = np.zeros(len(text), dtype=bool)
        is_out[list(reasons)] = True
        # a null may hide bytes; taken anew, it has none
        text = text.take(pa.array(np.arange(len(text)), mask=is_out))
    return TextColumn(text=text, rejected=tuple((row, *reasons[row]) for row in sorted(reasons)))


def _holds_text(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _holds_text(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _holds_text(kind.value_type)
    checks = ("null", "string", "large_string", "string_view", "binary", "large_binary", "binary_view")
    return any(getattr(pa.types, f"is_{check}")(kind) for check in (*checks, "fixed_size_binary"))


def _large_binary(chunk: Any) -> pa.LargeBinaryArray:
    """One chunk as large binary, its values uncopied where that can be."""
    kind = chunk.type
    if isinstance(kind, pa.BaseExtensionType):
        return _large_binary(chunk.storage)
    if pa.types.is_dictionary(kind):
        # the values first: a dictionary of strings, spelled out, may be more than 32-bit offsets reach
        return pa.DictionaryArray.from_arrays(chunk.indices, _large_binary(chunk.dictionary)).dictionary_decode()
    if pa.types.is_run_end_encoded(kind):
        return _large_binary(pc.run_end_decode(chunk))
    if pa.types.is_null(kind):
        return pa.nulls(len(chunk), pa.large_binary())
    return chunk.cast(pa.large_binary())


def _not_utf8(text: pa.LargeBinaryArray, first_row: int) -> list[int]:
    """Rows that are not valid UTF-8, found by halving."""
    try:
        text.cast(pa.large_string())
    except pa.ArrowInvalid:
        if len(text) == 1:
            return [first_row]
        middle = len(text) // 2
        return _not_utf8(text[:middle], first_row) + _not_utf8(text[middle:], first_row + middle)
    return []
