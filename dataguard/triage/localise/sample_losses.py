"""How far does the loss of each sample stand out of what samples of its source had in this run?

The loss falls while a model learns, so what is judged is the excess over a trend: the median, over neighbouring steps
of the background (`trend`), of each step's median over the samples of the source. The steps of the event take no part
in it. Scale and tail are those of the excesses in the background (`chances.Tail`), so no number here is chosen by hand.

"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataguard.triage.localise.chances import Tail, location_scale
from dataguard.triage.localise.history import Delivered
from dataguard.triage.localise.trend import levels_at

__all__ = ["LEAST_BACKGROUND", "SampleLosses", "judge_losses", "losses_by_sample"]

LEAST_BACKGROUND = 32
"""Values that a background must have: from fewer, a median deviation is known to no more than a quarter of itself."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SampleLosses:
    """The losses of the samples searched, arrays of shape (n,), beside what is usual."""

    loss: NDArray[np.float64]
    """NaN where none was logged; infinity where it was not finite."""
    excess: NDArray[np.float64]
    """Over the trend of its source, in nats; NaN where there is no background."""
    z: NDArray[np.float64]
    chance: NDArray[np.float64]
    """Of as much in a sample of the background; NaN where there is none."""
    own_chance: NDArray[np.float64]
    """The same of the excess over the median of its own step: small for a few samples of many, not where the whole step
    is raised."""
    excess_before: NDArray[np.float64]
    """Excesses of the background, shape (m,), NaN where no loss was logged, or the step did not count."""


def losses_by_sample(samples: Delivered, rows: NDArray[np.void]) -> NDArray[np.float64]:
    """The logged loss of each sample, by step, rank and slot: NaN where there is none, infinity for no number."""
    found = np.full(len(samples), np.nan)
    if not len(rows) or not len(samples):
        return found
    base = int(max(rows["slot"].max(), samples.slot.max())) + 1
    # A slot belongs to one rank, so that step and slot name a sample; what another rank logs there is not of it.
    keys = rows["step"].astype(np.int64) * base + rows["slot"]
    order = np.argsort(keys, kind="stable")
    keys, values, ranks = keys[order], rows["value"][order], rows["rank"][order]
    mine = samples.step * base + samples.slot
    places = np.searchsorted(keys, mine, side="right") - 1
    hit = (places >= 0) & (keys[places] == mine) & (ranks[places] == samples.rank)
    found[hit] = np.where(np.isnan(values[places[hit]]), np.inf, values[places[hit]])
    return found


def judge_losses(
    samples: Delivered,
    losses: NDArray[np.float64],
    before: Delivered,
    losses_before: NDArray[np.float64],
    quiet: NDArray[np.bool_],
    *,
    falls: bool = False,
) -> SampleLosses:
    """Hold the losses of the samples searched against those before.

    Parameters
    ----------
    quiet
        Samples of the background that count: of steps at which nothing happened.
    falls
        Look for losses that are too small: a repeated batch is easy.
    """
    sign = -1.0 if falls else 1.0
    n = len(samples)
    excess, z, chance, own = (np.full(n, np.nan) for _ in range(4))
    excess_before = np.full(len(before), np.nan)
    usable = np.isfinite(losses_before) & quiet
    for source in np.unique(samples.source[~np.isnan(losses)]).tolist():
        mine = np.flatnonzero((samples.source == source) & ~np.isnan(losses))
        theirs = np.flatnonzero((before.source == source) & usable)
        if len(theirs) < LEAST_BACKGROUND:
            continue
        steps, medians = _step_medians(before.step[theirs], losses_before[theirs])
        excess_before[theirs] = losses_before[theirs] - levels_at(steps, medians, before.step[theirs])
        excess[mine] = losses[mine] - levels_at(steps, medians, samples.step[mine])
        background = excess_before[theirs]
        centre, scale = location_scale(background)
        if scale > 0:
            z[mine] = (excess[mine] - centre) / scale
        chance[mine] = Tail(sign * background).chances(sign * excess[mine])
    judged, known = np.flatnonzero(~np.isnan(excess)), np.flatnonzero(~np.isnan(excess_before))
    if len(judged):
        within_before = sign * (excess_before[known] - _medians_by(before.step[known], excess_before[known]))
        with np.errstate(invalid="ignore"):
            within = sign * (excess[judged] - _medians_by(samples.step[judged], excess[judged]))
        within[np.isnan(within)] = 0.0  # infinite, like the most of its step
        own[judged] = Tail(within_before).chances(within)
    return SampleLosses(loss=losses, excess=excess, z=z, chance=chance, own_chance=own, excess_before=excess_before)


def _step_medians(
    steps: NDArray[np.int64], values: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    known, starts = np.unique(np.sort(steps, kind="stable"), return_index=True)
    ordered = values[np.argsort(steps, kind="stable")]
    return known, np.array([np.median(part) for part in np.split(ordered, starts[1:])])


def _medians_by(steps: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    known, medians = _step_medians(steps, values)
    answer: NDArray[np.float64] = medians[np.searchsorted(known, steps)]
    return answer
