"""Which ranks stand out at an event, and do they stand out again and again?

1. What is judged is how far a rank lies from the other ranks of the same step: from 8 ranks up from the median of all,
   below from the median of the others, so that a loss that all of them share moves nothing.
2. The scale is that of such distances before the event: of all ranks together from 8 up (and, where all ranks spread
   out at the event itself, the larger spread of that step), below 8 of the rank's own past. There a rank must stand out
   of its own past by itself as well, on the same side: of two ranks each is as far from the other.
3. A rank stands out where the chance of so much, times the number of ranks, steps and sides looked at, is below
   `FALSE_ALARMS`. (Somewhere in 512 ranks one z above 4 comes up on 1.6 % of steps.)
4. It is *persistent* where it stood out, one by one, at more steps before the event than the other ranks do: those
   steps held other data. Of two ranks one that is always off cannot be told from the other.
5. Where all ranks logged the very same loss, it was reduced before it was logged and says nothing of any rank.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dataguard.triage.localise.chances import LEAST_TAIL, Tail, binomial_tail, hypergeometric_tail, location_scale
from dataguard.triage.localise.trend import levels_at

__all__ = ["FALSE_ALARMS", "MANY_RANKS", "JudgedRanks", "RankTable", "is_reduced", "judge_ranks"]

FALSE_ALARMS = 0.01
"""Chance that any rank is called outlying where all are alike; and the same for persistence."""
MANY_RANKS = 8
"""From so many on ranks are held against each other: of fewer, a median deviation over them says too little."""
LEAST_PAST = LEAST_TAIL
"""Steps before the event that distances must be known of: fewer say nothing of a tail."""
_STEP_BOUND = 3.2905
_STEP_OUT = 0.001
"""Chance that a normal number lies beyond `_STEP_BOUND`, either side: so steps are counted for persistence."""


@dataclass(frozen=True, slots=True, eq=False)
class RankTable:
    """One value of each step and rank: NaN where nothing was logged, infinity where it was no number."""

    steps: NDArray[np.int64]
    ranks: NDArray[np.int64]
    values: NDArray[np.float64]
    """Shape (steps, ranks)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JudgedRanks:
    """One quantity of all ranks at an event; arrays of shape (ranks,)."""

    ranks: NDArray[np.int64]
    against: Literal["ranks", "past"]
    step: NDArray[np.int64]
    """Where each stands out most; -1 where nothing of it is known."""
    value: NDArray[np.float64]
    z: NDArray[np.float64]
    outlying: NDArray[np.bool_]
    persistent: NDArray[np.bool_]
    num_out: NDArray[np.int64]
    """Steps before the event at which it stood out."""
    num_looked: NDArray[np.int64]
    """Steps before the event that were looked at."""


def is_reduced(table: RankTable) -> bool:
    """Whether several ranks logged one and the same number at every step: it was reduced before it was logged."""
    several = np.count_nonzero(~np.isnan(table.values), axis=1) > 1
    if not several.any():
        return False
    rows = table.values[several]
    with np.errstate(invalid="ignore"):
        return bool((np.nanmax(rows, axis=1) == np.nanmin(rows, axis=1)).all())


def judge_ranks(
    table: RankTable, tested: Sequence[int], first: int, *, out: Collection[int] = (), logarithm: bool = False
) -> JudgedRanks | None:
    """Hold the ranks of the steps tested against each other, or against their past.

    Parameters
    ----------
    tested
        Steps of the event, from 0.
    first
        Steps before this one are the background.
    out
        Steps of the background at which the loss stood out: they are no measure of what is usual, and count where it is
        asked whether a rank stood out before.
    logarithm
        Judge the logarithm, as of a norm, which varies by factors.

    Returns
    -------
    JudgedRanks or None
        None where there is nothing to be held against: one rank, or too little of the past.
    """
    num_ranks = len(table.ranks)
    before = table.steps < first
    past = np.flatnonzero(before & ~np.isin(table.steps, list(out)))
    now = np.flatnonzero(np.isin(table.steps, list(tested)))
    if num_ranks < 2 or not len(now):
        return None
    values = np.log(np.maximum(table.values, 1e-300)) if logarithm else table.values
    many = num_ranks >= MANY_RANKS
    distances = _from_all(values) if many else _from_others(values)
    background = distances[past]
    if np.count_nonzero(np.isfinite(background).any(axis=1)) < LEAST_PAST and not many:
        return None
    if many and not np.isfinite(background).any():
        background = distances[now]  # nothing before: the ranks of this very step are all there is
    z, chance = _judged(values, distances, background, past, now, many=many)
    return _answer(table, now, z, chance, many=many, past=_past_out(values[before], many=many))


def _from_all(values: NDArray[np.float64]) -> NDArray[np.float64]:
    finite = np.where(np.isfinite(values), values, np.nan)
    centre = np.full(len(values), np.nan)
    some = ~np.isnan(finite).all(axis=1)
    centre[some] = np.nanmedian(finite[some], axis=1)
    away: NDArray[np.float64] = values - centre[:, None]
    return away


def _from_others(values: NDArray[np.float64]) -> NDArray[np.float64]:
    finite = np.where(np.isfinite(values), values, np.nan)
    away = np.full(values.shape, np.nan)
    for rank in range(values.shape[1]):
        others = np.delete(finite, rank, axis=1)
        some = ~np.isnan(others).all(axis=1)
        away[some, rank] = values[some, rank] - np.nanmedian(others[some], axis=1)
    return away


def _from_trend(values: NDArray[np.float64], past: NDArray[np.intp]) -> NDArray[np.float64]:
    """Less what all ranks had around that step before the event; a step of the event has only what lies before."""
    finite = np.where(np.isfinite(values), values, np.nan)
    shared = np.full(len(values), np.nan)
    some = ~np.isnan(finite).all(axis=1)
    shared[some] = np.nanmedian(finite[some], axis=1)
    known = past[~np.isnan(shared[past])]
    if not len(known):
        return np.full(values.shape, np.nan)
    away: NDArray[np.float64] = values - levels_at(known, shared[known], np.arange(len(values)))[:, None]
    return away


def _judged(
    values: NDArray[np.float64],
    distances: NDArray[np.float64],
    background: NDArray[np.float64],
    past: NDArray[np.intp],
    now: NDArray[np.intp],
    *,
    many: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How far each rank lies at each step tested, as z, and the chance of that: shape (steps, ranks), NaN: unknown."""
    here, raw = distances[now], values[now]
    from_trend = values if many else _from_trend(values, past)
    z, chance = np.full(here.shape, np.nan), np.full(here.shape, np.nan)
    if many:
        pooled = background[np.isfinite(background)]
        usual = location_scale(pooled)[1]
        for i, row in enumerate(here):
            known = np.isfinite(row)
            own = location_scale(row[known])[1] if np.count_nonzero(known) >= MANY_RANKS else 0.0
            spread = max(1.0, own / usual) if usual > 0 else 1.0
            z[i], chance[i] = _both_sides(row / spread, pooled)
    else:
        for rank in range(values.shape[1]):
            theirs = background[np.isfinite(background[:, rank]), rank]
            own = from_trend[past, rank]
            own = own[np.isfinite(own)]
            if min(len(theirs), len(own)) >= LEAST_PAST:
                by_others, by_itself = (
                    _both_sides(each, known) for each, known in ((here[:, rank], theirs), (from_trend[now, rank], own))
                )
                agree = np.sign(by_others[0]) == np.sign(by_itself[0])
                nearer = np.where(np.abs(by_others[0]) <= np.abs(by_itself[0]), by_others[0], by_itself[0])
                z[:, rank] = np.where(agree, nearer, 0.0)
                chance[:, rank] = np.where(agree, np.maximum(by_others[1], by_itself[1]), 1.0)
    # Where every rank is infinite it says nothing of any; where the others are numbers it says everything.
    everywhere = np.isinf(raw) & np.isnan(here)
    z[everywhere], chance[everywhere] = 0.0, 1.0
    gone = np.isinf(here)
    z[gone], chance[gone] = np.inf, 0.0
    return z, chance


def _both_sides(
    row: NDArray[np.float64], background: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How far each value lies, as z, and the chance of as much to either side; NaN stays NaN."""
    centre, scale = location_scale(background)
    away = row - centre
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(away == 0, 0.0, away / scale)
    up, down = Tail(background - centre), Tail(centre - background)
    filled = np.where(np.isnan(away), 0.0, away)
    chance = np.minimum(1.0, 2 * np.where(filled >= 0, up.chances(filled), down.chances(-filled)))
    return z, np.where(np.isnan(away), np.nan, chance)


def _past_out(values: NDArray[np.float64], *, many: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Steps before the event at which each rank stood out, and those at which it was looked at.

    From 8 ranks up the distances of all ranks say what is usual. Below, those of the others do, so that a rank that is
    always off is seen; and it must stand out of the trend that all ranks share as well.
    """
    distances = _from_all(values) if many else _from_others(values)
    finite = np.isfinite(distances)
    looked = np.count_nonzero(~np.isnan(distances), axis=0)
    if many:
        return _beyond(distances, distances[finite]).sum(axis=0), looked
    out = np.zeros(values.shape[1], np.int64)
    from_trend = _from_trend(values, np.arange(len(values)))
    for rank in range(values.shape[1]):
        rest = np.delete(values, rank, axis=1)
        others = _from_others(rest) if rest.shape[1] > 1 else distances[:, [rank]]
        rest_from_trend = np.delete(from_trend, rank, axis=1)
        own, own_from_trend = distances[:, rank], from_trend[:, rank]
        both = _beyond(own, others[np.isfinite(others)]) & _beyond(
            own_from_trend, rest_from_trend[np.isfinite(rest_from_trend)]
        )
        out[rank] = int(np.count_nonzero(both & (np.sign(own) == np.sign(own_from_trend))))
    return out, looked


def _beyond(values: NDArray[np.float64], usual: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which values lie further from the centre than a normal number does once in a thousand; infinite ones do."""
    centre, scale = location_scale(usual)
    if scale == 0 or not len(usual):
        return np.zeros(values.shape, np.bool_)
    beyond: NDArray[np.bool_] = np.abs(np.where(np.isnan(values), centre, values) - centre) > _STEP_BOUND * scale
    return beyond


def _answer(
    table: RankTable,
    now: NDArray[np.intp],
    z: NDArray[np.float64],
    chance: NDArray[np.float64],
    *,
    many: bool,
    past: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> JudgedRanks:
    num_ranks = len(table.ranks)
    num_known = max(1, int(np.count_nonzero(~np.isnan(chance))))
    filled = np.where(np.isnan(chance), 2.0, chance)
    # Of equal chances the furthest; those of no number are furthest of all.
    furthest = np.where(np.isnan(z), -1.0, np.abs(np.where(np.isinf(z), 1e300, z)))
    at = np.lexsort((-furthest, filled), axis=0)[0]
    columns = np.arange(num_ranks)
    known = filled[at, columns] <= 1.0
    num_out, num_looked = past
    # Of all steps at which any rank stood out, so many are this one's; and more than a normal number gives.
    all_out, all_looked = int(num_out.sum()), int(num_looked.sum())
    tails = np.array(
        [
            max(hypergeometric_tail(hits, steps, all_out, all_looked), binomial_tail(hits, steps, _STEP_OUT))
            for hits, steps in zip(num_out.tolist(), num_looked.tolist(), strict=True)
        ]
    )
    return JudgedRanks(
        ranks=table.ranks,
        against="ranks" if many else "past",
        step=np.where(known, table.steps[now][at], -1),
        value=np.where(known, table.values[now][at, columns], np.nan),
        z=np.where(known, z[at, columns], np.nan),
        outlying=known & (filled[at, columns] * num_known < FALSE_ALARMS),
        persistent=tails * num_ranks < FALSE_ALARMS,
        num_out=num_out,
        num_looked=num_looked,
    )
