"""At which earlier steps did the loss stand out?

By the events that are known, and by the loss of each step itself: the mean over what ranks (else samples) logged, less
the median of the steps around it, beyond what a normal number is once in a thousand. The mark need not be right about
each step: what is counted with it is exact whatever it marks.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from dataguard.triage.localise.chances import location_scale
from dataguard.triage.localise.ranks import RankTable
from dataguard.triage.localise.trend import AROUND_STEPS, levels

__all__ = ["loss_by_step", "steps_that_stood_out"]

_BOUND = 3.0902
_LEAST_STEPS = 32


def loss_by_step(
    table: RankTable, sample_steps: NDArray[np.int64], sample_losses: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Steps, ascending, and the loss of each: infinite where a number was gone."""
    if table.values.size:
        known = ~np.isnan(table.values)
        some = known.any(axis=1)
        sums = np.where(known, table.values, 0.0).sum(axis=1)
        return table.steps[some], sums[some] / known[some].sum(axis=1)
    known = ~np.isnan(sample_losses)
    steps, places, counts = np.unique(sample_steps[known], return_inverse=True, return_counts=True)
    sums = np.zeros(len(steps))
    np.add.at(sums, places, sample_losses[known])
    return steps, sums / np.maximum(counts, 1)


def steps_that_stood_out(
    steps: NDArray[np.int64], losses: NDArray[np.float64], in_events: Collection[int], recorded: NDArray[np.int64]
) -> dict[int, bool]:
    """Of each step that is recorded and whose loss is known (or that is in an event), whether it stood out.

    Parameters
    ----------
    steps, losses
        Of the background, as `loss_by_step` gives them.
    in_events
        Steps of events that are known.
    recorded
        Steps of which samples are known.
    """
    out: dict[int, bool] = {}
    if len(steps) >= _LEAST_STEPS:
        known = np.isfinite(losses)
        excess = np.full(len(steps), np.nan)
        # Stretches far from each other are no neighbours.
        gaps = np.flatnonzero(np.diff(steps[known]) > AROUND_STEPS) + 1
        parts = np.split(losses[known], gaps)
        excess[known] = losses[known] - np.concatenate([levels(part) for part in parts])
        centre, scale = location_scale(excess[~np.isnan(excess)])
        gone = ~np.isfinite(losses)
        with np.errstate(invalid="ignore"):
            marks = gone | ((excess - centre > _BOUND * scale) if scale > 0 else np.zeros(len(steps), np.bool_))
        out = dict(zip(steps.tolist(), marks.tolist(), strict=True))
    # Of steps without a loss nothing is known, unless somebody found an event there.
    if not out and in_events:
        out = dict.fromkeys(recorded.tolist(), False)
    out |= dict.fromkeys((step for step in in_events if step in out), True)
    there = set(recorded.tolist())
    return {step: mark for step, mark in out.items() if step in there}
