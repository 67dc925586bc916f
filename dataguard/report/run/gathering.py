"""How are all facts of the page of a run gathered, each from its place?

1. `lineage`: which attempts and steps it is about.
2. `triage`, which writes nothing here: events, verdict, what stands out.
3. `windows`: the steps around the events that are shown rank by rank.
4. `logged`, `curves`: one pass over the telemetry; `delivered`: one over the index.
5. `heats`, `cells`, `previews`: what every rank was fed around the events, and what it looks like.

Whatever is damaged, missing or cannot be read makes a note and no page less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dataguard.errors import RunDamaged
from dataguard.replay.log import LogLine, read_log
from dataguard.report.run.cells import MOST_LISTED
from dataguard.report.run.curves import curves_of, ranks_first
from dataguard.report.run.delivered import delivered_facts
from dataguard.report.run.facts import RunFacts
from dataguard.report.run.heats import draw_heat
from dataguard.report.run.lineage import Lineage, lineage_of, require_step
from dataguard.report.run.logged import read_logged
from dataguard.report.run.marks import attempt_marks, checkpoint_marks, event_mark, skip_marks
from dataguard.report.run.previews import read_previews
from dataguard.report.run.windows import windows_of
from dataguard.run.run import Run
from dataguard.triage.answers import TriageAnswer
from dataguard.triage.triage import triage

if TYPE_CHECKING:
    from dataguard.corpus.tokenizer import TokenizerFile

__all__ = ["GatheredRun", "facts_of_run", "gather_run"]

_OWN_RANKS = 8
_MOST_JOURNAL = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredRun:
    """The facts, and whether they are whole."""

    facts: RunFacts
    damage: tuple[str, ...]
    """What of the run cannot be trusted; all of it stands in the notes as well."""


def facts_of_run(
    run: Run,
    *,
    attempt: int | None = None,
    step: int | None = None,
    roots: Mapping[str, str] | None = None,
    tokenizer: TokenizerFile | None = None,
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
    tokenizer
        Shows windows as text; without it they are ids.

    Raises
    ------
    NotInRun
        There is no such attempt, or no such step on its lineage.
    """
    return gather_run(run, attempt=attempt, step=step, roots=roots, tokenizer=tokenizer).facts


def gather_run(
    run: Run,
    *,
    attempt: int | None = None,
    step: int | None = None,
    roots: Mapping[str, str] | None = None,
    tokenizer: TokenizerFile | None = None,
) -> GatheredRun:
    """As `facts_of_run`, with what is damaged apart."""
    lineage = lineage_of(run, attempt)
    if step is not None:
        require_step(lineage, step)
    answer = _triage(lineage, step, roots)
    events = () if answer is None else answer.events
    windows = windows_of(lineage, answer, step)
    odd = _odd_ranks(answer)
    world_size = max((each.attempt.geometry.world_size for each in lineage.owned), default=0)
    logged = read_logged(
        lineage,
        own=("loss",),
        own_ranks=ranks_first(odd, world_size, _OWN_RANKS) if world_size > 1 else (),
        spans=[(each.first, each.stop) for each in windows],
    )
    delivered = delivered_facts(lineage)
    most = MOST_LISTED // max(1, len(windows))
    drawn = [draw_heat(lineage, window, logged.rows, answer, odd, most=most) for window in windows]
    listed = sorted((each for one in drawn for each in one.listed), key=lambda each: each.rank_of_interest)
    previews, places = read_previews(lineage, listed, roots=roots, tokenizer=tokenizer)
    steps = lineage.steps
    journal, num_journal = _journal(lineage)
    facts = RunFacts(
        run=run.path.resolve().name,
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
        heats=tuple(one.heat(lineage, places) for one in drawn),
        previews=previews,
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


def _odd_ranks(answer: TriageAnswer | None) -> list[int]:
    """Ranks that stand out at the event in question, the worst first, then those of the samples that are named."""
    localised = None if answer is None else answer.localised
    if localised is None:
        return []
    return [
        *(each.rank for each in localised.ranks if each.outlying or each.persistent),
        *(each.rank for each in localised.samples),
    ]


def _journal(lineage: Lineage) -> tuple[tuple[LogLine, ...], int]:
    lines, _ = read_log(lineage.run)
    return lines[-_MOST_JOURNAL:], len(lines)
