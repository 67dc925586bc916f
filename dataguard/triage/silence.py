"""Has the newest attempt fallen silent, and which rank stopped first?

A trainer that stands still logs nothing, so nothing in its log says so. What says it is the clock: the newest row is
old, the record was never closed, and the silence is longer than any pause the run has made by itself. Ranks that wait
for one another stop at the same step; the one to look at first is the one that came less far: it was handed fewer
microbatches than the others, or it logged nothing of a step of which all others logged something.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.run.layout import Layout
from dataguard.run.reached import reached
from dataguard.run.run import Run
from dataguard.run.seal import ranks_of

__all__ = ["Silence", "silence_of", "unclosed_ranks"]

LEAST_ROWS = 8
"""Steps that must have been logged before a pace can be told."""
TIMES_MEDIAN, TIMES_LONGEST = 10.0, 2.0
"""A silence counts when it is longer than this many times the median step and this many times the longest pause that
the attempt has made and come back from (checkpoints, evaluations): with the second, no run that pauses by a rhythm of
its own is told, whatever the rhythm is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """The newest attempt says nothing any more."""

    event: SpikeEvent
    last_seconds: float
    """Unix second of the newest row."""
    silent_seconds: float
    median_step_seconds: float
    longest_pause_seconds: float
    texts: tuple[str, ...]


def unclosed_ranks(layout: Layout, attempt: int) -> tuple[int, ...]:
    """Ranks of an attempt whose record was not closed: their trainer runs, or it ended without a word."""
    return tuple(rank for rank in ranks_of(layout, attempt) if any(_hot_files(layout, attempt, rank)))


def silence_of(run: Run, attempt: int, rows: NDArray[np.void], *, now_seconds: float) -> Silence | None:
    """A stall at the end of an attempt; None where it was closed, is at work, or has logged too little to say.

    Parameters
    ----------
    attempt
        A leaf: what it goes on to is not written yet.
    rows
        TELEMETRY_ROW of its lineage, all ranks and names, shape (n,).
    now_seconds
        Unix second of the look.
    """
    unclosed = unclosed_ranks(run.layout, attempt)
    own = rows[(rows["attempt"] == attempt) & (rows["time"] > 0)]
    if not unclosed or not len(own):
        return None
    whole = own[own["slot"] < 0]
    steps = np.unique(whole["step"])
    if len(steps) < LEAST_ROWS:
        return None
    newest = np.array([whole["time"][whole["step"] == step].max() for step in steps[-4096:]]) / 1e9
    gaps = np.diff(np.sort(newest))
    median, longest = float(np.median(gaps)), float(gaps.max())
    last = float(own["time"].max()) / 1e9
    silent = now_seconds - last
    if silent <= max(TIMES_MEDIAN * median, TIMES_LONGEST * longest):
        return None
    label = run.label(int(steps[-1]))
    rank, why = _first_to_stop(run, attempt, own)
    event = SpikeEvent(
        event_class=EventClass.STALL,
        start=label,
        stop=label + 1,
        peak=label,
        size_nats=None,
        sigmas=None,
        is_open=True,
        signal="time",
        rank=rank,
    )
    old = f"attempt {attempt} was not closed, and its newest row is {silent:,.1f} s old"
    pace = f"a step takes {median:.3g} s, and its longest pause was {longest:.3g} s"
    texts = (f"{old}; {pace}", why)
    return Silence(
        event=event,
        last_seconds=last,
        silent_seconds=silent,
        median_step_seconds=median,
        longest_pause_seconds=longest,
        texts=texts,
    )


def _first_to_stop(run: Run, attempt: int, rows: NDArray[np.void]) -> tuple[int | None, str]:
    """The one rank that came less far than all others, and what shows it."""
    world_size = run.begun(attempt).world_size
    if world_size == 1:
        return None, "the attempt has one rank"
    logged = {rank: rows[rows["rank"] == rank] for rank in range(world_size)}
    # What others logged of the newest step, and how far each came in it: samples are logged before ranks wait.
    by_log = {rank: _came(each) for rank, each in logged.items()}
    rank = _one_behind(by_log)
    if rank is not None:
        step = max(step for step, _ in by_log.values())
        return rank, f"rank {rank} logged less of step {run.label(step):,} than every other rank: it stopped first"
    handed = {each: (-1 if step is None else step, 0) for each, step in enumerate(reached(run, attempt))}
    rank = _one_behind(handed)
    if rank is not None:
        return rank, f"rank {rank} was handed fewer microbatches than every other rank: it stopped first"
    return None, "all ranks came equally far: which one stopped first cannot be told from here"


def _came(rows: NDArray[np.void]) -> tuple[int, int]:
    """The newest step of which a rank logged anything, and how many values of it."""
    if not len(rows):
        return -1, 0
    step = int(rows["step"].max())
    return step, int((rows["step"] == step).sum())


def _one_behind(came: Mapping[int, tuple[int, int]]) -> int | None:
    """The one that is behind all others, where these are all equally far."""
    least = min(came.values())
    behind = [rank for rank, each in came.items() if each == least]
    others = {each for each in came.values() if each != least}
    return behind[0] if len(behind) == 1 and len(others) == 1 else None


def _hot_files(layout: Layout, attempt: int, rank: int) -> list[str]:
    folder = layout.hot_rank(attempt, rank)
    if not folder.is_dir():
        return []
    return [path.name for path in folder.iterdir() if path.suffix == ".frames"]
