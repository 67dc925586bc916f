"""Which checkpoints of a lineage are still there, and which of them does the event not touch?

1. A checkpoint counts on a lineage where an attempt on it saved it, and before a later attempt of the lineage forked:
   what an abandoned stretch was trained on is in its model.
2. Where the trainer says that it keeps the newest N, only the newest N that were noted count.
3. A path on this machine that is gone does not count. Whether a path of another machine, or a URL, is there is not
   known, and it counts.
4. Of those, the newest whose `next_step` is not behind what is to be skipped: its model has seen none of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dataguard.core.trainer import CheckpointFacts
from dataguard.plan.attempts import AttemptPlan
from dataguard.run.events import CheckpointSaved
from dataguard.run.journal import Entry
from dataguard.run.notes import noted
from dataguard.triage.respond.answers import ResumeAdvice

__all__ = ["Kept", "Retained", "resume_advice", "retained"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A checkpoint that can be resumed from, as far as is known."""

    next_step: int
    """The first step (from 0) that its model was not trained on."""
    path: str
    attempt: int | None = None
    """None where it was given from outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """What is there to resume from on a lineage."""

    kept: tuple[Kept, ...] = ()
    """By rising next step."""
    num_noted: int = 0
    """Checkpoints that the run noted, on any lineage, or that were given."""
    notes: tuple[str, ...] = ()


def retained(
    lineage: Sequence[AttemptPlan],
    entries: Sequence[Entry],
    *,
    facts: CheckpointFacts,
    given: Iterable[tuple[int, str]] | None = None,
) -> Retained:
    """The checkpoints of a lineage that are not known to be gone.

    Parameters
    ----------
    lineage
        Root first; empty where no attempt has begun.
    entries
        The journal.
    facts
        Of the trainer: how many it keeps.
    given
        (next step from 0, path) of checkpoints that are there for certain; the journal's are not asked then.
    """
    if given is not None:
        kept = sorted((Kept(next_step=step, path=path) for step, path in given), key=lambda each: each.next_step)
        return Retained(kept=tuple(kept), num_noted=len(kept))
    saved = [event for _, event in noted(entries, CheckpointSaved)]
    last: dict[str, CheckpointSaved] = {event.path: event for event in saved}  # a path written again holds the newer
    newest = list(last.values())
    notes: list[str] = []
    if facts.num_kept is not None and len(newest) > facts.num_kept:
        notes.append(
            f"the trainer keeps the newest {facts.num_kept:,} checkpoints: {len(newest) - facts.num_kept:,} older ones "
            "of the journal do not count"
        )
        newest = newest[-facts.num_kept :]
    ends = {each.number: (lineage[i + 1].fork_step if i + 1 < len(lineage) else None) for i, each in enumerate(lineage)}
    kept = []
    elsewhere, gone = 0, []
    for event in newest:
        stop = ends.get(event.attempt, -1)
        if stop is not None and event.next_step > stop:
            elsewhere += 1
        elif _is_gone(event.path):
            gone.append(event.path)
        else:
            kept.append(Kept(next_step=event.next_step, path=event.path, attempt=event.attempt))
    if elsewhere:
        notes.append(f"{elsewhere:,} {_plural(elsewhere)} of other attempts than this lineage do not count")
    if gone:
        notes.append(f"{len(gone):,} {_plural(len(gone))} of the journal are gone from this machine, as {gone[-1]}")
    return Retained(kept=tuple(sorted(kept, key=lambda each: each.next_step)), num_noted=len(saved), notes=tuple(notes))


def resume_advice(
    there: Retained, *, skip_from: int, onset: int, first_label: int, facts: CheckpointFacts
) -> ResumeAdvice:
    """From where to go on so that nothing from `skip_from` on is in the model.

    Parameters
    ----------
    skip_from, onset
        Steps from 0: where the response begins to distrust, and where the event begins.
    """
    before = [each for each in there.kept if each.next_step <= skip_from]
    inside = [each for each in there.kept if skip_from < each.next_step <= onset]
    chosen = before[-1] if before else inside[-1] if inside else None
    if chosen is not None:
        again = onset - chosen.next_step
        cost, told = _cost(again, facts)
        label = chosen.next_step + first_label
        text = f"resume from {chosen.path}: it goes on with step {label:,}, {_steps(again)} before the onset{told}"
        if not before:
            text += (
                "; none is known from before the lead, so what the model saw of the steps from "
                f"{skip_from + first_label:,} on stays in it"
            )
        return ResumeAdvice(
            kind="checkpoint" if before else "inside_lead",
            next_step=label,
            path=chosen.path,
            attempt=chosen.attempt,
            num_steps_again=again,
            node_hours=cost,
            text=text,
        )
    why = (
        f"none of {there.num_noted:,} checkpoints is of this lineage, still there, and from before the onset"
        if there.num_noted
        else "no checkpoint is noted (Monitor.checkpoint notes them)"
    )
    cost, told = _cost(onset, facts)
    kind: str = "beginning" if onset == 0 or there.num_noted else "none"
    if facts.every_steps is not None and not there.num_noted and skip_from >= facts.every_steps:
        expected = skip_from // facts.every_steps * facts.every_steps
        why += f"; the trainer saves one every {facts.every_steps:,} steps: that after {_steps(expected)} would do"
    text = (
        f"begin anew at step {first_label}: {why}; it costs {_steps(onset)} before the onset once more{told}"
        if kind == "beginning"
        else f"where to resume from is not known: {why}; take the newest from before step {skip_from + first_label:,}, "
        f"or else begin anew at step {first_label}, which costs {_steps(onset)} once more{told}"
    )
    return ResumeAdvice(
        kind="beginning" if kind == "beginning" else "none",
        next_step=first_label if kind == "beginning" else None,
        path=None,
        attempt=None,
        num_steps_again=onset if kind == "beginning" else None,
        node_hours=cost if kind == "beginning" else None,
        text=text,
    )


def _cost(num_steps: int, facts: CheckpointFacts) -> tuple[float | None, str]:
    if facts.seconds_per_step is None or facts.num_nodes is None:
        return None, ""
    hours = num_steps * facts.seconds_per_step * facts.num_nodes / 3600
    return hours, f" ({hours:,.3g} node-hours)"


def _is_gone(path: str) -> bool:
    """Whether a path is one of this machine, and nothing stands there."""
    if "://" in path or not path.startswith("/"):
        return False
    place = Path(path)
    try:
        return place.parent.is_dir() and not place.exists()
    except OSError:
        return False


def _plural(count: int) -> str:
    return "checkpoint" if count == 1 else "checkpoints"


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count:,} steps"
