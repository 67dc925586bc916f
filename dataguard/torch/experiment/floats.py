"""Does it happen in the run's number type and not in float32, and which layer goes first (row C20)?

Both on copies of the state that met the batch. Where `loss` sets an autocast of its own, a float32 model computes in
coarser numbers all the same: then float32 was not seen, and the answer is unknown.
"""

from __future__ import annotations

import math
from functools import partial

import torch

from dataguard.core.evidence import Told
from dataguard.core.trainer import TrainerFacts
from dataguard.torch.experiment.answers import CellResult, FloatCheck, Measured, number, spelled
from dataguard.torch.experiment.judging import Asked, value_of
from dataguard.torch.experiment.measuring import (
    Batch,
    Loss,
    Trainee,
    casts_by_itself,
    keyed_randomness,
    loss_of,
    measure,
    reduced,
)
from dataguard.torch.microbatch import TensorMicrobatch
from dataguard.torch.stability.probe import probe

__all__ = ["check_floats", "run_dtype_of"]


def run_dtype_of(facts: TrainerFacts) -> torch.dtype | None:
    """The type that the trainer said it computes in, where autocast has it; None where it said nothing or float32."""
    named = {"bfloat16": torch.bfloat16, "float16": torch.float16}
    return named.get(facts.precision.compute or "")


def check_floats(
    trainee: Trainee,
    batch: Batch,
    loss: Loss,
    *,
    asked: Asked,
    cell: CellResult,
    measured: Measured,
    ordinary: float,
    dtype: torch.dtype | None,
    key: tuple[int | str, ...],
) -> FloatCheck:
    """The batch once more in float32.

    Parameters
    ----------
    trainee
        The state that met the batch; left as it is.
    cell
        The batch from the checkpoint before, on this node.
    measured
        The batch in the run's number type, of the first repeat.
    ordinary
        Median of the placebo batches, as `judging.ordinary_of` gives it.
    dtype
        The run's number type, where it is computed in under autocast.
    key
        Where random numbers are drawn from.
    """
    parameter = next(iter(trainee.model.parameters()))
    used = dtype if dtype is not None and dtype.itemsize < parameter.dtype.itemsize else parameter.dtype
    name = str(used).removeprefix("torch.")
    with keyed_randomness("experiment-probe", *key):
        worst = _worst(trainee, batch, loss, dtype)
        probed = probe(trainee.model, worst, partial(loss_of, loss), run_dtype=used, optimizer=trainee.optimizer)
    gone, text = probed.first_forward or probed.first_backward, probed.text
    exact = trainee.copy()
    exact.model.float()
    fine = Batch(
        step=batch.step, digest=batch.digest, microbatches=tuple(_float32(each) for each in batch.microbatches)
    )
    with keyed_randomness("experiment-float32", *key):
        if casts_by_itself(exact.model, fine, loss):
            told, in_float32 = Told.UNKNOWN, None
            text = f"loss() computes in less than float32 by itself, so float32 was not seen; {text}"
        else:
            in_float32 = measure(exact.model, fine, loss)
            told = _told(asked, cell, measured, in_float32, ordinary, same=used.itemsize >= 4)
            if told is Told.UNKNOWN and probed.number_type is Told.YES:
                told = Told.YES
    return FloatCheck(
        run_dtype=name,
        loss=measured.loss,
        loss_float32=None if in_float32 is None else in_float32.loss,
        grad_norm=measured.grad_norm,
        grad_norm_float32=None if in_float32 is None else in_float32.grad_norm,
        told=told,
        first_layer=None if gone is None else gone.name or "model",
        largest_logits={
            name: spelled(max(heads, key=lambda each: math.inf if math.isnan(each) else each))
            for name, heads in (probed.run or probed.float32).attention.items()
            if heads
        },
        text=text,
    )


def _told(
    asked: Asked, cell: CellResult, measured: Measured, in_float32: Measured, ordinary: float, *, same: bool
) -> Told:
    if same or not _is_finite(in_float32):
        return Told.NO  # the run computes in float32 already, or float32 does not mend it
    if not _is_finite(measured):
        return Told.YES
    if cell.spikes is not Told.YES or cell.threshold is None:
        return Told.UNKNOWN
    shows = value_of(in_float32, asked) - ordinary > asked.sign * number(cell.threshold)
    return Told.NO if shows else Told.YES


def _worst(trainee: Trainee, batch: Batch, loss: Loss, dtype: torch.dtype | None) -> TensorMicrobatch:
    """The microbatch of the largest loss, the first whose loss is not finite before all."""
    losses = []
    with torch.no_grad(), reduced(trainee.model, dtype):
        for each in batch.microbatches:
            value = loss_of(loss, trainee.model, each).item()
            losses.append(value if math.isfinite(value) else math.inf)
    return batch.microbatches[losses.index(max(losses))]


def _is_finite(measured: Measured) -> bool:
    return math.isfinite(number(measured.loss)) and math.isfinite(number(measured.grad_norm))


def _float32(microbatch: TensorMicrobatch) -> TensorMicrobatch:
    made: TensorMicrobatch = microbatch | {
        name: each.float() for name, each in microbatch.items() if each.is_floating_point()
    }
    return made
