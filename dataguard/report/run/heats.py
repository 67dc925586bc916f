"""What is the heat map of one window of steps made of: which ranks, which measures, which samples?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataguard.report.run.cells import Key, Listed, cells_of, list_samples
from dataguard.report.run.curves import ranks_first
from dataguard.report.run.facts import Heat, Measure
from dataguard.report.run.heat import logged_measures, recorded_measures, standing_out
from dataguard.report.run.known import Known
from dataguard.report.run.lineage import Lineage
from dataguard.report.run.windows import Window, records_of
from dataguard.run.index import merge

__all__ = ["MOST_RANKS", "DrawnHeat", "draw_heat"]

MOST_RANKS = 64
"""Ranks of a heat map."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawnHeat:
    """A heat map before its samples have previews."""

    window: Window
    steps: NDArray[np.int64]
    ranks: tuple[int, ...]
    num_ranks: int
    measures: tuple[Measure, ...]
    parts: tuple[tuple[int, NDArray[np.void]], ...]
    """Attempts, and what they recorded."""
    listed: list[Listed]

    def heat(self, lineage: Lineage, previews: Mapping[Key, int]) -> Heat:
        """The same with cells."""
        return Heat(
            event=self.window.event,
            steps=tuple((self.steps + lineage.run.first_label).tolist()),
            ranks=self.ranks,
            num_ranks=self.num_ranks,
            measures=self.measures,
            cells=cells_of(lineage, self.parts, self.listed, previews),
        )


def draw_heat(
    lineage: Lineage,
    window: Window,
    rows: NDArray[np.void],
    known: Known,
    *,
    most: int,
) -> DrawnHeat:
    """Read what was recorded in a window, and put the measures together.

    Parameters
    ----------
    rows
        TELEMETRY_ROW, these steps among them.
    most
        List so many samples.
    """
    run = lineage.run
    owned = [each for each in lineage.owned if each.first < window.stop and window.first < each.farthest]
    num_ranks = max((each.attempt.geometry.world_size for each in owned), default=0)
    rows = rows[(rows["step"] >= window.first) & (rows["step"] < window.stop)]
    is_chosen = window.event is None or known.events[window.event] == known.chosen
    near = range(window.peak - 1, window.peak + 2)
    ranks = ranks_first([*(known.odd_ranks if is_chosen else ()), *standing_out(rows, near)], num_ranks, MOST_RANKS)
    span = [(window.first, window.stop)]
    parts = tuple((each.attempt.number, records_of(lineage, each, span, ranks)) for each in owned)
    records = merge([part for _, part in parts])
    steps = np.unique(np.concatenate([records["step"].astype(np.int64), rows["step"].astype(np.int64)]))
    places = np.array(ranks, np.int64)
    limits: list[str] = []
    measures = logged_measures(rows, steps, places, limits)
    measures += recorded_measures(
        records,
        steps,
        places,
        is_judged=any(bool(run.begun(number, lineage.read).policy) for number, _ in parts),
        unit="bytes" if run.plan_document().root.form == "document" else None,
    )
    localised = known.localised if is_chosen else None
    listed = list_samples(lineage, parts, rows, localised, peak=window.peak, most=most)
    lineage.limits.extend(limit for limit in limits if limit not in lineage.limits)
    return DrawnHeat(
        window=window,
        steps=steps,
        ranks=tuple(ranks),
        num_ranks=num_ranks,
        measures=tuple(measures),
        parts=parts,
        listed=listed,
    )
