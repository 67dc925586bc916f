"""How are the signals of ragged rows of token ids computed, whatever the integer type?

Rows are ``ids[offsets[r]:offsets[r + 1]]`` of one flat array. They go through the kernel in pieces of about 131,000
tokens, or one row where it is longer: a piece is brought to native int64 (unsigned 64-bit ids by their bits, which
keeps equal what is equal and outside a vocabulary what is outside) in a buffer of the thread, where it is not so yet.

**Positions that do not count** (the mask is False) are taken out before anything else; what is left is contiguous. So
padding between two documents makes neighbours of their tokens, and a window or a run may reach across it: the signals
speak of the tokens that are trained on, in their order. `dataguard.score.spans` names the places they had before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dataguard.errors import UsageError
from dataguard.score.kernels import tokens as kernels
from dataguard.score.registry import TOKEN_SIGNALS, select, spec_of
from dataguard.score.scorers import Column, columns_of
from dataguard.score.scratch import LARGEST_ROW, ids_buffer, token_scratch

__all__ = ["as_ids", "as_mask", "as_vocab_size", "distinct_ngrams", "score_token_rows"]

PIECE_TOKENS = 1 << 17
PIECE_ROWS = 1 << 20

_NEEDS_COUNTS = {"distinct_tokens", "token_entropy", "token_entropy_ratio", "token_dup_ngram_fraction", "anomaly"}
_NEEDS_NGRAMS = {"token_dup_ngram_fraction", "anomaly"}
_NEEDS_PERIODS = {"token_periodic_repeats", "token_periodic_fraction"}
_NEEDS_VOCABULARY = {"token_entropy_ratio", "out_of_vocabulary"}

_WHOLES = ("distinct_tokens", "token_periodic_repeats", "out_of_vocabulary")
_REALS = ("token_entropy", "token_entropy_ratio", "token_dup_ngram_fraction", "token_periodic_fraction", "anomaly")
"""Columns of the kernel's two results, in their order."""


def score_token_rows(
    ids: ArrayLike,
    offsets: ArrayLike,
    signals: Sequence[str] | None = None,
    mask: ArrayLike | None = None,
    vocab_size: int | None = None,
    text_bytes: ArrayLike | None = None,
) -> dict[str, NDArray[np.int64] | NDArray[np.float64]]:
    """Signals of ragged rows of token ids.

    Safe from many threads at once, and in a forked process; the interpreter lock is not held while rows are scored.

    Parameters
    ----------
    ids
        Shape (num_tokens,), any integer type and byte order.
    offsets
        int64, shape (num_rows + 1,), not decreasing; row r is ``ids[offsets[r]:offsets[r + 1]]``, of at most 2^31 - 1
        tokens.
    signals
        Names of token signals; None is all whose needs are given.
    mask
        bool (or integers 0 and 1), shape (num_tokens,): which positions count. None: all.
    vocab_size
        Ids in 0:vocab_size are in the vocabulary; from 1 to 2^63 - 1.
    text_bytes
        int64, shape (num_rows,): bytes of the text each row came from.

    Returns
    -------
    dict
        A column of shape (num_rows,) for each signal, in the registry's order: int64 for whole ones, else float64.

    Raises
    ------
    UnknownSignal
        A name is in no registry.
    UsageError
        A signal is no token signal or lacks what it needs; arrays do not fit each other.

    Examples
    --------
    >>> score_token_rows([7, 7, 7, 7, 7, 1, 2], [0, 5, 7], ["token_dup_ngram_fraction", "token_periodic_repeats"])
    {'token_dup_ngram_fraction': array([0.5, 0. ]), 'token_periodic_repeats': array([5, 0])}
    """
    flat, bounds = as_ids(ids), _as_offsets(offsets)
    if bounds[-1] > len(flat):
        raise UsageError(f"the last row ends at token {bounds[-1]:,}", found=f"{len(flat):,} tokens")
    counted = None if mask is None else as_mask(mask, flat.shape)
    if isinstance(signals, str):
        raise UsageError(f"signals {signals!r}", allowed="a list of names", todo=f"[{signals!r}]")
    names, wanted = _chosen(
        None if signals is None else tuple(signals),
        has_vocab_size=vocab_size is not None,
        has_text_bytes=text_bytes is not None,
    )
    size = 1 if vocab_size is None else as_vocab_size(vocab_size)
    num_rows = len(bounds) - 1
    lengths = np.zeros(num_rows, dtype=np.int64)
    wholes = np.zeros((num_rows, len(_WHOLES)), dtype=np.int64)
    reals = np.zeros((num_rows, len(_REALS)), dtype=np.float64)
    own = [spec for spec in map(spec_of, names) if spec.scorer]
    found: dict[str, Column] = {
        spec.name: np.zeros(num_rows, np.int64) if spec.whole else np.zeros(num_rows) for spec in own
    }
    if not wanted and counted is None and not own:
        lengths = np.diff(bounds)
    else:
        for rows, piece, ends in _pieces(flat, bounds, counted):
            lengths[rows] = np.diff(ends)
            for name, column in columns_of(own, piece, ends).items():
                found[name][rows] = column
            if not wanted:
                continue
            scratch = token_scratch(int(lengths[rows].max(initial=0)))
            kernels.score_rows(
                piece, ends, wanted, size,
                scratch.direct, scratch.table, scratch.stamps, scratch.dense, scratch.classes, scratch.counts,
                scratch.marks, scratch.tallies, scratch.logs,
                wholes[rows], reals[rows],
            )  # fmt: skip
    for name in names:
        if name in _WHOLES:
            found[name] = np.ascontiguousarray(wholes[:, _WHOLES.index(name)])
        elif name in _REALS:
            found[name] = np.ascontiguousarray(reals[:, _REALS.index(name)])
        elif name == "fertility":
            assert text_bytes is not None, "a signal without its need was chosen"
            found[name] = _fertility(lengths, text_bytes)
        elif name == "length_tokens":
            found[name] = lengths
        else:
            assert name in found, f"nobody computes {name}"
    return {name: found[name] for name in names}


def distinct_ngrams(ids: ArrayLike, offsets: ArrayLike, n: int) -> NDArray[np.int64]:
    """Distinct windows of n tokens in each row; a row of L tokens has ``max(0, L - n + 1)`` windows.

    Exact, at a cost that grows with the logarithm of n. Parameters and errors are those of `score_token_rows`; n is at
    least 1.

    >>> distinct_ngrams([7, 7, 7, 7, 1], [0, 5], 2)
    array([2])
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise UsageError(f"windows of {n!r} tokens", allowed="n of at least 1")
    flat, bounds = as_ids(ids), _as_offsets(offsets)
    if bounds[-1] > len(flat):
        raise UsageError(f"the last row ends at token {bounds[-1]:,}", found=f"{len(flat):,} tokens")
    distinct = np.zeros(len(bounds) - 1, dtype=np.int64)
    for rows, piece, ends in _pieces(flat, bounds, None):
        scratch = token_scratch(int(np.diff(ends).max(initial=0)))
        kernels.count_ngrams(
            piece, ends, min(int(n), LARGEST_ROW + 1),
            scratch.direct, scratch.table, scratch.stamps, scratch.dense, scratch.classes, scratch.counts,
            distinct[rows],
        )  # fmt: skip
    return distinct


def as_ids(ids: ArrayLike) -> NDArray[np.integer]:
    """A flat array of token ids as it was given, checked to be one."""
    flat = np.asarray(ids)
    if flat.ndim != 1:
        raise UsageError(f"token ids of shape {flat.shape}", allowed="one dimension; rows are told by their offsets")
    if flat.size == 0 and flat.dtype == np.float64:
        flat = flat.astype(np.int64)  # what NumPy makes of an empty list
    if flat.dtype.kind not in "iu":
        raise UsageError(f"token ids of type {flat.dtype}", allowed="signed or unsigned integers of 8 to 64 bits")
    return flat


def as_mask(mask: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Which positions count, as bool of that shape; integers must be 0 or 1."""
    counted = np.asarray(mask)
    if counted.shape != shape:
        raise UsageError(f"a mask of shape {counted.shape}", allowed=f"the shape of the token ids, {shape}")
    if counted.dtype.kind in "iu":
        if counted.size and (counted.min() < 0 or counted.max() > 1):
            raise UsageError(f"a mask with values from {counted.min()} to {counted.max()}", allowed="0 and 1, or bool")
        return counted.astype(np.bool_)
    if counted.dtype.kind != "b" and counted.size:
        raise UsageError(f"a mask of type {counted.dtype}", allowed="bool, or integers 0 and 1")
    return counted.astype(np.bool_, copy=False)


def as_vocab_size(vocab_size: int) -> int:
    """A vocabulary's size as a Python int, checked."""
    if isinstance(vocab_size, bool) or not isinstance(vocab_size, int | np.integer) or not 1 <= vocab_size < 2**63:
        raise UsageError(f"a vocabulary of size {vocab_size!r}", allowed="an integer from 1 to 2^63 - 1")
    return int(vocab_size)


@cache
def _chosen(
    signals: tuple[str, ...] | None, *, has_vocab_size: bool, has_text_bytes: bool
) -> tuple[tuple[str, ...], int]:
    """Names in the registry's order, and what the kernel is asked for their sake."""
    given = {need for need, has in (("vocab_size", has_vocab_size), ("text_bytes", has_text_bytes)) if has}
    if signals is None:
        chosen = tuple(spec for spec in TOKEN_SIGNALS if given.issuperset(spec.needs))
    else:
        chosen = select(signals, "tokens")
        others = sorted(set(signals) - {spec.name for spec in chosen})
        if others:
            raise UsageError(f"{', '.join(others)}: no signal of tokens", todo="score the text for signals of text")
    for spec in chosen:
        missing = [need for need in spec.needs if need not in given]
        if missing:
            raise UsageError(f"{spec.name} needs {', '.join(missing)}", todo=f"give {missing[0]}=...")
    names = tuple(spec.name for spec in chosen)
    wanted = (
        (kernels.WANT_COUNTS, _NEEDS_COUNTS),
        (kernels.WANT_NGRAMS, _NEEDS_NGRAMS),
        (kernels.WANT_PERIODS, _NEEDS_PERIODS),
        (kernels.WANT_VOCABULARY, _NEEDS_VOCABULARY),
    )
    return names, sum(bit for bit, needing in wanted if not needing.isdisjoint(names))


def _as_offsets(offsets: ArrayLike) -> NDArray[np.int64]:
    bounds = np.asarray(offsets)
    if bounds.ndim != 1 or bounds.dtype.kind not in "iu" or not len(bounds):
        raise UsageError(f"offsets of type {bounds.dtype}, shape {bounds.shape}", allowed="int64, (num_rows + 1,)")
    bounds = np.ascontiguousarray(bounds, dtype=np.int64)
    lengths = np.diff(bounds)
    if bounds[0] < 0 or lengths.min(initial=0) < 0:
        raise UsageError("offsets that are negative or decrease", allowed="offsets of rows, one after the other")
    if lengths.max(initial=0) > LARGEST_ROW:
        raise UsageError(f"a row of {lengths.max():,} tokens", allowed=f"at most {LARGEST_ROW:,}")
    return bounds


def _pieces(
    ids: NDArray[np.integer], offsets: NDArray[np.int64], mask: NDArray[np.bool_] | None
) -> Iterator[tuple[slice, NDArray[np.int64], NDArray[np.int64]]]:
    """(rows, their ids that count as native int64, their offsets in these), piece by piece."""
    num_rows = len(offsets) - 1
    start = 0
    while start < num_rows:
        stop = int(np.searchsorted(offsets, offsets[start] + PIECE_TOKENS, side="right")) - 1
        stop = min(max(stop, start + 1), start + PIECE_ROWS, num_rows)
        first, last = int(offsets[start]), int(offsets[stop])
        piece, ends = ids[first:last], offsets[start : stop + 1] - first
        if mask is not None:
            counted = mask[first:last]
            kept_before = np.zeros(len(counted) + 1, dtype=np.int64)
            np.cumsum(counted, out=kept_before[1:])
            piece, ends = piece[counted], kept_before[ends]
        yield slice(start, stop), _as_native(piece), ends
        start = stop


def _as_native(piece: NDArray[np.integer]) -> NDArray[np.int64]:
    """Ids as the kernels want them: as they are where they are so already, else in the thread's buffer."""
    if piece.dtype == np.int64 and piece.flags.carray:
        return piece.view(np.int64)
    native = ids_buffer(len(piece))
    np.copyto(native, piece, casting="unsafe")
    return native


def _fertility(lengths: NDArray[np.int64], text_bytes: ArrayLike) -> NDArray[np.float64]:
    num_bytes = np.asarray(text_bytes)
    if num_bytes.shape != lengths.shape or num_bytes.dtype.kind not in "iu" or num_bytes.min(initial=0) < 0:
        raise UsageError(
            f"text_bytes of type {num_bytes.dtype}, shape {num_bytes.shape}",
            allowed=f"a size in bytes for each of {len(lengths):,} rows",
        )
    per_byte: NDArray[np.float64] = lengths / np.maximum(num_bytes, 1)
    return np.where(num_bytes == 0, 0.0, per_byte)
