"""What did a trainer log, step by step, and what of it can be relied on?

A `TrainingLog` keeps the rows of a file in its order. A point is one value of one name in one row; a row that has no
point for a name is *missing* there, which is told by a mask and never by NaN: a NaN that was logged is a NaN. A step
that was logged again (after a restart) is a row of its own; `TrainingLog.wide` has one row a step, the later point
counting.

A log of many names has few of them in each row, so points are kept as points; a column of all rows is made when it is
asked for.

`LogRows` is how readers make one: points of one step that arrive one by one (TensorBoard writes each tag by itself) go
into one row, as long as that keeps the points of each name in the order they had in the file.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dataguard.errors import NotInRun

__all__ = ["LogProblem", "LogRows", "Points", "ProblemKind", "TrainingLog"]

ProblemKind: TypeAlias = Literal["duplicate", "left_out", "torn", "unparsed", "value", "without_step"]
"""``duplicate``: a point logged again; ``left_out``: columns that hold no numbers; ``torn``: the end of the file is
missing; ``unparsed``: lines of the log's kind that say nothing readable; ``value``: a value that is no number;
``without_step``: rows that name no step."""

Column = TypeVar("Column", bound=NDArray[Any])

_MOST_STEP = 1 << 62
_MOST_TEXT = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class LogProblem:
    """One kind of thing that was found in a log and could not be taken as it is."""

    kind: ProblemKind
    count: int
    """How often."""
    first_line: int | None
    """Where it was found first: the line counted from 1 (of TensorBoard files the record); None where that says
    nothing."""
    text: str
    """What was found there."""

    def __str__(self) -> str:
        one = self.count == 1
        where = "" if self.first_line is None else f" ({'' if one else 'first: '}line {self.first_line:,})"
        what = _SAYINGS[self.kind][0 if one else 1].format(count=f"{self.count:,}")
        return f"{what}{where}: {self.text}"


_SAYINGS: dict[ProblemKind, tuple[str, str]] = {
    "duplicate": (
        "a point was logged again, and the later counts",
        "{count} points were logged again, and the later count",
    ),
    "left_out": ("a column holds no numbers", "{count} columns hold no numbers"),
    "torn": ("the end of the file is missing", "the end of the file is missing"),
    "unparsed": ("a line cannot be parsed", "{count} lines cannot be parsed"),
    "value": ("a value is no number", "{count} values are no numbers"),
    "without_step": ("a row names no step", "{count} rows name no step"),
}
"""How each kind is said of one, and of several."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Points:
    """The points of one name."""

    rows: NDArray[np.int64]
    """Shape (k,): in which rows they are, ascending."""
    values: NDArray[np.float64]
    """Shape (k,)."""

    def __len__(self) -> int:
        return len(self.rows)

    def filled(self, num_rows: int) -> NDArray[np.float64]:
        """Of all rows, NaN where there is none."""
        column = np.full(num_rows, np.nan)
        column[self.rows] = self.values
        return column

    def missing(self, num_rows: int) -> NDArray[np.bool_]:
        """Of all rows, whether there is none."""
        column = np.ones(num_rows, np.bool_)
        column[self.rows] = False
        return column

    def moved(self, places: NDArray[np.intp]) -> Points:
        """The same where each row lies elsewhere; of several in one place the last counts."""
        moved = places[self.rows]
        order = np.argsort(moved, kind="stable")
        climbing = moved[order]
        is_last = np.r_[climbing[1:] != climbing[:-1], True][: len(climbing)]
        return Points(rows=climbing[is_last].astype(np.int64), values=self.values[order][is_last])


class _Columns(Mapping[str, Column]):
    """A column of each name, made anew whenever it is looked up."""

    def __init__(self, points: Mapping[str, Points], make: Callable[[Points], Column]) -> None:
        self._points = points
        self._make = make

    def __getitem__(self, name: str) -> Column:
        return self._make(self._points[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._points)

    def __len__(self) -> int:
        return len(self._points)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLog:
    """What one log holds, in the order of the file.

    >>> rows = LogRows()
    >>> rows.add(7, {"loss": 2.5})
    >>> rows.add(8, {"loss": float("nan"), "lr": 0.1})
    >>> log = rows.finish("a.csv", "csv")
    >>> log.series("loss")[1].tolist(), log.missing["lr"].tolist()
    ([2.5, nan], [True, False])
    """

    source: str
    """Where it was read from, as it was given."""
    format: str
    """What it was found to be: a name of `FORMATS`."""
    steps: NDArray[np.int64]
    """Shape (n,): the step of each row, as the trainer labels it, in the order of the file."""
    points: Mapping[str, Points]
    """Of each name, in order of first mention: its points, by row."""
    times: NDArray[np.float64]
    """Shape (n,): unix seconds of each row, NaN where the log does not say."""
    problems: tuple[LogProblem, ...]
    """What could not be taken as it is, one entry a kind."""

    @property
    def names(self) -> tuple[str, ...]:
        """What was logged, in order of first mention."""
        return tuple(self.points)

    @property
    def values(self) -> Mapping[str, NDArray[np.float64]]:
        """Of each name, shape (n,): its value in each row, NaN where it is missing or NaN; made when looked up."""
        return _Columns(self.points, lambda points: points.filled(len(self.steps)))

    @property
    def missing(self) -> Mapping[str, NDArray[np.bool_]]:
        """Of each name, shape (n,): whether the row has no point for it; made when looked up."""
        return _Columns(self.points, lambda points: points.missing(len(self.steps)))

    @property
    def num_points(self) -> int:
        """Points of all names."""
        return sum(len(points) for points in self.points.values())

    @property
    def num_duplicates(self) -> int:
        """Points that were logged again later on for the same step."""
        return sum(problem.count for problem in self.problems if problem.kind == "duplicate")

    def series(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The points of one name, as steps and values of one shape, in the order of the file.

        Raises
        ------
        NotInRun
            Nothing of that name was logged.
        """
        if name not in self.points:
            raise NotInRun(
                f"{self.source} has no {name!r}", found=", ".join(self.names[:20]) or "nothing that was logged"
            )
        points = self.points[name]
        return self.steps[points.rows], points.values

    def wide(self) -> TrainingLog:
        """One row a step, steps ascending; of points logged again the later counts."""
        steps, places = np.unique(self.steps, return_inverse=True)
        points = {name: each.moved(places) for name, each in self.points.items()}
        times = np.full(len(steps), np.nan)
        known = ~np.isnan(self.times)
        times[places[known]] = self.times[known]
        return replace(self, steps=steps, points=points, times=times)

    def renamed(self, names: Mapping[str, str]) -> TrainingLog:
        """The same under other names; names that are not mentioned stay. Two must not become one.

        Raises
        ------
        NotInRun
            A name that was not logged.
        ValueError
            Two names become one.
        """
        for name in names:
            self.series(name)
        after = [names.get(name, name) for name in self.names]
        if len(set(after)) != len(after):
            twice = next(name for name in after if after.count(name) > 1)
            raise ValueError(f"two names of {self.source} would be {twice!r}")
        return replace(self, points=dict(zip(after, self.points.values(), strict=True)))


class LogRows:
    """Takes points in the order of a file and makes a `TrainingLog` of them."""

    def __init__(self) -> None:
        self._steps = array("q")
        self._times = array("d")
        self._lines = array("q")
        self._columns: dict[str, tuple[array[int], array[float]]] = {}
        self._newest_row: dict[int, int] = {}
        self._counts: Counter[ProblemKind] = Counter()
        self._first: dict[ProblemKind, tuple[int | None, str]] = {}

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, step: int, points: Mapping[str, float], *, line: int = 0, time: float = math.nan) -> None:
        """One entry of the log: the points of a step, on line `line` (from 1), at unix second `time`."""
        if not 0 <= step < _MOST_STEP:
            self.problem("without_step", line, f"step {step}")
            return
        if not points:
            return
        columns = self._columns
        row = self._newest_row.get(step, -1)
        if row < 0 or any(name in columns and columns[name][0][-1] >= row for name in points):
            row = self._newest_row[step] = len(self._steps)
            self._steps.append(step)
            self._times.append(time)
            self._lines.append(line)
        for name, value in points.items():
            if name not in columns:
                columns[name] = (array("q"), array("d"))
            rows, values = columns[name]
            rows.append(row)
            values.append(value)

    def problem(self, kind: ProblemKind, line: int | None, text: str, *, count: int = 1) -> None:
        """Count something that cannot be taken as it is; the first of each kind is kept word for word."""
        self._counts[kind] += count
        self._first.setdefault(kind, (line, text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."))

    def finish(self, source: str, format_name: str) -> TrainingLog:
        """The log."""
        steps = np.array(self._steps, np.int64)
        columns = {}
        for name, (rows, points) in self._columns.items():
            places = np.array(rows, np.int64)
            columns[name] = Points(rows=places, values=np.array(points, np.float64))
            self._count_duplicates(name, steps[places], places)
        problems = (
            LogProblem(kind=kind, count=count, first_line=self._first[kind][0], text=self._first[kind][1])
            for kind, count in sorted(self._counts.items())
        )
        return TrainingLog(
            source=source,
            format=format_name,
            steps=steps,
            points=columns,
            times=np.array(self._times, np.float64),
            problems=tuple(problems),
        )

    def _count_duplicates(self, name: str, steps: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        firsts = np.unique(steps, return_index=True)[1]
        num_again = len(steps) - len(firsts)
        if num_again:
            again = np.ones(len(steps), np.bool_)
            again[firsts] = False
            place = int(np.argmax(again))
            line = self._lines[int(rows[place])]
            self.problem("duplicate", line or None, f"{name} of step {steps[place]:,}", count=num_again)
