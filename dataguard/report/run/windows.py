"""Which steps and ranks are shown around an event, and what was recorded of them?

A window is at most `MOST_STEPS` steps: from some before the onset to some behind the end. Of an event that is longer
the steps from its begin on are shown, and in another window those around its peak, where that lies behind; the event in
question is shown where its cause was searched.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataguard.report.run.known import Known
from dataguard.report.run.lineage import Lineage, Owned
from dataguard.run.index import merge
from dataguard.run.sources import Notes, Sources, covered_steps
from dataguard.triage.choosing import SERIOUS

__all__ = ["MOST_HEATS", "MOST_STEPS", "Window", "records_of", "tell", "windows_of"]

MOST_HEATS = 4
"""Heat maps of a page."""
MOST_STEPS = 72
_BEFORE, _BEHIND = 20, 12
_LEAST_BEFORE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Steps to be shown, from 0 and half-open."""

    event: int | None
    """Place among all events; None for a step that was asked for without one."""
    peak: int
    """The step that matters most, from 0."""
    first: int
    stop: int


def windows_of(lineage: Lineage, known: Known, asked: int | None) -> tuple[Window, ...]:
    """What is shown: the event in question first (or the step asked for), then the most serious others.

    Parameters
    ----------
    asked
        A step (label) that was asked for.
    """
    run, windows = lineage.run, list[Window]()
    events, chosen = known.events, known.chosen
    if chosen is None and asked is not None:
        step = run.step(asked)
        windows.append(_window(lineage, None, step, step + 1, step))
    places = [place for place, event in enumerate(events) if event == chosen]
    others = [place for place in range(len(events)) if place not in places]
    others.sort(key=lambda place: (SERIOUS.index(events[place].event_class), -events[place].start))
    for place in [*places, *others]:
        event = events[place]
        begin = event.start if event.onset is None else min(event.onset, event.start)
        low, high, peak = (max(each - run.first_label, 0) for each in (begin, event.stop, event.peak))
        if event == chosen and known.localised is not None:
            # Samples that are named at the event lie in the steps that were searched.
            searched = known.localised.looked_at.steps
            low, high = (max(each - run.first_label, 0) for each in searched)
        windows.append(_window(lineage, place, low, high, peak))
        if not windows[-1].first <= peak < windows[-1].stop:
            windows.append(_window(lineage, place, peak, peak + 1, peak))
        if asked is not None and event == chosen:
            step = run.step(asked)
            if not any(each.first <= step < each.stop for each in windows):
                windows.append(_window(lineage, place, step, step + 1, step))
    return tuple(each for each in windows if each.first < each.stop)[:MOST_HEATS]


def _window(lineage: Lineage, event: int | None, begin: int, stop: int, peak: int) -> Window:
    low, high = begin - _BEFORE, stop + _BEHIND
    if high - low > MOST_STEPS:
        low = begin - _LEAST_BEFORE
        high = low + MOST_STEPS
    first = lineage.owned[0].first if lineage.owned else 0
    return Window(event=event, peak=peak, first=max(low, first), stop=min(high, lineage.farthest))


def records_of(
    lineage: Lineage, owned: Owned, spans: Sequence[tuple[int, int]], ranks: Collection[int] | None = None
) -> NDArray[np.void]:
    """What was recorded of stretches of an attempt's own steps, in the order (step, rank, microbatch, slot).

    Of the files of other ranks nothing is read; what cannot be read is told.
    """
    number, size = owned.attempt.number, owned.attempt.geometry.world_size
    spans = [(max(low, owned.first), min(high, owned.farthest)) for low, high in spans]
    spans = [span for span in spans if span[0] < span[1]]
    if not spans:
        return merge([])
    wanted = sorted(range(size) if ranks is None else {rank for rank in ranks if rank < size})
    files, notes = Sources(lineage.run.layout), Notes()
    compacted = files.compacted(number, notes=notes)
    sources = [*compacted]
    for rank in wanted:
        sources += files.of_rank(number, rank, covered=covered_steps(compacted), notes=notes)
    parts = []
    for source in sources:
        for span in spans:
            if not source.holds(*span):
                continue
            records = lineage.lookup.index.read(source, span, notes)
            if records is None:
                break
            parts.append(records if ranks is None else records[np.isin(records["rank"], wanted)])
    tell(lineage, number, notes)
    return merge(parts)


def tell(lineage: Lineage, attempt: int, notes: Notes) -> None:
    """Say once what was met while the record of an attempt was read."""
    for text in notes.damage:
        told = f"the record of attempt {attempt} is damaged: {text}"
        if told not in lineage.damage:
            lineage.damage.append(told)
    for text in notes.torn:
        told = f"the record ends in an unfinished frame: {text}"
        if told not in lineage.notes:
            lineage.notes.append(told)
