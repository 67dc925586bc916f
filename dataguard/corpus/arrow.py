"""How do Arrow's numbers become NumPy's at the cost of the numbers alone?

Wherever pandas is installed (the `datasets` library brings it), pyarrow imports it in ``to_numpy``, ``np.asarray``,
``pa.array`` and ``pa.scalar``, only to ask whether something is of pandas: half a second, in a command that answers in
less. The buffers themselves say all there is to know.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["list_lengths", "numbers", "valid"]

_NAMES = {"halffloat": "float16", "float": "float32", "double": "float64"}


def numbers(column: Any, *, null: float | None = None) -> NDArray[Any]:
    """Integers or floats of an Arrow array or chunked array.

    Parameters
    ----------
    column
        ``pa.Array`` or ``pa.ChunkedArray`` of a fixed-width number type.
    null
        What stands where the column is null. Without it a column with nulls is refused: what lies there is undefined.

    Returns
    -------
    NDArray
        Of Arrow's own width, native order; read-only where the column is one chunk.

    Raises
    ------
    ValueError
        There are nulls, and nothing was said to stand in their place.

    Examples
    --------
    >>> import pyarrow as pa
    >>> numbers(pa.chunked_array([[1, 2], [], [3]], pa.uint16()))
    array([1, 2, 3], dtype=uint16)
    >>> numbers(pa.array([None, 5, None], pa.int64())[1:], null=-1)
    array([ 5, -1])
    """
    kind = np.dtype(_NAMES.get(str(column.type), str(column.type)))
    if null is None and column.null_count:
        raise ValueError(f"{column.null_count} of {len(column)} numbers are null")
    parts = [_values(chunk, kind, null) for chunk in getattr(column, "chunks", (column,))]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros(0, kind)


def list_lengths(lists: Any) -> NDArray[np.int64]:
    """How many elements each entry of an Arrow list array (one chunk) holds, 0 where it is null: shape (length,).

    >>> import pyarrow as pa
    >>> list_lengths(pa.array([[1], [2, 3], None, []])[1:])
    array([2, 0, 0])
    """
    ends = numbers(lists.offsets).astype(np.int64)
    lengths: NDArray[np.int64] = ends[1:] - ends[:-1]
    return np.where(valid(lists), lengths, 0) if lists.null_count else lengths


def valid(chunk: Any) -> NDArray[np.bool_]:
    """Where an Arrow array (one chunk) is not null: bool, shape (length,).

    >>> import pyarrow as pa
    >>> valid(pa.array([1, None, 3, None])[1:])
    array([False,  True, False])
    """
    bits = chunk.buffers()[0]
    if bits is None or not len(chunk):
        return np.ones(len(chunk), np.bool_)
    unpacked = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
    return unpacked[chunk.offset : chunk.offset + len(chunk)].astype(np.bool_)


def _values(chunk: Any, kind: np.dtype[Any], null: float | None) -> NDArray[Any]:
    if not len(chunk):
        return np.zeros(0, kind)
    values = np.frombuffer(chunk.buffers()[1], kind, len(chunk), chunk.offset * kind.itemsize)
    if not chunk.null_count:
        return values
    return np.where(valid(chunk), values, np.asarray(null, kind))
