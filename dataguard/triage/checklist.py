"""The six steps of the debugging checklist, walked: what is done, the answer, by which evidence, and what is missing.

Pure: all that is said here was found elsewhere. A step is done where each of its questions has an answer, partly done
where some have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from dataguard.core.evidence import Evidence, Finite, GradNorm, HardwareLog, RankPattern, Replay, Told, Verdict
from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.triage.answers import ChecklistStep, ExperimentShown
from dataguard.triage.diagnose import Diagnosis
from dataguard.triage.localise import Localised
from dataguard.triage.respond import Response

__all__ = ["NAMES", "TO_DO", "walk"]

NAMES = (
    "establish ground truth",
    "narrow to category",
    "isolate the step",
    "identify root cause",
    "mitigate and resume",
    "prevent recurrence",
)
TO_DO = 5
"""The step of which `ChecklistStep.missing` is what is to be typed."""


@dataclass(slots=True)
class _Step:
    """Answers to the questions of one step as they come in."""

    answers: list[str] = field(default_factory=list)
    evidence: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def say(self, answer: str) -> None:
        """An answer to what needs no looking."""
        self.answers.append(answer)

    def ask(self, known: bool, answer: str, missing: str, texts: Iterable[str] = ()) -> None:  # noqa: FBT001
        """One question: its answer where it is known, else what is missing."""
        (self.answers if known else self.missing).append(answer if known else missing)
        self.evidence += [text for text in texts if text not in self.evidence]

    def shown(self, number: int, answer: str | None = None) -> ChecklistStep:
        """As it is answered."""
        done: Literal["yes", "partly", "no"] = "no" if not self.answers else "partly" if self.missing else "yes"
        return ChecklistStep(
            number=number,
            name=NAMES[number - 1],
            done=done,
            answer=answer or "; ".join(self.answers) or "nothing is known",
            evidence=tuple(self.evidence),
            missing=tuple(self.missing),
        )


def walk(
    *,
    event: SpikeEvent | None,
    evidence: Evidence,
    localised: Localised | None,
    experiments: Sequence[ExperimentShown],
    diagnosis: Diagnosis,
    response: Response,
    world_size: int | None,
    learning_rate: float | None,
    val_loss_logged: bool,
    applied: Sequence[str],
    failing_points: Sequence[str],
    num_points_not_known: int | None = None,
) -> tuple[ChecklistStep, ...]:
    """All six steps.

    Parameters
    ----------
    world_size
        Of the attempt; None where none has begun.
    learning_rate
        At the event's peak; None where it was not logged.
    val_loss_logged
        Whether a validation loss was logged near the event.
    applied
        What of the response stands in the journal already.
    failing_points
        Points of the hardening list that fail for this run.
    num_points_not_known
        How many of them nobody can tell; None where nobody looked at the list.
    """
    return (
        _ground_truth(event, evidence, world_size=world_size, val_loss_logged=val_loss_logged).shown(1),
        _category(event, evidence, is_rate_logged=learning_rate is not None).shown(2),
        _isolated(event, evidence, experiments).shown(3),
        _root_cause(event, evidence, localised, learning_rate, diagnosis).shown(
            4, f"{diagnosis.verdict}: {diagnosis.summary}"
        ),
        _mitigated(response, applied).shown(TO_DO),
        _prevented(diagnosis, localised, failing_points, num_points_not_known).shown(6),
    )


def _ground_truth(
    event: SpikeEvent | None, evidence: Evidence, *, world_size: int | None, val_loss_logged: bool
) -> _Step:
    step = _Step()
    texts = evidence.texts
    if event is None:
        step.say("no event in the curve")
    else:
        size = "" if event.size_nats is None else f" of {event.size_nats:+.3g} nats"
        sigmas = "" if event.sigmas is None else f" ({event.sigmas:.3g} robust sigmas)"
        step.say(f"{event.event_class} in steps {event.start:,}:{event.stop:,}{size}{sigmas}")
        ratio = event.grad_norm_ratio
        step.ask(
            ratio is not None or evidence.grad_norm is not GradNorm.UNKNOWN,
            f"gradient norm: {evidence.grad_norm.replace('_', ' ')}"
            if ratio is None
            else f"gradient norm {ratio:.3g} times its baseline",
            "gradient norm at the event: log it (Monitor.log(step, grad_norm=...))",
            texts.get("grad_norm", ()),
        )
    if world_size == 1:
        step.say("there is one rank")
    else:
        _ask_ranks(step, evidence)
    if event is None:
        return step
    where = "nowhere" if evidence.finite is Finite.EVERYWHERE else evidence.finite.replace("_", " ")
    is_fault = event.event_class is EventClass.HARD_FAULT
    step.ask(
        evidence.finite is not Finite.UNKNOWN or (world_size == 1 and is_fault),
        "the one rank is not finite" if world_size == 1 and is_fault else f"NaN or infinity: {where}",
        "whether NaN or infinity stood on any rank before the reduction",
        texts.get("finite", ()),
    )
    if not val_loss_logged:
        step.missing.append("a validation loss near the event: log val_loss, or evaluate a named stream")
    return step


def _ask_ranks(step: _Step, evidence: Evidence) -> None:
    step.ask(
        evidence.ranks is not RankPattern.UNKNOWN,
        f"ranks: {evidence.ranks.replace('_', ' ')}",
        "each rank's own loss: log it before the reduction, on every rank",
        evidence.texts.get("ranks", ()),
    )


def _category(event: SpikeEvent | None, evidence: Evidence, *, is_rate_logged: bool) -> _Step:
    step = _Step()
    texts = evidence.texts
    if event is not None:
        ordinary = evidence.grad_norm is GradNorm.ORDINARY
        alone = evidence.ranks in (RankPattern.ONE_RANK, RankPattern.PERSISTENT)
        if ordinary and event.event_class in _BATCHES and alone:
            step.say("the loss of one rank stands out and the gradient norm does not")
        elif ordinary and event.event_class not in _BATCHES:
            step.say("the gradient norm is what it was before")
        else:
            step.say(_CATEGORIES.get(evidence.grad_norm, "the gradient norm says nothing"))
    step.ask(
        evidence.planned_change is not Told.UNKNOWN,
        "it begins at a planned change" if evidence.planned_change is Told.YES else "no planned change is near",
        "planned changes: describe the trainer's (Monitor.describe)",
        texts.get("planned_change", ()),
    )
    if event is None and evidence.hardware_log is HardwareLog.NOT_GIVEN:
        return step  # nobody needs traces and logs to explain what there is not
    step.ask(
        evidence.optimizer is not Told.UNKNOWN,
        "signs of the optimizer or the schedule"
        if evidence.optimizer is Told.YES
        else "no sign of the optimizer or the schedule",
        f"traces of the optimizer: {'' if is_rate_logged else 'log lr, and '}watch the model (Monitor.watch)",
        texts.get("optimizer", ()),
    )
    step.ask(
        evidence.hardware_log is not HardwareLog.NOT_GIVEN,
        f"logs of the machines: {evidence.hardware_log.replace('_', ' ')}",
        "logs of the machines"
        + (" that cover the event" if "hardware_log" in texts else "")
        + ": --evidence HOST=dmesg.txt",
        texts.get("hardware_log", ()),
    )
    return step


_BATCHES = (EventClass.HARD_BATCH, EventClass.TRANSIENT_SPIKE, EventClass.LOSS_DIP)
"""Events of which an ordinary gradient norm says that one batch may do it."""
_CATEGORIES = {
    GradNorm.ORDINARY: "the loss stands out and the gradient norm does not: an anomalous batch",
    GradNorm.BURST: "the gradient norm bursts with it: amplified by the optimizer",
    GradNorm.CLIMBING: "the gradient norm climbed ahead of it",
    GradNorm.NONFINITE: "the gradient norm is not finite: overflow, or a fault",
    GradNorm.ZERO_ON_ONE_RANK: "the gradient norm is zero on one rank",
}


def _isolated(event: SpikeEvent | None, evidence: Evidence, experiments: Sequence[ExperimentShown]) -> _Step:
    step = _Step()
    if event is None:
        step.say("there is no step to isolate")
        return step
    step.ask(
        evidence.replay is not Replay.NOT_RUN,
        f"replay: {evidence.replay.replace('_', ' ')}",
        f"the replay of step {event.peak:,} from the checkpoint before it, with a placebo batch",
        [f"event {each.number}, by {each.by}: {each.summary}" for each in experiments],
    )
    layers = [each.first_layer for each in experiments if each.first_layer]
    step.ask(
        bool(layers),
        f"first layer to go: {layers[-1] if layers else ''}",
        "which layer goes first: the experiment looks",
    )
    step.ask(
        evidence.canary is not Told.UNKNOWN,
        "a canary differs between machines" if evidence.canary is Told.YES else "canaries agree between machines",
        "canaries: one batch on two machines, bit by bit (dataguard canary)",
        evidence.texts.get("canary", ()),
    )
    return step


def _root_cause(
    event: SpikeEvent | None,
    evidence: Evidence,
    localised: Localised | None,
    learning_rate: float | None,
    diagnosis: Diagnosis,
) -> _Step:
    step = _Step()
    if event is None and localised is None:
        if diagnosis.verdict is not Verdict.INCONCLUSIVE:
            step.say("there is nothing to explain")
        return step
    step.ask(
        evidence.data is not Told.UNKNOWN,
        "samples stand out" if evidence.data is Told.YES else "no sample stands out",
        "whether samples stand out" if evidence.texts.get("data") else "what the samples hold",
        evidence.texts.get("data", ()),
    )
    if localised is not None:
        shards = [share.name for share in localised.shards if share.stands_out]
        step.say(f"shards: {', '.join(shards[:3]) or 'none stands out'}")
    if event is None:
        return step
    step.ask(
        evidence.number_type is not Told.UNKNOWN,
        "it goes away in float32" if evidence.number_type is Told.YES else "it is the same in float32",
        "the forward pass in float32: the experiment compares",
        evidence.texts.get("number_type", ()),
    )
    step.ask(learning_rate is not None, f"learning rate {learning_rate or 0:.3g}", "the learning rate: log lr")
    return step


def _mitigated(response: Response, applied: Sequence[str]) -> _Step:
    step = _Step()
    if response.verdict is Verdict.INCONCLUSIVE:
        first = ": the next check comes first" if response.next_check else ""
        step.missing.append(f"nothing yet, for the verdict is inconclusive{first}")
    elif response.nothing:
        step.say("nothing is to be done")
    for text in applied:
        step.answers.append(text)
    step.missing += [f"{command.text}    # {command.why}" for command in response.commands]
    step.missing += [f"{change.what}: {change.to} ({change.reason})" for change in response.configuration]
    step.missing += [f"take {host} out of the job" for host in response.fence]
    return step


def _prevented(
    diagnosis: Diagnosis, localised: Localised | None, failing_points: Sequence[str], num_not_known: int | None
) -> _Step:
    step = _Step()
    if diagnosis.verdict in (Verdict.BAD_DATA, Verdict.HARD_BATCH, Verdict.DATA_AND_STATE) and localised is not None:
        names = [signal.signal for signal in localised.signals if signal.stands_out]
        if names:
            step.missing.append(f"a rule of the policy for {', '.join(names[:3])} (dataguard policy init)")
    for point in failing_points:
        step.missing.append(f"hardening list: {point}")
    if num_not_known is None:
        step.missing.append("the hardening list: dataguard preflight RUN")
    elif not failing_points:
        step.answers.append("nothing that is known fails the hardening list")
    if num_not_known:
        step.missing.append(f"{num_not_known} points of the hardening list are not known: dataguard preflight RUN")
    return step
