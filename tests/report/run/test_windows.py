"""Which steps and ranks are shown around an event: numbers in, numbers out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dataguard.core.spikes import EventClass
from dataguard.report.run.heat import standing_out
from dataguard.report.run.windows import windows_of
from dataguard.run.telemetry_reading import TELEMETRY_ROW


def shown(
    start: int, stop: int, peak: int, *, farthest: int = 1_000, asked: int | None = None
) -> list[tuple[int, ...]]:
    """Windows of one event, in a run whose trainer counts from 1."""
    run = SimpleNamespace(first_label=1, step=lambda label: label - 1)
    event = SimpleNamespace(
        event_class=EventClass.TRANSIENT_SPIKE, start=start, stop=stop, peak=peak, onset=None, name="event"
    )
    lineage: Any = SimpleNamespace(run=run, owned=[SimpleNamespace(first=0)], farthest=farthest)
    known: Any = SimpleNamespace(events=(event,), chosen=event, localised=None)
    return [(window.first, window.stop, window.peak) for window in windows_of(lineage, known, asked)]


@pytest.mark.parametrize(
    ("event", "more", "expected"),
    [
        ((101, 102, 101), {}, [(80, 113, 100)]),
        ((101, 102, 101), {"farthest": 105}, [(80, 105, 100)]),
        ((11, 12, 11), {}, [(0, 23, 10)]),
        # A long one is shown from its begin on, and around its peak; a step that was asked for as well.
        ((101, 401, 301), {}, [(96, 168, 300), (280, 313, 300)]),
        ((101, 401, 102), {"asked": 351}, [(96, 168, 101), (330, 363, 350)]),
    ],
)
def test_windows_hold_the_event_and_what_is_around_it(
    event: tuple[int, int, int], more: dict[str, int], expected: list[tuple[int, int, int]]
) -> None:
    assert shown(*event, **more) == expected


def test_a_rank_whose_loss_is_not_finite_stands_out_most() -> None:
    rows = np.zeros(4, TELEMETRY_ROW)
    rows["step"], rows["slot"], rows["name"], rows["rank"] = 5, -1, b"loss", range(4)
    rows["value"] = [2.0, 2.5, float("nan"), 2.0]
    assert standing_out(rows, [5])[:2] == [2, 1]
