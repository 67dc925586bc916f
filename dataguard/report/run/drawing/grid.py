"""How does a heat map show its numbers: which shade has each rank and step, and what do the shades mean?

1. A measure has one scale for all of its cells, from its least to its greatest finite value; it is logarithmic where
   they are all above zero and lie further apart than `_WIDE` to one, and of counts it begins at zero.
2. The scale is cut into `NUM_SHADES` shades of ever greater contrast to the page, in light and in dark: who sees no
   colours sees the order all the same.
3. Of each cell one sign is told: a digit for its shade, ``n`` where NaN or infinity was logged, ``-`` where nothing
   was. These two are drawn as a sign and as hatching, not as a colour.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dataguard.report.html import told
from dataguard.report.run.drawing.numbers import steps_text
from dataguard.report.run.facts import EventMark, Heat, Measure, RunFacts

__all__ = ["NUM_SHADES", "Column", "HeatView", "MeasureView", "Row", "Scale", "heats_of"]

NUM_SHADES = 10
_WIDE = 50.0
_COUNTS = frozenset({"flagged", "withheld", "substituted", "num_samples"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """From which value to which the shades go.

    >>> scale = Scale(low=0.0, high=10.0, is_log=False)
    >>> scale.shade(0.0), scale.shade(4.9), scale.shade(10.0), scale.ticks
    (0, 4, 9, ('0', '5', '10'))
    """

    low: float
    high: float
    is_log: bool

    @classmethod
    def of(cls, measure: Measure) -> Scale | None:
        """The scale of a measure; None where it has no finite value.

        >>> Scale.of(Measure(name="loss", title="loss, nats", values=((2.0, None), (3.0, 200.0))))
        Scale(low=2.0, high=200.0, is_log=True)
        """
        values = [value for row in measure.values for value in row if value is not None and math.isfinite(value)]
        if not values:
            return None
        low, high = min(values), max(values)
        if measure.name in _COUNTS and low > 0:
            low = 0.0
        return cls(low=low, high=high, is_log=low > 0 and high / low > _WIDE)

    def shade(self, value: float) -> int:
        """0 to `NUM_SHADES` - 1."""
        if self.high <= self.low:
            return 0
        if self.is_log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(NUM_SHADES - 1, max(0, int(share * NUM_SHADES)))

    @property
    def ticks(self) -> tuple[str, ...]:
        """What stands below the least, the middle and the greatest shade; one where all is alike."""
        if self.high <= self.low:
            return (told(self.low),)
        middle = math.sqrt(self.low * self.high) if self.is_log else (self.low + self.high) / 2
        return told(self.low), told(middle), told(self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureView:
    """One measure."""

    name: str
    title: str
    rows: tuple[str, ...]
    """By rank: one sign for each step."""
    scale: Scale | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One step."""

    step: int
    is_event: bool
    is_peak: bool
    begins: bool
    """Whether another attempt begins here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One rank."""

    rank: int
    cells: tuple[tuple[str, str], ...]
    """(class, text) of each step, of the measure that is shown first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatView:
    """One map."""

    number: int
    title: str
    event: EventMark | None
    heat: Heat
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    measures: tuple[MeasureView, ...]
    scale: Scale | None
    """Of the measure that is shown first."""
    outlying: tuple[tuple[int, int], ...]
    """(place of the rank, place of the step) of cells that hold a sample which stands out."""


def heats_of(facts: RunFacts) -> tuple[HeatView, ...]:
    """All maps."""
    return tuple(_view(number, heat, facts) for number, heat in enumerate(facts.heats))


def _view(number: int, heat: Heat, facts: RunFacts) -> HeatView:
    event = None if heat.event is None else facts.events[heat.event]
    attempts = {cell.step: cell.attempt for cell in heat.cells}
    columns = []
    before: int | None = None
    for step in heat.steps:
        attempt = attempts.get(step, before)
        columns.append(
            Column(
                step=step,
                is_event=event is not None and event.start <= step < event.stop,
                is_peak=event is not None and event.peak == step,
                begins=before is not None and attempt != before,
            )
        )
        before = attempt
    measures = tuple(_measured(measure) for measure in heat.measures)
    places = (
        {rank: place for place, rank in enumerate(heat.ranks)},
        {step: place for place, step in enumerate(heat.steps)},
    )
    outlying = tuple(
        (places[0][cell.rank], places[1][cell.step])
        for cell in heat.cells
        if any(sample.outlying for sample in cell.samples)
    )
    return HeatView(
        number=number,
        title=_title(event, heat),
        event=event,
        heat=heat,
        columns=tuple(columns),
        rows=_rows(heat, measures, columns, frozenset(outlying)),
        measures=measures,
        scale=measures[0].scale if measures else None,
        outlying=outlying,
    )


def _title(event: EventMark | None, heat: Heat) -> str:
    if event is None:
        return f"{steps_text(heat.steps[0], heat.steps[-1] + 1)}, as asked for" if heat.steps else "no steps"
    return f"{event.event_class.value.replace('_', ' ')}, {steps_text(event.start, event.stop)}"


def _measured(measure: Measure) -> MeasureView:
    scale = Scale.of(measure)
    bad = frozenset(measure.not_finite)
    rows = tuple(
        "".join(_sign(value, scale, is_bad=(rank, step) in bad) for step, value in enumerate(row))
        for rank, row in enumerate(measure.values)
    )
    return MeasureView(name=measure.name, title=measure.title, rows=rows, scale=scale)


def _sign(value: float | None, scale: Scale | None, *, is_bad: bool) -> str:
    if is_bad or (value is not None and not math.isfinite(value)):
        return "n"
    return "-" if value is None or scale is None else str(scale.shade(value))


def _rows(
    heat: Heat, measures: tuple[MeasureView, ...], columns: list[Column], outlying: frozenset[tuple[int, int]]
) -> tuple[Row, ...]:
    rows = []
    for place, rank in enumerate(heat.ranks):
        signs = measures[0].rows[place] if measures else "-" * len(heat.steps)
        values = heat.measures[0].values[place] if measures else (None,) * len(heat.steps)
        cells = []
        for step, (sign, value) in enumerate(zip(signs, values, strict=True)):
            classes = [f"q{'x' if sign == '-' else sign}"]
            classes += ["out"] if (place, step) in outlying else []
            classes += ["begins"] if columns[step].begins else []
            text = "NaN or infinite" if sign == "n" else told(value, "no value")
            text += ", a sample stands out" if (place, step) in outlying else ""
            cells.append((" ".join(classes), text))
        rows.append(Row(rank=rank, cells=tuple(cells)))
    return tuple(rows)
