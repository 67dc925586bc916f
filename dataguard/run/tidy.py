"""Which attempts of a run are over, and can their record be made small and quick?

`seal` turns frames that a killed writer left into Parquet; `compact` merges all ranks of an attempt. An attempt whose
writers live is left alone and said so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import msgspec

from dataguard.errors import NotInRun, RunDamaged, WriterConflict
from dataguard.run.atomic import sweep_temporaries
from dataguard.run.compact import compact
from dataguard.run.run import Run
from dataguard.run.seal import ranks_of, seal_attempt

__all__ = ["TidiedAttempt", "compact_ended", "compact_run", "seal_run"]

_ABANDONED_SECONDS = 3600
"""No write takes so long: an older temporary is what a kill left behind."""

_EVALUATIONS = 8
"""Of a named stream, which may have thousands, so many of the newest evaluations are looked at by the next one."""


class TidiedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one attempt's record."""

    attempt: int
    num_files: int
    """New Parquet files."""
    num_records: int
    """Delivered samples in them."""
    torn: tuple[str, ...]
    """Torn tails that were dropped; no failure."""
    problems: tuple[str, ...]
    """What could not be done, and why."""
    live: bool = False
    """Its writers live, so nothing was done."""


def seal_run(run: Run) -> Iterator[TidiedAttempt]:
    """Seal every attempt that is over; one answer each."""

    def seal(attempt: int) -> TidiedAttempt:
        done = seal_attempt(run.layout, attempt)
        return TidiedAttempt(
            attempt=attempt,
            num_files=len(done.seals),
            num_records=sum(each.num_records for each in done.seals),
            torn=tuple(f"{path}: {size:,} bytes dropped" for path, size in done.torn),
            problems=done.problems,
        )

    return _each(run, seal, run.attempts().numbers)


def compact_run(run: Run) -> Iterator[TidiedAttempt]:
    """Compact every attempt that is over; one answer each."""
    return _compact(run, _written(run, run.attempts().numbers))


def compact_ended(run: Run, before: int, *, leave: Callable[[], bool] = lambda: False) -> tuple[str, ...]:
    """Compact what attempts before one left behind, as every attempt does when it begins; what went wrong, if anything.

    An attempt whose writers still live is left to them, or to the next one. Once `leave` says so nothing more is begun.
    """
    now = time.time_ns()
    for folder in dict.fromkeys((run.layout.tmp, run.layout.hot_tmp)):
        sweep_temporaries(folder, before_ns=now - _ABANDONED_SECONDS * 10**9)
    ended = [number for number in run.attempts().numbers if number < before]
    if run.stream_identity is not None:
        ended = ended[-_EVALUATIONS:]
    return tuple(
        f"attempt {done.attempt} could not be compacted: {problem.splitlines()[0]}"
        for done in _compact(run, _written(run, ended), leave)
        for problem in done.problems
        if not done.live
    )


def _written(run: Run, attempts: Iterable[int]) -> list[int]:
    """Those whose ranks will not begin to write any more.

    A newer attempt fences an older one. Evaluations of a named stream go on beside each other, so there a rank that has
    had no writer may still be about to come.
    """
    if run.stream_identity is None:
        return list(attempts)
    tree = run.attempts()
    return [each for each in attempts if len(ranks_of(run.layout, each)) == tree.attempt(each).geometry.world_size]


def _compact(run: Run, attempts: Iterable[int], leave: Callable[[], bool] = lambda: False) -> Iterator[TidiedAttempt]:
    def merge(attempt: int) -> TidiedAttempt:
        done = compact(run.layout, attempt, leave=leave)
        return TidiedAttempt(
            attempt=attempt,
            num_files=len(done.files),
            num_records=done.num_records,
            torn=tuple(f"{path}: {size:,} bytes dropped" for path, size in done.torn),
            problems=(),
        )

    return _each(run, merge, attempts)


def _each(run: Run, work: Callable[[int], TidiedAttempt], attempts: Iterable[int]) -> Iterator[TidiedAttempt]:
    for attempt in attempts:
        nothing = TidiedAttempt(attempt=attempt, num_files=0, num_records=0, torn=(), problems=())
        try:
            yield work(attempt) if ranks_of(run.layout, attempt) else nothing
        except WriterConflict as error:
            yield msgspec.structs.replace(nothing, live=True, problems=(str(error),))
        except (RunDamaged, NotInRun) as error:
            yield msgspec.structs.replace(nothing, problems=(str(error),))
