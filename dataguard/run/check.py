"""Can the record of an attempt be trusted, and does it hold every microbatch once?

What `verify` asks of the record alone, without plan or data:

* every frames file is good but for a torn tail; every sealed and compacted file is the one its seal names, stands in
  its own place, and reads back with its page checksums,
* each rank's steps follow each other, and within a step its microbatches count from 0 (an attempt that was killed may
  end anywhere, also within a step),
* no position occurs twice, and positions climb with the steps.

Memory is bounded: records are looked at some steps at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dataguard.run.exceptions import scan_exceptions
from dataguard.run.frames import scan_frames
from dataguard.run.index import Index, merge
from dataguard.run.layout import Layout
from dataguard.run.seal import file_sha256
from dataguard.run.sources import Notes, Source, Sources, last_address

__all__ = ["CheckedRecord", "RecordProblem", "check_record"]

_WINDOW_RECORDS = 1 << 19
_TOLD = 20  # problems of one kind and rank that are spelt out

ProblemKind = Literal["damaged", "missing", "changed", "gap", "doubled", "disordered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordProblem:
    """One thing wrong with an attempt's record."""

    kind: ProblemKind
    attempt: int
    rank: int | None
    step: int | None
    path: Path | None
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRecord:
    """The account of one attempt's record."""

    attempt: int
    num_records: int
    problems: tuple[RecordProblem, ...]
    torn: tuple[str, ...]
    """Torn tails that were dropped; no failure."""


def check_record(
    layout: Layout,
    attempt: int,
    *,
    num_ranks: int | None = None,
    num_microbatches: Callable[[int], int] | None = None,
    next_delivered: Callable[[int], int] | None = None,
    window_records: int = _WINDOW_RECORDS,
) -> CheckedRecord:
    """Check everything that can be checked of an attempt's record without its plan.

    Parameters
    ----------
    layout, attempt
        Which record.
    num_ranks
        Of the attempt's geometry; where it is not given, the ranks that have had a writer.
    num_microbatches
        Microbatches of a rank in a step. Without it, a rank is compared with the others of the same step.
    next_delivered
        The first delivered step at or after one; needed where the run has holes.
    window_records
        About how many records are held in memory at once.
    """
    problems: list[RecordProblem] = []
    notes = Notes()
    files = Sources(layout)
    ranks = files.ranks(attempt, num_ranks)
    sources = list(files.of_attempt(attempt, num_ranks=num_ranks, notes=notes))
    for source in sources:
        problems += _compare_with_seal(source)
        if source.kind == "hot":
            # Lookups may search a segment; here every frame is looked at.
            with contextlib.suppress(FileNotFoundError):
                notes.add(source.path, scan_frames(source.path, "index"))
    for rank in ranks:
        scan = scan_exceptions(layout, attempt, rank)
        if scan is not None:
            notes.add(scan.path, scan)
            notes.expect(scan, attempt, rank)
    sequence = _Sequence(attempt, ranks, sources, num_microbatches, next_delivered, problems)
    num_records = 0
    index = Index(layout)
    for first, stop in _windows(sources, window_records):
        parts = [index.read(source, (first, stop), notes) for source in sources if source.holds(first, stop)]
        records = merge([part for part in parts if part is not None])
        num_records += len(records)
        if len(records):
            sequence.take(records)
    problems += [
        RecordProblem(kind="damaged", attempt=attempt, rank=None, step=None, path=None, message=message)
        for message in dict.fromkeys(notes.damage)
        if not any(problem.message == message for problem in problems)
    ]
    torn = tuple(dict.fromkeys(notes.torn))
    return CheckedRecord(attempt=attempt, num_records=num_records, problems=tuple(problems), torn=torn)


def _compare_with_seal(source: Source) -> list[RecordProblem]:
    """A finished file must be, byte for byte, the one its seal names."""
    if source.seal is None or source.stop is None:
        return []

    problem = partial(RecordProblem, attempt=source.attempt, rank=source.rank, step=source.first, path=source.path)
    try:
        sha256, size_bytes = file_sha256(source.path)
    except FileNotFoundError:
        return [problem(kind="missing", message=f"{source.path} is missing")]
    except OSError as error:
        return [problem(kind="damaged", message=f"{source.path} cannot be read: {error.strerror}")]
    if (sha256, size_bytes) == (source.seal.sha256, source.seal.size_bytes):
        return []
    found = f"{size_bytes:,} bytes" if size_bytes != source.seal.size_bytes else f"SHA-256 {sha256}"
    sealed = f"{source.seal.size_bytes:,} bytes" if size_bytes != source.seal.size_bytes else source.seal.sha256
    message = f"{source.path} is not the file that was sealed: {found} instead of {sealed}"
    return [problem(kind="changed", message=message)]


def _windows(sources: Sequence[Source], window_records: int) -> list[tuple[int, int]]:
    """Stretches of steps that hold about so many records, together covering every source."""
    if not sources:
        return []
    first = min(max(source.first, source.count_from) for source in sources)
    stop, num_records = first, 0
    for source in sources:
        if source.stop is not None:
            stop = max(stop, source.stop)
        elif (last := last_address(source)) is not None:
            stop = max(stop, last[0] + 1)
        size_bytes = source.path.stat().st_size if source.path.exists() else 0
        # A record takes 108 bytes of frames.
        num_records += source.seal.num_records if source.seal is not None else size_bytes // 100
    length = max(1, window_records * max(1, stop - first) // max(1, num_records))
    return [(at, min(at + length, stop)) for at in range(first, stop, length)]


class _Sequence:
    """Follows steps, microbatches and positions from window to window."""

    def __init__(
        self,
        attempt: int,
        ranks: Sequence[int],
        sources: Sequence[Source],
        num_microbatches: Callable[[int], int] | None,
        next_delivered: Callable[[int], int] | None,
        problems: list[RecordProblem],
    ) -> None:
        self._attempt = attempt
        self._needed = num_microbatches
        self._next = next_delivered or (lambda step: step)
        self._problems = problems
        self._told: dict[tuple[str, int | None], int] = {}
        begin = min((source.first for source in sources), default=0)
        self._expected = dict.fromkeys(ranks, begin)
        """Step each rank must record next."""
        self._open: dict[int, tuple[int, int, int]] = {}
        """Each rank's newest step, the microbatches it recorded of it, and how many it should have."""
        self._highest = -1
        self._highest_step = -1

    def take(self, records: NDArray[np.void]) -> None:
        """One window in the order (step, rank, microbatch, slot)."""
        self._positions(records)
        step, rank, microbatch = (records[name].astype(np.int64) for name in ("step", "rank", "microbatch"))
        starts = np.flatnonzero(
            np.r_[True, (step[1:] != step[:-1]) | (rank[1:] != rank[:-1]) | (microbatch[1:] != microbatch[:-1])]
        )
        step, rank, microbatch = step[starts], rank[starts], microbatch[starts]
        groups = np.flatnonzero(np.r_[True, (step[1:] != step[:-1]) | (rank[1:] != rank[:-1])])
        counts = np.diff(np.r_[groups, len(step)])
        # A step that is whole has its microbatches 0..n-1, so the last one's number is n - 1.
        whole = microbatch[groups + counts - 1] == counts - 1
        most: dict[int, int] = {}
        for at, count in zip(step[groups].tolist(), counts.tolist(), strict=True):
            most[at] = max(most.get(at, 0), count)
        for at, of, count, good in zip(
            step[groups].tolist(), rank[groups].tolist(), counts.tolist(), whole.tolist(), strict=True
        ):
            self._follow(of, at, count, good, self._needed(at) if self._needed is not None else most[at])

    def _follow(self, rank: int, step: int, count: int, whole: bool, needed: int) -> None:  # noqa: FBT001
        if (before := self._open.get(rank)) is not None and before[1] < before[2]:
            self._tell("gap", rank, before[0], f"has {before[1]:,} of {before[2]:,} microbatches of step {before[0]:,}")
        expected = self._next(self._expected.get(rank, step))
        if step > expected:
            missing = f"step {expected:,}" if step == expected + 1 else f"steps {expected:,}:{step:,}"
            self._tell("gap", rank, expected, f"recorded step {step:,} without {missing}")
        if not whole:
            self._tell("gap", rank, step, f"lacks a microbatch before its last of step {step:,}")
        if count > needed:
            self._tell("doubled", rank, step, f"has {count:,} microbatches of step {step:,} instead of {needed:,}")
        self._expected[rank] = step + 1
        self._open[rank] = (step, count if whole else needed, needed)

    def _positions(self, records: NDArray[np.void]) -> None:
        position, step = records["position"].astype(np.int64), records["step"].astype(np.int64)
        order = np.argsort(position, kind="stable")
        climbing, steps = position[order], step[order]
        twice = np.flatnonzero(climbing[1:] == climbing[:-1]) + 1
        for i in twice[:_TOLD].tolist():
            one, other = records[order[i - 1]], records[order[i]]
            self._tell(
                "doubled",
                int(other["rank"]),
                int(other["step"]),
                f"recorded position {climbing[i]:,} in step {other['step']:,}, "
                f"and rank {one['rank']} in step {one['step']:,} as well",
            )
        back = np.flatnonzero(steps[1:] < steps[:-1]) + 1
        for i in back[:_TOLD].tolist():
            at = records[order[i]]
            message = (
                f"recorded position {climbing[i]:,} in step {steps[i]:,}, behind positions of step {steps[i - 1]:,}"
            )
            self._tell("disordered", int(at["rank"]), int(at["step"]), message)
        if climbing[0] <= self._highest:
            at = records[order[0]]
            message = (
                f"recorded position {climbing[0]:,} in step {steps[0]:,}, not past those of step {self._highest_step:,}"
            )
            self._tell("disordered", int(at["rank"]), int(at["step"]), message)
        if climbing[-1] > self._highest:
            self._highest, self._highest_step = int(climbing[-1]), int(steps[-1])

    def _disordered(self, record: NDArray[np.void], why: str) -> None:
        what = f"recorded position {record['position']:,} in step {record['step']:,}, {why}"
        self._tell("disordered", int(record["rank"]), int(record["step"]), what)

    def _tell(self, kind: ProblemKind, rank: int | None, step: int, what: str) -> None:
        told = self._told[kind, rank] = self._told.get((kind, rank), 0) + 1
        if told > _TOLD:
            return
        more = " (and more of the kind)" if told == _TOLD else ""
        message = f"attempt {self._attempt}, rank {rank} {what}{more}"
        self._problems.append(
            RecordProblem(kind=kind, attempt=self._attempt, rank=rank, step=step, path=None, message=message)
        )
