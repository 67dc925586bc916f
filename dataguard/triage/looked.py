"""What does a run say of its own training: curve, events, checkpoints, facts, and what was found before?

Everything that triage draws from the run directory is read here once, bounded: of telemetry the curve (one row a step),
the traces of one rank, and of all ranks the rows around the event.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataguard.core.spikes import SpikeEvent
from dataguard.core.trainer import TrainerFacts
from dataguard.errors import NotInRun
from dataguard.run.journal import JournalRead
from dataguard.run.logs import TrainingLog
from dataguard.run.logs.recorded import log_of_run
from dataguard.run.places import hosts_of
from dataguard.run.run import Run
from dataguard.run.telemetry_reading import telemetry_of_lineage
from dataguard.triage.curve import curve_of_run, ranks_that_logged
from dataguard.triage.detect import ChangePoint, Detection, detect
from dataguard.triage.evidence import planned_steps
from dataguard.triage.respond import facts_of
from dataguard.triage.silence import Silence, silence_of

__all__ = ["Looked", "look", "rows_around"]

_NEWEST = 4096
"""Steps whose rows of all ranks tell the pace, and who stopped first."""
_AROUND = 64
"""Steps before and after an event whose rows of all ranks are read."""


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
        The journal or telemetry cannot be trusted.
    """
    read = run.read()
    tree = run.attempts(read)
    if not len(tree):
        if attempt is not None:
            tree.attempt(attempt)
        return _nothing(run, read)
    leaf = tree.newest if attempt is None else tree.attempt(attempt).number
    facts = facts_of(read.entries)
    planned = planned_steps(run, leaf) | {change.step: change.what for change in facts.changes}
    changes = [ChangePoint(step=step, what=what) for step, what in sorted(planned.items())]
    notes: list[str] = []
    try:
        curve = curve_of_run(run, attempt=leaf)
    except NotInRun as error:
        notes.append(f"nothing was logged: {error.todo}" if error.todo else "nothing was logged")
        return Looked(
            run=run, read=read, leaf=leaf, facts=facts, curve=None, traces=None, detection=None, silence=None,
            hosts=hosts_of(run.layout, leaf), notes=tuple(notes),
        )  # fmt: skip
    detection = detect(curve, changes=changes)
    newest = run.step(int(curve.steps[-1]))
    rows = telemetry_of_lineage(run, leaf, steps=(max(0, newest - _NEWEST), newest + 2))
    silence = silence_of(run, leaf, rows, now_seconds=now_seconds) if leaf == tree.newest else None
    return Looked(
        run=run,
        read=read,
        leaf=leaf,
        facts=facts,
        curve=curve,
        traces=log_of_run(run, attempt=leaf, rank=ranks_that_logged(run, leaf)[0]),
        detection=detection,
        silence=silence,
        hosts=hosts_of(run.layout, leaf),
        notes=tuple(notes),
    )


def rows_around(looked: Looked, event: SpikeEvent) -> NDArray[np.void]:
    """TELEMETRY_ROW of all ranks in the steps of an event and `_AROUND` before and after it."""
    run = looked.run
    first = event.start if event.onset is None else min(event.onset, event.start)
    start = max(0, run.step(first) - _AROUND)
    return telemetry_of_lineage(run, looked.leaf, steps=(start, run.step(event.stop - 1) + 1 + _AROUND))


def _nothing(run: Run, read: JournalRead) -> Looked:
    return Looked(
        run=run, read=read, leaf=None, facts=facts_of(read.entries), curve=None, traces=None, detection=None,
        silence=None, hosts={}, notes=("no attempt has begun: there is nothing to look at",),
    )  # fmt: skip
