"""How are all facts of the page of a run gathered, each from its place?

1. `lineage`: which attempts and steps it is about.
2. `known`: what `triage`, which writes nothing here, says of events and verdict.
3. `windows`: the steps around the events that are shown rank by rank.
4. `logged`, `curves`: one pass over the telemetry; `delivered`: one over the index.
5. `heats`, `cells`, `previews`: what every rank was fed around the events, and what it looks like.

Whatever is damaged, missing or cannot be read makes a note and no page less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dataguard.errors import RunDamaged
from dataguard.replay.log import LogLine, read_log
from dataguard.replay.lookup import Lookup
from dataguard.report.run.cells import LEAST_LISTED, MOST_LISTED, Key
from dataguard.report.run.curves import curves_of, ranks_first
from dataguard.report.run.delivered import NOTHING, delivered_facts
from dataguard.report.run.facts import Preview, RunFacts
from dataguard.report.run.heats import MOST_RANKS, DrawnHeat, draw_heat
from dataguard.report.run.known import Known, known_of, or_nothing
from dataguard.report.run.lineage import Lineage, lineage_of, require_step
from dataguard.report.run.logged import Logged, read_logged
from dataguard.report.run.marks import attempt_marks, checkpoint_marks, event_mark, skip_marks
from dataguard.report.run.previews import read_previews
from dataguard.report.run.windows import Window, windows_of
from dataguard.run.roots import checked_roots
from dataguard.run.run import Run

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
    UsageError
        A root is given for a source that the run does not have.
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
    lineage = _lineage(run, attempt)
    if roots and not lineage.damage:
        checked_roots(roots, [source.name for each in run.manifests.values() for source in each.sources])
    if step is not None and lineage.leaf is not None:
        require_step(lineage, step)
    known = known_of(lineage, step, roots)
    windows = windows_of(lineage, known, step)
    world_size = max((each.attempt.geometry.world_size for each in lineage.owned), default=0)
    logged = read_logged(
        lineage,
        own=("loss",),
        own_ranks=ranks_first(known.odd_ranks, world_size, _OWN_RANKS) if world_size > 1 else (),
        spans=[(each.first, each.stop) for each in windows],
    )
    delivered = or_nothing(lineage, "what was delivered", lambda: delivered_facts(lineage), NOTHING)
    drawn = _drawn(lineage, windows, logged, known)
    listed = sorted((each for one in drawn for each in one.listed), key=lambda each: each.rank_of_interest)
    nothing: tuple[tuple[Preview, ...], dict[Key, int]] = ((), {})
    looked = partial(read_previews, lineage, listed, roots=roots, tokenizer=tokenizer)
    previews, places = or_nothing(lineage, "what samples look like", looked, nothing)
    steps = lineage.steps
    no_lines: tuple[LogLine, ...] = ()
    journal = or_nothing(lineage, "the journal", lambda: read_log(run)[0], no_lines)
    facts = RunFacts(
        run=run.path.resolve().name,
        run_id=run.run_id,
        attempt=lineage.leaf,
        steps=None if steps is None else (run.label(steps[0]), run.label(steps[1])),
        num_steps_delivered=delivered.num_steps,
        num_samples=delivered.num_samples,
        policy=None if lineage.leaf is None else run.begun(lineage.leaf, lineage.read).policy_name or None,
        curves=curves_of(logged, first_label=run.first_label, limits=lineage.limits),
        events=tuple(event_mark(each) for each in known.events),
        skips=or_nothing(lineage, "skips", lambda: skip_marks(lineage), ()),
        attempts=or_nothing(lineage, "attempts", lambda: attempt_marks(lineage), ()),
        checkpoints=checkpoint_marks(lineage),
        heats=tuple(one.heat(lineage, places) for one in drawn),
        previews=previews,
        signals=delivered.signals,
        withheld=delivered.withheld,
        mixture=delivered.mixture,
        mixture_steps=delivered.stretches,
        triage=known.answer,
        journal=journal[-_MOST_JOURNAL:],
        num_journal=len(lineage.read.entries),
        notes=tuple(dict.fromkeys([*lineage.damage, *lineage.notes])),
        limits=tuple(lineage.limits),
    )
    return GatheredRun(facts=facts, damage=tuple(dict.fromkeys(lineage.damage)))


def _lineage(run: Run, attempt: int | None) -> Lineage:
    """The lineage; none where the attempts of the journal cannot be put together."""
    try:
        return lineage_of(run, attempt)
    except RunDamaged as error:
        told = f"attempts are not known: {' '.join(str(error).split())}"
        return Lineage(
            run=run, read=run.read(), lookup=Lookup(run), leaf=None, owned=(), complete={}, damage=[told]
        )  # fmt: skip


def _drawn(lineage: Lineage, windows: Sequence[Window], logged: Logged, known: Known) -> list[DrawnHeat]:
    num_ranks = min(MOST_RANKS, max((each.attempt.geometry.world_size for each in lineage.owned), default=0))
    num_cells = num_ranks * sum(each.stop - each.first for each in windows)
    most = max(LEAST_LISTED, MOST_LISTED - num_cells) // max(1, len(windows))
    drawn = [
        or_nothing(
            lineage,
            f"what ranks were fed in steps {lineage.run.label(window.first):,}:{lineage.run.label(window.stop):,}",
            partial(draw_heat, lineage, window, logged.rows, known, most=most),
            None,
        )
        for window in windows
    ]
    return [each for each in drawn if each is not None]
