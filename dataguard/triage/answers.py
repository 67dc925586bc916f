"""What triage answers with, as documents: the event, what was found, the verdict, the response, the six steps."""

from __future__ import annotations

from typing import Literal

import msgspec

from dataguard.core.evidence import Replay, Told
from dataguard.core.spikes import EventClass
from dataguard.triage.diagnose import Diagnosis
from dataguard.triage.localise import Localised
from dataguard.triage.respond import Applied, Response

__all__ = [
    "CanaryShown",
    "ChecklistStep",
    "EventShown",
    "ExperimentShown",
    "FactShown",
    "LoggedSteps",
    "SmallestSpike",
    "TriageAnswer",
]


class LoggedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Of which steps there is telemetry, in the trainer's labels."""

    first: int
    last: int
    logged: int


class EventShown(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the training curve; steps half-open, in the trainer's labels."""

    event_class: EventClass = msgspec.field(name="class")
    start: int
    stop: int
    peak: int
    onset: int | None
    size_nats: float | None
    sigmas: float | None
    aftermath_nats: float | None
    grad_norm_ratio: float | None
    signal: str
    rank: int | None
    is_open: bool


class SmallestSpike(msgspec.Struct, frozen=True, kw_only=True):
    """How high a spike had to be to show, in nats above what was expected of the loss."""

    step: int
    """The step that was asked for, the first of the event, or else the newest; in the trainer's labels."""
    nats: float
    hardest_step: int
    """Where a spike needed most, of all steps that were judged."""
    hardest_nats: float


class FactShown(msgspec.Struct, frozen=True, kw_only=True):
    """One fact that the verdict was drawn from."""

    name: str
    value: str | None
    """None where there is no event."""
    texts: tuple[str, ...]
    """What was found, with its numbers."""


class ExperimentShown(msgspec.Struct, frozen=True, kw_only=True):
    """A replay experiment of this event that the journal knows."""

    number: int
    """Of its journal event."""
    time: str
    by: str
    step: int
    """In the trainer's labels."""
    outcome: Replay
    number_type: Told
    first_layer: str | None
    summary: str


class CanaryShown(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison of canary records that the journal knows."""

    number: int
    time: str
    by: str
    step: int
    differs: Told
    odd: tuple[str, ...]
    summary: str


class ChecklistStep(msgspec.Struct, frozen=True, kw_only=True):
    """One of the six steps of the checklist."""

    number: int
    name: str
    done: Literal["yes", "partly", "no"]
    answer: str
    evidence: tuple[str, ...]
    missing: tuple[str, ...]
    """What was not looked at, or could not be, and what to do about it."""


class TriageAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """From a spike to a verdict to the commands that mend it."""

    run: str
    attempt: int | None
    """The leaf of the lineage that was looked at; None where no attempt has begun."""
    asked_step: int | None
    steps: LoggedSteps | None
    """None where nothing was logged."""
    event: EventShown | None
    """The event in question; None where there is none (at the step that was asked for)."""
    events: tuple[EventShown, ...]
    """All that were found on this lineage, in order of step."""
    smallest_shift_nats: float | None
    """The least lasting shift of the loss that this log can show at all."""
    smallest_spike: SmallestSpike | None = None
    """The least spike that would have shown; None where the step in question was not judged."""
    localised: Localised | None
    experiments: tuple[ExperimentShown, ...]
    canaries: tuple[CanaryShown, ...]
    facts: tuple[FactShown, ...]
    diagnosis: Diagnosis
    response: Response
    applied: Applied | None = None
    """What ``--apply`` wrote; None without it."""
    checklist: tuple[ChecklistStep, ...]
    notes: tuple[str, ...]
    damage: tuple[str, ...] = ()
    """What of the telemetry cannot be trusted: the answer is drawn from what can."""
    not_noted: str | None = None
    """Why what was decided does not stand in the journal; None where it does, or was not meant to."""

    def __repr__(self) -> str:
        from dataguard.triage.shown import triage_text

        return triage_text(self)

    def _repr_html_(self) -> str:
        """As a notebook shows it."""
        from dataguard.core.notebook import guarded
        from dataguard.triage.shown import triage_html

        return guarded(repr(self), lambda: triage_html(self))
