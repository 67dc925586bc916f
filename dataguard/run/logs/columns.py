"""Which column of a table counts the steps?

Exports of Weights & Biases have up to three: ``_step`` counts calls of its logger, ``trainer/global_step`` and
``global_step`` are the trainer's own. The trainer's own count wins, then the logger's.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["STEP_COLUMNS", "TIME_COLUMNS", "step_column"]

STEP_COLUMNS = (
    "step",
    "steps",
    "global_step",
    "trainer/global_step",
    "train/global_step",
    "train/step",
    "iteration",
    "iterations",
    "iter",
    "_step",
)
"""Names of the column that counts steps, however written in upper or lower case, most telling first."""

TIME_COLUMNS = ("_timestamp", "wall time", "wall_time", "timestamp")
"""Names of the column that holds the unix time of a row in seconds."""


def step_column(columns: Iterable[str]) -> str | None:
    """The column that counts steps; None where no column is called like one.

    >>> step_column(["_step", "train/global_step", "loss"]), step_column(["Step", "loss"]), step_column(["a", "b"])
    ('train/global_step', 'Step', None)
    """
    return named_like(columns, STEP_COLUMNS)


def named_like(columns: Iterable[str], names: Iterable[str]) -> str | None:
    """The first of `names` that is a column, whatever its case."""
    there: dict[str, str] = {}
    for column in columns:
        there.setdefault(column.strip().lower(), column)
    return next((there[name] for name in names if name in there), None)
