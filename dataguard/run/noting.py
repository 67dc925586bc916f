"""How does a trainer tell a run what it keeps and what it is?

`note_checkpoint` remembers where a checkpoint stands, so that triage can name the one to resume and to replay from;
`note_facts` remembers what the trainer says of itself. Both are notes of the journal, change nothing that is delivered,
and are written once: the same said again of the same attempt stands already. Neither needs torch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, TypeVar

from dataguard.core.trainer import TrainerFacts
from dataguard.errors import UsageError
from dataguard.run.events import CheckpointSaved, Note, SpikeFound, TrainerDescribed
from dataguard.run.journal import Entry, JournalRead
from dataguard.run.notes import noted
from dataguard.run.run import Run

__all__ = ["note_checkpoint", "note_facts", "note_once"]

Kind = TypeVar("Kind", bound=Note)


def note_checkpoint(
    run: Run, next_step: int, path: str | os.PathLike[str], *, attempt: int | None = None, by: str | None = None
) -> Entry:
    """Remember that the trainer kept a checkpoint.

    Parameters
    ----------
    next_step
        The first step that its model was not trained on, as the trainer calls it.
    path
        Where it is kept: a path or URL, as it is to be shown.
    attempt
        Which attempt trained it. Default: the newest.
    by
        Who says so. Default: whoever the run was opened by.

    Returns
    -------
    Entry
        The note as it stands in the journal.

    Raises
    ------
    UsageError
        The step is no whole number, the path is empty, or the attempt begins after the step.
    NotInRun
        There is no such attempt, or the step lies before the run's first.
    WriteFailed
        The disk did not take it.
    """
    if isinstance(next_step, bool) or not isinstance(next_step, int):
        raise UsageError(f"step {next_step!r} cannot be", allowed="a whole number, as the trainer counts")
    where = os.fspath(path)
    if not isinstance(where, str) or not where:
        raise UsageError(f"a checkpoint cannot be kept at {path!r}", allowed="a path or URL")
    number = run.newest_leaf() if attempt is None else attempt
    step, fork = run.step(next_step), run.begun(number).fork_step
    if step < fork:
        raise UsageError(
            f"attempt {number} has no checkpoint of step {next_step:,}",
            found=f"it begins with step {run.label(fork):,}",
            allowed="the first step that the model was not trained on, as the trainer calls it",
        )
    return note_once(run, CheckpointSaved(attempt=number, next_step=step, path=where), by=by)


def note_facts(
    run: Run, facts: TrainerFacts, *, attempt: int | Literal["newest"] | None = "newest", by: str | None = None
) -> Entry:
    """Remember what a trainer says of itself: model, optimizer, schedule, precision, changes that are planned.

    Parameters
    ----------
    facts
        All that is known; of several notes the later one counts, fact by fact.
    attempt
        Which attempt it is said of; None where none is in hand. Default: the newest, where one has begun.
    by
        Who says so. Default: whoever the run was opened by.

    Raises
    ------
    UsageError
        The facts are of another kind, or say nothing.
    NotInRun
        There is no such attempt.
    WriteFailed
        The disk did not take it.
    """
    if not isinstance(facts, TrainerFacts):
        raise UsageError(f"a {type(facts).__name__} says nothing of a trainer", allowed="TrainerFacts")
    if facts == TrainerFacts():
        raise UsageError("these facts say nothing", todo="leave out what is not known, and give what is")
    number = attempt if attempt != "newest" else (run.newest_leaf() if len(run.attempts()) else None)
    if number is not None:
        run.begun(number)
    return note_once(run, TrainerDescribed(attempt=number, facts=facts), by=by)


def note_once(run: Run, note: CheckpointSaved | TrainerDescribed | SpikeFound, *, by: str | None = None) -> Entry:
    """Write a note unless the very same stands as the newest of its kind and attempt; what stands is given back."""
    standing = _standing(run.read(), note)
    return run.journal.append(note, by=by) if standing is None else standing


def _standing(read: JournalRead, note: Kind) -> Entry | None:
    told: Sequence[tuple[Entry, Kind]] = noted(read.entries, type(note))
    if isinstance(note, TrainerDescribed):
        # Facts said in between may have said otherwise; only the newest may be said again for nothing.
        told = told[-1:]
    return next((entry for entry, event in told if event == note), None)
