"""How far did an attempt come?

A step is complete for a rank when all its microbatches were handed over, and for the attempt when it is complete for
every rank. What lies beyond is `unfinished`: its accumulated gradients went with the process.
"""

from __future__ import annotations

from dataguard.run.frames import FramesReader
from dataguard.run.index import Index
from dataguard.run.journal import Head
from dataguard.run.layout import parse_attempt
from dataguard.run.run import Run
from dataguard.run.seal import ranks_of

__all__ = ["complete_before", "complete_steps", "reached", "reached_by_any", "recorded_attempts", "recorded_heads"]


def reached(run: Run, attempt: int) -> list[int | None]:
    """The first step of each rank that is not complete; None for a rank that recorded nothing."""
    steps = run.steps_of(attempt)
    geometry = run.attempts().attempt(attempt).geometry
    return Index(run.layout).next_steps(
        attempt, geometry.world_size, lambda step: geometry.num_microbatches(steps.size_of(step))
    )


def complete_before(run: Run, attempt: int) -> int:
    """One past the last step that every rank completed; the attempt's first step where there is none."""
    first = run.attempts().attempt(attempt).fork_step
    return min(first if step is None else step for step in reached(run, attempt))


def reached_by_any(run: Run, attempt: int) -> int:
    """One past the last step that some rank completed: from here on nothing of the attempt can be resumed."""
    first = run.attempts().attempt(attempt).fork_step
    return max(first if step is None else step for step in reached(run, attempt))


def complete_steps(run: Run) -> dict[int, int]:
    """For every attempt, one past its last complete step."""
    return {number: complete_before(run, number) for number in run.attempts().numbers}


def recorded_attempts(run: Run) -> list[int]:
    """Attempts that left a record, whether or not the journal still knows them (lists one folder)."""
    folder = run.layout.root / "seals"
    found = (parse_attempt(path.name) for path in folder.iterdir()) if folder.is_dir() else ()
    return sorted(attempt for attempt in found if attempt is not None)


def recorded_heads(run: Run, attempt: int) -> list[Head]:
    """The journal heads that the ranks of an attempt wrote into their headers: a removed tail shows against them."""
    heads = set()
    for rank in ranks_of(run.layout, attempt):
        try:
            with FramesReader(run.layout.seals(attempt, rank), "seals") as reader:
                header = reader.header
        except FileNotFoundError:
            continue
        if header is not None:
            heads.add(Head(number=header.journal_head[0], sha256=header.journal_head[1]))
    return sorted(heads, key=lambda head: (head.number, head.sha256))
