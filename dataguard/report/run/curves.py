"""How is a curve of a million steps drawn without losing a spike? In columns of a few steps, each with least and most.

Numbers are rounded to `DIGITS` significant digits: a page is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from dataguard.report.run.facts import Curve
from dataguard.report.run.logged import FIRST, Logged, Series

__all__ = ["MOST_COLUMNS", "MOST_CURVES", "columns_of", "curves_of", "ranks_first", "rounded"]

MOST_COLUMNS = 2_000
_MOST_OWN_COLUMNS = 1_000
MOST_CURVES = 24
"""Names that are drawn."""
DIGITS = 6


def curves_of(logged: Logged, *, first_label: int, limits: list[str]) -> tuple[Curve, ...]:
    """Curves over all ranks, loss and gradient norm first, then those of single ranks; steps in the trainer's labels.

    Parameters
    ----------
    limits
        What is left out is added.
    """
    names = [name for name in FIRST if name in logged.over] + [name for name in logged.over if name not in FIRST]
    if logged.num_names > len(names[:MOST_CURVES]):
        limits.append(
            f"{logged.num_names:,} names were logged; {MOST_CURVES} of them are drawn: dataguard telemetry shows others"
        )
    curves = [_curve(name, None, logged.over[name], MOST_COLUMNS, first_label) for name in names[:MOST_CURVES]]
    curves += [
        _curve(name, rank, series, _MOST_OWN_COLUMNS, first_label)
        for (name, rank), series in sorted(logged.own.items(), key=lambda item: item[0])
    ]
    return tuple(curves)


def rounded(values: Iterable[float]) -> tuple[float | None, ...]:
    """Values with a few significant digits; None for what is not finite.

    >>> rounded([2.123456789, float("nan"), 0.00012345678])
    (2.12346, None, 0.000123457)
    """
    return tuple(float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None for value in values)


def columns_of(
    steps: NDArray[np.int64], values: NDArray[np.float64], most: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """First step, least and most of each column (NaN where nothing is finite), and how many of it are not finite.

    >>> steps, low, high, odd = columns_of(np.arange(4), np.array([3.0, 1.0, np.nan, 2.0]), 2)
    >>> steps.tolist(), low.tolist(), high.tolist(), odd.tolist()
    ([0, 2], [1.0, 2.0], [3.0, 2.0], [0, 1])
    """
    if not len(steps):
        nothing = np.zeros(0)
        return steps, nothing, nothing, steps
    width = -(-int(steps[-1] - steps[0] + 1) // most)
    column = (steps - steps[0]) // width
    begins = np.flatnonzero(np.append([True], column[1:] != column[:-1]))
    finite = np.isfinite(values)
    low = np.minimum.reduceat(np.where(finite, values, np.inf), begins)
    high = np.maximum.reduceat(np.where(finite, values, -np.inf), begins)
    odd = np.add.reduceat((~finite).astype(np.int64), begins)
    gone = np.isinf(low) & np.isinf(high)
    return steps[begins], np.where(gone, np.nan, low), np.where(gone, np.nan, high), odd


def _curve(name: str, rank: int | None, series: Series, most: int, first_label: int) -> Curve:
    steps, low, high, odd = columns_of(*series.known, most)
    labels = (steps + first_label).tolist()
    return Curve(
        name=name,
        rank=rank,
        steps=tuple(labels),
        low=rounded(low.tolist()),
        high=rounded(high.tolist()),
        num_not_finite=tuple((label, count) for label, count in zip(labels, odd.tolist(), strict=True) if count),
    )


def ranks_first(standing_out: Sequence[int], num_ranks: int, most: int) -> list[int]:
    """Ranks that stand out in their order, then others in order, at most so many; ascending.

    >>> ranks_first([7, 3], 10, 4)
    [0, 1, 3, 7]
    """
    first = list(dict.fromkeys(rank for rank in standing_out if 0 <= rank < num_ranks))[:most]
    others = (rank for rank in range(num_ranks) if rank not in first)
    return sorted([*first, *(rank for rank, _ in zip(others, range(most - len(first)), strict=False))])
