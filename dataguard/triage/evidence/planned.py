"""Does an event begin at a change that somebody planned?

Planned is what was said or decided beforehand: a change that the trainer told (`PlannedChange`), another mixture or
batch size of the plan, the start of an attempt. A step of the learning rate that shows in the log and that nobody told
is no plan, and the end of a warm-up is none either: it is a sign of the optimizer.

An event begins at a change if it begins at the change's first step or a little later. The loss of a step was computed
before its update, so a change of the update shows one step later at the earliest: `_LEAST_LAG`. What the trainer told
may be another rate, and that shows fully only as the second moments forget what came before, which takes them
1 / (1 - beta2) steps; where nobody told beta2, twenty, those of .95: a larger beta2 only makes it longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from dataguard.core.evidence import Told
from dataguard.core.spikes import SpikeEvent
from dataguard.core.trainer import TrainerFacts
from dataguard.errors import NotInRun
from dataguard.plan.attempts import AttemptPlan
from dataguard.plan.steps import Located
from dataguard.run.run import Run

if TYPE_CHECKING:
    from dataguard.triage.detect import Detection

__all__ = ["planned_change", "planned_steps"]

_LEAST_LAG = 1
"""Steps after the change's own: the one whose loss its update made."""
_MOMENTS_LAG = 20


def planned_change(
    run: Run | None,
    event: SpikeEvent | None,
    facts: TrainerFacts,
    detection: Detection | None = None,
    *,
    attempt: int | None = None,
) -> tuple[Told, tuple[str, ...]]:
    """Whether an event begins at a planned change.

    Parameters
    ----------
    run
        Whose plan and attempts count; None where there is a log alone.
    event
        In the trainer's labels; None asks whether a change that the trainer told lies within what was looked at.
    facts
        What the trainer said.
    detection
        Of the same log: its change points say what the log itself shows.
    attempt
        The lineage of this attempt; by default the newest leaf's.

    Returns
    -------
    tuple
        Yes; no, where plans are known and none fits; unknown, where nobody told any. And texts.
    """
    told = {change.step: f"planned by the trainer: {change.what}" for change in facts.changes}
    seen = {} if detection is None else {change.step: change.what for change in detection.changes if change.is_seen}
    shown = set() if detection is None else {change.step for change in detection.changes}
    if event is None:
        there = sorted(step for step in told if step in shown)
        texts = tuple(f"step {step:,}: {told[step]}" for step in there)
        return (Told.YES, texts) if there else (_otherwise(run, facts), ())
    planned = ({} if run is None else planned_steps(run, attempt)) | told
    begin = event.start if event.onset is None else min(event.onset, event.start)
    lags = {step: _lag(facts) if step in told else _LEAST_LAG for step in planned}
    # The onset looks back with a lower threshold, and may look back too far: the start alone will do as well.
    fits = sorted(
        step for step, lag in lags.items() if any(step <= first <= step + lag for first in (begin, event.start))
    )
    unplanned = sorted(step for step in seen if step not in planned and step <= event.start <= step + _lag(facts))
    texts = tuple(
        f"step {step:,}: {planned[step]}; the event begins {_later(event.start - step)}" for step in fits
    ) + tuple(f"step {step:,}: {seen[step]}, in the log, and nobody said that it was planned" for step in unplanned)
    return (Told.YES if fits else _otherwise(run, facts)), texts


def planned_steps(run: Run, attempt: int | None = None) -> dict[int, str]:
    """What the plan and the attempts of a lineage change, by the first step (trainer's label) that is otherwise.

    Raises
    ------
    NotInRun
        The run has no such attempt.
    """
    chain = run.attempts().lineage(attempt)
    steps = run.steps_of(chain[-1].number)
    found = {}
    for each in chain[1:]:
        found[run.label(each.fork_step)] = f"attempt {each.number} begins"
    for position, what in _stages(chain[-1]):
        try:
            located = steps.locate(position)
        except NotInRun:
            continue  # the plan changes there, and no attempt of the lineage gets that far
        if isinstance(located, Located):  # a position inside a skip is delivered nowhere
            found.setdefault(run.label(located.step), what)
    return found


def _stages(attempt: AttemptPlan) -> Iterator[tuple[int, str]]:
    for old, new in pairwise(attempt.mixtures):
        yield new.start, "another manifest" if new.manifest != old.manifest else "other weights of the sources"
    for before, after in pairwise(attempt.batch_sizes):
        yield after.start, f"the global batch goes from {before.size:,} to {after.size:,}"


def _lag(facts: TrainerFacts) -> int:
    beta2 = facts.optimizer.beta2
    known = beta2 is not None and 0 <= beta2 < 1
    return max(_LEAST_LAG, round(1 / (1 - beta2))) if beta2 is not None and known else _MOMENTS_LAG


def _otherwise(run: Run | None, facts: TrainerFacts) -> Told:
    return Told.UNKNOWN if run is None and not facts.changes else Told.NO


def _later(steps: int) -> str:
    return "there" if steps == 0 else f"{steps:,} step{'' if steps == 1 else 's'} later"
