"""What happened to this run, for people: every event of the journal in a sentence, and what became of it since."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UnsetType

from dataguard.errors import RunDamaged
from dataguard.plan.steps import label_of_step
from dataguard.run.events import (
    AttemptBegun,
    EvaluatedAt,
    Event,
    Halted,
    Note,
    Proposed,
    Quarantined,
    Released,
    Revoked,
    RunCreated,
    SkipAdded,
    StreamAdded,
    kind_of,
)
from dataguard.run.journal import Entry
from dataguard.run.notes import text_of_note
from dataguard.run.pending import revoked_events
from dataguard.run.reached import complete_steps
from dataguard.run.run import Run

__all__ = ["LogLine", "read_log"]

State = Literal["applied", "pending", "revoked", "proposed", "done"]


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One event."""

    number: int
    time: str
    by: str
    kind: str
    """The event's kind, as in the journal."""
    state: State
    """``applied`` by an attempt, ``pending`` until the next one begins, ``revoked``, ``proposed`` (no effect), or
    ``done`` for what is a fact and not an amendment."""
    text: str
    """What it says, steps in the trainer's labels."""
    event: Event


def read_log(run: Run) -> tuple[tuple[LogLine, ...], tuple[str, ...]]:
    """Every event in order, and what is wrong with the journal."""
    read = run.read()
    revoked = revoked_events(read.entries)
    last_attempt = max((entry.number for entry in read.entries if isinstance(entry.event, AttemptBegun)), default=0)
    complete = complete_steps(run)
    lines = tuple(
        LogLine(
            number=entry.number,
            time=entry.time,
            by=entry.by,
            kind=kind_of(entry.event),
            state=_state(entry, revoked, last_attempt),
            text=_text(run, entry.event, complete),
            event=entry.event,
        )
        for entry in read.entries
    )
    return lines, run.problems()


def _state(entry: Entry, revoked: frozenset[int], last_attempt: int) -> State:
    if entry.number in revoked:
        return "revoked"
    if isinstance(entry.event, RunCreated | AttemptBegun | Halted | StreamAdded | Note):
        return "done"
    if isinstance(entry.event, Proposed):
        return "proposed"
    return "applied" if entry.number < last_attempt else "pending"


def _text(run: Run, event: Event, complete: dict[int, int]) -> str:
    if isinstance(event, Note):
        return text_of_note(run, event)
    if isinstance(event, StreamAdded):
        return _stream(run, event)
    if isinstance(event, RunCreated) and event.stream:
        return f"stream {event.stream.name} of run {event.stream.run} created: plan {event.plan[:16]}"
    if isinstance(event, RunCreated):
        policy = _policy(event.policy_name, event.policy)
        return (
            f"run {event.run} created: plan {event.plan[:16]}, skip mode {event.skip_mode}, fill {event.fill}{policy}"
        )
    if isinstance(event, AttemptBegun):
        parent = "" if event.parent is None else f" from attempt {event.parent}"
        reached = complete.get(event.attempt, event.fork_step)
        if event.evaluated_at:
            ranks = (
                f"{event.world_size:,} rank{'s' * (event.world_size != 1)} * microbatches of {event.microbatch_size:,}"
            )
            return f"evaluation {event.attempt}{_stands(run, event.evaluated_at)}: steps 0:{reached:,}, {ranks}"
        skips = f", {len(event.skips)} skips" if event.skips else ""
        withheld = f", {event.num_withheld:,} withheld" if event.num_withheld else ""
        policy = _policy(event.policy_name, event.policy)
        return (
            f"attempt {event.attempt}{parent}: steps {run.label(event.fork_step):,}:{run.label(reached):,}, "
            f"{event.world_size:,} rank{'s' * (event.world_size != 1)} * microbatches of {event.microbatch_size:,}"
            f"{skips}{withheld}{policy}"
        )
    if isinstance(event, SkipAdded):
        return (
            f"skip steps {_span(event.steps)} of attempt {event.attempt} (batches {_span(event.batches)}, positions "
            f"{event.start:,}:{event.stop:,}): {event.reason}"
        )
    if isinstance(event, Quarantined):
        what = f"the list {event.withheld[:16]}" if event.withheld else _record(event.shard, event.row)
        return f"quarantine {what}: {event.reason}" + (f" ({event.evidence})" if event.evidence else "")
    if isinstance(event, Released):
        return f"release {_record(event.shard, event.row)}" + (f": {event.reason}" if event.reason else "")
    if isinstance(event, Revoked):
        return f"revoke event {event.event}" + (f": {event.reason}" if event.reason else "")
    if isinstance(event, Halted):
        return (
            f"attempt {event.attempt} stops before step {run.label(event.stop_step):,}: {event.shard}:{event.row} in "
            f"step {run.label(event.step):,}, rank {event.rank}, microbatch {event.microbatch}, slot {event.slot}, by "
            f"{', '.join(event.rules)}"
        )
    return f"propose to {event.proposal} {_proposed(event)}: {event.reason}"


def _stream(run: Run, event: StreamAdded) -> str:
    """A stream, and how often it was evaluated by now."""
    length = "one whole pass" if event.num_steps is None else f"{event.num_steps:,} steps"
    text = f"stream {event.name} added: {length}, plan {event.plan[:16]}, manifest {event.manifest[:16]}"
    try:
        evaluations = run.stream(event.name).evaluations()
    except RunDamaged as error:
        return f"{text}; {str(error).splitlines()[0]}"
    if not evaluations:
        return f"{text}; not evaluated yet"
    several = "s" * (len(evaluations) != 1)
    return f"{text}; {len(evaluations):,} evaluation{several}, the newest{_stands(run, evaluations[-1].at)}"


def _stands(run: Run, at: EvaluatedAt) -> str:
    """Where the training stood, in its trainer's labels."""
    if at.step is None:
        return ""
    own = run.stream_identity
    step = label_of_step(at.step, run.first_label if own is None else own.first_label)
    return f" at step {step:,}" + (f" of attempt {at.attempt}" if at.attempt is not None else "")


def _policy(name: str | UnsetType, digest: str | UnsetType | None) -> str:
    return f", policy {name or 'without a name'} ({digest[:16]})" if digest else ""


def _span(span: tuple[int, int] | None) -> str:
    return "none" if span is None else f"{span[0]:,}:{span[1]:,}"


def _proposed(event: Proposed) -> str:
    if event.shard is None:
        return f"{len(event.positions):,} positions"
    if len(event.rows) == 1:
        return f"{event.shard}:{event.rows[0]}"
    return event.shard + (
        f" (rows {', '.join(map(str, event.rows[:8]))}{' ...' * (len(event.rows) > 8)})" * bool(event.rows)
    )


def _record(shard: str | None, row: int | None) -> str:
    return f"{shard}" if row is None else f"{shard}:{row}"
