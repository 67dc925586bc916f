"""What follows from a verdict: where to resume, what to skip, quarantine, change and fence, as commands to type?

By verdict:

| verdict | resume | skip | quarantine | configuration | fence |
|---|---|---|---|---|---|
| bad_data | before the lead | the event and its lead | what was found | signs found | |
| data_and_state | before the lead | the event and its lead | what was found | signs found | |
| the same, A10 | before the lead | | | signs found | |
| hard_batch | | | samples that score badly | | |
| optimizer_or_numerics | before the lead | | | signs found | |
| hardware | before the lead | | | | the host |
| application | before the lead | | | | |
| planned_change, no_incident | | | | | |
| inconclusive | | | | | |

A10: spikes that recur while attention logits climb are a matter of configuration, whatever one replay says of one batch
and its state. Quarantines that stand proposed in the journal are shown with every verdict: no verdict answers them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dataguard.core.evidence import Verdict
from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.core.trainer import TrainerFacts
from dataguard.plan.steps import Steps
from dataguard.run.journal import JournalRead
from dataguard.run.pending import Pending
from dataguard.run.places import hosts_of
from dataguard.run.run import Run
from dataguard.triage.respond.answers import (
    Change,
    Command,
    Exports,
    QuarantineAdvice,
    Response,
    ResumeAdvice,
    SkipAdvice,
)
from dataguard.triage.respond.checkpoints import resume_advice, retained
from dataguard.triage.respond.configuring import Sign, configuration_advice, is_configuration, signs_of
from dataguard.triage.respond.described import facts_of
from dataguard.triage.respond.exports import exports_of
from dataguard.triage.respond.quarantining import Suspect, quarantine_advice
from dataguard.triage.respond.retention import advise_retention, detection_delay
from dataguard.triage.respond.rhythm import checkpoint_distance, logged_distance
from dataguard.triage.respond.shell import command
from dataguard.triage.respond.skipping import lead_of, skip_advice, span_of

__all__ = ["plan_response"]

_SKIPS = frozenset({Verdict.BAD_DATA, Verdict.DATA_AND_STATE})
_RESUMES = _SKIPS | {Verdict.OPTIMIZER_OR_NUMERICS, Verdict.HARDWARE, Verdict.APPLICATION}
_QUARANTINES = _SKIPS | {Verdict.HARD_BATCH, Verdict.NO_INCIDENT}
_CHANGES = _SKIPS | {Verdict.OPTIMIZER_OR_NUMERICS}


def plan_response(
    run: Run,
    event: SpikeEvent | None,
    *,
    verdict: Verdict,
    attempt: int | None = None,
    checkpoints: Iterable[tuple[int, str]] | None = None,
    shards: Iterable[Suspect] = (),
    events: Sequence[SpikeEvent] = (),
    facts: TrainerFacts | None = None,
    signs: Mapping[Sign, str] | None = None,
    hosts: Sequence[str] = (),
    next_check: str | None = None,
    lead: int | None = None,
    delay_steps: int | None = None,
) -> Response:
    """Work out what to do about an event; nothing is written.

    Parameters
    ----------
    run, attempt
        The lineage in whose steps the event stands; default the newest leaf's.
    event
        In the trainer's labels; None where there is none.
    verdict
        What is to blame.
    checkpoints
        (next step from 0, path) of those that are there; default what the journal notes.
    shards
        What the event points to, to be quarantined where the verdict blames data.
    events
        All events of the log, drifts of other signals with them: they tell whether spikes recur.
    facts
        Of the trainer; default what the journal notes.
    signs
        Signs of the optimizer that somebody else has found, with their numbers; events and facts give some themselves.
    hosts
        To fence, of a verdict of hardware; default the host of the event's rank, where both are known.
    next_check
        What to look at next, of an inconclusive verdict.
    lead
        Steps before the onset to leave out as well; default as `lead_of` says.
    delay_steps
        What passes between an event's onset and its being told, for the advice on retention; default that of the
        default detector, where the run logs its loss.

    Raises
    ------
    NotInRun
        The event lies before the first step, a shard is not of this run, or there is no such attempt.
    """
    read = run.read()
    tree = run.attempts(read)
    leaf = (tree.newest if attempt is None else tree.attempt(attempt).number) if len(tree) else None
    lineage = tree.lineage(leaf) if leaf is not None else ()
    pending = run.pending(read)
    facts = facts_of(read.entries) if facts is None else facts
    notes: list[str] = []

    found: dict[Sign, str] = {}
    if event is not None and verdict in _CHANGES:
        found = {**signs_of(event, events, facts), **(signs or {})}
    configuration_instead = verdict is Verdict.DATA_AND_STATE and is_configuration(found)
    skips = event is not None and verdict in _SKIPS and not configuration_instead
    if configuration_instead:
        notes.append(
            "spikes recur while attention logits climb: the configuration is to change, and nothing is skipped"
        )

    resume, skip = None, None
    if event is not None and verdict in _RESUMES:
        first, onset, _ = span_of(run, event, lead_of(facts.optimizer, lead)[0])
        there = retained(lineage, read.entries, facts=facts.checkpoints, given=checkpoints)
        resume = resume_advice(
            there, skip_from=first, onset=onset, first_label=run.first_label, facts=facts.checkpoints
        )
        notes += there.notes
    if event is not None and skips:
        skip = skip_advice(run, event, attempt=leaf, pending=pending, facts=facts.optimizer, lead=lead)
        notes += _about_skip(run, event, skip)
    suspects = tuple(shards) if verdict in _QUARANTINES else ()
    quarantines = quarantine_advice(run, suspects, read.entries, pending)
    configuration = configuration_advice(found, facts) if verdict in _CHANGES else ()
    fence = _hosts(run, read, event, leaf, hosts) if _fences(verdict) else ()
    if _fences(verdict) and not fence:
        notes.append("which host to fence is not known: no rank stands out, or where it ran was not recorded")
    retention = None if resume is None else _retention(run, read, leaf, facts, delay_steps)
    shown = str(run.path)
    steps = run.plan.steps() if leaf is None else run.steps_of(leaf, read)
    own_order = run.plan_document().root.form != "given"
    if not own_order and (skip is not None or quarantines):
        notes.append(
            "the order of this run is given by the trainer's own loader: leave steps and rows out there; what is "
            "exported below says which"
        )
    commands = _commands(shown, event, verdict, skip, quarantines, leaf, own_order=own_order)
    return Response(
        verdict=verdict,
        event_class=None if event is None else event.event_class,
        run=shown,
        attempt=leaf,
        first_label=run.first_label,
        skip_mode=run.document.skip_mode,
        journal=(read.head.number, read.head.sha256),
        nothing=_is_nothing(resume, skip, quarantines, configuration, fence),
        resume=resume,
        skip=skip,
        quarantines=quarantines,
        configuration=configuration,
        fence=fence,
        next_check=next_check if verdict is Verdict.INCONCLUSIVE else None,
        retention=retention,
        commands=commands,
        exports=None if skip is None else _exports(steps, skip, pending),
        notes=tuple(notes),
    )


def _retention(run: Run, read: JournalRead, leaf: int | None, facts: TrainerFacts, delay_steps: int | None) -> str:
    """Row A18, by the distance of checkpoints that was noted and the delay of the default detector in this run."""
    detector = None
    if delay_steps is None and leaf is not None:
        every = logged_distance(run, leaf, "loss")
        if every is not None:
            delay_steps, detector = detection_delay(every), "default"
    seen = checkpoint_distance(read.entries)
    checkpoints = facts.checkpoints if seen is None else msgspec.structs.replace(facts.checkpoints, every_steps=seen)
    return advise_retention(checkpoints, delay_steps=delay_steps, detector=detector).text


def _fences(verdict: Verdict) -> bool:
    return verdict is Verdict.HARDWARE


def _is_nothing(
    resume: ResumeAdvice | None,
    skip: SkipAdvice | None,
    quarantines: Sequence[QuarantineAdvice],
    configuration: Sequence[Change],
    fence: Sequence[str],
) -> bool:
    open_quarantines = [each for each in quarantines if each.by_event is None]
    return resume is None and skip is None and not open_quarantines and not configuration and not fence


def _about_skip(run: Run, event: SpikeEvent, skip: SkipAdvice) -> list[str]:
    notes = []
    if event.is_open:
        notes.append(
            f"the event goes on where the log ends: the range covers it up to step {skip.steps[1]:,}, and no further"
        )
    if skip.by_event:
        notes.append(f"all of the range is skipped already, by event {', '.join(map(str, skip.by_event))}")
    elif skip.num_samples_new < skip.num_samples:
        notes.append(
            f"{skip.num_samples - skip.num_samples_new:,} of {skip.num_samples:,} positions are skipped already"
        )
    if run.document.skip_mode == "hole":
        notes.append("the run's skips leave holes: the trainer's step passes over the steps that are skipped whole")
    return notes


def _hosts(
    run: Run, read: JournalRead, event: SpikeEvent | None, leaf: int | None, hosts: Sequence[str]
) -> tuple[str, ...]:
    if hosts:
        return tuple(dict.fromkeys(hosts))
    if event is None or event.rank is None or leaf is None:
        return ()
    owner = run.attempts(read).owner(run.step(event.peak), leaf)
    places = {place.rank: place.host for place in run.begun(owner, read).ranks} | hosts_of(run.layout, owner)
    return (places[event.rank],) if event.rank in places else ()


def _commands(
    run: str,
    event: SpikeEvent | None,
    verdict: Verdict,
    skip: SkipAdvice | None,
    quarantines: Sequence[QuarantineAdvice],
    attempt: int | None,
    *,
    own_order: bool,
) -> tuple[Command, ...]:
    commands = []
    if skip is not None and not skip.by_event and own_order:
        options = ["--reason", skip_reason(event, verdict)]
        if attempt is not None:
            options += ["--attempt", str(attempt)]
        why = f"{skip.num_samples_new:,} samples that later attempts are not trained on"
        span = f"{skip.steps[0]}:{skip.steps[1]}"
        commands.append(command("skip", run, span, options=options, why=why, applies=True))
    for each in quarantines:
        if each.by_event is None and own_order:
            name = each.shard if each.row is None else f"{each.shard}:{each.row}"
            options = ["--reason", each.reason, *(("--evidence", each.evidence) if each.evidence else ())]
            commands.append(command("quarantine", run, name, options=options, why=each.reason, applies=True))
    if commands or verdict in _RESUMES:
        why = "journal, record and data agree before an attempt begins"
        commands.append(command("verify", run, why=why))
    return tuple(commands)


def skip_reason(event: SpikeEvent | None, verdict: Verdict) -> str:
    """What stands in the journal beside a skip."""
    if event is None:
        return str(verdict)
    what = EventClass(event.event_class)
    size = "" if event.size_nats is None else f" ({event.size_nats:+.3g} nats)"
    return f"{what} at step {event.peak}{size}: {verdict}"


def _exports(steps: Steps, skip: SkipAdvice, pending: Pending) -> Exports:
    spans = [(each.start, each.stop) for each in pending.skips] + [skip.positions]
    batches, notes = [], []
    for start, stop in spans:
        first, last = steps.batch_index(start), steps.batch_index(stop - 1)
        batches.append((first, last + 1))
        if steps.positions_of_batch(first)[0] != start or steps.positions_of_batch(last)[1] != stop:
            notes.append(
                f"positions {start:,}:{stop:,} are no whole batches: batches {first:,}:{last + 1:,} are, and hold them"
            )
    return exports_of(batches, notes=notes)
