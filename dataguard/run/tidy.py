"""Which attempts of a run are over, and can their record be made small and quick?

`seal` turns frames that a killed writer left into Parquet; `compact` merges all ranks of an attempt. An attempt whose
writers live is left alone and said so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from dataguard.errors import NotInRun, RunDamaged, WriterConflict
from dataguard.run.compact import compact
from dataguard.run.run import Run
from dataguard.run.seal import ranks_of, seal_attempt

__all__ = ["TidiedAttempt", "compact_run", "seal_run"]


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

    return _each(run, seal)


def compact_run(run: Run) -> Iterator[TidiedAttempt]:
    """Compact every attempt that is over; one answer each."""

    def merge(attempt: int) -> TidiedAttempt:
        done = compact(run.layout, attempt)
        return TidiedAttempt(
            attempt=attempt,
            num_files=len(done.files),
            num_records=done.num_records,
            torn=tuple(f"{path}: {size:,} bytes dropped" for path, size in done.torn),
            problems=(),
        )

    return _each(run, merge)


def _each(run: Run, work: Callable[[int], TidiedAttempt]) -> Iterator[TidiedAttempt]:
    for attempt in run.attempts().numbers:
        nothing = TidiedAttempt(attempt=attempt, num_files=0, num_records=0, torn=(), problems=())
        try:
            yield work(attempt) if ranks_of(run.layout, attempt) else nothing
        except WriterConflict as error:
            yield msgspec.structs.replace(nothing, live=True, problems=(str(error),))
        except (RunDamaged, NotInRun) as error:
            yield msgspec.structs.replace(nothing, problems=(str(error),))
