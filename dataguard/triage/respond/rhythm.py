"""How far apart are the steps at which something was logged, or at which checkpoints were saved?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median, median_low

from dataguard.run.events import CheckpointSaved
from dataguard.run.journal import Entry
from dataguard.run.notes import noted
from dataguard.run.run import Run
from dataguard.run.telemetry_reading import telemetry_of_lineage

__all__ = ["checkpoint_distance", "distances", "logged_distance"]


def distances(steps: Iterable[int]) -> list[int]:
    """From each step to the next, each step once.

    >>> distances([4, 0, 2, 2])
    [2, 2]
    """
    return [b - a for a, b in pairwise(sorted(set(steps)))]


def checkpoint_distance(entries: Sequence[Entry]) -> int | None:
    """The usual distance of the checkpoints that one attempt noted; None for fewer than two."""
    steps: dict[int, set[int]] = {}
    for _, event in noted(entries, CheckpointSaved):
        steps.setdefault(event.attempt, set()).add(event.next_step)
    gaps = [gap for saved in steps.values() for gap in distances(saved)]
    return median_low(gaps) if gaps else None


def logged_distance(run: Run, attempt: int, name: str) -> float | None:
    """The usual distance of the steps at which rank 0 logged a value on a lineage; None for fewer than two.

    What of its telemetry cannot be read is passed over: this says how things usually are.
    """
    rows = telemetry_of_lineage(run, attempt, ranks=[0], names=[name], torn=[], damage=[])
    gaps = distances(int(step) for step in rows["step"][rows["slot"] < 0])
    return median(gaps) if gaps else None
