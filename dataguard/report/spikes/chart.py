"""How does a training curve with its events look, as one picture that any browser shows?

Inline SVG, made here: no script, no library. A curve has far more points than a picture has columns, so each column
shows the range from its least to its greatest point, and no spike is lost; points that are not finite are left out and
marked below. Colours are those of the page, so that it is dark where the reader's screen is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

import numpy as np
from numpy.typing import NDArray

from dataguard.core.spikes import SpikeEvent
from dataguard.triage.detect.spikes import Examined

__all__ = ["HEIGHT", "WIDTH", "Panel", "columns_of", "panels_of", "svg_of", "ticks"]

WIDTH, HEIGHT = 960, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 10, 26
_NUM_COLUMNS = 800
_MOST_MARKS = 400
_STEEP_SHARE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Panel:
    """One signal over the steps."""

    name: str
    steps: NDArray[np.int64]
    """Shape (n,)."""
    values: NDArray[np.float64]
    """Shape (n,); a gradient norm as its logarithm to base 10."""
    is_log: bool
    events: tuple[SpikeEvent, ...]


def panels_of(examined: Examined) -> tuple[Panel, ...]:
    """Loss, and gradient norm where there is one."""
    log = examined.log
    steps, loss = log.series("loss")
    events = examined.detection.events
    panels = [Panel(name="loss", steps=steps, values=loss, is_log=False, events=events)]
    if "grad_norm" in log.names and len(log.points["grad_norm"]):
        steps, norms = log.series("grad_norm")
        with np.errstate(divide="ignore", invalid="ignore"):
            logarithms = np.log10(norms)
        panels.append(Panel(name="gradient norm", steps=steps, values=logarithms, is_log=True, events=events))
    return tuple(panels)


def columns_of(panel: Panel, num_columns: int = _NUM_COLUMNS) -> Iterator[tuple[float, float, float]]:
    """Middle step, least and greatest value of each column that has a finite point."""
    good = np.isfinite(panel.values)
    steps, values = panel.steps[good], panel.values[good]
    if not len(steps):
        return
    first, last = int(panel.steps[0]), int(panel.steps[-1])
    column = ((steps - first) * num_columns // max(1, last - first + 1)).astype(np.int64)
    begins = np.flatnonzero(np.r_[True, column[1:] != column[:-1]])
    least, greatest = np.minimum.reduceat(values, begins), np.maximum.reduceat(values, begins)
    middle = np.add.reduceat(steps.astype(np.float64), begins) / np.diff(np.r_[begins, len(steps)])
    yield from zip(middle.tolist(), least.tolist(), greatest.tolist(), strict=True)


def bounds_of(panel: Panel) -> tuple[float, float]:
    """What the picture shows of the values: not the steep begin, which would press all else flat."""
    good = np.isfinite(panel.values)
    values = panel.values[good]
    if not len(values):
        return 0.0, 1.0
    late = values[int(len(values) * _STEEP_SHARE) :]
    low, high = float(values.min()), float(late.max())
    if high <= low:
        high = low + max(1e-6, abs(low) * 0.01)
    return low - (high - low) * 0.04, high + (high - low) * 0.04


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between two.

    >>> ticks(0.0, 10.0), ticks(2.41, 2.58)
    ([0.0, 2.0, 4.0, 6.0, 8.0, 10.0], [2.45, 2.5, 2.55])
    """
    rough = (high - low) / about
    power = 10.0 ** floor(log10(rough))
    width = next(each * power for each in (1, 2, 5, 10) if each * power >= rough * 0.999)
    return [round(i * width, 12) for i in range(ceil(low / width - 1e-9), floor(high / width + 1e-9) + 1)]


def svg_of(panel: Panel) -> str:
    """The picture of one panel: markup in which every text from data is escaped."""
    low, high = bounds_of(panel)
    first, last = int(panel.steps[0]), int(panel.steps[-1])

    def x(step: float) -> float:
        share = (min(max(step, first), last) - first) / max(1, last - first)
        return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)

    def y(value: float) -> float:
        share = (min(max(value, low), high) - low) / (high - low)
        return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 1)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(panel.name)} by step" class="curve">']
    for tick in ticks(low, high):
        text = f"{10**tick:.3g}" if panel.is_log else f"{tick:g}"
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(tick)}" y2="{y(tick)}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 6}" y="{y(tick) + 4}" text-anchor="end">{text}</text>')
    parts.extend(
        f'<text class="tick" x="{x(tick)}" y="{HEIGHT - 8}" text-anchor="middle">{round(tick):,}</text>'
        for tick in (ticks(first, last) if last > first else [float(first)])
    )
    path = " ".join(
        f"{'M' if i == 0 else 'L'}{x(step)} {y(greatest)}V{y(least)}"
        for i, (step, least, greatest) in enumerate(columns_of(panel))
    )
    parts.append(f'<path class="line" d="{path}"/>')
    parts.extend(_marks(panel.events, x))
    parts.append("</svg>")
    return "".join(parts)


def _marks(events: Sequence[SpikeEvent], x: object) -> Iterator[str]:
    assert callable(x), "a scale"
    for event in events[:_MOST_MARKS]:
        left, right = x(event.start), x(event.stop)
        size = "" if event.size_nats is None else f", {event.size_nats:+.3g} nats"
        title = escape(f"{event.event_class.value} {event.start:,}:{event.stop:,}{size} ({event.signal})")
        width = max(2.0, round(right - left, 1))
        yield (
            f'<rect class="event {event.event_class.value}" x="{left}" y="{_TOP}" width="{width}" '
            f'height="{HEIGHT - _TOP - _BOTTOM}"><title>{title}</title></rect>'
        )
