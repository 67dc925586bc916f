"""What does a run say of its own training: curve, events, checkpoints, facts, and what was found before?

Everything that triage draws from the run directory is read here once, bounded: of telemetry the curve (one row a step),
the traces of one rank, and of all ranks the rows around the event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataguard.core.spikes import SpikeEvent
from dataguard.core.trainer import TrainerFacts
from dataguard.errors import NotInRun
from dataguard.run.journal import JournalRead
from dataguard.run.logs import TrainingLog
from dataguard.run.places import hosts_of
from dataguard.run.run import Run
from dataguard.run.telemetry_reading import telemetry_of_lineage
from dataguard.triage.curve import begun_later, curve_of_run, log_of_lowest, ranks_that_logged
from dataguard.triage.detect import ChangePoint, Detection, detect
from dataguard.triage.evidence import planned_steps
from dataguard.triage.respond import facts_of
from dataguard.triage.silence import Silence, silence_of, unclosed_ranks

__all__ = ["Looked", "look", "rows_around"]

_NEWEST = 4096
"""Steps of one rank that tell the pace."""
_AROUND = 64
"""Steps before and after an event whose rows of all ranks are read, and steps at a time of an event that is longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """One lineage of a run, as far as triage looks at it."""

    run: Run
    read: JournalRead
    leaf: int | None
    """Attempt whose lineage it is; None where none has begun."""
    facts: TrainerFacts
    curve: TrainingLog | None
    """Over all ranks; None where nothing was logged."""
    traces: TrainingLog | None
    """All names, of the lowest rank that logged."""
    detection: Detection | None
    silence: Silence | None
    hosts: dict[int, str]
    """Rank -> machine, of the leaf."""
    notes: tuple[str, ...]
    damage: tuple[str, ...] = ()
    """What of the telemetry cannot be trusted, and was left out."""

    @property
    def events(self) -> tuple[SpikeEvent, ...]:
        """All that was found, in order of step."""
        found = () if self.detection is None else self.detection.events
        own = () if self.silence is None else (self.silence.event,)
        return tuple(sorted((*found, *own), key=lambda event: (event.start, event.stop)))

    @property
    def step_seconds(self) -> float | None:
        """How long a step takes: the median of what the times of the curve say; None where they say nothing."""
        if self.curve is None:
            return self.facts.checkpoints.seconds_per_step
        known = ~np.isnan(self.curve.times)
        steps, times = self.curve.steps[known], self.curve.times[known]
        paces = np.diff(times)[np.diff(steps) > 0] / np.diff(steps)[np.diff(steps) > 0]
        return float(np.median(paces)) if len(paces) else self.facts.checkpoints.seconds_per_step


def look(run: Run, attempt: int | None, *, now_seconds: float) -> Looked:
    """Read a lineage (default: the newest leaf's) and detect what there is.

    Raises
    ------
    NotInRun
        There is no such attempt.
    RunDamaged
        The journal cannot be trusted. What telemetry cannot be is left out, and stands in `Looked.damage`.
    """
    read = run.read()
    tree = run.attempts(read)
    if not len(tree):
        read.require_sound("triage")  # where an event cannot be read, nobody knows that no attempt has begun
        if attempt is not None:
            tree.attempt(attempt)
        return _nothing(run, read)
    leaf = tree.newest if attempt is None else tree.attempt(attempt).number
    facts = facts_of(read.entries)
    planned = planned_steps(run, leaf) | {change.step: change.what for change in facts.changes}
    changes = [ChangePoint(step=step, what=what) for step, what in sorted(planned.items())]
    notes = list(run.problems())
    damage: list[str] = []
    try:
        curve = curve_of_run(run, attempt=leaf, damage=damage)
        rank, traces = log_of_lowest(run, leaf, ranks_that_logged(run, leaf), damage=damage)
    except NotInRun as error:
        todo = "dataguard verify lists the damage" if damage else error.todo
        what = "nothing that was logged can be read" if damage else "nothing was logged"
        notes.append(f"{what}: {todo}" if todo else what)
        return Looked(
            run=run, read=read, leaf=leaf, facts=facts, curve=None, traces=None, detection=None, silence=None,
            hosts=hosts_of(run.layout, leaf), notes=tuple(notes), damage=tuple(dict.fromkeys(damage)),
        )  # fmt: skip
    detection = detect(curve, changes=changes, begun=begun_later(run, leaf))
    silence = None
    if leaf == tree.newest and unclosed_ranks(run.layout, leaf):
        rows = _newest_rows(run, leaf, rank, run.step(int(curve.steps[-1])))
        silence = silence_of(run, leaf, rows, now_seconds=now_seconds)
    return Looked(
        run=run,
        read=read,
        leaf=leaf,
        facts=facts,
        curve=curve,
        traces=traces,
        detection=detection,
        silence=silence,
        hosts=hosts_of(run.layout, leaf),
        notes=tuple(notes),
        damage=tuple(dict.fromkeys(damage)),
    )


def rows_around(looked: Looked, event: SpikeEvent) -> tuple[NDArray[np.void], str | None]:
    """TELEMETRY_ROW of all ranks in the steps of an event and `_AROUND` before and after it.

    An event may last as long as the run, on any number of ranks: of one that is longer, its begin and its peak are
    read, each with `_AROUND` steps before and after, and a text says so.
    """
    run = looked.run
    begin = run.step(event.start if event.onset is None else min(event.onset, event.start))
    stop, peak = run.step(event.stop - 1) + 1, run.step(event.peak)
    if stop - begin <= 4 * _AROUND:
        return _whole_rows(run, looked.leaf, (max(0, begin - _AROUND), stop + _AROUND)), None
    first = (max(0, begin - _AROUND), begin + _AROUND)
    second = (max(first[1], peak - _AROUND), peak + _AROUND)
    spans = [first, second] if second[0] < second[1] else [first]
    rows = np.concatenate([_whole_rows(run, looked.leaf, span) for span in spans])
    read = " and ".join(f"{run.label(span[0]):,}:{run.label(span[1]):,}" for span in spans)
    return rows, f"of {stop - begin:,} steps, what ranks logged was read in {read}"


def _newest_rows(run: Run, leaf: int, rank: int, newest: int) -> NDArray[np.void]:
    """What tells the pace and who stopped first: many steps of one rank, and the last few of all."""
    recent = max(0, newest - _AROUND)
    parts = [
        _whole_rows(run, leaf, (max(0, newest - _NEWEST), recent), ranks=[rank]) if recent else None,
        _whole_rows(run, leaf, (recent, newest + 2)),
    ]
    return np.concatenate([part for part in parts if part is not None])


def _whole_rows(
    run: Run, leaf: int | None, steps: tuple[int, int], *, ranks: Sequence[int] | None = None
) -> NDArray[np.void]:
    """What can be trusted of the telemetry; what cannot was told when the curve was read."""
    return telemetry_of_lineage(run, leaf, ranks=ranks, steps=steps, damage=[])


def _nothing(run: Run, read: JournalRead) -> Looked:
    return Looked(
        run=run, read=read, leaf=None, facts=facts_of(read.entries), curve=None, traces=None, detection=None,
        silence=None, hosts={}, notes=("no attempt has begun: there is nothing to look at",),
    )  # fmt: skip
