"""What does a trainer say of itself: its model, optimizer, schedule, precision, and the changes it has planned?

Every fact may be left out: not said is not known, and never a default. A TOML file holds the same under the same names
(``dataguard preflight FILE.toml``); a run remembers what it was told in its journal.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

__all__ = [
    "ArchitectureFacts",
    "CheckpointFacts",
    "DataFacts",
    "MonitoringFacts",
    "OptimizerFacts",
    "PlannedChange",
    "PrecisionFacts",
    "ScheduleFacts",
    "TrainerFacts",
]

NonNegative = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class _Facts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What all sections share: None is not known, and unknown names are refused."""


class ArchitectureFacts(_Facts, frozen=True, kw_only=True):
    """The model."""

    d_model: Positive | None = None
    num_layers: Positive | None = None
    qk_norm: bool | None = None
    """Whether queries and keys of every attention are normalised."""
    qk_clip: bool | None = None
    residual_init_std: float | None = None
    """Measured or set, of the projections that end in the residual stream, before training."""
    embedding_init_std: float | None = None
    z_loss: float | None = None
    """Weight of the z-loss; 0 where it is off."""
    norm_placement: Literal["pre", "post", "both"] | None = None


class OptimizerFacts(_Facts, frozen=True, kw_only=True):
    """The optimizer."""

    name: str | None = None
    """Class name, as in ``AdamW`` or ``Muon``."""
    clip_norm: float | None = None
    """Gradient norm above which gradients are scaled down; 0 where nothing is."""
    beta1: float | None = None
    beta2: float | None = None
    epsilon: float | None = None
    weight_decay: float | None = None
    """Of matrices; 0 where there is none."""
    decays_embeddings_or_norms: bool | None = None


class ScheduleFacts(_Facts, frozen=True, kw_only=True):
    """How long, and at which rate."""

    total_steps: Positive | None = None
    warmup_steps: NonNegative | None = None
    peak_lr: float | None = None


class PrecisionFacts(_Facts, frozen=True, kw_only=True):
    """Number types."""

    compute: Literal["float32", "bfloat16", "float16", "float8"] | None = None
    """Of forward and backward passes."""
    loss_scaling: bool | None = None
    master_weights: Literal["float32", "bfloat16", "float16"] | None = None
    optimizer_state: Literal["float32", "bfloat16", "float16", "int8"] | None = None


class DataFacts(_Facts, frozen=True, kw_only=True):
    """What is done about data outside of the run; what a run knows itself goes before it."""

    anomaly_detection: bool | None = None
    lengths_checked: bool | None = None
    mixture_checked: bool | None = None
    held_out_sets: tuple[str, ...] | None = None
    """Names of the held-out sets, one a domain."""


class MonitoringFacts(_Facts, frozen=True, kw_only=True):
    """What is watched."""

    grad_norm_every_steps: Positive | None = None
    spike_detector: bool | None = None
    nonfinite_reduced: bool | None = None
    """Whether NaN and infinity on one rank are known to all."""
    utilization_logged: bool | None = None
    """Model FLOP utilization (MFU)."""


class CheckpointFacts(_Facts, frozen=True, kw_only=True):
    """Checkpoints."""

    every_steps: Positive | None = None
    num_kept: Positive | None = None
    """How many of the newest are kept."""
    restore_tested: bool | None = None
    seconds_per_step: float | None = None
    num_nodes: Positive | None = None


class PlannedChange(_Facts, frozen=True, kw_only=True):
    """Something that changes at a step by intention: a learning-rate step, a new stage."""

    step: NonNegative
    """In the trainer's labels: the first step that is trained otherwise."""
    what: str


class TrainerFacts(_Facts, frozen=True, kw_only=True):
    """All that a trainer says of itself.

    >>> text = '{"optimizer": {"epsilon": 1e-8}, "changes": [{"step": 40, "what": "lr / 3"}]}'
    >>> facts = msgspec.json.decode(text, type=TrainerFacts)
    >>> facts.optimizer.epsilon, facts.changes[0].step, facts.schedule.warmup_steps
    (1e-08, 40, None)
    """

    architecture: ArchitectureFacts = ArchitectureFacts()
    optimizer: OptimizerFacts = OptimizerFacts()
    schedule: ScheduleFacts = ScheduleFacts()
    precision: PrecisionFacts = PrecisionFacts()
    data: DataFacts = DataFacts()
    monitoring: MonitoringFacts = MonitoringFacts()
    checkpoints: CheckpointFacts = CheckpointFacts()
    changes: tuple[PlannedChange, ...] = ()
