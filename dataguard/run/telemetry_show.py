"""What was logged in a run, as one looks at it: which names, how much of each, and the values of some steps?

Everything is of one lineage: of each attempt the steps it owns there. Of several values of one step, rank and name the
later counts. Values of samples are counted by themselves and not listed. JSON has no NaN, so numbers that are none are
the words ``NaN``, ``Infinity`` and ``-Infinity`` here.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from dataguard.errors import NotInRun
from dataguard.run.run import Run
from dataguard.run.telemetry_reading import telemetry_of_lineage

__all__ = ["NameShown", "Number", "TelemetryShown", "ValueShown", "as_float", "as_number", "show_telemetry"]

Number: TypeAlias = float | Literal["NaN", "Infinity", "-Infinity"]
"""A number as JSON can say it."""


class NameShown(msgspec.Struct, frozen=True, kw_only=True):
    """What there is of one name."""

    name: str
    num_values: int
    """Values that are no sample's, over all ranks."""
    num_sample_values: int
    """Values of samples."""
    num_nan: int
    num_infinite: int
    num_ranks: int
    steps: tuple[int, int]
    """From the first to one past the last step it was logged at, in the trainer's labels."""
    first: Number | None
    """The value at the first step, of the lowest rank; null where all values are of samples."""
    last: Number | None
    """The value at the last step, of the lowest rank."""
    least: float | None
    """The smallest finite value."""
    greatest: float | None
    """The greatest finite value."""


class ValueShown(msgspec.Struct, frozen=True, kw_only=True):
    """One value."""

    step: int
    """In the trainer's labels."""
    rank: int
    attempt: int
    name: str
    value: Number


class TelemetryShown(msgspec.Struct, frozen=True, kw_only=True):
    """What ``telemetry show`` answers."""

    run: str
    attempt: int
    """The leaf whose lineage is shown."""
    num_values: int
    names: tuple[NameShown, ...]
    """In the order of their bytes."""
    values: tuple[ValueShown, ...] | None
    """By step, rank and name, where names or steps were asked for; null otherwise."""
    torn: tuple[str, ...]
    """Torn tails that were dropped; no failure."""
    damage: tuple[str, ...]
    """Files or frames that cannot be trusted: something may be missing."""


def show_telemetry(
    run: Run,
    *,
    attempt: int | None = None,
    names: Collection[str] = (),
    steps: tuple[int, int] | None = None,
    rank: int | None = None,
) -> TelemetryShown:
    """Look at what was logged.

    Parameters
    ----------
    run, attempt
        The lineage of this attempt; by default the newest leaf's.
    names
        Only these; by default all.
    steps
        Only these, half-open, in the trainer's labels.
    rank
        Only this rank.

    Raises
    ------
    NotInRun
        No such attempt, a step below the first, or a name that was never logged.
    """
    torn: list[str] = []
    damage: list[str] = []
    asked = None if steps is None else (run.step(steps[0]), run.step(steps[1] - 1) + 1)
    rows = telemetry_of_lineage(
        run, attempt, ranks=None if rank is None else [rank], steps=asked, torn=torn, damage=damage
    )
    leaf = run.newest_leaf() if attempt is None else attempt
    rows = _last_of_each(rows)
    there = {name.decode("utf-8", "replace"): name for name in np.unique(rows["name"]).tolist()}
    for name in names:
        if name not in there:
            raise NotInRun(
                f"nothing called {name!r} was logged{' there' if steps or rank is not None else ''}",
                found=", ".join(list(there)[:30]) or "no telemetry",
            )
    if names:
        rows = rows[np.isin(rows["name"], [there[name] for name in names])]
    shown = tuple(
        _name_shown(run, name, rows[rows["name"] == raw]) for name, raw in there.items() if raw in rows["name"]
    )
    return TelemetryShown(
        run=str(run.path),
        attempt=leaf,
        num_values=len(rows),
        names=shown,
        values=_values(run, rows) if names or steps is not None else None,
        torn=tuple(torn),
        damage=tuple(damage),
    )


def _last_of_each(rows: NDArray[np.void]) -> NDArray[np.void]:
    """Of several values of one step, rank, name and slot the last, in the order (step, rank, name, slot)."""
    order = np.lexsort((rows["slot"], rows["name"], rows["rank"], rows["step"]))
    ordered = rows[order]
    keys = ordered[["step", "rank", "name", "slot"]]
    is_last = np.r_[keys[1:] != keys[:-1], True][: len(keys)]
    last: NDArray[np.void] = ordered[is_last]
    return last


def _name_shown(run: Run, name: str, rows: NDArray[np.void]) -> NameShown:
    whole = rows[rows["slot"] < 0]
    values = whole["value"]
    finite = values[np.isfinite(values)]
    # By step, then rank: the first row is the lowest rank's at the first step; of the last step it is searched for.
    last = int(np.argmax(whole["step"] == whole["step"][-1])) if len(whole) else 0
    return NameShown(
        name=name,
        num_values=len(whole),
        num_sample_values=len(rows) - len(whole),
        num_nan=int(np.isnan(values).sum()),
        num_infinite=int(np.isinf(values).sum()),
        num_ranks=len(np.unique(rows["rank"])),
        steps=(run.label(int(rows["step"][0])), run.label(int(rows["step"][-1])) + 1),
        first=as_number(float(values[0])) if len(whole) else None,
        last=as_number(float(values[last])) if len(whole) else None,
        least=float(finite.min()) if len(finite) else None,
        greatest=float(finite.max()) if len(finite) else None,
    )


def _values(run: Run, rows: NDArray[np.void]) -> tuple[ValueShown, ...]:
    whole = rows[rows["slot"] < 0]
    return tuple(
        ValueShown(
            step=run.label(step),
            rank=rank,
            attempt=attempt,
            name=name.decode("utf-8", "replace"),
            value=as_number(value),
        )
        for step, rank, attempt, name, value in whole[["step", "rank", "attempt", "name", "value"]].tolist()
    )


def as_number(value: float) -> Number:
    """As JSON can say it.

    >>> as_number(float("-inf")), as_number(2.5)
    ('-Infinity', 2.5)
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def as_float(number: Number) -> float:
    """The number itself.

    >>> as_float("-Infinity"), as_float(2.5)
    (-inf, 2.5)
    """
    return float(number)
