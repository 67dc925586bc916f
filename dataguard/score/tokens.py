"""What are the signals of token samples, asked for a whole matrix or a column of ragged rows?

`score_tokens` takes what Python programs hold, a 2-D array or an Arrow list array, and answers with a table;
`score_token_rows` is the same on flat ids and offsets, which is what the gate uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dataguard.errors import UsageError
from dataguard.score.token_rows import distinct_ngrams, score_token_rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["distinct_ngrams", "score_token_rows", "score_tokens"]


def score_tokens(
    tokens: ArrayLike | pa.Array | pa.ChunkedArray,
    mask: ArrayLike | pa.Array | pa.ChunkedArray | None = None,
    vocab_size: int | None = None,
    signals: Sequence[str] | None = None,
    text_bytes: ArrayLike | None = None,
) -> pa.Table:
    """Signals of token samples, one row each.

    Parameters
    ----------
    tokens
        Integers of any width, signedness and byte order: an array of shape (num_rows, length), or a pyarrow list array
        (list, large list, fixed-size list; chunked or not) of ragged rows.
    mask
        Which positions count, in the shape of `tokens`: bool, or integers 0 and 1. Positions that do not count are
        taken out, and what is left of a row is contiguous. None: all count.
    vocab_size
        Size of the vocabulary, which ``token_entropy_ratio`` and ``out_of_vocabulary`` need.
    signals
        Names of token signals; None is all whose needs are given.
    text_bytes
        Shape (num_rows,): bytes of the text that each row came from, which ``fertility`` needs.

    Returns
    -------
    pyarrow.Table
        One column a signal, in the registry's order, int64 for whole ones and float64 for the others. A null row gives
        nulls.

    Raises
    ------
    UnknownSignal
        A name is in no registry.
    UsageError
        The tokens are no integers, an id is null, mask and tokens do not fit, a signal lacks what it needs.

    Examples
    --------
    >>> score_tokens([[5, 5, 5, 5], [1, 2, 3, 4]], signals=["token_entropy", "anomaly"]).to_pydict()
    {'token_entropy': [0.0, 2.0], 'anomaly': [0.5, 0.375]}
    """
    import pyarrow as pa

    if isinstance(tokens, pa.Array | pa.ChunkedArray):
        ids, offsets, is_null = _flat_lists(tokens, "tokens")
        counted = None if mask is None else _flat_mask(mask, offsets, is_null)
    else:
        ids, offsets = _flat_matrix(tokens)
        is_null = None
        counted = None if mask is None else np.asarray(mask)
        if counted is not None:
            if counted.shape != np.shape(tokens):
                raise UsageError(f"a mask of shape {counted.shape}", allowed=f"the tokens' shape, {np.shape(tokens)}")
            counted = counted.reshape(-1)
    columns = score_token_rows(ids, offsets, signals, counted, vocab_size, text_bytes)
    if not columns:
        return pa.table({"": np.zeros(len(offsets) - 1)}).select([])  # no column, and as many rows
    return pa.table({name: pa.array(column, mask=is_null) for name, column in columns.items()})


def _flat_matrix(tokens: ArrayLike) -> tuple[NDArray[Any], NDArray[np.int64]]:
    if isinstance(tokens, np.ma.MaskedArray):
        raise UsageError("tokens in a masked array", todo="give its data as tokens, and what counts as mask")
    try:
        matrix = np.asarray(tokens)
    except ValueError as error:  # rows of several lengths, of which NumPy makes no array
        raise UsageError("rows of several lengths", todo="give a pyarrow list array: pa.array(...)") from error
    if matrix.ndim != 2:
        raise UsageError(
            f"tokens of shape {matrix.shape}",
            allowed="two dimensions, rows and positions, or a pyarrow list array of ragged rows",
        )
    num_rows, length = matrix.shape
    return matrix.reshape(-1), np.arange(num_rows + 1, dtype=np.int64) * length


def _flat_lists(
    rows: pa.Array | pa.ChunkedArray, what: str
) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.bool_] | None]:
    """Values of all rows that are not null, offsets of all rows, and which rows are null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = rows.type
    if isinstance(kind, pa.DictionaryType) or not hasattr(kind, "value_type"):
        raise UsageError(f"{what} of type {kind}", allowed="lists of integers, a row each")
    whole = rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows
    if isinstance(whole, pa.ChunkedArray):  # more than one array holds; pyarrow gives it back as it was
        whole = pa.concat_arrays(whole.chunks)
    values = whole.flatten()
    lengths = pc.fill_null(pc.list_value_length(whole), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(whole) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if values.null_count:
        place = int(pc.index(pc.is_null(values), True).as_py())
        row = int(np.searchsorted(offsets, place, side="right")) - 1
        raise UsageError(f"{what}: a null in row {row:,}", todo="leave it out with a mask, or make the whole row null")
    is_null = pc.is_null(whole).to_numpy(zero_copy_only=False) if whole.null_count else None
    if pa.types.is_null(values.type):  # what pyarrow makes of rows that are all empty
        values = values.cast(pa.int64())
    return values.to_numpy(zero_copy_only=False), offsets, is_null


def _flat_mask(
    mask: ArrayLike | pa.Array | pa.ChunkedArray, offsets: NDArray[np.int64], is_null: NDArray[np.bool_] | None
) -> NDArray[Any]:
    import pyarrow as pa

    if not isinstance(mask, pa.Array | pa.ChunkedArray):
        raise UsageError(
            f"a mask of type {type(mask).__name__} for a list array", allowed="a list array of the same lengths"
        )
    flat, mask_offsets, mask_is_null = _flat_lists(mask, "mask")
    num_rows = len(offsets) - 1
    if is_null is not None and len(mask_offsets) == len(offsets):
        # A row that is null needs no mask; where it has one, that is left out as the row itself was.
        lengths = np.diff(mask_offsets)
        flat = flat[np.repeat(~is_null, lengths)]
        mask_offsets = np.concatenate([[0], np.cumsum(np.where(is_null, 0, lengths))])
    if len(mask_offsets) != len(offsets):
        raise UsageError(f"a mask of {len(mask_offsets) - 1:,} rows", allowed=f"one for each of {num_rows:,} rows")
    lacks = np.zeros(num_rows, dtype=np.bool_) if mask_is_null is None else mask_is_null.copy()
    if is_null is not None:
        lacks &= ~is_null
    unlike = np.flatnonzero(lacks | (np.diff(mask_offsets) != np.diff(offsets)))
    if len(unlike):
        row = int(unlike[0])
        raise UsageError(
            f"the mask of row {row:,} does not fit the row",
            found="null" if lacks[row] else f"{np.diff(mask_offsets)[row]:,} values",
            allowed=f"{np.diff(offsets)[row]:,} values, one for each token",
        )
    return flat
