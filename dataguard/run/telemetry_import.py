"""How does what another tool logged become telemetry of a run?

1. Of several points of one step and name the later counts, as everywhere.
2. Names become those that detectors look for (`logs.naming`), or what the user says.
3. A label becomes a step, and a step goes to the attempt of the lineage that owns it, if that attempt delivered it.
   Steps that none delivered are counted and told: most often the log counts from another first label, or is of another
   run.
4. A point that is there already is not written again, so a log may be imported as often as it grows. Where the rank
   itself logged another value, its own stands.
5. What is new goes into one new file for each attempt (see `telemetry_files`); a live writer is never touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from dataguard.errors import UsageError, WriterConflict
from dataguard.run.clock import now
from dataguard.run.frames import FramesFile, FramesHeader
from dataguard.run.layout import Layout
from dataguard.run.logs.log import TrainingLog
from dataguard.run.logs.naming import telemetry_names
from dataguard.run.reached import reached_by_any
from dataguard.run.records import TELEMETRY_RECORD
from dataguard.run.run import Run
from dataguard.run.telemetry import encoded_name, telemetry_records
from dataguard.run.telemetry_files import imported_file, imported_files
from dataguard.run.telemetry_reading import owned_steps, read_telemetry

__all__ = ["ImportedAttempt", "LeftOutName", "TelemetryImported", "import_log"]

_RECORDS_PER_FRAME = 64


class ImportedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt got."""

    attempt: int
    num_new: int
    """Points that were written (or would be)."""
    num_present: int
    """Points that were there already, with this value."""
    num_overruled: int
    """Points of which the rank itself logged another value, which stands."""
    steps: tuple[int, int] | None
    """Steps of all these points, half-open, in the trainer's labels."""
    file: str | None
    """What was written, relative to the run directory; null where nothing was."""


class LeftOutName(msgspec.Struct, frozen=True, kw_only=True):
    """A name of the log that telemetry cannot hold."""

    name: str
    num_points: int
    reason: str


class TelemetryImported(msgspec.Struct, frozen=True, kw_only=True):
    """What ``telemetry import`` answers, for one log."""

    run: str
    source: str
    """The log, as it was given."""
    format: str
    """What it was found to be."""
    rank: int
    """Whose telemetry it became."""
    first_label: Literal[0, 1]
    """What the log calls the first step."""
    dry_run: bool
    names: dict[str, str]
    """Name in the log -> name of telemetry, of all that were imported."""
    num_points: int
    """Points of the log, of those logged again the later."""
    num_superseded: int
    """Points that the log itself holds again later on."""
    num_new: int
    num_present: int
    num_overruled: int
    num_not_delivered: int
    """Points of steps that no attempt of the lineage delivered."""
    steps_not_delivered: tuple[int, int] | None
    """From the first of them to one past the last, in the log's labels; delivered ones may lie between."""
    attempts: tuple[ImportedAttempt, ...]
    left_out: tuple[LeftOutName, ...]
    undecided: dict[str, tuple[str, ...]]
    """Name of telemetry -> names of the log that could be it: none was taken for it."""
    problems: tuple[str, ...]
    """What could not be taken from the log as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Points:
    """Points of a log as telemetry spells them, shape (n,) each."""

    steps: NDArray[np.int64]
    names: NDArray[np.bytes_]
    values: NDArray[np.float64]
    times: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.steps)

    def chosen(self, keep: NDArray[np.bool_]) -> _Points:
        return _Points(steps=self.steps[keep], names=self.names[keep], values=self.values[keep], times=self.times[keep])


def import_log(
    run: Run,
    log: TrainingLog,
    *,
    attempt: int | None = None,
    rank: int = 0,
    names: Mapping[str, str] | None = None,
    first_label: Literal[0, 1] | None = None,
    dry_run: bool = False,
) -> TelemetryImported:
    """Write what a log holds into the telemetry of a run.

    Parameters
    ----------
    run, log
        What, into what.
    attempt
        The lineage of this attempt; by default the newest leaf's. Each step goes to the attempt that owns it there.
    rank
        Whose telemetry it becomes.
    names
        Name in the log -> name of telemetry, before the usual spellings.
    first_label
        What the log calls the first step; by default what the run calls it.
    dry_run
        Write nothing.

    Raises
    ------
    NotInRun
        The run has no such attempt (or none), or the log no such name.
    GeometryError
        An attempt that delivered steps of the log has no such rank.
    UsageError
        A name that was given cannot be kept, or two would become one.
    RunDamaged
        Telemetry that is there already cannot be trusted.
    WriteFailed
        The operating system failed.
    """
    label = run.document.first_label if first_label is None else first_label
    tree = run.attempts()
    chain = tree.lineage(attempt)
    naming = telemetry_names(log.names, names)
    wide = log.renamed(naming.names).wide()
    taken, left_out = _names(log, wide, naming.names, names or {})
    points = _points(wide, [naming.names.get(name, name) for name in taken], label)
    undelivered = np.ones(len(points), np.bool_)
    owned: list[tuple[int, _Points]] = []
    for each, first, stop in owned_steps(chain):
        end = reached_by_any(run, each.number)
        own = _delivered(run, each.number, points.steps, first, end if stop is None else min(stop, end))
        undelivered &= ~own
        if own.any():
            each.geometry.check_rank(rank)
            owned.append((each.number, points.chosen(own)))
    if not owned:
        chain[-1].geometry.check_rank(rank)
    # Whatever can be refused is refused before anything is written.
    found = [_new_points(run, number, rank, its) for number, its in owned]
    attempts = [
        _imported(run, number, rank, its, *new, dry_run=dry_run)
        for (number, its), new in zip(owned, found, strict=True)
    ]
    lost = points.steps[undelivered] + label
    return TelemetryImported(
        run=str(run.path),
        source=log.source,
        format=log.format,
        rank=rank,
        first_label=label,
        dry_run=dry_run,
        names={name: naming.names.get(name, name) for name in taken},
        num_points=len(points) + sum(each.num_points for each in left_out),
        num_superseded=log.num_duplicates,
        num_new=sum(each.num_new for each in attempts),
        num_present=sum(each.num_present for each in attempts),
        num_overruled=sum(each.num_overruled for each in attempts),
        num_not_delivered=len(lost),
        steps_not_delivered=(int(lost.min()), int(lost.max()) + 1) if len(lost) else None,
        attempts=tuple(attempts),
        left_out=tuple(left_out),
        undecided=dict(naming.undecided),
        problems=tuple(str(problem) for problem in log.problems),
    )


def _names(
    log: TrainingLog, wide: TrainingLog, renamed: Mapping[str, str], given: Mapping[str, str]
) -> tuple[list[str], list[LeftOutName]]:
    """Names of the log that can be kept, and those that cannot; what the user himself named must."""
    taken, left_out = [], []
    for name in log.names:
        kept = renamed.get(name, name)
        try:
            encoded_name(kept)
        except UsageError as error:
            if name in given:
                raise
            count = len(wide.points[kept])
            left_out.append(LeftOutName(name=name, num_points=count, reason=error.asked))
        else:
            taken.append(name)
    return taken, left_out


def _points(wide: TrainingLog, names: list[str], first_label: int) -> _Points:
    """All points by step, in the order of `names` within one."""
    found = [wide.points[name] for name in names]
    rows = np.concatenate([*(each.rows for each in found), np.empty(0, np.int64)])
    columns = np.repeat(np.arange(len(names)), np.array([len(each) for each in found], np.int64))
    values = np.concatenate([*(each.values for each in found), np.empty(0)])
    order = np.lexsort((columns, rows))
    rows, columns, values = rows[order], columns[order], values[order]
    encoded = np.array([encoded_name(name) for name in names], TELEMETRY_RECORD["name"])
    seconds = np.where(np.isfinite(wide.times) & (wide.times > 0) & (wide.times < 2**33), wide.times, 0.0)
    times = np.round(seconds * 1e6).astype(np.int64) * 1000
    return _Points(steps=wide.steps[rows] - first_label, names=encoded[columns], values=values, times=times[rows])


def _delivered(run: Run, attempt: int, steps: NDArray[np.int64], first: int, stop: int) -> NDArray[np.bool_]:
    """Which steps lie in ``first:stop`` and were not left out by a skip that leaves holes."""
    inside = (steps >= first) & (steps < stop)
    if run.document.skip_mode == "hole":
        chain = run.steps_of(attempt)
        unique = np.unique(steps[inside]).tolist()
        holes = [step for step in unique if chain.next_delivered(step) != step]
        inside &= ~np.isin(steps, holes)
    return inside


def _new_points(run: Run, attempt: int, rank: int, points: _Points) -> tuple[NDArray[np.bool_], int]:
    """Which points are new there, and how many are there already."""
    span = (int(points.steps.min()), int(points.steps.max()) + 1)
    rows = read_telemetry(run.layout, attempt, [rank], steps=span, run_id=run.run_id)
    rows = rows[rows["slot"] < 0]
    held = {
        (step, name): value
        for step, name, value in zip(rows["step"].tolist(), rows["name"].tolist(), rows["value"].tolist(), strict=True)
    }
    own = _own_points(run.layout, attempt, rank, span, run.run_id)
    new = np.zeros(len(points), np.bool_)
    num_present = 0
    keys = zip(points.steps.tolist(), points.names.tolist(), points.values.tolist(), strict=True)
    for place, (step, name, value) in enumerate(keys):
        before = held.get((step, name))
        if before is not None and _same(before, value):
            num_present += 1
        elif (step, name) not in own:
            new[place] = True
    return new, num_present


def _imported(
    run: Run, attempt: int, rank: int, points: _Points, new: NDArray[np.bool_], num_present: int, *, dry_run: bool
) -> ImportedAttempt:
    fresh = points.chosen(new)
    file = None if dry_run or not len(fresh) else _write(run, attempt, rank, fresh)
    return ImportedAttempt(
        attempt=attempt,
        num_new=len(fresh),
        num_present=num_present,
        num_overruled=len(points) - num_present - len(fresh),
        steps=(run.label(int(points.steps.min())), run.label(int(points.steps.max()) + 1)),
        file=file,
    )


def _own_points(layout: Layout, attempt: int, rank: int, span: tuple[int, int], run_id: str) -> set[tuple[int, bytes]]:
    """Steps and names of which the rank logged a value itself."""
    rows = read_telemetry(layout, attempt, [rank], steps=span, run_id=run_id, imported=False)
    rows = rows[rows["slot"] < 0]
    return set(zip(rows["step"].tolist(), rows["name"].tolist(), strict=True))


def _same(held: float, value: float) -> bool:
    """Equal, or equal as float32: TensorBoard keeps no more than that."""
    with np.errstate(over="ignore"):
        return bool(np.array_equal(np.float32(held), np.float32(value), equal_nan=True))


def _write(run: Run, attempt: int, rank: int, points: _Points) -> str:
    begun = run.begun(attempt)
    head = run.head()
    header = FramesHeader.of(
        "telemetry",
        records_per_frame=_RECORDS_PER_FRAME,
        run_id=run.run_id,
        attempt=attempt,
        rank=rank,
        first_step=begun.fork_step,
        digests={"plan": begun.plan, "attempt": begun.attempt_digest},
        journal_head=(head.number, head.sha256),
        created=now(),
    )
    names = [name.decode() for name in points.names.tolist()]
    records = telemetry_records(points.steps, names, points.values, time_ns=points.times)
    while True:
        number = max(imported_files(run.layout, attempt).get(rank, ()), default=0) + 1
        path = imported_file(run.layout, attempt, rank, number)
        try:
            file = FramesFile.create(path, header, tmp=run.layout.tmp)
        except WriterConflict:
            continue  # another import took the number; its file stands now, so the next number is free
        with file:
            for first in range(0, len(records), _RECORDS_PER_FRAME):
                file.append(records[first : first + _RECORDS_PER_FRAME])
            file.sync()
        return path.relative_to(run.path).as_posix()
