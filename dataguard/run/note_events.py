"""What is remembered beside what amends a run, as events: checkpoints, what the trainer says, findings and decisions.

None of them changes what a later attempt delivers.
"""

from __future__ import annotations

from dataguard.core.evidence import Replay, Told, Verdict
from dataguard.core.spikes import EventClass
from dataguard.core.trainer import TrainerFacts
from dataguard.run.event_fields import Digest, EventBase, NonNegative, Positive

__all__ = ["CanaryCompared", "CheckpointSaved", "Diagnosed", "ExperimentDone", "Note", "SpikeFound", "TrainerDescribed"]


class CheckpointSaved(EventBase, frozen=True, kw_only=True, tag="checkpoint-saved"):
    """The trainer kept a checkpoint; triage looks for one to resume and to replay from."""

    attempt: Positive
    next_step: NonNegative
    """The first step (from 0) that its model was not trained on."""
    path: str
    """Where the trainer keeps it: a path or URL, as it was said."""


class TrainerDescribed(EventBase, frozen=True, kw_only=True, tag="trainer-described"):
    """What the trainer says of itself: model, optimizer, schedule, precision, and changes that are planned."""

    attempt: Positive | None = None
    """The attempt that was in hand; null where none was."""
    facts: TrainerFacts
    """Facts that a later event says as well count as it says them."""


class SpikeFound(EventBase, frozen=True, kw_only=True, tag="spike-found"):
    """The detector found something, in training or afterwards."""

    attempt: Positive
    event_class: EventClass
    start: NonNegative
    """First step, from 0."""
    stop: Positive
    peak: NonNegative
    size_nats: float | None
    sigmas: float | None
    aftermath_nats: float | None
    grad_norm_ratio: float | None
    signal: str
    rank: NonNegative | None
    detector: str
    """Digest or name of the detector's settings."""


class ExperimentDone(EventBase, frozen=True, kw_only=True, tag="experiment-done"):
    """A replay experiment of one step ended; its results stand in ``triage/`` of the run directory."""

    attempt: Positive
    step: NonNegative
    """From 0."""
    outcome: Replay
    number_type: Told
    first_layer: str | None
    """The first layer whose values went, where one did."""
    results: Digest
    """SHA-256 of the document ``triage/experiment-<digest>.json``."""
    summary: str


class CanaryCompared(EventBase, frozen=True, kw_only=True, tag="canary-compared"):
    """Canary records of hosts, devices or dates were held against each other."""

    attempt: Positive | None
    step: NonNegative
    """Of the batch, from 0."""
    differs: Told
    """Beyond the baseline; unknown where there is no baseline or nothing to compare."""
    odd: tuple[str, ...]
    """``host/device`` of those that differ from the others, where that can be said."""
    results: Digest
    """SHA-256 of the document ``triage/canary-<digest>.json``."""
    summary: str


class Diagnosed(EventBase, frozen=True, kw_only=True, tag="diagnosed"):
    """Triage came to a diagnosis verdict."""

    attempt: Positive
    step: NonNegative | None
    """The event's peak, from 0; null where there was no event."""
    event_class: EventClass | None
    verdict: Verdict
    scores: dict[str, float]
    """Of each hypothesis."""
    evidence: dict[str, str]
    """Name of each fact -> its value."""
    summary: str


Note = CheckpointSaved | TrainerDescribed | SpikeFound | ExperimentDone | CanaryCompared | Diagnosed
