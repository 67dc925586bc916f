"""What else do the records of a block hold, besides their text?

Every other key of a block's records is a column, in order of first appearance, null where a record lacks it or is
rejected; an object that holds the text keeps its other members. A column has the Arrow type that all its values share;
where they share none, or nest deep, each value is kept as the JSON it was written as.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from dataguard.corpus.formats.jsontext import decode_deep, nesting_depth
from dataguard.corpus.formats.textfield import path_of

__all__ = ["columns_of"]

_MAX_NESTING = 8  # what people can read in a preview, and Arrow's type inference bears


def columns_of(records: Sequence[Any], *, text_field: str) -> pa.Table:
    """The other fields of some records as columns.

    Parameters
    ----------
    records
        One bytes-like JSON object a record, None for a rejected one.
    text_field
        The key or path that is left out, see textfield.py.

    Examples
    --------
    >>> columns_of([b'{"text": "a", "id": 1}', None, b'{"id": 2, "x": [1]}'], text_field="text").to_pydict()
    {'id': [1, None, 2], 'x': [None, None, [1]]}
    >>> columns_of([b'{"id": 1}', b'{"id": "b"}'], text_field="text").to_pydict()
    {'id': ['1', '"b"']}
    >>> columns_of([b'{"a": {"b": "x", "c": 1}}', b'{"a": {"b": "y"}}'], text_field="a.b").to_pydict()
    {'a': [{'c': 1}, None]}
    """
    decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
    columns: dict[str, list[bytes | None]] = {}
    for row, record in enumerate(records):
        if record is None:
            continue
        members = decode_deep(decoder, record)
        _leave_out(members, (text_field,) if text_field in members else path_of(text_field), decoder)
        for key, raw in members.items():
            columns.setdefault(key, [None] * len(records))[row] = bytes(raw)
    return pa.table({key: _column(raws) for key, raws in columns.items()})


def _leave_out(members: dict[str, Any], path: Sequence[str], decoder: Any) -> None:
    """Take what a path leads to out of an object, and the objects on the way that hold nothing else."""
    raw = members.get(path[0])
    if raw is None:
        return
    if len(path) > 1:
        if bytes(memoryview(raw)[:1]) != b"{":
            return
        inner = decode_deep(decoder, raw)
        _leave_out(inner, path[1:], decoder)
        if inner:
            members[path[0]] = msgspec.json.encode(inner)
            return
    del members[path[0]]


def _column(raws: list[bytes | None]) -> pa.Array:
    if not any(raw is not None and raw[:1] in b"[{" and nesting_depth(raw) > _MAX_NESTING for raw in raws):
        try:
            return pa.array([None if raw is None else msgspec.json.decode(raw) for raw in raws])
        except (ValueError, TypeError, OverflowError, pa.ArrowException):
            pass  # no type of Arrow holds them all
    return pa.array([None if raw is None else raw.decode() for raw in raws], pa.string())
