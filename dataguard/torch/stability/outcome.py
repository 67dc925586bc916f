"""What became of one step of training?"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

__all__ = ["StepOutcome", "StepResult"]


class StepOutcome(StrEnum):
    """The one thing that became of a step, the same on all ranks."""

    UPDATED = "updated"
    """The optimizer made its step."""
    SKIPPED_BAD_DATA = "skipped_bad_data"
    """The judge refused the global batch; nothing was computed."""
    SKIPPED_NO_LABELS = "skipped_no_labels"
    """No token of the global batch has a label; nothing was computed."""
    SKIPPED_NONFINITE = "skipped_nonfinite"
    """The loss or the gradient was NaN or infinite."""
    SKIPPED_LOSS_SCALE = "skipped_loss_scale"
    """The scaled gradients of float16 overflowed and the loss did not: the scale was lowered. Business as usual."""
    SKIPPED_GRAD_SPIKE = "skipped_grad_spike"
    """The gradient norm before clipping exceeded its limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a step gives for the log. Every field is there for every outcome; what was not measured, or was not finite,
    is None and never NaN.
    """

    outcome: StepOutcome
    loss: float | None
    """Mean over the labels of the global batch."""
    own_loss: float | None
    """Mean over the labels of this rank alone, before anything was reduced; the one field that differs by rank."""
    grad_norm: float | None
    """Over all parameters, *before* clipping; of a skipped spike too, since it is the evidence."""
    grad_norm_limit: float | None
    """What it was held against; None where there is too little past and no limit was given."""
    num_labels: int
    """Of the global batch."""
    nonfinite_ranks: tuple[int, ...]
    """Ranks whose own loss was not finite; empty where the gradient alone was not, since ranks have added theirs up."""
    anomaly_mean: float | None
    """Of the judge's scores over the global batch."""
    anomaly_max: float | None
    loss_scale: float | None
    """With which the gradients were scaled; None without a scaler."""
    num_skips: int
    """How many steps running were skipped, this one included; 0 behind an update."""
    reason: str | None
    """Why it was skipped, for people."""

    @property
    def skipped(self) -> bool:
        """Whether the optimizer made no step."""
        return self.outcome is not StepOutcome.UPDATED

    def recorded(self) -> dict[str, float]:
        """What a flight recorder is to have of it, for ``Monitor.log(step, **result.recorded())`` on every rank: the
        rank's own loss and the gradient norm; NaN where they were computed and were not finite, since that is the
        evidence; nothing where nothing was computed.

        >>> result = StepResult(outcome=StepOutcome.SKIPPED_NONFINITE, loss=None, own_loss=2.5, grad_norm=None,
        ...                     grad_norm_limit=None, num_labels=8, nonfinite_ranks=(1,), anomaly_mean=None,
        ...                     anomaly_max=None, loss_scale=None, num_skips=1, reason="the loss of rank 1")
        >>> result.recorded()
        {'loss': 2.5, 'grad_norm': nan}
        """
        if self.outcome in (StepOutcome.SKIPPED_BAD_DATA, StepOutcome.SKIPPED_NO_LABELS):
            return {}
        found = {"loss": self.own_loss, "grad_norm": self.grad_norm}
        return {name: math.nan if value is None else value for name, value in found.items()}

    def to_dict(self) -> dict[str, Any]:
        """The same keys for every outcome, values that JSON knows."""
        return {**asdict(self), "outcome": self.outcome.value, "nonfinite_ranks": list(self.nonfinite_ranks)}
