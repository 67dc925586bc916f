"""What does an MDS shard say of itself, and where in a sample does each column lie?

A shard of MosaicML Streaming is one file::

    u32 samples n; (n + 1) x u32 offsets of the samples and of the end; JSON with the columns; the samples

and a sample is the u32 sizes of its columns of variable size, then the columns one after the other. The JSON names the
columns, how each is encoded, and its size where that is fixed. Everything is checked before it is used: offsets rise
from the end of the JSON on, and the sizes in a sample add up to its length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dataguard.corpus.formats.protocol import Finding
from dataguard.corpus.formats.tokens import Ranges

__all__ = ["Column", "Layout", "begins_as_mds", "ndarray_ids", "read_layout", "split_samples"]

_MOST_SAMPLES = 1 << 26
_MOST_JSON_BYTES = 1 << 20
_SHAPE_TYPES = ("<u1", "<u2", "<u4", "<u8")
_VALUE_TYPES = {
    8: "<u1", 9: "<i1", 16: "<u2", 17: "<i2", 18: "<f2", 32: "<u4", 33: "<i4", 34: "<f4", 64: "<u8", 65: "<i8",
    66: "<f8",
}  # fmt: skip
_SCALARS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})


class _Described(msgspec.Struct, frozen=True):
    """The JSON of a shard, as far as it matters."""

    column_names: list[str]
    column_encodings: list[str]
    column_sizes: list[int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a shard."""

    name: str
    encoding: str
    """As the writer calls it: ``str``, ``bytes``, ``json``, ``int``, ``ndarray:uint16:2048``, ..."""
    size: int | None
    """Bytes of every value, None where they vary."""

    @property
    def holds_text(self) -> bool:
        """Whether a value may be a text."""
        return self.encoding in ("str", "bytes", "json")

    def id_type(self, dtype: str) -> np.dtype[Any] | None:
        """Of which integer type its ids are as stored, None where it holds none.

        Parameters
        ----------
        dtype
            Of ids in plain bytes; empty where none was given.

        Examples
        --------
        >>> Column(name="ids", encoding="ndarray:uint16:4", size=8).id_type("").str
        '<u2'
        """
        kind, _, rest = self.encoding.partition(":")
        if kind == "bytes":
            return np.dtype(dtype) if dtype else None
        if kind == "ndarray":
            named, _, shape = rest.partition(":")
            if shape and not all(size.isdecimal() for size in shape.split(",")):
                return None
            if not named:
                return np.dtype("<i8")  # each value says its own, and all of them fit
            return np.dtype(named).newbyteorder("<") if named in _SCALARS else None
        # a scalar of varying size is how some writers of their own call a run of ids
        return np.dtype(kind).newbyteorder("<") if kind in _SCALARS and self.size is None else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """The head of a shard."""

    columns: tuple[Column, ...]
    offsets: NDArray[np.int64]
    """Where each sample begins, and where the last one ends. Shape (samples + 1,)."""

    @property
    def num_samples(self) -> int:
        """Samples of the shard."""
        return len(self.offsets) - 1

    @property
    def end_bytes(self) -> int:
        """Bytes of the whole shard, decoded."""
        return int(self.offsets[-1])

    def place_of(self, name: str) -> int | None:
        """Which column has that name, None where none has."""
        return next((i for i, column in enumerate(self.columns) if column.name == name), None)


def begins_as_mds(head: bytes) -> int:
    """3 where these first bytes are an MDS shard's, JSON included; 2 where they could be and the JSON lies beyond.

    >>> begins_as_mds(b"PAR1"), begins_as_mds(b"")
    (0, 0)
    """
    if len(head) < 8:
        return 0
    num_samples = int.from_bytes(head[:4], "little")
    start = 4 * (num_samples + 2)
    offsets = np.frombuffer(head[4 : min(start, len(head) // 4 * 4)], "<u4").astype(np.int64)
    if not len(offsets) or not start + 2 <= offsets[0] <= start + _MOST_JSON_BYTES or (np.diff(offsets) < 0).any():
        return 0
    if len(head) < start + 2:
        return 2 * (num_samples <= _MOST_SAMPLES and len(offsets) > 64)
    return 3 * (head[start : start + 1] == b"{" and b'"column_' in head[start : start + 4096])


def read_layout(ranges: Ranges, size_bytes: int | None) -> Layout | Finding:
    """The head of a shard, or what is wrong with it.

    Parameters
    ----------
    ranges
        The shard, decoded.
    size_bytes
        Its size, None where that is not known before it is decoded.
    """
    count = ranges.take(0, 4)
    num_samples = int.from_bytes(count, "little")
    start = 4 * (num_samples + 2)
    if len(count) < 4 or (size_bytes is not None and size_bytes < start):
        found = len(count) if size_bytes is None else size_bytes
        return _short(f"{num_samples:,} samples have {start:,} bytes of offsets", found)
    if num_samples > _MOST_SAMPLES:
        return _bad(f"{num_samples:,} samples, allowed are {_MOST_SAMPLES:,}")
    table = ranges.take(4, start - 4)
    if len(table) < start - 4:
        return _short(f"{num_samples:,} samples have {start:,} bytes of offsets", 4 + len(table))
    offsets = np.frombuffer(table, "<u4").astype(np.int64)
    num_json = int(offsets[0]) - start
    if not 2 <= num_json <= _MOST_JSON_BYTES:
        return _bad(f"the first sample begins at byte {int(offsets[0]):,}, the offsets end at byte {start:,}")
    if (np.diff(offsets) < 0).any():
        at = int(np.argmax(np.diff(offsets) < 0))
        return _bad(f"sample {at:,} ends at byte {int(offsets[at + 1]):,}, before it begins ({int(offsets[at]):,})")
    document = ranges.take(start, num_json)
    if len(document) < num_json:
        return _short(f"the columns are told up to byte {start + num_json:,}", start + len(document))
    try:
        told = msgspec.json.decode(document, type=_Described)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _bad(f"its columns cannot be read: {error}")
    if not len(told.column_names) == len(told.column_encodings) == len(told.column_sizes):
        return _bad(
            f"{len(told.column_names):,} columns have {len(told.column_encodings):,} encodings and "
            f"{len(told.column_sizes):,} sizes"
        )
    if any(size is not None and size < 0 for size in told.column_sizes):
        return _bad(f"columns of {told.column_sizes} bytes")
    described = zip(told.column_names, told.column_encodings, told.column_sizes, strict=True)
    columns = tuple(Column(name=name, encoding=encoding, size=size) for name, encoding, size in described)
    return Layout(columns=columns, offsets=offsets)


def split_samples(
    content: bytes | bytearray, bounds: NDArray[np.int64], columns: tuple[Column, ...]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Where each column of each sample lies.

    Parameters
    ----------
    content
        Some samples, one after the other.
    bounds
        Where each begins in `content`, and where the last ends. Shape (samples + 1,).
    columns
        Of the shard.

    Returns
    -------
    begins, ends
        Of every value in `content`, shape (samples, columns). Not to be used where the sample is bad.
    is_bad
        Samples whose sizes do not add up to their length, shape (samples,).
    """
    num_rows, num_columns = len(bounds) - 1, len(columns)
    varying = [i for i, column in enumerate(columns) if column.size is None]
    head_bytes = 4 * len(varying)
    is_bad = np.diff(bounds) < head_bytes
    # axes: sample, column
    sizes = np.tile(np.array([column.size or 0 for column in columns], np.int64), (num_rows, 1))
    if varying and not is_bad.all():
        buffer = np.frombuffer(content, np.uint8)
        firsts = np.where(is_bad, 0, bounds[:-1])
        # axes: sample, byte of the head -> sample, column of varying size
        heads = buffer[np.minimum(firsts[:, None] + np.arange(head_bytes), len(buffer) - 1)]
        sizes[:, varying] = np.ascontiguousarray(heads).view("<u4")
    ends = bounds[:-1, None] + head_bytes + np.cumsum(sizes, axis=1)
    is_bad |= (ends[:, -1] if num_columns else bounds[:-1]) != bounds[1:]
    return ends - sizes, ends, is_bad


def ndarray_ids(value: bytes | memoryview, encoding: str) -> NDArray[Any] | str:
    r"""The ids of one value of an ``ndarray`` column, flattened row by row, or what is wrong with it.

    Without a type in the encoding the value begins with the type's number; without a shape follows a byte of the number
    of dimensions and the width of their sizes, and the sizes.

    >>> ndarray_ids(b"\x04\x02\x07\x00\x08\x00", "ndarray:uint16").tolist()
    [7, 8]
    >>> ndarray_ids(b"\x10\x04\x01\x07\x00", "ndarray").tolist()
    [7]
    """
    _, _, rest = encoding.partition(":")
    named, _, shape = rest.partition(":")
    at = 0
    if named:
        dtype = np.dtype(named).newbyteorder("<")
    else:
        kind = _VALUE_TYPES.get(value[0]) if len(value) else None
        if kind is None or np.dtype(kind).kind == "f":
            return f"its type is {kind or (value[0] if len(value) else 'missing')}"
        dtype, at = np.dtype(kind), 1
    if shape:
        expected = int(np.prod([int(size) for size in shape.split(",")], dtype=object))
    else:
        if len(value) <= at:
            return "its shape is missing"
        num_dimensions, width = value[at] >> 2, np.dtype(_SHAPE_TYPES[value[at] & 3])
        stop = at + 1 + num_dimensions * width.itemsize
        if len(value) < stop:
            return f"its shape of {num_dimensions:,} dimensions is cut"
        expected = int(np.prod(np.frombuffer(value[at + 1 : stop], width).tolist(), dtype=object))
        at = stop
    if (len(value) - at) != expected * dtype.itemsize:
        return f"{expected:,} ids of {dtype.name} are promised, {len(value) - at:,} bytes are there"
    return np.frombuffer(value, dtype, expected, at) if expected else np.zeros(0, dtype)


def _bad(detail: str) -> Finding:
    return Finding(code="bad-mds", detail=detail)


def _short(promised: str, found_bytes: int) -> Finding:
    return Finding(code="too-short", detail=f"{promised}, found {found_bytes:,} bytes", offset_bytes=found_bytes)
