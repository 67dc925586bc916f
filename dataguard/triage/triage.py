"""How does one get from a run and a step to a verdict and the commands that mend it? `triage`, in one call.

1. `looked`: the curve of the lineage, its events, what is noted.
2. `choosing`: the event in question.
3. `localise`: ranks, samples, shards that stand out.
4. `gathering`: the facts, each from its place.
5. `diagnose`: exactly one verdict.
6. `respond`: what to do, as commands.
7. `checklist`: the six steps, walked.

What was found and decided becomes notes of the journal, unless the newest says the same already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dataguard.core.evidence import Verdict
from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.errors import RunDamaged, WriteFailed
from dataguard.run.clock import unix_seconds
from dataguard.run.run import Run
from dataguard.run.telemetry_reading import read_telemetry
from dataguard.triage.answers import (
    CanaryShown,
    EventShown,
    ExperimentShown,
    FactShown,
    LoggedSteps,
    TriageAnswer,
)
from dataguard.triage.checklist import walk
from dataguard.triage.choosing import chosen, nearest
from dataguard.triage.diagnose import Costs, Diagnosis, diagnose
from dataguard.triage.diagnose.signs import FACTS
from dataguard.triage.evidence.lines import MachineLogs
from dataguard.triage.gathering import Gathered, gather
from dataguard.triage.localise import Localised, localise
from dataguard.triage.looked import Looked, look
from dataguard.triage.recording import record
from dataguard.triage.respond import Response, Suspect, plan_response
from dataguard.triage.respond.checkpoints import retained
from dataguard.triage.respond.shell import quote
from dataguard.triage.unheard import NOTHING_CHECKED, nothing_checked, smallest_spike

__all__ = ["NOTHING_CHECKED", "event_in_question", "triage"]

_MOST_ROWS = 8
"""Rows that score badly are withheld one by one, so many at most; the answer lists more."""


def triage(
    run: Run,
    *,
    step: int | None = None,
    attempt: int | None = None,
    machine_logs: MachineLogs | None = None,
    roots: Mapping[str, str] | None = None,
    checkpoints: Iterable[tuple[int, str]] | None = None,
    failing_points: Sequence[str] = (),
    num_points_not_known: int | None = None,
    by: str | None = None,
    note: bool = True,
    now_seconds: float | None = None,
) -> TriageAnswer:
    """From a spike to a verdict to the commands that mend it.

    Parameters
    ----------
    step
        The step in question, as the trainer calls it; default: the most serious event, and of these the newest.
    attempt
        The lineage of this attempt; default the newest leaf's.
    machine_logs
        What the machines say (`dataguard.triage.evidence.read_machine_logs`).
    roots
        Where sources lie now, where that is another place than the run remembers.
    checkpoints
        (first untrained step in the trainer's labels, path) of those that are there; default what the journal notes.
    failing_points
        Points of the hardening list that fail (`dataguard.triage.preflight`), for the last step of the checklist.
    num_points_not_known
        How many of them nobody can tell; None where nobody looked at the list.
    by
        Who asks, for the journal.
    note
        Write what was found and decided into the journal, unless it stands there already, or the step that was asked
        for is still to come. Where that fails, the answer is given all the same, and says so (`not_noted`).
    now_seconds
        Unix second of the look; default now. It tells whether an attempt has fallen silent.

    Raises
    ------
    NotInRun
        There is no such attempt, or no such step on its lineage.
    RunDamaged
        The journal cannot be trusted. What telemetry cannot be is left out, and told in the answer (`damage`).
    """
    looked = look(run, attempt, now_seconds=unix_seconds() if now_seconds is None else now_seconds)
    notes = list(looked.notes)
    event = chosen(looked.events, step)
    if step is not None:
        run.step(step)  # a step before the run's first is refused
        if event is None and looked.leaf is not None:
            notes.append(_no_event_at(step, nearest(looked.events, step), looked))
            notes += _elsewhere(looked, step)
    localised = _localised(looked, event, step, roots)
    gathered = gather(looked, event, localised, machine_logs, step=step)
    given = None if checkpoints is None else [(run.step(label), path) for label, path in checkpoints]
    costs = _costs(looked, event, given)
    diagnosis = nothing_checked(diagnose(gathered.evidence, costs=costs), looked, event, step)
    response = plan_response(
        run,
        event,
        verdict=diagnosis.verdict,
        attempt=looked.leaf,
        checkpoints=given,
        shards=_suspects(diagnosis, localised),
        events=looked.events,
        facts=looked.facts,
        signs=gathered.signs,
        hosts=gathered.odd_hosts,
        next_check=None if diagnosis.next_check is None else diagnosis.next_check.how,
    )
    experiments = tuple(
        ExperimentShown(
            number=entry.number, time=entry.time, by=entry.by, step=run.label(each.step), outcome=each.outcome,
            number_type=each.number_type, first_layer=each.first_layer, summary=each.summary,
        )
        for entry, each in gathered.experiments
    )  # fmt: skip
    answer = TriageAnswer(
        run=str(run.path),
        attempt=looked.leaf,
        asked_step=step,
        steps=_logged(looked),
        event=None if event is None else shown(event),
        events=tuple(shown(each) for each in looked.events),
        smallest_shift_nats=None if looked.detection is None else looked.detection.smallest_shift_nats,
        smallest_spike=smallest_spike(looked, event, step),
        localised=localised,
        experiments=experiments,
        canaries=tuple(
            CanaryShown(
                number=entry.number, time=entry.time, by=entry.by, step=run.label(each.step), differs=each.differs,
                odd=each.odd, summary=each.summary,
            )
            for entry, each in gathered.canaries
        ),
        facts=_facts(gathered),
        diagnosis=diagnosis,
        response=response,
        checklist=walk(
            event=event,
            evidence=gathered.evidence,
            localised=localised,
            experiments=experiments,
            diagnosis=diagnosis,
            response=response,
            world_size=gathered.world_size,
            learning_rate=_learning_rate(looked, event),
            val_loss_logged=_val_loss_logged(looked, event),
            applied=_applied(response),
            failing_points=failing_points,
            num_points_not_known=num_points_not_known,
        ),
        notes=tuple(notes),
        damage=looked.damage,
    )  # fmt: skip
    if note and looked.leaf is not None and not _is_to_come(answer):
        try:
            record(run, looked.leaf, event, gathered.evidence, diagnosis, by=by)
        except (RunDamaged, WriteFailed) as error:
            # What was found is worth more than its note: the answer is given, and says that it stands nowhere.
            return msgspec.structs.replace(answer, not_noted=str(error))
    return answer


def event_in_question(
    run: Run, *, step: int | None = None, attempt: int | None = None, now_seconds: float | None = None
) -> SpikeEvent | None:
    """The event that `triage` would look at with the same arguments; None where there is none."""
    looked = look(run, attempt, now_seconds=unix_seconds() if now_seconds is None else now_seconds)
    return chosen(looked.events, step)


def shown(event: SpikeEvent) -> EventShown:
    """An event as documents hold it."""
    return EventShown(
        event_class=event.event_class,
        start=event.start,
        stop=event.stop,
        peak=event.peak,
        onset=event.onset,
        size_nats=event.size_nats,
        sigmas=event.sigmas,
        aftermath_nats=event.aftermath_nats,
        grad_norm_ratio=event.grad_norm_ratio,
        signal=event.signal,
        rank=event.rank,
        is_open=event.is_open,
    )


def _is_to_come(answer: TriageAnswer) -> bool:
    """Whether a step was asked for beyond the one that comes next: of that there is nothing to decide."""
    return answer.asked_step is not None and answer.steps is not None and answer.asked_step > answer.steps.last + 1


def _localised(
    looked: Looked, event: SpikeEvent | None, step: int | None, roots: Mapping[str, str] | None
) -> Localised | None:
    """What stands out at the event; without one, at the step that was asked for."""
    if looked.leaf is None or (event is None and step is None):
        return None
    if event is not None:
        asked = event
    else:
        assert step is not None
        asked = SpikeEvent(
            event_class=EventClass.HARD_BATCH, start=step, stop=step + 1, peak=step, size_nats=None, sigmas=None
        )
    return localise(looked.run, asked, attempt=looked.leaf, events=looked.events, roots=roots)


def _suspects(diagnosis: Diagnosis, localised: Localised | None) -> list[Suspect]:
    """Shards that stand out by more than chance; of a hard batch the rows that score badly."""
    if localised is None:
        return []
    shards = [
        Suspect(
            shard=share.name,
            reason=f"{diagnosis.verdict} at its samples",
            evidence=f"{share.num_samples} samples at the event, {share.num_expected:.3g} expected; "
            f"{share.num_outlying} stand out (p {share.corrected:.2g})",
        )
        for share in localised.shards
        if share.stands_out
    ]
    if diagnosis.verdict is not Verdict.HARD_BATCH and shards:
        return shards
    rows = [
        Suspect(
            shard=sample.shard if sample.delivered is None else sample.delivered.shard,
            row=sample.row if sample.delivered is None else sample.delivered.row,
            reason=f"{diagnosis.verdict}: it scores badly",
            evidence="; ".join(sample.why) or None,
        )
        for sample in localised.samples
        if sample.outlying and sample.signals
    ]
    return rows[:_MOST_ROWS]


def _costs(looked: Looked, event: SpikeEvent | None, given: list[tuple[int, str]] | None) -> Costs:
    """What further checks would cost, from what the run knows."""
    run = looked.run
    before: list[int] = []
    if event is not None and looked.leaf is not None:
        lineage = run.attempts(looked.read).lineage(looked.leaf)
        there = retained(lineage, looked.read.entries, facts=looked.facts.checkpoints, given=given)
        before = [run.label(each.next_step) for each in there.kept if run.label(each.next_step) <= event.peak]
    hosts = len(set(looked.hosts.values()))
    return Costs(
        run=quote(str(run.path)),
        step=None if event is None else event.peak,
        checkpoint_before=before[-1] if before else None,
        checkpoint_earlier=before[-2] if len(before) > 1 else None,
        step_seconds=looked.step_seconds,
        num_nodes=looked.facts.checkpoints.num_nodes or hosts or None,
    )


def _elsewhere(looked: Looked, step: int) -> list[str]:
    """Attempts that logged the step as well, and do not count for it here: the event that is meant may be theirs."""
    run = looked.run
    tree = run.attempts(looked.read)
    asked = run.step(step)
    counts = next((each.number for each in reversed(tree.lineage(looked.leaf)) if each.fork_step <= asked), None)
    others = [
        number
        for number in tree.numbers
        if number != counts
        and tree.attempt(number).fork_step <= asked
        and len(read_telemetry(run.layout, number, names=("loss",), steps=(asked, asked + 1), torn=[], damage=[]))
    ]
    return [
        f"attempt {number} logged step {step:,} as well, which does not count on this lineage: --attempt {number}"
        for number in others
    ]


def _no_event_at(step: int, near: SpikeEvent | None, looked: Looked) -> str:
    if looked.curve is None:
        return f"nothing was logged of step {step:,}: whether the loss misbehaved there is not known"
    there = "" if near is None else f"; the nearest is {near.event_class} in steps {near.start:,}:{near.stop:,}"
    return f"no event holds step {step:,}{there}"


def _logged(looked: Looked) -> LoggedSteps | None:
    if looked.curve is None or not len(looked.curve.steps):
        return None
    steps = looked.curve.steps
    return LoggedSteps(first=int(steps[0]), last=int(steps[-1]), logged=len(steps))


def _facts(gathered: Gathered) -> tuple[FactShown, ...]:
    evidence = gathered.evidence
    return tuple(
        FactShown(name=name, value=getattr(evidence, name), texts=evidence.texts.get(name, ())) for name in FACTS
    )


def _learning_rate(looked: Looked, event: SpikeEvent | None) -> float | None:
    """Of the event's peak."""
    if event is None or looked.curve is None or "lr" not in looked.curve.names:
        return None
    steps, values = looked.curve.series("lr")
    at = values[steps == event.peak]
    return float(at[-1]) if len(at) else None


def _val_loss_logged(looked: Looked, event: SpikeEvent | None) -> bool:
    """Whether a validation loss was logged at or after the event's begin."""
    if event is None or looked.curve is None or "val_loss" not in looked.curve.names:
        return False
    return bool((looked.curve.series("val_loss")[0] >= event.start).any())


def _applied(response: Response) -> list[str]:
    """What of the response the journal holds already."""
    done = []
    if response.skip is not None and response.skip.by_event:
        done.append(f"the skip stands as event {', '.join(map(str, response.skip.by_event))}")
    done += [
        f"{advice.shard}{'' if advice.row is None else f':{advice.row}'} is withheld by event {advice.by_event}"
        for advice in response.quarantines
        if advice.by_event is not None
    ]
    return done
