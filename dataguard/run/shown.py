"""What does a notebook show of a run: its plan, attempts, how far it came, what is skipped and withheld, what was last?

All of it comes from the journal and from the ends of a few ranks' records; no step is read but the last, no shard is
opened, and what cannot be had is said to be not known, with the reason.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dataguard.core.notebook import MOST_ROWS, NOT_KNOWN, Listing, card, told
from dataguard.run.attempts import begun_events
from dataguard.run.events import AttemptBegun, kind_of
from dataguard.run.index import Index

if TYPE_CHECKING:
    from dataguard.run.journal import JournalRead
    from dataguard.run.run import Run

__all__ = ["run_html"]

_MOST_RANKS = 8
"""Ranks whose record is asked how far it came: each costs a few reads."""


def run_html(run: Run) -> str:
    """A card of a run; whatever is damaged is told, and the rest shown."""
    read = run.read()
    begun = begun_events(read)
    newest = max(begun, default=None)
    facts: dict[str, object] = {"run": run.run_id, "folder": run.path, "plan": told(lambda: _plan(run))}
    if run.stream_identity is not None:
        facts["stream"] = f"{run.stream_identity.name}, of run {run.stream_identity.run}"
    what = "attempts" if run.stream_identity is None else "evaluations"
    facts[what] = len(begun)
    facts["steps"] = "none begun" if newest is None else told(lambda: _reached(run, read, newest))
    facts["policy"] = _policy(run, None if newest is None else begun[newest])
    pending = told(lambda: run.pending(read))
    facts["skips"] = told(lambda: _skips(run, read)) if not isinstance(pending, str) else pending
    facts["quarantine"] = told(lambda: _withheld(run, read)) if not isinstance(pending, str) else pending
    last = read.entries[-1]
    facts["last event"] = f"{last.number}: {kind_of(last.event)}, {last.time}, by {last.by}"
    rows = (_row(run, number, begun[number]) for number in sorted(begun, reverse=True))
    listing = Listing(
        title=f"{what}, the newest first",
        columns=("number", "from", "first step", "ranks", "microbatch", "launch"),
        rows=rows,
        num_rows=len(begun),
    )
    problems = told(lambda: _problems(run, read))
    return card(
        "Run" if run.stream_identity is None else "Run of a stream",
        facts,
        tables=[listing],
        problems=[problems] if isinstance(problems, str) else problems,  # type: ignore[arg-type]
    )


def _problems(run: Run, read: JournalRead) -> list[str]:
    damaged = [f"the journal is damaged: {problem.message}" for problem in read.problems[: MOST_ROWS + 1]]
    return [*damaged, *(text for text in run.problems() if text not in {p.message for p in read.problems})]


def _plan(run: Run) -> str:
    document = run.plan_document()
    root = document.root
    form = root.form if root.seq_len is None else f"{root.form} of {root.seq_len:,} tokens"
    return (
        f"{document.digest[:16]}, seed {root.seed}, {form}, batches of {document.batch_sizes[-1].size:,}, "
        f"fill {run.document.fill}, skip mode {run.document.skip_mode}"
    )


def _reached(run: Run, read: JournalRead, attempt: int) -> str:
    """Steps of the newest lineage that are complete, as the first ranks have them."""
    steps = run.steps_of(attempt, read)
    plan = run.attempts(read).attempt(attempt)
    num_ranks = min(_MOST_RANKS, plan.geometry.world_size)
    ends = Index(run.layout).next_steps(
        attempt, num_ranks, lambda step: plan.geometry.num_microbatches(steps.size_of(step))
    )
    end = min(plan.fork_step if each is None else each for each in ends)
    first = run.attempts(read).lineage(attempt)[0].fork_step
    by = "" if num_ranks == plan.geometry.world_size else f", by ranks 0:{num_ranks} of {plan.geometry.world_size:,}"
    return f"{run.label(first):,}:{run.label(end):,} are complete on the lineage of attempt {attempt}{by}"


def _policy(run: Run, begun: AttemptBegun | None) -> str:
    event = run.document if begun is None else begun
    if not event.policy:
        return "none: nothing is judged"
    return f"{event.policy_name or NOT_KNOWN} ({str(event.policy)[:16]})"


def _skips(run: Run, read: JournalRead) -> str:
    skips = run.pending(read).skips
    if not skips:
        return "none"
    last = max(skips, key=lambda skip: skip.event)
    return f"{len(skips):,}; the newest of positions {last.start:,}:{last.stop:,}, event {last.event}: {last.reason}"


def _withheld(run: Run, read: JournalRead) -> str:
    withheld = run.pending(read).withheld
    if not withheld:
        return "none"
    count = Counter("shards" if each.row is None else "rows" for each in withheld)
    last = max(withheld, key=lambda each: each.event)
    name = last.shard if last.row is None else f"{last.shard}:{last.row}"
    return f"{count['shards']:,} shards, {count['rows']:,} rows; event {last.event} withholds {name}: {last.reason}"


def _row(run: Run, number: int, event: AttemptBegun) -> tuple[object, ...]:
    return (
        number,
        "the beginning" if event.parent is None else f"attempt {event.parent}",
        run.label(event.fork_step),
        event.world_size,
        event.microbatch_size,
        event.launch_id,
    )
