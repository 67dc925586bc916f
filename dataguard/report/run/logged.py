"""What did the ranks log on a lineage: curves over all its steps, and every value of a few stretches of steps?

1. Over all ranks of a step the loss is the mean, the gradient norm the largest: what `triage` detects events in. Any
   other name is what the lowest rank that logged it there says. A rank's NaN is the step's NaN.
2. Of several values of one step, rank, name and slot the later one counts. Of an attempt its own steps count.
3. Files are read a few MiB at a time, one rank after the other: what is held grows with steps and names, not with
   ranks; values of samples are held in the stretches alone.

What cannot be trusted is told and left out; torn tails are told and are no damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dataguard.core.spans import SpanSet
from dataguard.report.run.lineage import Lineage
from dataguard.run.frames import FramesReader, scan_frames
from dataguard.run.records import TELEMETRY_RECORD, used
from dataguard.run.sources import Notes
from dataguard.run.telemetry_files import telemetry_files
from dataguard.run.telemetry_reading import TELEMETRY_ROW, rows_of
from dataguard.triage.curve import OVER_RANKS

__all__ = ["FIRST", "MOST_NAMES", "Logged", "Series", "read_logged"]

FIRST = ("loss", "grad_norm", "val_loss", "lr")
"""Names that are kept and drawn however many others were logged, in this order."""

MOST_NAMES = 64
"""Names of which curves are kept."""
_CHUNK_BYTES = 8 << 20


@dataclass(slots=True, kw_only=True, eq=False)
class Series:
    """One name over steps from 0 on, in place; arrays of shape (steps,)."""

    values: NDArray[np.float64]
    """Where `counts` is 0, nothing."""
    counts: NDArray[np.int64]
    """Ranks that logged it at each step."""

    @classmethod
    def empty(cls) -> Series:
        """Of no steps."""
        return cls(values=np.zeros(0), counts=np.zeros(0, np.int64))

    def reach(self, stop: int) -> None:
        """Make room for steps up to `stop`, and then some."""
        if stop > len(self.counts):
            more = max(stop, 2 * len(self.counts), 1024) - len(self.counts)
            self.values = np.concatenate([self.values, np.zeros(more)])
            self.counts = np.concatenate([self.counts, np.zeros(more, np.int64)])

    @property
    def known(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Steps that have a value, ascending, and those."""
        steps = np.flatnonzero(self.counts)
        return steps, self.values[steps]


@dataclass(slots=True, kw_only=True, eq=False)
class Logged:
    """What was read."""

    over: dict[str, Series] = field(default_factory=dict)
    """Over all ranks, by name, in the order in which names were met."""
    own: dict[tuple[str, int], Series] = field(default_factory=dict)
    """Of single ranks, by name and rank."""
    rows: NDArray[np.void] = field(default_factory=lambda: np.empty(0, TELEMETRY_ROW))
    """TELEMETRY_ROW of the stretches, in the order (step, rank, name, slot), each value once."""
    num_names: int = 0
    """Names met: more than `over` has where there are very many."""


def read_logged(
    lineage: Lineage, *, own: Sequence[str] = (), own_ranks: Iterable[int] = (), spans: Sequence[tuple[int, int]] = ()
) -> Logged:
    """Read the telemetry of a lineage.

    Parameters
    ----------
    own, own_ranks
        Names of which single ranks' values are kept, and those ranks.
    spans
        Stretches of steps, from 0 and half-open, of which every value is kept.
    """
    logged, notes = Logged(), Notes()
    wanted, names, parts = frozenset(own_ranks), set[str](), [logged.rows]
    stretches = SpanSet.of([span for span in spans if span[0] < span[1]])
    run = lineage.run
    for i, each in enumerate(lineage.owned):
        number = each.attempt.number
        # The leaf may have logged a step whose record is lost: what was logged is shown.
        stop = each.farthest if i + 1 < len(lineage.owned) else None
        files = telemetry_files(run.layout, number)
        for rank, group in groupby(files, key=lambda file: file[0]):
            found = [_read(path, (number, rank, run.run_id), (each.first, stop), stretches, notes) for _, path in group]
            whole = np.concatenate([part for part, _ in found])
            parts += [rows_of(rows, number, rank) for _, rows in found if len(rows)]
            for name, steps, values in _series(whole):
                names.add(name)
                if name in FIRST or name in logged.over or len(logged.over) < MOST_NAMES:
                    _add(logged.over.setdefault(name, Series.empty()), name, steps, values)
                if name in own and rank in wanted:
                    single = logged.own.setdefault((name, rank), Series.empty())
                    _add(single, "", steps, values)
    if "loss" in logged.over:
        loss = logged.over["loss"]
        loss.values /= np.maximum(loss.counts, 1)
    logged.num_names = len(names)
    logged.rows = _once(np.concatenate(parts))
    lineage.damage.extend(f"telemetry is damaged: {text}" for text in notes.damage)
    lineage.notes.extend(f"telemetry ends in an unfinished frame: {text}" for text in notes.torn)
    return logged


def _add(series: Series, name: str, steps: NDArray[np.int64], values: NDArray[np.float64]) -> None:
    """Take what one rank logged: ascending steps, each once."""
    series.reach(int(steps[-1]) + 1)
    before = series.counts[steps] > 0
    with np.errstate(invalid="ignore"):  # of infinity and minus infinity the mean is NaN, as it should be
        if name == "loss":
            series.values[steps] += values
        elif name in OVER_RANKS:
            series.values[steps] = np.where(before, np.maximum(series.values[steps], values), values)
        else:
            series.values[steps] = np.where(before, series.values[steps], values)
    series.counts[steps] += 1


def _series(rows: NDArray[np.void]) -> Iterable[tuple[str, NDArray[np.int64], NDArray[np.float64]]]:
    """By name: ascending steps, each once, and values; names in the order of their bytes."""
    names, places = np.unique(rows["name"], return_inverse=True)
    for i, name in enumerate(names.tolist()):
        mine = rows[places == i]
        mine = mine[np.argsort(mine["step"], kind="stable")]
        mine = mine[np.append(mine["step"][1:] != mine["step"][:-1], True)]
        yield name.decode("utf-8", "replace"), mine["step"].astype(np.int64), mine["value"].astype(np.float64)


_SLIM = np.dtype([("step", "<u8"), ("name", TELEMETRY_RECORD["name"]), ("value", "<f8")])


def _read(
    path: Path,
    whose: tuple[int, int, str],
    steps: tuple[int, int | None],
    stretches: SpanSet,
    notes: Notes,
) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """Of one file, values that are no sample's, and all records of the stretches."""

    def keep(records: NDArray[np.void]) -> tuple[NDArray[np.void], NDArray[np.void]]:
        inside = records["step"] >= steps[0]
        if steps[1] is not None:
            inside &= records["step"] < steps[1]
        whole = inside & (records["slot"] < 0)
        slim = np.empty(np.count_nonzero(whole), _SLIM)
        for name in _SLIM.names or ():
            slim[name] = records[name][whole]
        near = np.zeros(len(records), np.bool_)
        for low, high in stretches.spans:
            near |= (records["step"] >= low) & (records["step"] < high)
        return slim, records[inside & near]

    nothing = np.empty(0, TELEMETRY_RECORD)
    try:
        reader = FramesReader(path, "telemetry")
    except FileNotFoundError:
        return keep(nothing)
    parts = [keep(nothing)]
    with reader:
        header = reader.header
        if header is not None and (header.attempt, header.rank, header.run_id) != whose:
            notes.damage.append(f"{path} is another file in this one's place")
            return parts[0]
        sound = header is not None
        at_once = max(1, _CHUNK_BYTES // max(1, reader.frame_bytes))
        for first in range(0, reader.num_whole if sound else 0, at_once):
            frames, good = reader.read(first, first + at_once)
            if not good.all():
                sound = False
                break
            parts.append(keep(used(frames["records"])))
        tail_bytes = reader.size_bytes - reader.offset(reader.num_whole)
    if not sound:
        # The scan looks at the file as a whole, says what is wrong, and reads what can be read around it.
        scan = scan_frames(path, "telemetry")
        notes.add(path, scan)
        return keep(scan.records)
    if tail_bytes:
        notes.torn.append(f"{path}: {tail_bytes:,} bytes dropped")
    return np.concatenate([slim for slim, _ in parts]), np.concatenate([rows for _, rows in parts])


def _once(rows: NDArray[np.void]) -> NDArray[np.void]:
    """In the order (step, rank, name, slot); of several values of one, the later."""
    rows = rows[np.lexsort((rows["slot"], rows["name"], rows["rank"], rows["step"]))]  # stable: as logged within
    keys = rows[["step", "rank", "name", "slot"]]
    last: NDArray[np.bool_] = np.append(keys[1:] != keys[:-1], [True])[: len(rows)]
    newest: NDArray[np.void] = rows[last]
    return newest
