"""How is one checkpoint replayed up to the batch, again and again, each time on a copy?

A checkpoint that is older than the step is trained on exactly the batches that followed it, with the trainer's own
update, until its state is the one that met the batch. An *earlier* checkpoint is used as it is: another state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from dataguard.torch.experiment.answers import Measured, Repeat, StateResult, WhichCheckpoint
from dataguard.torch.experiment.batches import Rebuilding
from dataguard.torch.experiment.measuring import (
    Batch,
    Load,
    Loss,
    Trainee,
    Update,
    keyed_randomness,
    loaded,
    measure,
    state_digest,
)

__all__ = ["Replayed", "Replayer", "default_update"]

_KEPT_BATCHES = 256  # of the steps in between; more are rebuilt at every repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A checkpoint, replayed."""

    result: StateResult
    state: str
    """Digest as loaded."""
    at_step: Trainee
    """A copy of the state that met the batch, of the first repeat."""
    layers: dict[str, tuple[float, tuple[float, ...]]]
    """Layer -> gradient norm of the batch, and of each placebo batch; of the first repeat."""


@dataclass(slots=True, kw_only=True)
class Replayer:
    """Replays checkpoints up to one batch."""

    rebuilding: Rebuilding
    batch: Batch
    placebos: Sequence[Batch]
    load: Load
    loss: Loss
    update: Update
    num_repeats: int
    num_after: int
    dtype: torch.dtype | None
    node: str
    _kept: dict[int, Batch | None] = field(default_factory=dict)

    def replay(self, which: WhichCheckpoint, path: str, steps: range) -> Replayed:
        """All repeats from one checkpoint, trained on `steps` (trainer's labels) before the batch is measured."""
        with keyed_randomness("experiment-load", self.batch.digest, which):
            original = loaded(self.load, path)  # making a model draws its first weights
        repeats: list[Repeat] = []
        first: Trainee | None = None
        layers: dict[str, tuple[float, tuple[float, ...]]] = {}
        for repeat in range(self.num_repeats):
            with keyed_randomness("experiment-repeat", self.batch.digest, which, repeat):
                trainee = original.copy()
                trained = self._train(trainee, steps)
                if first is None:
                    first = trainee.copy()
                seen: list[dict[str, float]] = [{} for _ in range(1 + len(self.placebos))]
                measured = [
                    measure(trainee.model, each, self.loss, layers=norms, dtype=self.dtype)
                    for each, norms in zip([self.batch, *self.placebos], seen, strict=True)
                ]
                if not layers:
                    layers = {name: (seen[0][name], tuple(each[name] for each in seen[1:])) for name in seen[0]}
                repeats.append(
                    Repeat(
                        batch=measured[0],
                        placebos=tuple(measured[1:]),
                        after_batch=tuple(each.loss for each in self._after(trainee, self.batch)),
                        after_placebo=tuple(each.loss for each in self._after(trainee, self.placebos[-1])),
                        trained=tuple((label, each.loss, each.grad_norm) for label, each in trained),
                    )
                )
        assert first is not None, "there is at least one repeat"
        return Replayed(
            result=StateResult(checkpoint=which, node=self.node, repeats=tuple(repeats)),
            state=state_digest(original),
            at_step=first,
            layers=layers,
        )

    def _train(self, trainee: Trainee, steps: range) -> list[tuple[int, Measured]]:
        trained = []
        for label in steps:
            batch = self._batch(label)
            if batch is None:
                continue
            trained.append((label, measure(trainee.model, batch, self.loss, dtype=self.dtype)))
            self.update(trainee.model, trainee.optimizer, label)
        return trained

    def _batch(self, label: int) -> Batch | None:
        """None where the trainer had nothing to train on."""
        if label in self._kept:
            return self._kept[label]
        batch = None if self.rebuilding.is_skipped(label) else self.rebuilding.batch(label)
        if len(self._kept) < _KEPT_BATCHES:
            self._kept[label] = batch
        return batch

    def _after(self, trainee: Trainee, batch: Batch) -> list[Measured]:
        """Losses of the first placebo batches after an update by a batch, on a copy."""
        if not self.num_after:
            return []
        copied = trainee.copy()
        measure(copied.model, batch, self.loss, dtype=self.dtype)
        self.update(copied.model, copied.optimizer, self.batch.step)
        return [
            measure(copied.model, each, self.loss, backward=False, dtype=self.dtype)
            for each in self.placebos[: self.num_after]
        ]


def default_update(clip_norm: float | None, rates: dict[int, float], notes: list[str]) -> Update:
    """Clip as the trainer said, set the rate that was logged for the step, and step.

    Parameters
    ----------
    clip_norm
        None where it is not known, 0 where nothing is clipped.
    rates
        Step in the trainer's labels -> learning rate.
    notes
        What is not known is told here, once.
    """
    tell = _Once(notes)

    def update(model: torch.nn.Module, optimizer: torch.optim.Optimizer, label: int) -> None:
        if clip_norm:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        elif clip_norm is None:
            tell("whether the trainer clips gradients is not known (Monitor.describe tells it): none were clipped")
        groups = {float(group["lr"]) for group in optimizer.param_groups}
        if label in rates and len(groups) == 1:
            for group in optimizer.param_groups:
                group["lr"] = rates[label]
        else:
            tell("the learning rate is the one that the checkpoint's optimizer has: no other was logged for the step")
        optimizer.step()

    return update


class _Once:
    def __init__(self, notes: list[str]) -> None:
        self._notes = notes

    def __call__(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)
