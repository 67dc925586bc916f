"""What did the ranks log at some stretches of steps, without reading what they logged in between?

Steps climb in a rank's telemetry, as near as makes no difference: values that wait for a device keep their order, and a
trainer logs a step within a few of its neighbours. So in a long file a stretch is found by bisection, with
`_SLACK_FRAMES` frames more on both sides; a short one is read whole. Of several values of one step, rank, name and slot
the later one counts, as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dataguard.plan.attempts import AttemptPlan
from dataguard.run.frames import FramesReader, scan_frames
from dataguard.run.records import TELEMETRY_RECORD, used
from dataguard.run.run import Run
from dataguard.run.telemetry import encoded_name
from dataguard.run.telemetry_files import telemetry_files
from dataguard.run.telemetry_reading import TELEMETRY_ROW, owned_steps

__all__ = ["LOCAL_GRAD_NORM", "by_rank", "logged_values", "losses_of_samples"]

LOCAL_GRAD_NORM = "local_grad_norm"
"""Norm of the gradient that one rank's own microbatches gave; logged by part of the model, ``local_grad_norm/PART``."""

_LOSS = encoded_name("loss")
_NORM = encoded_name(LOCAL_GRAD_NORM)
_FEW_FRAMES = 1 << 16
_CHUNK_FRAMES = 1 << 14
_SLACK_FRAMES = 256

_Keep = Callable[[NDArray[np.void]], NDArray[np.bool_]]


def logged_values(
    run: Run, chain: Sequence[AttemptPlan], spans: Sequence[tuple[int, int]], notes: list[str]
) -> NDArray[np.void]:
    """Losses and local gradient norms of stretches of steps (from 0), each attempt's of its own steps.

    Returns
    -------
    ndarray
        TELEMETRY_ROW, shape (n,), in the order (step, rank, as logged); each value once, as it was logged last.
    """
    parts = [np.empty(0, TELEMETRY_ROW)]
    for attempt, own_first, own_stop in owned_steps(tuple(chain)):
        own = [(max(low, own_first), high if own_stop is None else min(high, own_stop)) for low, high in spans]
        own = [(low, high) for low, high in own if low < high]
        for rank, path in telemetry_files(run.layout, attempt.number) if own else ():
            records = _of_file(path, (attempt.number, rank, run.run_id), own, notes)
            rows = np.empty(len(records), TELEMETRY_ROW)
            rows["attempt"], rows["rank"] = attempt.number, rank
            for name in TELEMETRY_RECORD.names or ():
                rows[name] = records[name]
            parts.append(rows)
    rows = np.concatenate(parts)
    order = np.lexsort((rows["slot"], rows["name"], rows["rank"], rows["step"]))  # stable: as logged within
    rows = rows[order]
    if len(rows):
        keys = rows[["step", "rank", "name", "slot"]]
        last = np.append(keys[1:] != keys[:-1], [True])
        rows = rows[last]
    return rows


def _of_file(
    path: Path, whose: tuple[int, int, str], spans: Sequence[tuple[int, int]], notes: list[str]
) -> NDArray[np.void]:
    def keep(records: NDArray[np.void]) -> NDArray[np.void]:
        name, step = records["name"], records["step"]
        wanted = (name == _LOSS) | (name == _NORM) | np.char.startswith(name, _NORM + b"/")
        inside = np.zeros(len(records), np.bool_)
        for low, high in spans:
            inside |= (step >= low) & (step < high)
        chosen: NDArray[np.void] = records[wanted & inside]
        return chosen

    nothing = np.empty(0, TELEMETRY_RECORD)
    try:
        reader = FramesReader(path, "telemetry")
    except FileNotFoundError:
        return nothing
    with reader:
        header = reader.header
        if header is not None and (header.attempt, header.rank, header.run_id) != whose:
            notes.append(f"{path} is another file in this one's place, and was left out")
            return nothing
        found = None if header is None else _good(reader, spans, keep)
    if found is not None:
        return np.concatenate([nothing, *found])
    scan = scan_frames(path, "telemetry")
    notes += [f"{path}: {each}" for each in scan.damage]
    return keep(scan.records)


def _good(
    reader: FramesReader, spans: Sequence[tuple[int, int]], keep: Callable[[NDArray[np.void]], NDArray[np.void]]
) -> list[NDArray[np.void]] | None:
    """What is wanted of a file; None where a frame that was met is not good."""
    stretches: list[tuple[int, int]] | None = [(0, reader.num_whole)]
    if reader.num_whole > _FEW_FRAMES:
        stretches = _bisected(reader, spans)
    if stretches is None:
        return None
    parts = []
    for begin, end in stretches:
        for first in range(begin, end, _CHUNK_FRAMES):
            frames, good = reader.read(first, min(first + _CHUNK_FRAMES, end))
            if not good.all():
                return None
            parts.append(keep(used(frames["records"])))
    return parts


def _bisected(reader: FramesReader, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]] | None:
    """Stretches of frames that hold some steps, disjoint and ascending; None where a frame met is not good."""

    def lowest(step: int) -> int | None:
        low, high = 0, reader.num_whole
        while low < high:
            middle = (low + high) // 2
            frames, good = reader.read(middle, middle + 1)
            if not good.all() or not len(frames):
                return None
            low, high = (middle + 1, high) if frames["records"][0, 0]["step"] < step else (low, middle)
        return low

    stretches: list[tuple[int, int]] = []
    for first, stop in sorted(spans):
        begin, end = lowest(first), lowest(stop)
        if begin is None or end is None:
            return None
        begin, end = max(0, begin - _SLACK_FRAMES), min(reader.num_whole, end + _SLACK_FRAMES)
        if stretches and begin <= stretches[-1][1]:
            stretches[-1] = (stretches[-1][0], max(end, stretches[-1][1]))
        else:
            stretches.append((begin, end))
    return stretches


def losses_of_samples(rows: NDArray[np.void]) -> NDArray[np.void]:
    """The losses of samples alone: rows of name ``loss`` that have a slot."""
    chosen: NDArray[np.void] = rows[(rows["slot"] >= 0) & (rows["name"] == _LOSS)]
    return chosen


def by_rank(rows: NDArray[np.void], what: str) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """``loss``, or ``local_grad_norm`` over all parts of the model, of each step and rank.

    Returns
    -------
    steps, ranks
        int64, ascending.
    values
        float64, shape (steps, ranks): NaN where nothing was logged; a NaN that was logged is infinity here, since
        both say that the number is gone.
    """
    whole = rows[rows["slot"] < 0]
    if what == "loss":
        chosen = whole[whole["name"] == _LOSS]
    else:
        plain = whole[whole["name"] == _NORM]
        chosen = plain if len(plain) else whole[np.char.startswith(whole["name"], _NORM + b"/")]
    steps, step_places = np.unique(chosen["step"].astype(np.int64), return_inverse=True)
    ranks, rank_places = np.unique(chosen["rank"].astype(np.int64), return_inverse=True)
    values = np.where(np.isnan(chosen["value"]), np.inf, chosen["value"])
    known = np.zeros((len(steps), len(ranks)), np.bool_)
    known[step_places, rank_places] = True
    table = np.full((len(steps), len(ranks)), np.nan)
    if what == "loss":
        table[step_places, rank_places] = values
    else:
        squares = np.zeros((len(steps), len(ranks)))
        np.add.at(squares, (step_places, rank_places), values**2)
        table[known] = np.sqrt(squares[known])
    return steps, ranks, table
