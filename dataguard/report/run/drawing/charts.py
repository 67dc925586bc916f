"""What does the page's script draw: curves by panel, and what happened to the run along the same steps?

A panel is one telemetry name. Its axis is logarithmic where that shows more (gradient norms above zero, whatever spans
more than `_WIDE` to one), and leaves out the steep begin of a run, which would press everything else flat; who zooms
out sees that too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dataguard.report.html import visible
from dataguard.report.run.drawing.numbers import rows_as_data
from dataguard.report.run.facts import AttemptMark, Curve, EventMark, RunFacts, SkipMark

__all__ = ["Panel", "curves_data", "panels_of", "signals_data"]

_WIDE = 100.0
_STEEP_SHARE = 0.02
_FIRST = ("loss", "grad_norm")
_TITLES = {"loss": "loss, nats", "grad_norm": "gradient norm", "lr": "learning rate"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One telemetry name."""

    name: str
    title: str
    is_log: bool
    bounds: tuple[float, float]
    """What is shown of its values at first; logarithms to base 10 where the axis is one."""
    over_all: Curve | None
    """The curve over all ranks."""


def panels_of(facts: RunFacts) -> tuple[Panel, ...]:
    """One for each name, in the order of the curves."""
    by_name: dict[str, list[Curve]] = {}
    for curve in facts.curves:
        by_name.setdefault(curve.name, []).append(curve)
    return tuple(_panel(name, curves) for name, curves in by_name.items())


def curves_data(facts: RunFacts, panels: tuple[Panel, ...]) -> dict[str, Any]:
    """Panels, curves, and marks along the steps."""
    names = {panel.name: place for place, panel in enumerate(panels)}
    return {
        "panels": [
            {"title": visible(panel.title), "is_log": panel.is_log, "bounds": [round(each, 6) for each in panel.bounds]}
            for panel in panels
        ],
        "num_first": sum(panel.name in _FIRST for panel in panels) or min(1, len(panels)),
        "has_loss": bool(panels) and panels[0].name == "loss",
        "curves": [_curve(curve, names[curve.name]) for curve in facts.curves],
        "events": [_event(event) for event in facts.events],
        "skips": [_skip(skip) for skip in facts.skips],
        "attempts": [_attempt(attempt) for attempt in facts.attempts],
        "checkpoints": [[step, visible(path)] for step, path in facts.checkpoints],
        "steps": facts.steps,
    }


def signals_data(facts: RunFacts) -> list[dict[str, Any]]:
    """Signals of delivered samples."""
    return [
        {
            "name": visible(signal.name),
            "unit": visible(signal.unit),
            "steps": signal.steps,
            "low": rows_as_data(signal.low),
            "median": rows_as_data(signal.median),
            "high": rows_as_data(signal.high),
            "num_samples": signal.num_samples,
            "note": None if signal.note is None else visible(signal.note),
        }
        for signal in facts.signals
    ]


def _panel(name: str, curves: list[Curve]) -> Panel:
    over_all = next((curve for curve in curves if curve.rank is None), None)
    values = _finite([value for curve in curves for value in (*curve.low, *curve.high)])
    late = _finite([value for curve in curves for value in curve.high[int(len(curve.high) * _STEEP_SHARE) :]])
    low = min(values, default=0.0)
    high = max(late, default=1.0)
    positive = low > 0
    spans = (max(late) / low) if positive and late else 1.0
    is_log = positive and (spans > _WIDE or (name == "grad_norm" and spans > 10))
    if is_log:
        low, high = math.log10(low), math.log10(high)
    if high <= low:
        room = max(abs(low) * 0.05, 1e-6)
        low, high = low - room, low + room
    pad = (high - low) * 0.05
    return Panel(
        name=name, title=_TITLES.get(name, name), is_log=is_log, bounds=(low - pad, high + pad), over_all=over_all
    )


def _finite(values: list[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]


def _curve(curve: Curve, panel: int) -> dict[str, Any]:
    made: dict[str, Any] = {
        "panel": panel,
        "rank": curve.rank,
        "steps": curve.steps,
        "high": rows_as_data(curve.high),
        "bad": curve.num_not_finite,
    }
    if curve.low != curve.high:
        made["low"] = rows_as_data(curve.low)
    return made


def _event(event: EventMark) -> dict[str, Any]:
    kind = event.event_class.value
    return {"class": kind, "start": event.start, "stop": event.stop, "peak": event.peak, "text": visible(event.text)}


def _skip(skip: SkipMark) -> dict[str, Any]:
    return {
        "event": skip.event,
        "step": skip.step,
        "batches": skip.batches,
        "reason": visible(skip.reason),
        "state": visible(skip.state),
    }


def _attempt(attempt: AttemptMark) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "parent": attempt.parent,
        "begins": attempt.begins,
        "ends": attempt.ends,
        "live_until": attempt.live_until,
        "world_size": attempt.world_size,
    }
