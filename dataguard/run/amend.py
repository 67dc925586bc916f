"""How do people change what later attempts are trained on: skip, quarantine, release, revoke?

Each appends one event and answers with an `Amended` value: steps, batches and positions, what the next attempt does
otherwise, and what is worth knowing. With ``dry_run`` the same is worked out and nothing is written. No attempt that
has begun is changed by any of it.

Each event is made from all that stands before it and made again should another come first, so what was checked (that a
row is quarantined, that an event is not revoked yet) is true of the place where it lands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataguard.core.parse import parse_shard_row
from dataguard.core.spans import check_span
from dataguard.errors import AttemptError, NotInRun, UsageError
from dataguard.plan.given import require_planned_order
from dataguard.plan.steps import Steps, step_of_label
from dataguard.run.amended import Amended, differences
from dataguard.run.attempts import begun_events
from dataguard.run.events import Event, Quarantined, Released, Revoked, RunCreated, SkipAdded, kind_of
from dataguard.run.journal import Entry, JournalRead
from dataguard.run.pending import withholding_event
from dataguard.run.remarks import already_withheld, carried, effect, overlaps, quarantined
from dataguard.run.run import Run
from dataguard.run.targets import about_targets, known_targets
from dataguard.run.withhold import Target, keep_list, list_digest, read_withhold_file

__all__ = ["quarantine", "release", "revoke", "skip"]

NextStep = int | Callable[[int], int]
"""The first step (0-based) that an attempt has not delivered, or a function that gives it."""

_OUTSIDE = "leave the rows out of the data set or the sampler that the trainer gives, and begin an attempt with it"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """An event that would be written, and what is to be said of it beside its differences."""

    event: Event
    facts: dict[str, Any]
    notes: tuple[str, ...] = ()


def skip(
    run: Run,
    start: int,
    stop: int,
    *,
    reason: str,
    batches: bool = False,
    attempt: int | None = None,
    next_step: NextStep | None = None,
    by: str | None = None,
    dry_run: bool = False,
) -> Amended:
    """Skip steps ``start:stop`` of a lineage in every later attempt.

    Parameters
    ----------
    start, stop
        Half-open, in the trainer's labels; with `batches` by batch index.
    attempt
        The leaf of the lineage whose steps are meant; default the newest.
    next_step
        Where the leaf stands, to say what an attempt that goes on from there does; default: as it was recorded.

    Raises
    ------
    SpanError
        The range is empty or reversed.
    NotInRun
        It begins before the first step, or there is no such attempt.
    """
    _require_reason(reason)
    require_planned_order(run.plan_document().root, "skipping steps", todo=_OUTSIDE)
    check_span(start, stop, what="batch range" if batches else "step range")
    first = step_of_label(start, run.first_label, what="batch" if batches else "step")
    last = run.step(stop)

    def draft(read: JournalRead) -> _Draft:
        steps, leaf = _lineage(run, read, attempt)
        meant = steps.skip_of_batches(first, last) if batches else steps.skip_of_steps(first, last)
        labelled = None if meant.steps is None else (run.label(meant.steps[0]), run.label(meant.steps[1]))
        event = SkipAdded(
            start=meant.positions[0],
            stop=meant.positions[1],
            steps=labelled,
            batches=(run.label(meant.batches[0]), run.label(meant.batches[1])),
            asked="batches" if batches else "steps",
            attempt=leaf,
            reason=reason,
        )
        notes = overlaps(run.pending(read), meant.positions)
        notes += [
            f"the range reaches past position {mixture:,}, where the sources, their weights or their order change"
            for mixture in meant.later_mixtures
        ]
        if leaf:
            notes += effect(run, steps, meant.positions, _stands(run, leaf, next_step))
        facts = {"attempt": leaf, "steps": event.steps, "batches": event.batches, "positions": meant.positions}
        return _Draft(event=event, facts=facts, notes=tuple(notes))

    return _write(run, "skip", draft, reason=reason, by=by, dry_run=dry_run)


def quarantine(
    run: Run,
    name: str | None = None,
    *,
    reason: str,
    withhold_file: str | Path | None = None,
    evidence: str | None = None,
    next_step: NextStep | None = None,
    by: str | None = None,
    dry_run: bool = False,
) -> Amended:
    """Withhold a shard, one of its rows, or a list of rows from every later attempt.

    Parameters
    ----------
    name
        ``SHARD`` or ``SHARD:ROW``.
    withhold_file
        Instead of a name: a list (`withhold.read_withhold_file`), of which the run keeps a copy.
    evidence
        What shows it: free text, a path, a digest.

    Raises
    ------
    NotInRun
        No manifest of the run has such a shard or row; the nearest names are shown.
    UsageError
        Neither a name nor a file is given, or both.
    """
    _require_reason(reason)
    require_planned_order(run.plan_document().root, "withholding rows", todo=_OUTSIDE)
    if (name is None) == (withhold_file is None):
        raise UsageError(
            "a quarantine names a shard or a file, and not both", allowed="SHARD, SHARD:ROW or --withhold FILE"
        )
    if name is not None:
        asked = [parse_shard_row(name)]
    else:
        asked = read_withhold_file(Path(str(withhold_file)), seq_len=run.plan_document().root.seq_len)
    targets = known_targets(run, asked)
    digest = None
    if name is None:
        digest = list_digest(targets) if dry_run else keep_list(run.layout, targets)
    shard, row = targets[0] if digest is None else (None, None)

    def draft(read: JournalRead) -> _Draft:
        event = Quarantined(shard=shard, row=row, withheld=digest, reason=reason, evidence=evidence)
        pending = run.pending(read)
        notes = already_withheld(pending, targets)
        facts, more = _about(run, read, targets, next_step)
        facts |= {"shard": shard, "row": row, "withheld": digest}
        return _Draft(event=event, facts=facts, notes=(*notes, *more))

    # A dry run must not depend on a copy that was never kept.
    lists = {} if digest is None else {digest: targets}
    return _write(run, "quarantine", draft, reason=reason, by=by, dry_run=dry_run, lists=lists)


def release(
    run: Run,
    name: str,
    *,
    reason: str = "",
    next_step: NextStep | None = None,
    by: str | None = None,
    dry_run: bool = False,
) -> Amended:
    """Deliver a quarantined shard (with all rows of it that are quarantined), or one quarantined row, again.

    Raises
    ------
    NotInRun
        It is not quarantined; what is, is shown.
    """
    require_planned_order(run.plan_document().root, "withholding rows", todo=_OUTSIDE)
    [(shard, row)] = known_targets(run, [parse_shard_row(name)])

    def draft(read: JournalRead) -> _Draft:
        pending = run.pending(read)
        whole = withholding_event(pending, shard, None)
        held = [entry for entry in pending.withheld if entry.shard == shard and (row is None or entry.row == row)]
        if not held:
            raise NotInRun(
                f"{_named(shard, row)} is not quarantined",
                found=f"its whole shard is, by event {whole.event}" if whole else quarantined(pending),
                todo=f"release the shard: dataguard release RUN {shard}" if whole else None,
            )
        notes = []
        if row is not None and whole is not None:
            notes.append(f"{_named(shard, row)} stays withheld with its whole shard, by event {whole.event}")
        facts, more = _about(run, read, [(entry.shard, entry.row) for entry in held], next_step)
        facts |= {"shard": shard, "row": row}
        return _Draft(event=Released(shard=shard, row=row, reason=reason), facts=facts, notes=(*notes, *more))

    return _write(run, "release", draft, reason=reason, by=by, dry_run=dry_run)


def revoke(
    run: Run,
    event: int,
    *,
    reason: str = "",
    next_step: NextStep | None = None,
    by: str | None = None,
    dry_run: bool = False,
) -> Amended:
    """Take an earlier skip, quarantine, release or revocation back, for every later attempt.

    Raises
    ------
    NotInRun
        There is no such event.
    AttemptError
        It is no amendment, or is revoked already.
    """

    def draft(read: JournalRead) -> _Draft:
        meant = _amendment(read, event)
        pending = run.pending(read)
        if event in pending.revoked:
            by_whom = next(
                entry
                for entry in reversed(read.entries)
                if isinstance(entry.event, Revoked)
                and entry.event.event == event
                and entry.number not in pending.revoked
            )
            raise AttemptError(
                f"event {event} is revoked already",
                found=f"event {by_whom.number} of {by_whom.time} by {by_whom.by}",
                todo=f"to bring it back: dataguard revoke RUN {by_whom.number}",
            )
        facts: dict[str, Any] = {"revokes": event, "attempt": max(begun_events(read), default=0)}
        notes: list[str] = []
        if isinstance(meant, SkipAdded):
            facts |= {"steps": meant.steps, "batches": meant.batches, "positions": (meant.start, meant.stop)}
            facts["attempt"] = meant.attempt
            notes += carried(run, read, event)
        elif isinstance(meant, Quarantined | Released):
            listed = meant.withheld if isinstance(meant, Quarantined) else None
            targets = run.read_list(listed) if listed else [(meant.shard or "", meant.row)]
            more, lines = _about(run, read, targets, next_step)
            facts |= {**more, "shard": meant.shard, "row": meant.row, "withheld": listed}
            notes += [*carried(run, read, event), *lines]
        return _Draft(event=Revoked(event=event, reason=reason), facts=facts, notes=tuple(notes))

    return _write(run, "revoke", draft, reason=reason, by=by, dry_run=dry_run)


# -- pieces


def _write(
    run: Run,
    kind: str,
    draft: Callable[[JournalRead], _Draft],
    *,
    reason: str,
    by: str | None,
    dry_run: bool,
    lists: dict[str, list[Target]] | None = None,
) -> Amended:
    """Append what `draft` makes (or, dry, make it only) and say what it changes."""
    if run.stream_identity is not None:
        raise UsageError(
            f"nothing amends stream {run.stream_identity.name!r}: it is a fixed set",
            todo="add a stream of another corpus, under another name",
        )
    made: list[tuple[JournalRead, _Draft]] = []

    def make(read: JournalRead) -> Event:
        made.append((read, draft(read)))
        return made[-1][1].event

    number = None
    if dry_run:
        read = run.read()
        read.require_sound(f"a {kind}")
        make(read)
    else:
        number = run.journal.append(make, by=by).number
    read, drafted = made[-1]
    before = run.pending(read)
    hypothetical = Entry(number=read.head.number + 1, event=drafted.event, time="", by="", dataguard="", sha256="")
    after = run.fold((*read.entries, hypothetical), lists or {})
    return Amended(
        kind=kind,  # type: ignore[arg-type]
        event=number,
        dry_run=dry_run,
        reason=reason,
        notes=drafted.notes,
        **drafted.facts,
        **differences(before, after),  # type: ignore[arg-type]
    )


def _require_reason(reason: str) -> None:
    if not reason.strip():
        raise UsageError("an amendment needs a reason", todo="give --reason TEXT: whoever reads the journal will ask")


def _lineage(run: Run, read: JournalRead, attempt: int | None) -> tuple[Steps, int]:
    """The steps that are meant, and their leaf; of the plan alone, and 0, where no attempt has begun."""
    if not begun_events(read) and attempt is None:
        return run.plan.steps(), 0
    tree = run.attempts(read)
    leaf = tree.newest if attempt is None else tree.attempt(attempt).number
    return run.steps_of(leaf, read), leaf


def _stands(run: Run, leaf: int, next_step: NextStep | None) -> int:
    if next_step is None:
        from dataguard.run.reached import complete_before

        return complete_before(run, leaf)
    return next_step(leaf) if callable(next_step) else next_step


def _amendment(read: JournalRead, number: int) -> SkipAdded | Quarantined | Released | Revoked:
    entry = next((entry for entry in read.entries if entry.number == number), None)
    if entry is None:
        raise NotInRun(f"event {number} is not in this journal", allowed=f"1 to {read.head.number}")
    if isinstance(entry.event, SkipAdded | Quarantined | Released | Revoked):
        return entry.event
    todo = None
    if isinstance(entry.event, RunCreated) and entry.event.withheld:
        todo = "release what the run withholds since its creation: dataguard release RUN SHARD"
    raise AttemptError(
        f"event {number} is no amendment, so it cannot be revoked",
        found=f"it is of kind {kind_of(entry.event)}",
        allowed="a skip, quarantine, release or revocation",
        todo=todo,
    )


def _about(
    run: Run, read: JournalRead, targets: Iterable[Target], next_step: NextStep | None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    steps, leaf = _lineage(run, read, None)
    start = steps.start_of(_stands(run, leaf, next_step)) if leaf else 0
    about = about_targets(run, list(targets), steps=steps, attempt=leaf or None, start=start)
    return {"attempt": leaf, "num_samples": about.num_samples, "places": about.places}, about.notes


def _named(shard: str, row: int | None) -> str:
    return shard if row is None else f"{shard}:{row}"
