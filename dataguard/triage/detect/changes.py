"""At which steps did something change by intention, as far as a log itself shows it?

Of the learning rate, which trainers log:

1. A *step* of it: the logarithm changes from one point to the next by more than 5 %, and by more than ten times what it
   changes at the points around (a schedule is smooth: a cosine, a decay, and a warm-up do not do that), and, of a log
   that prints few digits, by more than three units of its last one.
2. The *end of the warm-up*: the first point at which the rate is the largest of the log, where it climbed there over at
   least three points.

A step down lets the loss fall at once: its level moves, and that is no event. A step up and the end of a warm-up excuse
nothing: they are reported, and what happens there stays an event.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dataguard.run.logs import TrainingLog

__all__ = ["ChangePoint", "changes_in"]

_LEAST_RATIO = 1.05
_AROUND = 8
_TIMES_AROUND = 10.0
_LEAST_CLIMB = 3
_MOST_STEPS = 1000
_ALIKE = 10
_DIGITS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """Something that is otherwise from a step on."""

    step: int
    """The first step that is trained otherwise, in the labels of the log."""
    what: str = "told"
    is_seen: bool = False
    """Whether it was seen in the log, not told."""
    moves_level: bool = True
    """Whether another level of the loss right after it is its own doing, and no event."""


def changes_in(log: TrainingLog) -> tuple[ChangePoint, ...]:
    """What the learning rate of a log says, in order of its steps; nothing where it was not logged.

    >>> from dataguard.run.logs.log import LogRows
    >>> rows = LogRows()
    >>> for step in range(60):
    ...     rows.add(step, {"loss": 3.0, "lr": min(step + 1, 10) * (0.1 if step < 40 else 0.05)})
    >>> [(change.step, change.what) for change in changes_in(rows.finish("a", "csv"))]
    [(9, 'end of warm-up'), (40, 'learning rate 1 -> 0.5')]
    """
    if "lr" not in log.names:
        return ()
    steps, rates = log.series("lr")
    good = np.isfinite(rates) & (rates > 0)
    steps, rates = steps[good], rates[good]
    if len(rates) < _AROUND:
        return ()
    found = []
    peak = int(np.argmax(rates >= rates.max() * (1 - 1e-6)))
    if peak >= _LEAST_CLIMB and (np.diff(rates[: peak + 1]) >= 0).all() and rates[0] < rates[peak]:
        text = "end of warm-up"
        found.append(ChangePoint(step=int(steps[peak]), what=text, is_seen=True, moves_level=False))
    moves = np.diff(np.log(rates))
    sizes = np.abs(np.diff(rates))
    # A log that prints few digits goes down in steps of a digit; those are all alike.
    digit = sizes[sizes > 0].min() if (sizes > 0).any() else 0.0
    is_coarse = int((np.abs(sizes - digit) <= 0.01 * digit).sum()) >= _ALIKE
    for i in np.flatnonzero(np.abs(moves) > np.log(_LEAST_RATIO)).tolist():
        if is_coarse and sizes[i] <= _DIGITS * digit:
            continue
        around = np.r_[moves[max(0, i - _AROUND) : i], moves[i + 1 : i + 1 + _AROUND]]
        if len(around) and abs(moves[i]) > _TIMES_AROUND * np.median(np.abs(around)) and i >= _LEAST_CLIMB:
            found.append(
                ChangePoint(
                    step=int(steps[i + 1]),
                    what=f"learning rate {rates[i]:.3g} -> {rates[i + 1]:.3g}",
                    is_seen=True,
                    moves_level=bool(moves[i] < 0),
                )
            )
    return tuple(sorted(found[:_MOST_STEPS], key=lambda change: change.step))
