"""What does a replay experiment answer? The document that is kept in ``triage/`` of the run directory.

Steps are in the trainer's labels. JSON has no NaN and no infinity: they are spelled ``"nan"``, ``"inf"``, ``"-inf"``.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from dataguard.core.evidence import Replay, Told
from dataguard.core.spikes import EventClass

__all__ = [
    "CellResult",
    "CheckpointUsed",
    "ExperimentCost",
    "ExperimentReport",
    "FloatCheck",
    "LayerNorm",
    "Measured",
    "Number",
    "PlaceboBatch",
    "Repeat",
    "StateResult",
    "decode_report",
    "encode_report",
    "number",
    "spelled",
]

Number = float | Literal["nan", "inf", "-inf"]
"""A number as it is written: what JSON lacks is spelled."""

WhichCheckpoint = Literal["before", "earlier"]
WhichBatch = Literal["event", "placebo"]
WhichNode = Literal["this", "other"]
Signal = Literal["loss", "grad_norm"]


def spelled(value: float) -> Number:
    """A number as documents have it.

    >>> spelled(float("nan")), spelled(1.5), spelled(float("-inf"))
    ('nan', 1.5, '-inf')
    """
    value = float(value)
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def number(value: Number) -> float:
    """The number that a document spells.

    >>> number("inf"), number(1.5)
    (inf, 1.5)
    """
    return float(value)


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One global batch from one state: a forward and a backward pass, no update."""

    loss: Number
    """Mean over its loss tokens, in nats."""
    grad_norm: Number
    """L2 norm over all trainable parameters of the gradient of that mean, before any clipping."""


class Repeat(msgspec.Struct, frozen=True, kw_only=True):
    """One replay, from the checkpoint to the batch."""

    batch: Measured
    placebos: tuple[Measured, ...]
    """In the order of the report's placebo batches."""
    after_batch: tuple[Number, ...] = ()
    """Losses of the first placebo batches after the update that the batch makes."""
    after_placebo: tuple[Number, ...] = ()
    """The same after the update that the last placebo batch makes instead."""
    trained: tuple[tuple[int, Number, Number], ...] = ()
    """Step, loss and gradient norm of what was trained between the checkpoint and the batch."""


class StateResult(msgspec.Struct, frozen=True, kw_only=True):
    """All repeats from one checkpoint on one node."""

    checkpoint: WhichCheckpoint
    node: str
    repeats: tuple[Repeat, ...]


class CheckpointUsed(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint, and how far it was trained on."""

    checkpoint: WhichCheckpoint
    next_step: int
    """The first step its model was not trained on."""
    path: str
    state: str | None
    """xxh3-128 over the names and bytes of its parameters, buffers and optimizer state, as loaded; null where nothing
    was loaded."""
    trained_steps: int
    """Steps replayed from there before the batch was measured."""


class PlaceboBatch(msgspec.Struct, frozen=True, kw_only=True):
    """An ordinary batch, chosen by key."""

    step: int
    digest: str
    trained_before: bool
    """Whether the checkpoint before was trained on it already."""


class CellResult(msgspec.Struct, frozen=True, kw_only=True):
    """One of the eight cells."""

    checkpoint: WhichCheckpoint
    batch: WhichBatch
    node: WhichNode
    spikes: Told
    excess: Number | None
    """Median over the repeats of what it lies above ordinary batches from that state: nats, or natural logarithm of the
    ratio of gradient norms; below zero where it lies below. Null where it was not measured."""
    threshold: Number | None
    """What it has to exceed."""
    spread: Number | None
    """Range over the repeats: the baseline."""
    text: str


class LayerNorm(msgspec.Struct, frozen=True, kw_only=True):
    """Gradient norm of one layer, from the state before the step."""

    layer: str
    batch: Number
    placebo: Number
    """Median over the placebo batches."""


class FloatCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The batch once more in float32, and the first layer that goes."""

    run_dtype: str
    loss: Number
    loss_float32: Number | None
    grad_norm: Number
    grad_norm_float32: Number | None
    told: Told
    """Whether it happens in the run's number type and not in float32."""
    first_layer: str | None
    """The first whose values went, forward before backward; null where all are in range."""
    largest_logits: dict[str, Number]
    """Attention -> its largest logit of the worst microbatch, over all heads."""
    text: str


class ExperimentCost(msgspec.Struct, frozen=True, kw_only=True):
    """What an experiment costs, told before it begins."""

    train_steps: int
    """Updates, over all checkpoints and repeats."""
    measured_batches: int
    """Forward and backward passes of a global batch without an update."""
    forward_batches: int
    """Forward passes alone."""
    seconds_per_step: float | None
    """As the run logged it or its trainer said; null where that is not known."""
    nodes: int | None
    node_seconds: float | None
    """(steps + measured + a third of the forward passes) x seconds of a step x nodes; null where it is not known."""
    text: str


class ExperimentReport(msgspec.Struct, frozen=True, kw_only=True):
    """One experiment on one step."""

    version: Literal["dataguard-experiment-1"] = "dataguard-experiment-1"
    run: str
    attempt: int
    step: int
    event_class: EventClass | None
    """What was to be reproduced; null where nothing was said or found of the step."""
    signal: Signal
    """What is looked at: loss, or gradient norm."""
    direction: Literal["up", "down"]
    effect: float | None
    """Size of the event in the unit of `CellResult.excess`; null where it is not known."""
    node: str
    """Where this was measured."""
    other_node: str | None
    """The node whose results of the same step, checkpoints and batches are merged in."""
    batch: str
    """xxh3-128 over the digests of its microbatches."""
    checkpoints: tuple[CheckpointUsed, ...]
    placebos: tuple[PlaceboBatch, ...]
    sampled_ranks: tuple[int, ...] | None
    """Ranks whose microbatches were used; null for all."""
    states: tuple[StateResult, ...]
    """What was measured here."""
    cells: tuple[CellResult, ...]
    outcome: Replay
    damage: Told
    """Whether the update of the batch leaves the loss of other batches higher than another update does."""
    damage_nats: float | None
    float_check: FloatCheck | None
    layers: tuple[LayerNorm, ...]
    cost: ExperimentCost
    notes: tuple[str, ...]
    summary: str
    results: str | None = None
    """SHA-256 of the document that was kept (this one, with null here); null where nothing was recorded."""


def encode_report(report: ExperimentReport) -> bytes:
    """The bytes of the document that is kept: one line of JSON."""
    return msgspec.json.encode(msgspec.structs.replace(report, results=None)) + b"\n"


def decode_report(document: bytes) -> ExperimentReport:
    """What `encode_report` was given; `msgspec.ValidationError` where it is none."""
    return msgspec.json.decode(document, type=ExperimentReport)
