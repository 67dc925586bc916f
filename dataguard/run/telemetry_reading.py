"""What did the ranks log, and which of it counts on a lineage?

`read_telemetry` gives the values of one attempt, `telemetry_of_lineage` those that are live on a leaf's lineage: of
each attempt only what was logged for its own steps. Both give TELEMETRY_ROW in the order (step, rank, as logged); of
several values of one step, rank, name and slot the later one counts; what was imported for a rank stands before what it
logged itself (`telemetry_files`). A file is read a few MiB at a time, so that what is held in memory is what was asked
for. Torn tails are told and are no failure; damage is, and what can be read around it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataguard.core.spans import check_span
from dataguard.errors import RunDamaged
from dataguard.plan.attempts import AttemptPlan
from dataguard.run.frames import FramesReader, scan_frames
from dataguard.run.layout import Layout
from dataguard.run.records import TELEMETRY_RECORD, used
from dataguard.run.run import Run
from dataguard.run.sources import Notes
from dataguard.run.telemetry import encoded_name
from dataguard.run.telemetry_files import telemetry_files

__all__ = [
    "TELEMETRY_ROW",
    "CheckedTelemetry",
    "check_telemetry",
    "names_in",
    "owned_steps",
    "read_telemetry",
    "rows_of",
    "telemetry_of_lineage",
    "telemetry_ranks",
]

TELEMETRY_ROW = np.dtype([("attempt", "<u4"), ("rank", "<u4"), *TELEMETRY_RECORD.descr])
"""One value with whose it is: attempt, rank, step, time, name, slot, value."""

_CHUNK_BYTES = 8 << 20


def telemetry_ranks(layout: Layout, attempt: int) -> list[int]:
    """Ranks that logged in an attempt, or for which a log was imported, in order (lists one folder)."""
    return sorted({rank for rank, _ in telemetry_files(layout, attempt)})


def read_telemetry(
    layout: Layout,
    attempt: int,
    ranks: Iterable[int] | None = None,
    *,
    names: Collection[str] | None = None,
    steps: tuple[int, int] | None = None,
    run_id: str | None = None,
    torn: list[str] | None = None,
    damage: list[str] | None = None,
    imported: bool = True,
) -> NDArray[np.void]:
    """What was logged in one attempt, whether or not a later one delivered the same steps again.

    Parameters
    ----------
    layout, attempt
        Which attempt of which run.
    ranks
        Default: all that logged anything. A rank that logged nothing adds nothing.
    names
        Only values of these names.
    steps
        Only of the steps ``first:stop``, counted from 0.
    run_id
        Whose files they must be; not asked where it is None.
    torn, damage
        Torn tails and damage are added to these; without a list for it, damage raises.
    imported
        With what was imported from logs of other tools.

    Returns
    -------
    ndarray
        TELEMETRY_ROW, shape (n,), in the order (step, rank, as logged).

    Raises
    ------
    RunDamaged
        A file cannot be trusted, and no list for damage was given.
    """
    if steps is not None:
        check_span(*steps, what="steps")
    notes = Notes(torn=[] if torn is None else torn, damage=[] if damage is None else damage)
    chosen = _chooser(names, steps)
    parts = []
    for rank, path in telemetry_files(layout, attempt, ranks, imported=imported):
        records = _read_file(path, attempt, rank, run_id, chosen, notes)
        if damage is None and notes.damage:
            raise RunDamaged(
                f"the telemetry of attempt {attempt}, rank {rank} is damaged",
                found="; ".join(notes.damage[:3]),
                todo="dataguard verify lists what is damaged in a run",
            )
        parts.append(rows_of(records, attempt, rank))
    return _in_order(parts)


def rows_of(records: NDArray[np.void], attempt: int, rank: int) -> NDArray[np.void]:
    """Records of one file with whose they are: TELEMETRY_RECORD, shape (n,), to TELEMETRY_ROW, shape (n,)."""
    rows: NDArray[np.void] = np.empty(len(records), TELEMETRY_ROW)
    rows["attempt"], rows["rank"] = attempt, rank
    for name in TELEMETRY_RECORD.names or ():
        rows[name] = records[name]
    return rows


def telemetry_of_lineage(
    run: Run,
    leaf: int | None = None,
    *,
    ranks: Iterable[int] | None = None,
    names: Collection[str] | None = None,
    steps: tuple[int, int] | None = None,
    torn: list[str] | None = None,
    damage: list[str] | None = None,
) -> NDArray[np.void]:
    """What is live on the lineage of a leaf (default: the newest): each attempt's values of its own steps.

    What an attempt logged of steps that a later attempt of the lineage delivered again is left out. The parameters are
    those of `read_telemetry`.

    Raises
    ------
    NotInRun
        The run has no such attempt, or none at all.
    RunDamaged
        A file cannot be trusted, and no list for damage was given.
    """
    first, stop = (0, None) if steps is None else check_span(*steps, what="steps")
    asked = None if ranks is None else sorted(set(ranks))
    parts = []
    for attempt, own_first, own_stop in owned_steps(run.attempts().lineage(leaf)):
        low = max(first, own_first)
        ends = [end for end in (stop, own_stop) if end is not None]
        high = min(ends) if ends else np.iinfo(np.int64).max
        if low < high:
            rows = read_telemetry(
                run.layout,
                attempt.number,
                asked,
                names=names,
                steps=(low, int(high)),
                run_id=run.run_id,
                torn=torn,
                damage=damage,
            )
            parts.append(rows)
    return _in_order(parts)


def owned_steps(chain: tuple[AttemptPlan, ...]) -> Iterator[tuple[AttemptPlan, int, int | None]]:
    """Each attempt of a lineage with the steps it owns there, ``first:stop``; the leaf's have no stop."""
    for i, each in enumerate(chain):
        yield each, each.fork_step, chain[i + 1].fork_step if i + 1 < len(chain) else None


def names_in(rows: NDArray[np.void]) -> tuple[str, ...]:
    """The names of values there, in the order of their bytes.

    >>> names_in(np.array([(1, 0, 7, 0, b"lr", -1, 0.1), (1, 0, 7, 0, b"loss", -1, 2.5)], TELEMETRY_ROW))
    ('loss', 'lr')
    """
    return tuple(name.decode("utf-8", "replace") for name in np.unique(rows["name"]).tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedTelemetry:
    """Whether what the ranks of an attempt logged can be trusted."""

    attempt: int
    num_values: int
    damage: tuple[str, ...]
    torn: tuple[str, ...]
    """Torn tails that were dropped; no failure."""


def check_telemetry(layout: Layout, attempt: int, *, run_id: str | None = None) -> CheckedTelemetry:
    """Look at every frame of every rank's telemetry of an attempt."""
    notes = Notes()
    num_values = 0
    for rank, path in telemetry_files(layout, attempt):
        # A byte a value is enough to count them.
        slots = _read_file(path, attempt, rank, run_id, _one_byte_each, notes)
        num_values += len(slots)
    return CheckedTelemetry(attempt=attempt, num_values=num_values, damage=tuple(notes.damage), torn=tuple(notes.torn))


_Choose = Callable[[NDArray[np.void]], NDArray[Any]]
"""What of some records is to be kept in memory."""


def _one_byte_each(records: NDArray[np.void]) -> NDArray[Any]:
    return np.zeros(len(records), np.uint8)


def _chooser(names: Collection[str] | None, steps: tuple[int, int] | None) -> _Choose:
    wanted = None if names is None else [encoded_name(name) for name in names]

    def choose(records: NDArray[np.void]) -> NDArray[Any]:
        keep = np.ones(len(records), np.bool_)
        if steps is not None:
            keep &= (records["step"] >= steps[0]) & (records["step"] < steps[1])
        if wanted is not None:
            own = records["name"]
            keep &= reduce(np.logical_or, [own == name for name in wanted], np.zeros(len(records), np.bool_))
        # A copy in any case: what is left out must not stay in memory.
        chosen: NDArray[Any] = records[keep]
        return chosen

    return choose


def _read_file(path: Path, attempt: int, rank: int, run_id: str | None, choose: _Choose, notes: Notes) -> NDArray[Any]:
    """What is chosen of one rank's values; nothing where the rank has no file."""
    try:
        reader = FramesReader(path, "telemetry")
    except FileNotFoundError:
        return choose(np.empty(0, TELEMETRY_RECORD))
    with reader:
        header = reader.header
        if header is not None and (header.attempt, header.rank, header.run_id) != (
            attempt, rank, run_id or header.run_id
        ):  # fmt: skip
            notes.damage.append(
                f"{path} is another file in this one's place: its header says attempt {header.attempt}, "
                f"rank {header.rank}, run {header.run_id}"
            )
            return choose(np.empty(0, TELEMETRY_RECORD))
        parts = [] if header is None else _good_chunks(reader, choose)
        tail_bytes = reader.size_bytes - reader.offset(reader.num_whole)
    if parts is None or header is None:
        # Something is wrong: the scan looks at the file as a whole and says what.
        scan = scan_frames(path, "telemetry")
        notes.add(path, scan)
        return choose(scan.records)
    if tail_bytes:
        notes.torn.append(f"{path}: {tail_bytes:,} bytes dropped")
    return np.concatenate([*parts, choose(np.empty(0, TELEMETRY_RECORD))])


def _good_chunks(reader: FramesReader, choose: _Choose) -> list[NDArray[Any]] | None:
    """What is chosen of a file whose whole frames are all good; None where one is not."""
    parts = []
    at_once = max(1, _CHUNK_BYTES // reader.frame_bytes)
    for first in range(0, reader.num_whole, at_once):
        frames, good = reader.read(first, first + at_once)
        if not good.all():
            return None
        parts.append(choose(used(frames["records"])))
    return parts


def _in_order(parts: list[NDArray[np.void]]) -> NDArray[np.void]:
    """Rows of several ranks and attempts in the order (step, rank, as logged)."""
    rows: NDArray[np.void] = np.concatenate([*parts, np.empty(0, TELEMETRY_ROW)])
    return rows[np.lexsort((rows["rank"], rows["step"]))]
