"""How many bytes would the text of an Arrow column be, spelled out?

Several types of Arrow let many rows name one value: dictionaries, runs, views of one buffer, lists that overlap. A few
kilobytes of them may stand for gigabytes of text, which is what a record is read as. The answer is reckoned from
lengths alone, nothing is spelled out on the way: a column is walked from the rows down to the values, and each level
knows how often each of its entries is used. What no row names counts once, for it is spelled out all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataguard.corpus.arrow import numbers, valid

__all__ = ["may_repeat", "spelled_bytes"]

_VIEW = np.dtype([("size", "<i4"), ("rest", "V12")])
Uses = NDArray[np.float64]
"""How often each entry is used: floats, for what a file says may be more than any integer of 64 bits."""


def may_repeat(kind: pa.DataType) -> bool:
    """Whether entries of a type may name one value several times.

    >>> may_repeat(pa.string()), may_repeat(pa.list_(pa.string())), may_repeat(pa.list_(pa.string_view()))
    (False, False, True)
    """
    if isinstance(kind, pa.BaseExtensionType):
        return may_repeat(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind) or _is_view(kind):
        return True
    return any(may_repeat(kind.field(i).type) for i in range(kind.num_fields))


def spelled_bytes(chunk: pa.Array, path: Sequence[str] = ()) -> float:
    """Bytes of the text of all rows of an array, or of its member at a path; of a list, a separator for each string.

    Parameters
    ----------
    chunk
        Anything that holds text, validated (``validate()``) as far as offsets go.
    path
        Names of the members on the way to the text.

    Raises
    ------
    IndexError
        Something in it points out of itself; ValueError where it makes no sense otherwise.

    Examples
    --------
    >>> spelled_bytes(pa.array(["abc", "d", "abc", None]).dictionary_encode())
    7.0
    >>> spelled_bytes(pa.RunEndEncodedArray.from_arrays([1_000_000, 1_000_001], ["ab", "c"]))
    2000001.0
    >>> spelled_bytes(pa.array([{"a": [["x"], ["yz", "x"]]}]), ["a"])
    9.0
    """
    for name in path:
        chunk = _storage(chunk)
        chunk = chunk.field(chunk.type.get_field_index(name))  # without its parent's nulls: those are few
    return _total(chunk, np.ones(len(chunk)))


def _total(chunk: Any, uses: Uses) -> float:
    chunk = _storage(chunk)
    kind = chunk.type
    if not len(chunk) or pa.types.is_null(kind):
        return 0.0
    if pa.types.is_run_end_encoded(kind):
        return _runs(chunk, uses)
    if chunk.null_count:
        uses = np.where(valid(chunk), uses, 0.0)
    if pa.types.is_dictionary(kind):
        return _dictionary(chunk, uses)
    if pa.types.is_struct(kind):
        return float(sum(_total(chunk.field(i), uses) for i in range(kind.num_fields)))
    if pa.types.is_fixed_size_binary(kind):
        return float(uses.sum()) * float(kind.byte_width)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        sizes = np.frombuffer(chunk.buffers()[1], _VIEW, len(chunk), chunk.offset * _VIEW.itemsize)["size"]
        return float(sizes.astype(np.float64) @ uses)
    if _is_text(kind):
        return float(np.diff(_offsets(chunk, len(chunk) + 1)).astype(np.float64) @ uses)
    return _lists(chunk, uses)


def _dictionary(chunk: Any, uses: Uses) -> float:
    indices = chunk.indices
    used = np.flatnonzero(uses)
    at = numbers(indices, null=0)[used] if indices.null_count else numbers(indices)[used]
    size = len(chunk.dictionary)
    if len(at) and not (int(at.min()) >= 0 and int(at.max()) < size):
        raise IndexError(f"an index of a dictionary of {size:,} entries lies outside of it")
    return _total(chunk.dictionary, np.maximum(np.bincount(at.astype(np.int64), uses[used], size), 1.0))


def _runs(chunk: Any, uses: Uses) -> float:
    first, num_runs = chunk.find_physical_offset(), chunk.find_physical_length()
    ends = numbers(chunk.run_ends)[first : first + num_runs].astype(np.int64) - chunk.offset
    if len(ends) != num_runs or (np.diff(ends, prepend=0) <= 0).any() or ends[-1] < len(chunk):
        raise ValueError("the ends of runs do not rise to the number of rows")
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    return _total(chunk.values.slice(first, num_runs), np.maximum(np.add.reduceat(uses, starts), 1.0))


def _lists(chunk: Any, uses: Uses) -> float:
    """Lists of any kind: how often each child is used is the sum over the lists that hold it."""
    kind = chunk.type
    values = chunk.values
    if pa.types.is_fixed_size_list(kind):
        starts = (chunk.offset + np.arange(len(chunk))) * kind.list_size
        stops = starts + kind.list_size
    elif _is_view(kind):
        width = np.dtype(np.int64 if pa.types.is_large_list_view(kind) else np.int32)
        _, offsets, sizes = chunk.buffers()[:3]
        starts = np.frombuffer(offsets, width, len(chunk), chunk.offset * width.itemsize).astype(np.int64)
        stops = starts + np.frombuffer(sizes, width, len(chunk), chunk.offset * width.itemsize)
    else:
        offsets = _offsets(chunk, len(chunk) + 1)
        starts, stops = offsets[:-1], offsets[1:]
    used = (uses > 0) & (stops > starts)
    starts, stops, uses = starts[used], stops[used], uses[used]
    if len(starts) and not (int(starts.min()) >= 0 and int(stops.max()) <= len(values)):
        raise IndexError(f"a list lies outside of the {len(values):,} values")
    changes = np.bincount(starts, uses, len(values) + 1) - np.bincount(stops, uses, len(values) + 1)
    separators = float(uses @ (stops - starts))
    return separators + _total(values, np.maximum(np.cumsum(changes)[:-1], 1.0))


def _offsets(chunk: Any, count: int) -> NDArray[np.int64]:
    kind = chunk.type
    is_large = any(getattr(pa.types, f"is_{name}")(kind) for name in ("large_string", "large_binary", "large_list"))
    width = np.dtype(np.int64 if is_large else np.int32)
    buffer = chunk.buffers()[1]
    return np.frombuffer(buffer, width, count, chunk.offset * width.itemsize).astype(np.int64)


def _is_text(kind: pa.DataType) -> bool:
    return any(getattr(pa.types, f"is_{name}")(kind) for name in ("string", "large_string", "binary", "large_binary"))


def _is_view(kind: pa.DataType) -> bool:
    names = ("string_view", "binary_view", "list_view", "large_list_view")
    return any(getattr(pa.types, f"is_{name}")(kind) for name in names)


def _storage(chunk: Any) -> Any:
    return _storage(chunk.storage) if isinstance(chunk.type, pa.BaseExtensionType) else chunk
