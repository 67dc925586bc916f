"""What is known about a run before it begins, as values: what its trainer says, and what the run has seen itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from dataguard.core.trainer import TrainerFacts

__all__ = ["Found", "Known", "MixtureSeen", "RunSeen"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureSeen:
    """How a lineage was mixed, against how it was asked to be."""

    asked: dict[str, float]
    """Share of each source by the weights in force, over the positions that were delivered; they sum to 1."""
    delivered: dict[str, int]
    """Samples of each source that were trained on."""
    allowance: int
    """By how many samples of a source the arithmetic of the stream may be off by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSeen:
    """What a run knows by itself; None (or empty) where it has not seen it."""

    policy: str | None = None
    """Name of the policy that judges its samples."""
    length_signals: tuple[str, ...] = ()
    """Signals of lengths that the policy judges."""
    has_profile: bool = False
    """Whether samples are held against a reference profile: lengths of an audited corpus among it."""
    fixed_length: int | None = None
    """Tokens of every sample, where all are of one length."""
    streams: tuple[str, ...] = ()
    """Named streams: fixed sets to evaluate on."""
    sources: tuple[str, ...] = ()
    """That have weight."""
    mixture: MixtureSeen | None = None
    num_steps: int = 0
    """Steps that the lineage completed."""
    grad_norm_every: float | None = None
    """Median distance of the steps at which ``grad_norm`` was logged; None for fewer than two."""
    grad_norm_gap: int | None = None
    """The longest of these distances."""
    num_grad_norms: int = 0
    loss_every: float | None = None
    """Median distance of the steps at which ``loss`` was logged."""
    has_telemetry: bool = False
    utilization: tuple[str, ...] = ()
    """Names of telemetry that are a utilization."""
    detector: str | None = None
    """Settings of the detector that noted an event."""
    num_damaging: int = 0
    """Events noted that leave damage: spikes, shifts, faults."""
    checkpoint_every: int | None = None
    """Median distance of the checkpoints that were noted."""
    num_checkpoints: int = 0
    resumed: tuple[int, int] | None = None
    """(attempt, first step in the trainer's labels) of the newest attempt that went on from an earlier one's state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """All that a point may be judged by."""

    facts: TrainerFacts = field(default_factory=TrainerFacts)
    seen: RunSeen | None = None
    """None where a file was asked about, and no run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a point comes to."""

    passes: bool | None
    """None where it is not known."""
    reason: str
    fact: str | None = None
