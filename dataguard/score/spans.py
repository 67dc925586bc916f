"""Which tokens of a row made a signal what it is?

One row at a time, in NumPy alone: this is for showing a sample and for masking the labels of a run, not for scoring.
Runs are found as they are defined, period by period, and not as the kernel finds them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dataguard.errors import UsageError
from dataguard.score.registry import spec_of
from dataguard.score.token_rows import as_ids, as_mask, as_vocab_size

__all__ = ["token_spans"]

_LARGEST_PERIOD = 13
_LEAST_REPEATS = 3
_COVERING_REPEATS = 4
_N = 4


def token_spans(
    ids: ArrayLike,
    signal: str,
    *,
    at_least: float | None = None,
    mask: ArrayLike | None = None,
    vocab_size: int | None = None,
) -> NDArray[np.int64]:
    """Positions of a row that made a signal.

    Parameters
    ----------
    ids
        One row, any integer type.
    signal
        ``token_periodic_repeats``: runs of at least `at_least` repeats (3 where None). ``token_periodic_fraction``:
        runs of 4 and more. ``token_dup_ngram_fraction`` and ``anomaly``: windows of 4 tokens that equal an earlier
        one, not that earlier one. ``out_of_vocabulary``: ids outside the vocabulary. Every other token signal has no
        place.
    at_least
        Least repeats of a run, for ``token_periodic_repeats``.
    mask
        Which positions count; the others are taken out before runs and windows are looked for, and lie in no span.
    vocab_size
        For ``out_of_vocabulary``.

    Returns
    -------
    int64, shape (num_spans, 2)
        Half-open ranges of positions in the row as given, merged, in order.

    Raises
    ------
    UnknownSignal
        There is no signal of this name.
    UsageError
        It is no token signal, lacks the vocabulary's size, or `at_least` is below 3.

    Examples
    --------
    >>> token_spans([5, 0, 0, 0, 0, 0, 7], "token_periodic_repeats").tolist()
    [[1, 6]]
    """
    row = as_ids(ids)
    spec = spec_of(signal)
    if spec.kind != "tokens":
        raise UsageError(f"{signal} is no signal of tokens", todo="ask for its ranges of bytes in the text")
    places = np.arange(len(row)) if mask is None else np.flatnonzero(as_mask(mask, row.shape))
    row = row[places]
    made = np.zeros(len(row), dtype=np.bool_)
    if signal == "token_periodic_repeats":
        _mark_runs(row, made, _repeats_asked(at_least))
    elif signal == "token_periodic_fraction":
        _mark_runs(row, made, _COVERING_REPEATS)
    elif signal in {"token_dup_ngram_fraction", "anomaly"}:
        _mark_later_windows(row, made)
    elif signal == "out_of_vocabulary":
        if vocab_size is None:
            raise UsageError("out_of_vocabulary needs vocab_size", todo="give vocab_size=...")
        made = (row < 0) | (row >= as_vocab_size(vocab_size))
    return _spans(places[made])


def _repeats_asked(at_least: float | None) -> int:
    if at_least is None:
        return _LEAST_REPEATS
    if not at_least >= _LEAST_REPEATS or math.isinf(at_least):
        raise UsageError(f"runs of at least {at_least} repeats", allowed=f"{_LEAST_REPEATS} and more")
    return math.ceil(at_least)


def _mark_runs(row: NDArray[np.integer], made: NDArray[np.bool_], least: int) -> None:
    for period in range(1, min(_LARGEST_PERIOD, len(row) // least) + 1):
        same = np.zeros(len(row) - period + 2, dtype=np.int8)
        same[1:-1] = row[period:] == row[:-period]
        turns = np.diff(same)
        # A stretch of equal places a:b (both counted from `period`) is a run of the tokens a : b + period.
        starts, stops = np.flatnonzero(turns == 1), np.flatnonzero(turns == -1) + period
        for start, stop in zip(starts, stops, strict=True):
            if (stop - start) // period >= least:
                made[start:stop] = True


def _mark_later_windows(row: NDArray[np.integer], made: NDArray[np.bool_]) -> None:
    if len(row) < _N:
        return
    windows = np.lib.stride_tricks.sliding_window_view(row, _N)
    _, first = np.unique(windows, axis=0, return_index=True)
    later = np.ones(len(windows), dtype=np.bool_)
    later[first] = False
    for start in np.flatnonzero(later):
        made[start : start + _N] = True


def _spans(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ranges that hold exactly these places, which are in order."""
    if not len(places):
        return np.zeros((0, 2), dtype=np.int64)
    breaks = np.flatnonzero(np.diff(places) != 1)
    starts = places[np.concatenate([[0], breaks + 1])]
    stops = places[np.concatenate([breaks, [len(places) - 1]])] + 1
    return np.stack([starts, stops], axis=1).astype(np.int64)
