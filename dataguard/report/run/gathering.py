"""How are all facts of the page of a run gathered, each from its place?

1. `lineage`: which attempts and steps it is about.
2. `triage`, which writes nothing here: events, verdict, what stands out.
3. `windows`: the steps around the events that are shown rank by rank.
4. `logged`, `curves`: one pass over the telemetry; `delivered`: one over the index.
5. `heat`, `cells`, `previews`: what every rank was fed around the events, and what it looks like.

Whatever is damaged, missing or cannot be read makes a note and no page less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dataguard.errors import RunDamaged
from dataguard.replay.log import LogLine, read_log
from dataguard.report.run.cells import MOST_LISTED, cells_of, list_samples
from dataguard.report.run.curves import curves_of, ranks_first
from dataguard.report.run.delivered import delivered_facts
from dataguard.report.run.facts import Heat, RunFacts
from dataguard.report.run.heat import logged_measures, recorded_measures, standing_out
from dataguard.report.run.lineage import Lineage, lineage_of, require_step
from dataguard.report.run.logged import Logged, read_logged
from dataguard.report.run.marks import attempt_marks, checkpoint_marks, event_mark, skip_marks
from dataguard.report.run.windows import Window, records_of, windows_of
from dataguard.run.index import merge
from dataguard.run.run import Run
from dataguard.triage.answers import TriageAnswer
from dataguard.triage.triage import triage

__all__ = ["GatheredRun", "facts_of_run", "gather_run"]

MOST_RANKS = 64
"""Ranks of a heat map."""
_OWN_RANKS = 8
_MOST_JOURNAL = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredRun:
    """The facts, and whether they are whole."""

    facts: RunFacts
    damage: tuple[str, ...]
    """What of the run cannot be trusted; all of it stands in the notes as well."""


def facts_of_run(
    run: Run, *, attempt: int | None = None, step: int | None = None, roots: Mapping[str, str] | None = None
) -> RunFacts:
    """All values of the page of a run. Nothing is written into the run.

    Parameters
    ----------
    attempt
        The lineage of this attempt; default the newest leaf's.
    step
        A step, in the trainer's labels, that is shown rank by rank also where no event holds it.
    roots
        Where sources lie now, where that is another place than the run remembers.

    Raises
    ------
    NotInRun
        There is no such attempt, or no such step on its lineage.
    """
    return gather_run(run, attempt=attempt, step=step, roots=roots).facts


def gather_run(
    run: Run, *, attempt: int | None = None, step: int | None = None, roots: Mapping[str, str] | None = None
) -> GatheredRun:
    """As `facts_of_run`, with what is damaged apart."""
    lineage = lineage_of(run, attempt)
    if step is not None:
        require_step(lineage, step)
    answer = _triage(lineage, step, roots)
    events = () if answer is None else answer.events
    chosen = None if answer is None else answer.event
    windows = windows_of(lineage, events, chosen, step)
    localised = None if answer is None else answer.localised
    odd = [] if localised is None else [each.rank for each in localised.ranks if each.outlying or each.persistent]
    world_size = max((each.attempt.geometry.world_size for each in lineage.owned), default=0)
    logged = read_logged(
        lineage,
        own=("loss",),
        own_ranks=ranks_first(odd, world_size, _OWN_RANKS) if world_size > 1 else (),
        spans=[(each.first, each.stop) for each in windows],
    )
    delivered = delivered_facts(lineage)
    heats = tuple(
        _heat(lineage, window, logged, answer, odd, most=MOST_LISTED // max(1, len(windows))) for window in windows
    )
    steps = lineage.steps
    journal, num_journal = _journal(lineage)
    facts = RunFacts(
        run=run.path.name,
        run_id=run.run_id,
        attempt=lineage.leaf,
        steps=None if steps is None else (run.label(steps[0]), run.label(steps[1])),
        num_steps_delivered=delivered.num_steps,
        num_samples=delivered.num_samples,
        policy=None if lineage.leaf is None else run.begun(lineage.leaf, lineage.read).policy_name or None,
        curves=curves_of(logged, first_label=run.first_label, notes=lineage.notes),
        events=tuple(event_mark(each) for each in events),
        skips=skip_marks(lineage),
        attempts=attempt_marks(lineage),
        checkpoints=checkpoint_marks(lineage),
        heats=heats,
        previews=(),
        signals=delivered.signals,
        withheld=delivered.withheld,
        mixture=delivered.mixture,
        mixture_steps=delivered.stretches,
        triage=answer,
        journal=journal,
        num_journal=num_journal,
        notes=tuple(dict.fromkeys([*lineage.damage, *lineage.notes])),
    )
    return GatheredRun(facts=facts, damage=tuple(dict.fromkeys(lineage.damage)))


def _triage(lineage: Lineage, step: int | None, roots: Mapping[str, str] | None) -> TriageAnswer | None:
    """What is said of the events; None where journal or telemetry cannot be trusted."""
    try:
        return triage(lineage.run, step=step, attempt=lineage.leaf, roots=roots, note=False)
    except RunDamaged as error:
        lineage.damage.append(f"no verdict, and events are not known: {' '.join(str(error).split())}")
    return None


def _journal(lineage: Lineage) -> tuple[tuple[LogLine, ...], int]:
    lines, _ = read_log(lineage.run)
    return lines[-_MOST_JOURNAL:], len(lines)


def _heat(
    lineage: Lineage, window: Window, logged: Logged, answer: TriageAnswer | None, odd: list[int], *, most: int
) -> Heat:
    run = lineage.run
    owned = [each for each in lineage.owned if each.first < window.stop and window.first < each.farthest]
    num_ranks = max((each.attempt.geometry.world_size for each in owned), default=0)
    rows = logged.rows[(logged.rows["step"] >= window.first) & (logged.rows["step"] < window.stop)]
    near = list(range(window.peak - 1, window.peak + 2))
    is_chosen = answer is not None and (window.event is None or answer.events[window.event] == answer.event)
    first = odd if is_chosen else []
    shown = ranks_first([*first, *standing_out(rows, near)], num_ranks, MOST_RANKS)
    span = [(window.first, window.stop)]
    parts = [(each.attempt.number, records_of(lineage, each, span, shown)) for each in owned]
    records = merge([part for _, part in parts])
    steps = np.unique(np.concatenate([records["step"].astype(np.int64), rows["step"].astype(np.int64)]))
    ranks = np.array(shown, np.int64)
    notes: list[str] = []
    judged = any(run.begun(number, lineage.read).policy for number, _ in parts)
    unit = "bytes" if run.plan_document().root.form == "document" else None
    measures = logged_measures(rows, steps, ranks, notes)
    measures += recorded_measures(records, steps, ranks, is_judged=judged, unit=unit)
    localised = None if answer is None or not is_chosen else answer.localised
    listed = list_samples(lineage, parts, rows, localised, peak=window.peak, most=most)
    lineage.notes.extend(note for note in notes if note not in lineage.notes)
    return Heat(
        event=window.event,
        steps=tuple((steps + run.first_label).tolist()),
        ranks=tuple(shown),
        num_ranks=num_ranks,
        measures=tuple(measures),
        cells=cells_of(lineage, parts, listed, {}),
    )
