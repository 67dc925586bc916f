"""What is the training curve of a run, when every rank logs its own?

One row a step: the loss is the mean over the ranks that logged it, the gradient norm the largest, everything else as
the lowest rank logged it. A rank's NaN is the step's NaN. Of two attempts that logged a step the one that counts on the
lineage counts. Ranks are read one after the other, so memory grows with steps and not with ranks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dataguard.errors import NotInRun
from dataguard.run.logs import TrainingLog
from dataguard.run.logs.log import LogProblem, Points
from dataguard.run.logs.recorded import log_of_run
from dataguard.run.run import Run
from dataguard.run.telemetry_reading import telemetry_of_lineage, telemetry_ranks

__all__ = ["OVER_RANKS", "begun_later", "curve_of_run", "log_of_lowest", "ranks_that_logged"]

OVER_RANKS = ("loss", "grad_norm")
"""Names that are taken over all ranks."""

_Series: TypeAlias = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]
"""Labels of steps, values, and unix seconds (NaN where not known)."""


def ranks_that_logged(run: Run, attempt: int | None = None) -> tuple[int, ...]:
    """Ranks that logged anything on a lineage (default: the newest leaf's), in order."""
    chain = run.attempts().lineage(attempt)
    return tuple(sorted({rank for each in chain for rank in telemetry_ranks(run.layout, each.number)}))


def begun_later(run: Run, attempt: int | None = None) -> frozenset[int]:
    """First steps of the attempts of a lineage but its first, in the trainer's labels: a pause lies before each."""
    return frozenset(run.label(each.fork_step) for each in run.attempts().lineage(attempt)[1:])


def curve_of_run(run: Run, attempt: int | None = None, *, damage: list[str] | None = None) -> TrainingLog:
    """The curve of a lineage (default: the newest leaf's), steps in the trainer's labels, one row each, ascending.

    What of the telemetry cannot be trusted is added to `damage` and left out; without a list for it, it raises.

    Raises
    ------
    NotInRun
        There is no such attempt, or no rank logged anything.
    RunDamaged
        Telemetry cannot be trusted, and no list for damage was given.
    """
    ranks = ranks_that_logged(run, attempt)
    if not ranks:
        raise NotInRun(f"no rank of {run.path} logged anything", todo="log with Monitor, or telemetry import RUN FILE")
    lowest, first = log_of_lowest(run, attempt, ranks, damage=damage)
    torn: list[str] = []
    others = [_over_of(run, attempt, rank, torn, damage) for rank in ranks if rank > lowest]
    over = _over(first, [each for each in others if each])
    if torn:
        over = replace(
            over, problems=(*over.problems, LogProblem(kind="torn", count=len(torn), first_line=None, text=torn[0]))
        )
    return over


def log_of_lowest(
    run: Run, attempt: int | None, ranks: Iterable[int], *, damage: list[str] | None = None
) -> tuple[int, TrainingLog]:
    """The lowest rank that logged anything that is live on a lineage, with all its names.

    Raises
    ------
    NotInRun
        None of them did.
    RunDamaged
        Telemetry cannot be trusted, and no list for damage was given.
    """
    for rank in ranks:
        try:
            return rank, log_of_run(run, attempt=attempt, rank=rank, damage=damage)
        except NotInRun:
            continue  # what it logged, a later attempt delivered again
    raise NotInRun(f"no rank of {run.path} logged anything", todo="log with Monitor, or telemetry import RUN FILE")


def _over_of(run: Run, attempt: int | None, rank: int, torn: list[str], damage: list[str] | None) -> dict[str, _Series]:
    """Of one rank what is taken over all, by name: labels, values and times; without rows made one by one."""
    rows = telemetry_of_lineage(run, attempt, ranks=[rank], names=OVER_RANKS, torn=torn, damage=damage)
    found = {}
    for name in OVER_RANKS:
        own = rows[(rows["slot"] < 0) & (rows["name"] == name.encode())]
        if len(own):
            # Rows come in order of step, those of one step as logged: the later counts.
            own = own[np.append(own["step"][1:] != own["step"][:-1], True)]
            times = np.where(own["time"] > 0, own["time"] / 1e9, np.nan)
            found[name] = (own["step"].astype(np.int64) + run.first_label, own["value"].astype(np.float64), times)
    return found


def _over(first: TrainingLog, others: list[dict[str, _Series]]) -> TrainingLog:
    """One log of the lowest rank's, and of what the others logged of the names that are taken over all."""
    if not others:
        return first
    series = [each for other in others for each in other.values()]
    steps = np.unique(np.concatenate([first.steps, *(each[0] for each in series)]))
    points = {name: _moved(each, first.steps, steps) for name, each in first.points.items() if name not in OVER_RANKS}
    for name in OVER_RANKS:
        found = [first.series(name)] if name in first.points else []
        found += [other[name][:2] for other in others if name in other]
        if found:
            points[name] = _joined(found, steps, mean=name == "loss")
    times = np.full(len(steps), np.nan)
    for own, when in [*((each[0], each[2]) for each in reversed(series)), (first.steps, first.times)]:
        known = ~np.isnan(when)
        times[np.searchsorted(steps, own[known])] = when[known]
    ordered = {name: points[name] for name in (*OVER_RANKS, *points) if name in points}
    return replace(first, steps=steps, points=ordered, times=times)


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
