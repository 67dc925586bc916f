"""How are the values of each signal distributed over each source, and where do the rules draw their lines?

From the sketches of ``profile.json`` (and of `length_outlier`, which no profile holds, from the rows of the signals):

1. A signal has one axis for all sources: whole numbers of a short range as they are, what has no upper end by
   ``sign(x) log10(1 + |x|)``, everything else as it is. The axis spans the values and the bounds of the rules.
2. It is cut into at most `NUM_BINS` bins of equal width; a bucket of a sketch counts in the bin of its middle.
3. The bounds of every condition on the signal become lines, for all sources or, where a section of the policy or the
   median of a source moves them, for each of its own.

What comes out is plain data for the page's script, small however many records there were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataguard.audit.documents import AuditSummary, RuleAccount
from dataguard.core.robust import MAD_TO_SIGMA
from dataguard.core.signals import SignalSpec
from dataguard.gate.bounds import Condition
from dataguard.gate.rules import Policy, Rule
from dataguard.gate.verdict import Skip
from dataguard.report.html import visible
from dataguard.score.profile import Profile, SignalProfile
from dataguard.score.registry import SIGNALS
from dataguard.score.sketch import Sketch, middles_of, of_rank, rank_of

__all__ = ["MOST_SOURCES", "NUM_BINS", "Values", "charts_of", "outliers_in", "values_of"]

NUM_BINS = 60
MOST_SOURCES = 40
"""Sources that are drawn: those with the most scored records."""

_OUTLIER = "length_outlier"
_QUANTILES = (10, 500, 950, 990)
_LEAST = 1e-300
"""Nearer to zero lies nothing but the float64 next to a bound of zero."""
_MOST_TICKS = 10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Values:
    """What a sketch knows of the values of one signal over one source."""

    middles: NDArray[np.float64]
    """What stands for the values of each bucket, ascending, shape (buckets,)."""
    counts: NDArray[np.int64]
    low: float
    """The least value, exact."""
    high: float
    median: float
    mad: float | None
    """None where no rule can ask for it."""


def values_of(found: SignalProfile) -> Values:
    """The values of a signal of a profile."""
    keys, counts = np.cumsum(np.array(found.steps, np.int64)), np.array(found.counts, np.int64)
    whole = found.signal in SIGNALS and SIGNALS[found.signal].whole
    middles = _middles(keys, found.min, found.max, whole=whole)
    return Values(middles=middles, counts=counts, low=found.min, high=found.max, median=found.median, mad=found.mad)


def outliers_in(folder: Path) -> dict[str, Values]:
    """`length_outlier` by source, from the rows of ``signals/``, in bounded memory; of text alone."""
    import pyarrow.parquet as pq

    sketches: dict[str, Sketch] = {}
    for path in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False) as file:
            if _OUTLIER not in file.schema_arrow.names:
                continue
            for batch in file.iter_batches(1 << 16, columns=["source", _OUTLIER], use_threads=False):
                words = batch.column(0)
                numbers, names = words.indices.to_numpy(zero_copy_only=False), words.dictionary.to_pylist()
                values = batch.column(1).to_numpy(zero_copy_only=False)
                for number in np.unique(numbers).tolist():
                    own = values[numbers == number]
                    sketches.setdefault(names[number], Sketch()).add(own[np.isfinite(own)])
    return {name: _of_sketch(sketch) for name, sketch in sketches.items() if sketch.count}


def charts_of(
    summary: AuditSummary, policy: Policy, profile: Profile, outliers: Mapping[str, Values]
) -> dict[str, Any]:
    """All charts, as data.

    Parameters
    ----------
    summary
        The answer: sources, and what each rule did.
    policy
        The rules whose bounds are drawn.
    profile
        This audit's own.
    outliers
        `length_outlier` by source; see `outliers_in`.
    """
    chosen = sorted(summary.sources, key=lambda source: (-source.scored, source.source.encode()))[:MOST_SOURCES]
    names = [source.source for source in chosen if source.scored]
    by_signal: dict[str, dict[int, Values]] = {}
    for number, name in enumerate(names):
        found = next((each for each in profile.sources if each.name == name), None)
        for signal in found.signals if found is not None else ():
            by_signal.setdefault(signal.signal, {})[number] = values_of(signal)
        if name in outliers:
            by_signal.setdefault(_OUTLIER, {})[number] = outliers[name]
    fired = {rule.rule: rule for rule in summary.rules}
    charts = [
        _chart(spec, by_signal[spec.name], names, policy, fired, given=summary.profile_given)
        for spec in SIGNALS.values()
        if spec.name in by_signal
    ]
    return {
        "sources": [visible(name) for name in names],
        "not_drawn": sum(source.scored > 0 for source in summary.sources) - len(names),
        "signals": charts,
        "first": _first(summary, charts),
    }


def _first(summary: AuditSummary, charts: Sequence[Mapping[str, Any]]) -> int:
    """The chart to begin with: of the rule that says most about the verdict."""
    gravity = ("flag", "mask", "substitute", "halt")
    rules = [rule for rule in summary.rules if rule.scope == "sample" and rule.fired]
    rules.sort(key=lambda rule: (not rule.failed, -gravity.index(rule.action), -rule.share_of_records))
    for rule in rules:
        for signal in reversed(rule.signal.split(", ")):
            place = next((i for i, chart in enumerate(charts) if chart["name"] == signal), None)
            if place is not None:
                return place
    return 0


def _chart(
    spec: SignalSpec,
    rows: Mapping[int, Values],
    names: Sequence[str],
    policy: Policy,
    fired: Mapping[str, RuleAccount],
    *,
    given: bool,
) -> dict[str, Any]:
    drawn = []
    for rule in policy.rules:
        lines, account = _lines(rule, spec, rows, names, policy, given=given), fired[rule.name]
        if lines is not None:
            drawn.append({**lines, "fired": account.fired, "evaluated": account.evaluated, "failed": account.failed})
    bounds = [edge.value for each in drawn for edge, _ in each["lines"]]
    low = min([values.low for values in rows.values()] + bounds)
    high = max([values.high for values in rows.values()] + bounds)
    axis = _Axis.of(spec, low, high)
    for each in drawn:
        each["lines"] = [[axis.edge(edge), edge.value, which] for edge, which in each["lines"]]
        each["inside"] = [[_place(axis, first), _place(axis, last)] for first, last in each["inside"]]
    return {
        "name": spec.name,
        "kind": spec.kind,
        "unit": spec.unit,
        "definition": spec.definition,
        "scale": axis.scale,
        "start": axis.start,
        "width": axis.width,
        "num_bins": axis.num_bins,
        "ticks": axis.ticks(),
        "rules": drawn,
        "rows": [_row(number, values, axis) for number, values in sorted(rows.items())],
    }


def _row(number: int, values: Values, axis: _Axis) -> dict[str, Any]:
    bins = np.bincount(axis.bins(values.middles), values.counts, minlength=axis.num_bins).astype(np.int64)
    count = int(values.counts.sum())
    quantiles = [of_rank(values.middles, values.counts, rank_of(permille, count)) for permille in _QUANTILES]
    held = np.flatnonzero(bins)
    return {
        "source": number,
        "count": count,
        "bins": held.tolist(),
        "counts": bins[held].tolist(),
        "median": axis.place(values.median),
        "told": [values.low, *quantiles, values.high],
    }


def _lines(
    rule: Rule, spec: SignalSpec, rows: Mapping[int, Values], names: Sequence[str], policy: Policy, *, given: bool
) -> dict[str, Any] | None:
    """Where a rule bounds a signal: (value, number of the source or None for all); None where it does not."""
    by_source: dict[int, tuple[Condition, ...]] = {}
    for number in rows:
        conditions = policy.conditions_of(rule, names[number])
        if not isinstance(conditions, Skip) and any(each.signal.name == spec.name for each in conditions):
            by_source[number] = tuple(each for each in conditions if each.signal.name == spec.name)
    if not by_source:
        return None
    every = list(by_source.values())
    common = len(by_source) == len(rows) and all(each == every[0] for each in every)
    moving = any(condition.outlier for each in every for condition in each)
    lines: list[tuple[_Edge, int | None]] = []
    if common and not moving:
        lines = [(edge, None) for condition in every[0] for edge in _edges(condition)]
    else:
        for number, conditions in by_source.items():
            lines += [(edge, number) for each in conditions for edge in _edges(each, None if given else rows[number])]
    minimum = len(rule.conditions) > 1 and all(condition.on_length for condition in every[0])
    holds = every[0][0].possible() if common and not moving and not minimum and len(every[0]) == 1 else ()
    return {
        "name": visible(rule.name),
        "action": rule.action,
        "text": " and ".join(map(str, rule.conditions)),
        "minimum": minimum,
        "alone": len(rule.conditions) == 1,
        "lines": list(dict.fromkeys(lines)),
        "inside": [(each.low, each.high) for each in holds],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edge:
    """One bound of a condition."""

    value: float
    """As written, so far as a float64 next to it tells."""
    first: float
    """The least (`is_low`) or greatest value of the interval itself."""
    is_low: bool


def _edges(condition: Condition, values: Values | None = None) -> list[_Edge]:
    """The bounds of a condition in values of its signal; none where they cannot be known here."""
    low, high = condition.low, condition.high
    if condition.outlier:
        if values is None or not values.mad:
            return []
        away = condition.high * MAD_TO_SIGMA * values.mad
        low, high = values.median - away, values.median + away
    return [
        _Edge(value=0.0 if abs(bound) < _LEAST else float(f"{bound:.12g}"), first=bound, is_low=is_low)
        for bound, is_low in ((low, True), (high, False))
        if isfinite(bound)
    ]


def _of_sketch(sketch: Sketch) -> Values:
    keys, counts = sketch.buckets()
    middles = _middles(keys, sketch.smallest, sketch.largest, whole=False)
    median = of_rank(middles, counts, rank_of(500, sketch.count))
    return Values(middles=middles, counts=counts, low=sketch.smallest, high=sketch.largest, median=median, mad=None)


def _middles(keys: NDArray[np.int64], low: float, high: float, *, whole: bool) -> NDArray[np.float64]:
    middles = middles_of(keys)
    return np.clip(np.trunc(middles) if whole else middles, low, high)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """Where values lie, and into which bins they fall."""

    scale: str
    """``whole``, ``log`` or ``linear``."""
    start: float
    width: float
    num_bins: int

    @classmethod
    def of(cls, spec: SignalSpec, low: float, high: float) -> _Axis:
        if spec.whole and high - low < NUM_BINS:
            first = floor(low)
            return cls(scale="whole", start=first - 0.5, width=1.0, num_bins=floor(high) - first + 1)
        scale = "linear" if isfinite(spec.high) or spec.unit == "bits" else "log"
        low = min(low, 0.0) if spec.low == 0 else low
        ends = [_log(low), _log(high)] if scale == "log" else [low, high]
        span = ends[1] - ends[0] or 1.0
        return cls(scale=scale, start=ends[0], width=span * 1.02 / NUM_BINS, num_bins=NUM_BINS)

    def place(self, value: float) -> float:
        """Where a value lies on the axis."""
        return round(_log(value) if self.scale == "log" else value, 9)

    def edge(self, edge: _Edge) -> float:
        """Where a bound is drawn: among whole numbers between the last that is out and the first that is in."""
        if self.scale != "whole":
            return self.place(edge.value)
        return ceil(edge.first) - 0.5 if edge.is_low else floor(edge.first) + 0.5

    def bins(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """The bin of each value."""
        places = np.sign(values) * np.log10(1 + np.abs(values)) if self.scale == "log" else values
        numbers = np.floor((places - self.start) / self.width).astype(np.int64)
        return np.clip(numbers, 0, self.num_bins - 1)

    def ticks(self) -> list[tuple[float, str]]:
        """(place, label) of each tick; none where the axis is linear and finds its own."""
        if self.scale == "linear":
            return []
        end = self.start + self.width * self.num_bins
        if self.scale == "whole":
            first, step = int(self.start + 0.5), -(-self.num_bins // _MOST_TICKS)
            return [(float(number), f"{number:,}") for number in range(first, int(end + 0.5), step)]
        values: Iterable[float] = [0.0, *(sign * 10.0**power for power in range(13) for sign in (1, -1))]
        return sorted((_log(value), _tick(value)) for value in values if self.start <= _log(value) <= end)


def _place(axis: _Axis, value: float) -> float | None:
    return axis.place(value) if isfinite(value) else None


def _log(value: float) -> float:
    return (1 if value >= 0 else -1) * log10(1 + abs(value))


def _tick(value: float) -> str:
    for unit, word in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:,.0f}{word}"
    return f"{value:g}"
