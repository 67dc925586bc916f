"""What does the run itself know that an experiment needs: checkpoints, losses, rates, how long a step takes?

From the journal's notes and from telemetry. What nobody said or logged is None or left out, never a default.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import msgspec
import numpy as np

from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.core.trainer import TrainerFacts
from dataguard.errors import NotInRun, UsageError
from dataguard.run.events import CheckpointSaved, SpikeFound, TrainerDescribed
from dataguard.run.journal import Entry
from dataguard.run.logs import telemetry_names
from dataguard.run.notes import noted
from dataguard.run.run import Run
from dataguard.run.telemetry_reading import names_in, telemetry_of_lineage
from dataguard.torch.experiment.answers import CheckpointUsed, StateResult, number
from dataguard.torch.experiment.judging import Asked

__all__ = ["Logged", "Wanted", "checkpoints_of", "facts_of", "levels_of", "logged", "wanted"]

_FEWEST_TIMES = 3
_LEAST_LEVEL, _MOST_LEVEL = 8, 32
"""Steps before an event whose losses make the level: as many as tell one, and as many as the detector's own takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """Telemetry of a lineage, by step in the trainer's labels."""

    losses: Mapping[int, float]
    """Mean over the ranks that logged it."""
    rates: Mapping[int, float]
    seconds_per_step: float | None
    """Median time between the rows of one rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be reproduced."""

    event_class: EventClass | None
    steps: range
    """In the trainer's labels."""
    asked: Asked


def logged(run: Run, attempt: int) -> Logged:
    """What was logged on a lineage under the names of loss and learning rate, or what trainers call them."""
    rows = telemetry_of_lineage(run, attempt, torn=[])
    rows = rows[rows["slot"] < 0]
    canonical = telemetry_names(names_in(rows)).names
    values: dict[str, dict[int, dict[int, float]]] = {"loss": {}, "lr": {}}
    times: dict[int, dict[int, float]] = {}
    for rank, step, name, time, value in rows[["rank", "step", "name", "time", "value"]].tolist():
        text = name.decode("utf-8", "replace")
        known = canonical.get(text, text)
        if known in values:
            values[known].setdefault(run.label(step), {})[rank] = value
        if time:
            times.setdefault(rank, {})[step] = max(times.get(rank, {}).get(step, 0.0), time / 1e9)
    gaps = [
        (late[1] - early[1]) / (late[0] - early[0])
        for each in times.values()
        for early, late in zip(sorted(each.items()), sorted(each.items())[1:], strict=False)
    ]
    return Logged(
        losses={step: float(np.mean(list(each.values()))) for step, each in values["loss"].items()},
        rates={step: next(iter(each.values())) for step, each in values["lr"].items()},
        seconds_per_step=float(np.median(gaps)) if len(gaps) >= _FEWEST_TIMES and np.median(gaps) > 0 else None,
    )


def facts_of(entries: Sequence[Entry]) -> TrainerFacts:
    """What the trainer said of itself, the later counting; what it never said is not known."""
    told: dict[str, dict[str, object]] = {}
    for _, note in noted(entries, TrainerDescribed):
        for section in note.facts.__struct_fields__:
            facts = getattr(note.facts, section)
            if isinstance(facts, msgspec.Struct):
                said = {name: getattr(facts, name) for name in facts.__struct_fields__}
                told.setdefault(section, {}).update({k: v for k, v in said.items() if v is not None})
    return msgspec.convert(told, TrainerFacts)


def wanted(run: Run, step: int, attempt: int, event: SpikeEvent | None) -> Wanted:
    """What is to be reproduced at a step: the event that is given, else the newest that was found there."""
    found = event if event is not None else _found(run, step, attempt)
    if found is None:
        asked = Asked(signal="loss", sign=1, effect=None)
        return Wanted(event_class=None, steps=range(step, step + 1), asked=asked)
    of_norm = found.event_class is EventClass.GRAD_NORM_ONLY or found.signal.partition("/")[0] == "grad_norm"
    falls = found.event_class is EventClass.LOSS_DIP
    effect: float | None
    if found.event_class is EventClass.HARD_FAULT:
        effect = None
    elif of_norm:
        ratio = found.grad_norm_ratio
        effect = math.log(ratio) if ratio is not None and math.isfinite(ratio) and ratio > 1 else None
    else:
        size = found.size_nats
        effect = abs(size) if size is not None and math.isfinite(size) and size else None
    steps = range(min(found.start, step), max(found.stop, step + 1))
    asked = Asked(signal="grad_norm" if of_norm else "loss", sign=-1 if falls else 1, effect=effect)
    return Wanted(event_class=found.event_class, steps=steps, asked=asked)


def _found(run: Run, step: int, attempt: int) -> SpikeEvent | None:
    lineage = {each.number for each in run.attempts().lineage(attempt)}
    for _, note in reversed(noted(run.read().entries, SpikeFound)):
        if note.attempt in lineage and run.label(note.start) <= step < run.label(note.stop):
            return SpikeEvent(
                event_class=note.event_class,
                start=run.label(note.start),
                stop=run.label(note.stop),
                peak=run.label(note.peak),
                size_nats=note.size_nats,
                sigmas=note.sigmas,
                aftermath_nats=note.aftermath_nats,
                grad_norm_ratio=note.grad_norm_ratio,
                signal=note.signal,
                rank=note.rank,
            )
    return None


def levels_of(
    log: Logged, want: Wanted, step: int, before: StateResult, checkpoints: Iterable[CheckpointUsed]
) -> dict[str, float]:
    """By checkpoint: the median loss that the run logged before the event, where what is measured compares with it.

    It does where the batch's own loss, as measured in every repeat, is nearer to what was logged of its step than to
    that level: then the loss is the trainer's, and the state that of the run. A checkpoint from before the event lies
    on the level itself, or above it since loss falls in training, and is not held against it.
    """
    known = sorted(each for each, value in log.losses.items() if each < want.steps.start and math.isfinite(value))
    there = log.losses.get(step, math.nan)
    if len(known) < _LEAST_LEVEL or not math.isfinite(there):
        return {}
    level = median(log.losses[each] for each in known[-_MOST_LEVEL:])
    own = [number(each.batch.loss) for each in before.repeats]
    if not all(abs(value - there) < abs(value - level) for value in own):
        return {}
    return {
        each.checkpoint: level
        for each in checkpoints
        if each.checkpoint == "before" or each.next_step > want.steps.start
    }


def checkpoints_of(
    run: Run, step: int, attempt: int, given: Mapping[int, str] | None, earlier: int | None
) -> tuple[tuple[int, str], tuple[int, str] | None]:
    """The checkpoint before a step and an earlier one, each as (next step in the trainer's labels, path).

    Parameters
    ----------
    given
        Next step -> path; by default those that the lineage noted.
    earlier
        Next step of the earlier one; by default the newest one older than the checkpoint before.

    Raises
    ------
    NotInRun
        There is none that was not trained on the step yet, or not the earlier one that was asked for.
    """
    known = dict(given) if given is not None else _noted(run, attempt)
    usable = sorted(each for each in known if each <= step)
    if not usable:
        shown = ", ".join(f"{each:,}" for each in sorted(known)[:8])
        raise NotInRun(
            f"no checkpoint from before step {step:,} is known",
            found=f"checkpoints of steps {shown}" if known else "none",
            todo="note them with Monitor.checkpoint(next_step, path), or give checkpoints={next_step: path}",
        )
    before = usable[-1]
    if earlier is not None and earlier not in usable[:-1]:
        raise UsageError(
            f"there is no earlier checkpoint of step {earlier:,}",
            allowed=", ".join(f"{each:,}" for each in usable[:-1]) or "none: one checkpoint alone is known",
        )
    older = earlier if earlier is not None else usable[-2] if len(usable) > 1 else None
    return (before, known[before]), None if older is None else (older, known[older])


def _noted(run: Run, attempt: int) -> dict[int, str]:
    """Checkpoints whose model was trained on this lineage and nothing else; the later of one step counts."""
    chain = run.attempts().lineage(attempt)
    known = {}
    for _, note in noted(run.read().entries, CheckpointSaved):
        place = next((i for i, each in enumerate(chain) if each.number == note.attempt), None)
        if place is None:
            continue
        forks = chain[place + 1].fork_step if place + 1 < len(chain) else None
        if forks is None or note.next_step <= forks:
            known[run.label(note.next_step)] = note.path
    return known
