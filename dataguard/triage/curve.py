"""What is the training curve of a run, when every rank logs its own?

One row a step: the loss is the mean over the ranks that logged it, the gradient norm the largest, everything else as
the lowest rank logged it. A rank's NaN is the step's NaN. Of two attempts that logged a step the one that counts on the
lineage counts. Ranks are read one after the other, so memory grows with steps and not with ranks.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dataguard.errors import NotInRun
from dataguard.run.logs import TrainingLog
from dataguard.run.logs.log import Points
from dataguard.run.logs.recorded import log_of_run
from dataguard.run.run import Run
from dataguard.run.telemetry_reading import telemetry_ranks

__all__ = ["OVER_RANKS", "curve_of_run", "ranks_that_logged"]

OVER_RANKS = ("loss", "grad_norm")
"""Names that are taken over all ranks."""


def ranks_that_logged(run: Run, attempt: int | None = None) -> tuple[int, ...]:
    """Ranks that logged anything on a lineage (default: the newest leaf's), in order."""
    chain = run.attempts().lineage(attempt)
    return tuple(sorted({rank for each in chain for rank in telemetry_ranks(run.layout, each.number)}))


def curve_of_run(run: Run, attempt: int | None = None) -> TrainingLog:
    """The curve of a lineage (default: the newest leaf's), steps in the trainer's labels, one row each, ascending.

    Raises
    ------
    NotInRun
        There is no such attempt, or no rank logged anything.
    RunDamaged
        Telemetry cannot be trusted.
    """
    ranks = ranks_that_logged(run, attempt)
    if not ranks:
        raise NotInRun(f"no rank of {run.path} logged anything", todo="log with Monitor, or telemetry import RUN FILE")
    first = log_of_run(run, attempt=attempt, rank=ranks[0])
    others = []
    for rank in ranks[1:]:
        try:
            others.append(log_of_run(run, attempt=attempt, rank=rank, names=OVER_RANKS))
        except NotInRun:
            continue  # it logged other names alone
    return _over(first, others)


def _over(first: TrainingLog, others: list[TrainingLog]) -> TrainingLog:
    """One log of several of one row a step each."""
    if not others:
        return first
    logs = [first, *others]
    steps = np.unique(np.concatenate([log.steps for log in logs]))
    points = {name: _moved(each, first.steps, steps) for name, each in first.points.items() if name not in OVER_RANKS}
    for name in OVER_RANKS:
        found = [log for log in logs if name in log.points]
        if found:
            points[name] = _joined([log.series(name) for log in found], steps, mean=name == "loss")
    times = np.full(len(steps), np.nan)
    for log in reversed(logs):
        known = ~np.isnan(log.times)
        times[np.searchsorted(steps, log.steps[known])] = log.times[known]
    ordered = {name: points[name] for name in (*OVER_RANKS, *points) if name in points}
    problems = tuple(problem for log in logs for problem in log.problems)
    return replace(first, steps=steps, points=ordered, times=times, problems=problems)


def _moved(points: Points, old: NDArray[np.int64], new: NDArray[np.int64]) -> Points:
    return Points(rows=np.searchsorted(new, old[points.rows]).astype(np.int64), values=points.values)


def _joined(
    series: list[tuple[NDArray[np.int64], NDArray[np.float64]]], steps: NDArray[np.int64], *, mean: bool
) -> Points:
    """The mean, or the largest, of what ranks logged of each step; NaN where one of them is NaN."""
    num_logged = np.zeros(len(steps), np.int64)
    total = np.zeros(len(steps)) if mean else np.full(len(steps), -np.inf)
    with np.errstate(invalid="ignore"):  # the mean of infinity and minus infinity is NaN, as it should be
        for own, values in series:
            rows = np.searchsorted(steps, own)
            num_logged[rows] += 1
            total[rows] = total[rows] + values if mean else np.maximum(total[rows], values)
    rows = np.flatnonzero(num_logged).astype(np.int64)
    return Points(rows=rows, values=total[rows] / num_logged[rows] if mean else total[rows])
