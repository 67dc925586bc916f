"""How does a curve look that is drawn without any script: a few bytes of SVG, in the colours of the page?

Each column shows the range from its least to its greatest value, so that no spike is lost, and where a value is
missing the line has a gap. The stretch of an event stands behind it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from dataguard.report.html import visible

__all__ = ["spark"]

_PAD = 3.0


def spark(
    steps: Sequence[int],
    low: Sequence[float | None],
    high: Sequence[float | None],
    *,
    middle: Sequence[float | None] | None = None,
    against: Sequence[float | None] | None = None,
    spans: Iterable[tuple[int, int]] = (),
    width: int = 280,
    height: int = 56,
    is_log: bool = False,
    bounds: tuple[float, float] | None = None,
    label: str,
) -> Any:
    """A picture, as markup; empty where no value is finite.

    Parameters
    ----------
    steps
        First step of each column, ascending.
    low, high
        Range of each column; None where it has none.
    middle
        A line within the range, which is then a paler band behind it.
    against
        Another line, which it is held against.
    spans
        Half-open steps of events.
    width, height
        In units of the picture.
    is_log
        Whether heights are logarithms; values of zero and below are then gaps.
    bounds
        What is shown of the values; their range where None.
    label
        What it is, for those who do not see it.

    >>> str(spark((0, 1), (1.0, 2.0), (1.0, 2.0), label="loss", width=20, height=10)).count("<path")
    1
    """
    from markupsafe import Markup, escape

    def placed(values: Sequence[float | None]) -> list[float | None]:
        return [_placed(value, is_log=is_log) for value in values]

    lows, highs = placed(low), placed(high)
    middles = None if middle is None else placed(middle)
    known = [value for value in (*lows, *highs) if value is not None]
    if not known or not steps:
        return Markup("")
    least, most = (min(known), max(known)) if bounds is None else bounds
    room = (most - least) or 1.0
    first, last = steps[0], max(steps[-1], steps[0] + 1)

    def x(step: float) -> str:
        return f"{(min(max(step, first), last) - first) / (last - first) * width:.1f}".removesuffix(".0")

    def y(value: float) -> str:
        share = 0.5 if most == least else (min(max(value, least), most) - least) / room
        return f"{height - _PAD - share * (height - 2 * _PAD):.1f}".removesuffix(".0")

    parts = [
        f'<rect class="span" x="{x(start)}" y="0" width="{max(1.5, float(x(stop)) - float(x(start))):.1f}" '
        f'height="{height}"/>'
        for start, stop in spans
    ]
    if against is not None:
        other = placed(against)
        parts.append(f'<path class="against" d="{_line(steps, other, other, x, y)}"/>')
    if middles is None:
        parts.append(f'<path class="line" d="{_line(steps, lows, highs, x, y)}"/>')
    else:
        parts += [f'<path class="band" d="{area}"/>' for area in _areas(steps, lows, highs, x, y)]
        parts.append(f'<path class="line" d="{_line(steps, middles, middles, x, y)}"/>')
    head = f'<svg class="spark" viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img" '
    name = f'aria-label="{escape(visible(label))}">'
    return Markup(f"{head}{name}{''.join(parts)}</svg>")  # noqa: S704 - numbers, and a text that is escaped


def _placed(value: float | None, *, is_log: bool) -> float | None:
    if value is None or not math.isfinite(value) or (is_log and value <= 0):
        return None
    return math.log10(value) if is_log else value


def _line(steps: Sequence[int], lows: Sequence[float | None], highs: Sequence[float | None], x: Any, y: Any) -> str:
    out, pen = [], False
    for step, low, high in zip(steps, lows, highs, strict=True):
        if low is None or high is None:
            pen = False
            continue
        out.append(f"{'L' if pen else 'M'}{x(step)} {y(high)}")
        if low != high:
            out.append(f"V{y(low)}")
        elif not pen:
            out.append("h.1")  # a point alone is seen, too
        pen = True
    return "".join(out)


def _areas(
    steps: Sequence[int], lows: Sequence[float | None], highs: Sequence[float | None], x: Any, y: Any
) -> Iterable[str]:
    stretch: list[tuple[int, float, float]] = []
    for step, low, high in [*zip(steps, lows, highs, strict=True), (0, None, None)]:
        if low is not None and high is not None:
            stretch.append((step, low, high))
        elif stretch:
            over = "L".join(f"{x(at)} {y(top)}" for at, _, top in stretch)
            under = "L".join(f"{x(at)} {y(bottom)}" for at, bottom, _ in reversed(stretch))
            yield f"M{over}L{under}Z"
            stretch = []
