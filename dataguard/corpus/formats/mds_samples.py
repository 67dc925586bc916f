"""What do samples of an MDS shard hold: texts, ids, or other things to show?

In come the bytes of some samples and the layout of their shard (mds_layout.py). A sample that makes no sense costs its
record where samples are records. Where they are ids it costs the shard, for nobody knows how many rows it was.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataguard.corpus.formats.columns import text_of_column
from dataguard.corpus.formats.mds_layout import Column, Layout, ndarray_ids, split_samples
from dataguard.corpus.formats.protocol import Finding, ScanOptions
from dataguard.corpus.formats.tokens import native_ids

__all__ = ["id_column", "ids_of", "others_of", "texts_of", "token_column", "wrong_text_column"]

_TOKEN_NAMES = ("input_ids", "tokens")


def token_column(layout: Layout, options: ScanOptions) -> Column | None:
    """The column that holds the ids: the one asked for, else ``input_ids`` or ``tokens``, else the only one."""
    ids = [column for column in layout.columns if column.id_type(options.dtype) is not None]
    if options.token_field:
        return next((column for column in ids if column.name == options.token_field), None)
    for name in _TOKEN_NAMES:
        for column in ids:
            if column.name == name:
                return column
    sure = [column for column in ids if column.encoding not in ("bytes", "ndarray")]
    return sure[0] if len(sure) == 1 else None


def id_column(layout: Layout, options: ScanOptions) -> Column | Finding:
    """The column of ids (`token_column`), or the finding that there is none."""
    column = token_column(layout, options)
    if column is None:
        there = ", ".join(f"{entry.name} ({entry.encoding})" for entry in layout.columns[:20])
        asked = f"no column {options.token_field!r} of ids" if options.token_field else "no one column of ids"
        return Finding(code="missing-column", detail=f"{asked}; there are: {there or 'none'}")
    return column


def wrong_text_column(layout: Layout, options: ScanOptions) -> Finding | None:
    """What is wrong with the text column, None where it can hold text."""
    place = layout.place_of(options.text_field)
    if place is None:
        there = ", ".join(f"{column.name} ({column.encoding})" for column in layout.columns[:20])
        return Finding(code="missing-column", detail=f"no column {options.text_field!r}; there are: {there or 'none'}")
    if sum(column.name == options.text_field for column in layout.columns) > 1:
        return Finding(code="duplicate-column", detail=f"several columns are called {options.text_field!r}")
    column = layout.columns[place]
    if not column.holds_text:
        return Finding(code="not-a-text-column", detail=f"column {column.name!r} is encoded as {column.encoding}")
    return None


def texts_of(
    content: bytes | bytearray | None, layout: Layout, first: int, stop: int, options: ScanOptions
) -> tuple[pa.LargeBinaryArray, tuple[Finding, ...]]:
    """The text of samples, null where a record is rejected; `content` is None for one record over the limit."""
    reasons: dict[int, tuple[str, str]] = {}
    if content is None:
        size = int(layout.offsets[stop] - layout.offsets[first])
        detail = f"{size:,} bytes, allowed are {options.max_record_bytes:,}"
        values: list[bytes | None] = [None]
        reasons[0] = ("record-too-large", detail)
    else:
        values = _values(content, layout, first, stop, options.text_field, reasons)
    column = text_of_column(pa.chunked_array([pa.array(values, pa.large_binary())]), ["text"], options.max_record_bytes)
    for row, code, detail in column.rejected:
        reasons.setdefault(row, (code, detail))
    findings = tuple(
        Finding(code=code, detail=detail, row=first + row, offset_bytes=int(layout.offsets[first + row]))
        for row, (code, detail) in sorted(reasons.items())
    )
    return column.text, findings


def _values(
    content: bytes | bytearray, layout: Layout, first: int, stop: int, name: str, reasons: dict[int, tuple[str, str]]
) -> list[bytes | None]:
    bounds = layout.offsets[first : stop + 1] - layout.offsets[first]
    begins, ends, is_bad = split_samples(content, bounds, layout.columns)
    place = layout.place_of(name)
    assert place is not None
    is_json = layout.columns[place].encoding == "json"
    view = memoryview(content)
    values: list[bytes | None] = []
    pieces = zip(begins[:, place].tolist(), ends[:, place].tolist(), is_bad.tolist(), strict=True)
    for row, (begin, end, bad) in enumerate(pieces):
        value = None if bad else bytes(view[begin:end])
        if bad:
            length = int(bounds[row + 1] - bounds[row])
            reasons[row] = ("bad-sample", f"the sizes of its columns do not add up to its {length:,} bytes")
        elif is_json and value is not None:
            value = _json_text(value, row, reasons)
        values.append(value)
    return values


def _json_text(value: bytes, row: int, reasons: dict[int, tuple[str, str]]) -> bytes | None:
    try:
        text = msgspec.json.decode(value)
        if isinstance(text, str):
            return text.encode()
        if text is not None:  # a null is told as such by what takes the columns
            reasons[row] = ("not-a-string", f"the value is of JSON type {type(text).__name__}")
    except UnicodeEncodeError as error:
        reasons[row] = ("lone-surrogate", str(error))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reasons[row] = ("invalid-json", str(error))
    return None


def others_of(content: bytes | bytearray | None, layout: Layout, first: int, stop: int, text_field: str) -> pa.Table:
    """The other columns of samples, for previews; what cannot be decoded is null."""
    if content is None:
        return pa.table({})
    begins, ends, is_bad = split_samples(
        content, layout.offsets[first : stop + 1] - layout.offsets[first], layout.columns
    )
    view = memoryview(content)
    shown: dict[str, Any] = {}
    for place, column in enumerate(layout.columns):
        if column.name == text_field:
            continue
        raws = [
            None if bad else bytes(view[begin:end])
            for begin, end, bad in zip(begins[:, place].tolist(), ends[:, place].tolist(), is_bad.tolist(), strict=True)
        ]
        shown[column.name] = _shown(raws, column)
    return pa.table(shown)


def _shown(raws: list[bytes | None], column: Column) -> pa.Array:
    kind = column.encoding.partition(":")[0]
    if kind in ("str", "json"):
        return pa.array([None if raw is None else raw.decode("utf-8", "replace") for raw in raws], pa.string())
    if kind == "ndarray" and column.id_type("") is not None:
        arrays = [None if raw is None else ndarray_ids(raw, column.encoding) for raw in raws]
        return pa.array([None if array is None or isinstance(array, str) else array.tolist() for array in arrays])
    name = "int64" if kind == "int" else kind
    if column.size is not None and name.startswith(("int", "uint", "float")):
        dtype = np.dtype(name).newbyteorder("<")
        if dtype.itemsize == column.size:
            return pa.array([None if raw is None else np.frombuffer(raw, dtype)[0].item() for raw in raws])
    return pa.array(raws, pa.binary())


def ids_of(
    content: bytes | bytearray, layout: Layout, first: int, stop: int, column: Column, dtype: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[np.int64]] | Finding:
    """(ids of the samples one after the other, how many each has), or the first sample that makes no sense."""
    begins, ends, is_bad = split_samples(
        content, layout.offsets[first : stop + 1] - layout.offsets[first], layout.columns
    )
    if is_bad.any():
        return _bad(
            f"the sizes of the columns of sample {first + int(np.argmax(is_bad)):,} do not add up to its length"
        )
    place = layout.columns.index(column)
    is_array, view = column.encoding.startswith("ndarray"), memoryview(content)
    parts: list[NDArray[Any]] = []
    for row, (begin, end) in enumerate(zip(begins[:, place].tolist(), ends[:, place].tolist(), strict=True)):
        value = view[begin:end]
        if is_array:
            ids = ndarray_ids(value, column.encoding)
        elif len(value) % dtype.itemsize:
            ids = f"{len(value):,} bytes are no multiple of the {dtype.itemsize} of an id"
        else:
            ids = native_ids(value, dtype)
        if isinstance(ids, str):
            return _bad(f"column {column.name!r} of sample {first + row:,} makes no sense: {ids}")
        if ids.dtype == np.uint64 and len(ids) and int(ids.max()) > np.iinfo(np.int64).max:
            return _bad(
                f"column {column.name!r} of sample {first + row:,} holds {int(ids.max()):,}, which no int64 can"
            )
        parts.append(ids.astype(dtype, copy=False))
    lengths = np.array([len(part) for part in parts], np.int64)
    return (np.concatenate(parts) if parts else np.zeros(0, dtype)), lengths


def _bad(detail: str) -> Finding:
    return Finding(code="bad-mds", detail=detail)
