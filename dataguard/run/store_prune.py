"""Which files of the batch store are removed when somebody asks for it?

Those of the attempts, ranks and steps that were named. Each is written into its rank's ledger before it is removed, so
that it does not count as lost; the files of a rank whose writer lives, or whose ledger cannot be gone on with, are left
alone and said so. Where nobody knows any more what a store was told, nothing of it counts as lost, and nothing is
written down.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress

import msgspec

from dataguard.errors import NotInRun, RunDamaged, UsageError, WriterConflict
from dataguard.run.locks import hold
from dataguard.run.run import Run
from dataguard.run.store import remove_stored
from dataguard.run.store_account import standing
from dataguard.run.store_ledger import WHOLE_STEP, Ledger, LetGo, read_settings

__all__ = ["StorePruned", "prune_store"]


class StorePruned(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed from the batch store, or would be. Steps are in the trainer's labels."""

    run: str
    dry_run: bool
    num_steps: int
    """Files, over attempts and ranks."""
    size_bytes: int
    files: tuple[str, ...]
    """Paths in the run directory."""
    notes: tuple[str, ...] = ()
    """What was left alone, and why."""


def prune_store(
    run: Run,
    *,
    attempt: int | None = None,
    rank: int | None = None,
    steps: tuple[int, int] | None = None,
    keep_last: int | None = None,
    dry_run: bool = False,
) -> StorePruned:
    """Remove files of the batch store.

    Parameters
    ----------
    attempt, rank
        Only those of it.
    steps
        Only these, half-open, in the trainer's labels.
    keep_last
        All but the last so many steps of each rank and attempt.
    dry_run
        Say what would be removed, and remove nothing.

    Raises
    ------
    UsageError
        Nothing says what to remove.
    """
    if attempt is None and steps is None and keep_last is None:
        raise UsageError(
            "what is to be removed?", allowed="--attempt K, --step START:STOP, --keep-last N, or several of them"
        )
    numbers = run.attempts().numbers if attempt is None else (run.attempts().attempt(attempt).number,)
    # Labels below the first are no steps; a stretch may begin there.
    span = None if steps is None else range(max(0, steps[0] - run.first_label), max(0, steps[1] - run.first_label))
    files, size, notes = [], 0, []
    for number in numbers:
        for each, stands in standing(run.layout, number).items():
            chosen = sorted(stands)[: len(stands) - keep_last] if keep_last else sorted(stands)
            chosen = [step for step in chosen if span is None or step in span]
            if not chosen or (rank is not None and each != rank):
                continue
            try:
                _remove(run, number, each, {step: stands[step] for step in chosen}, dry_run=dry_run)
            except (WriterConflict, RunDamaged) as error:
                notes.append(f"rank {each} of attempt {number} was left alone: {error.asked}")
                continue
            files += [str(run.layout.store(number, step, each).relative_to(run.path)) for step in chosen]
            size += sum(stands[step] for step in chosen)
    return StorePruned(
        run=str(run.path),
        dry_run=dry_run,
        num_steps=len(files),
        size_bytes=size,
        files=tuple(files),
        notes=tuple(notes),
    )


def _remove(run: Run, attempt: int, rank: int, sizes: dict[int, int], *, dry_run: bool) -> None:
    with ExitStack() as stack:
        with suppress(NotInRun):  # without the file that a writer locks there is no writer
            stack.enter_context(hold(run.layout.seals(attempt, rank), what=f"rank {rank} of attempt {attempt}"))
        settings = None
        with suppress(RunDamaged):  # `store list` tells of it
            settings = read_settings(run.layout, attempt, rank, run_id=run.run_id)
        ledger = None if settings is None else Ledger.reopen(run.layout, settings)
        if ledger is not None:
            stack.callback(ledger.close)
        for step, size in () if dry_run else sizes.items():
            if ledger is not None:
                ledger.add(step, WHOLE_STEP, size, LetGo.PRUNED)
            remove_stored(run.layout, attempt, step, rank)
