"""How is a response written into the journal, once, and nothing else done?

Only skips and quarantines are written, through the same functions as by hand (`dataguard.run.amend`). A second time
writes nothing: what stands is told. Where the journal has moved since the response was planned, it is refused only if
that matters: the steps now mean other positions, or somebody has taken back just what would be written.
"""

from __future__ import annotations

from dataguard.core.spans import SpanSet
from dataguard.errors import AttemptError
from dataguard.plan.attempts import Skip
from dataguard.run.amend import quarantine, skip
from dataguard.run.events import Quarantined, Released, Revoked, SkipAdded
from dataguard.run.journal import Entry, JournalRead
from dataguard.run.pending import Pending
from dataguard.run.run import Run
from dataguard.triage.respond.answers import Applied, QuarantineAdvice, Response, SkipAdvice
from dataguard.triage.respond.quarantining import withheld_by

__all__ = ["apply_response"]


def apply_response(run: Run, response: Response, *, by: str | None = None, dry_run: bool = False) -> Applied:
    """Write the skip and the quarantines of a response; each that stands already is left as it is.

    Raises
    ------
    AttemptError
        The journal has moved since the response was planned, and what it says no longer holds.
    RunDamaged
        The journal cannot be appended to.
    """
    written: list[int] = []
    done: list[str] = []
    already: list[str] = []
    read = run.read()
    read.require_sound("a response")
    _require_same_journal(read, response)
    since = [entry for entry in read.entries if entry.number > response.journal[0]]
    own_order = run.plan_document().root.form != "given"
    advice = response.skip if own_order else None
    if advice is not None:
        _require_same_meaning(run, response, advice, read, since)
        held = _held_by(run.pending(), advice)
        if held:
            already.append(f"steps {_span(advice.steps)} are skipped already, by event {', '.join(map(str, held))}")
        else:
            reason = _reason(response, "skip")
            made = skip(run, *advice.steps, reason=reason, attempt=response.attempt, by=by, dry_run=dry_run)
            written += [made.event] if made.event is not None else []
            done.append(f"skip {_span(advice.steps)}, positions {_span(made.positions or advice.positions)}")
    for each in response.quarantines if own_order else ():
        _require_not_taken_back(run, each, since)
        name = _name(each)
        event = withheld_by(run.pending(), each.shard, each.row)
        if event is not None:
            already.append(f"{name} is quarantined already, by event {event}")
            continue
        made = quarantine(run, name, reason=each.reason, evidence=each.evidence, by=by, dry_run=dry_run)
        written += [made.event] if made.event is not None else []
        done.append(f"quarantine {name}")
    return Applied(
        dry_run=dry_run,
        written=tuple(written),
        done=tuple(done),
        already=tuple(already),
        left=_left(response, own_order=own_order),
    )


def _require_same_journal(read: JournalRead, response: Response) -> None:
    """AttemptError where the journal is not the one, grown or not, that the response was planned on."""
    number, digest = response.journal
    entry = next((entry for entry in read.entries if entry.number == number), None)
    if entry is None or entry.sha256 != digest:
        raise AttemptError(
            "this response was planned on another journal",
            found=f"event {number} is {'missing' if entry is None else 'another one'} here",
            todo="run triage again",
        )


def _require_same_meaning(
    run: Run, response: Response, advice: SkipAdvice, read: JournalRead, since: list[Entry]
) -> None:
    steps = run.plan.steps() if response.attempt is None else run.steps_of(response.attempt, read)
    if response.attempt is None and len(run.attempts(read)):
        raise AttemptError(
            "an attempt has begun since this response was planned, and steps are now counted along it",
            todo="run triage again",
        )
    meant = steps.skip_of_steps(run.step(advice.steps[0]), run.step(advice.steps[1])).positions
    if meant != advice.positions:
        raise AttemptError(
            f"steps {_span(advice.steps)} no longer mean the same positions",
            found=f"{_span(meant)} instead of {_span(advice.positions)}",
            todo="run triage again",
        )
    for entry in since:
        taken = _revoked_by(entry, read)
        if isinstance(taken, SkipAdded) and taken.start < advice.positions[1] and advice.positions[0] < taken.stop:
            raise AttemptError(
                f"a skip of these steps was taken back after this response was planned, by event {entry.number}",
                found=f"by {entry.by} at {entry.time}",
                todo="ask them, and run triage again",
            )


def _require_not_taken_back(run: Run, advice: QuarantineAdvice, since: list[Entry]) -> None:
    read = run.read()
    for entry in since:
        event = entry.event
        taken = _revoked_by(entry, read)
        released = isinstance(event, Released) and event.shard == advice.shard and event.row in (None, advice.row)
        revoked = isinstance(taken, Quarantined) and taken.shard == advice.shard and taken.row in (None, advice.row)
        if released or revoked:
            raise AttemptError(
                f"{_name(advice)} was released after this response was planned, by event {entry.number}",
                found=f"by {entry.by} at {entry.time}",
                todo="ask them, and run triage again",
            )


def _revoked_by(entry: Entry, read: JournalRead) -> object:
    if not isinstance(entry.event, Revoked):
        return None
    number = entry.event.event
    return next((other.event for other in read.entries if other.number == number), None)


def _held_by(pending: Pending, advice: SkipAdvice) -> tuple[int, ...]:
    """The skips that hold all of a range between them; none where some of it is open."""
    start, stop = advice.positions
    over: list[Skip] = [each for each in pending.skips if each.start < stop and start < each.stop]
    whole = SpanSet.of((each.start, each.stop) for each in over)
    return tuple(sorted({each.event for each in over})) if whole.covers(start, stop) else ()


def _reason(response: Response, verb: str) -> str:
    """As the command that was shown gives it."""
    for each in response.commands:
        if each.argv[1] == verb and "--reason" in each.argv:
            return each.argv[each.argv.index("--reason") + 1]
    return f"triage: {response.verdict}"


def _left(response: Response, *, own_order: bool) -> tuple[str, ...]:
    left = []
    if response.skip is not None and not own_order:
        left.append(f"leave steps {_span(response.skip.steps)} out in the trainer's own loader")
    left += [f"leave {_name(each)} out of the trainer's own data set" for each in response.quarantines if not own_order]
    if response.resume is not None:
        left.append(response.resume.text)
    left += [f"change {each.what} to {each.to}" for each in response.configuration]
    left += [f"fence {host}" for host in response.fence]
    return tuple(left)


def _name(advice: QuarantineAdvice) -> str:
    return advice.shard if advice.row is None else f"{advice.shard}:{advice.row}"


def _span(span: tuple[int, int]) -> str:
    return f"{span[0]:,}:{span[1]:,}"
