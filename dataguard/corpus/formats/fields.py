"""What else do the records of a block hold, besides their text?

Every other key of a block's records is a column, in order of first appearance, null where a record lacks it or is
rejected. A column has the Arrow type that all its values share; where they share none, or nest deep, each value is
kept as the JSON it was written as.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from dataguard.corpus.formats.jsontext import decode_deep, nesting_depth

__all__ = ["columns_of"]

_MAX_NESTING = 8  # what people can read in a preview, and Arrow's type inference bears


def columns_of(records: Sequence[Any], *, text_field: str) -> pa.Table:
    """The other fields of some records as columns.

    Parameters
    ----------
    records
        One bytes-like JSON object a record, None for a rejected one.
    text_field
        The key that is left out.

    >>> columns_of([b'{"text": "a", "id": 1}', None, b'{"id": 2, "x": [1]}'], text_field="text").to_pydict()
    {'id': [1, None, 2], 'x': [None, None, [1]]}
    >>> columns_of([b'{"id": 1}', b'{"id": "b"}'], text_field="text").to_pydict()
    {'id': ['1', '"b"']}
    """
    decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
    columns: dict[str, list[bytes | None]] = {}
    for row, record in enumerate(records):
        if record is None:
            continue
        for key, raw in decode_deep(decoder, record).items():
            if key != text_field:
                columns.setdefault(key, [None] * len(records))[row] = bytes(raw)
    return pa.table({key: _column(raws) for key, raws in columns.items()})


def _column(raws: list[bytes | None]) -> pa.Array:
    if not any(raw is not None and raw[:1] in b"[{" and nesting_depth(raw) > _MAX_NESTING for raw in raws):
        try:
            return pa.array([None if raw is None else msgspec.json.decode(raw) for raw in raws])
        except (ValueError, TypeError, OverflowError, pa.ArrowException):
            pass  # no type of Arrow holds them all
    return pa.array([None if raw is None else raw.decode() for raw in raws], pa.string())
