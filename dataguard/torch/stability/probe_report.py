"""What is seen of one microbatch in a model: the values that `probe` hands back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dataguard.core.evidence import Told

__all__ = ["BlockState", "Gone", "LayerSeen", "Place", "ProbeReport", "Seen"]


class Place(StrEnum):
    """What kind of tensor."""

    ACTIVATION = "activation"
    """What a module gives."""
    ATTENTION_LOGITS = "attention_logits"
    LOSS = "loss"
    GRADIENT = "gradient"
    """Of the loss, by what a module gives."""
    PARAMETER_GRADIENT = "parameter_gradient"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """The first place that went, in the order in which things were computed."""

    name: str
    """Path of the module or the parameter; empty for the model itself."""
    place: Place
    why: str
    """``nonfinite``, or ``range``: finite, and so large that the sum of two such values is infinite in that type."""
    value: float
    """The largest magnitude there."""
    order: int
    """0-based, among all that was seen in this direction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSeen:
    """What a module gave."""

    name: str
    order: int
    """0-based: modules finish inner before outer."""
    dtype: str
    """Of the tensor, as safetensors and torch call it (float16)."""
    rms: float
    """Root mean square in float32; NaN or infinite where a value is."""
    max: float
    """Largest magnitude; NaN where a value is NaN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One pass, forward and backward, in one number type."""

    dtype: str
    loss: float
    layers: tuple[LayerSeen, ...]
    """In the order in which they finished; a module that ran several times once, with the largest."""
    attention: dict[str, tuple[float, ...]]
    """Path of an attention -> the largest logit of each head, in float32 of queries and keys as they were."""
    gradient_norms: dict[str, float]
    """Block of the model (as `Monitor.watch` names them) -> norm of the gradient of its parameters."""
    parameter_gradient_norms: dict[str, float]
    """Parameter -> norm of its gradient."""
    first_forward: Gone | None
    first_backward: Gone | None

    @property
    def finite(self) -> bool:
        """Whether nothing at all was NaN or infinite."""
        return not any(
            gone is not None and gone.why == "nonfinite" for gone in (self.first_forward, self.first_backward)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockState:
    """What the optimizer holds of a block: read, never moved."""

    name: str
    update_ratio_rms: float
    """Of |m| / (sqrt(v) + eps)."""
    update_ratio_max: float
    epsilon_floor_share: float
    """Of the coordinates, those whose sqrt(v) lies below ten epsilon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """What one microbatch does in a model, in float32 and in the run's number type.

    It says what was measured, and draws no verdict: `number_type` is evidence for `dataguard.triage.diagnose`.
    """

    float32: Seen
    run: Seen | None
    """In the run's type; None where that is float32."""
    run_dtype: str | None
    how: str
    """How the run's type came about: ``autocast``, ``weights`` (they are cast) or ``float32``."""
    loss_scale: float
    number_type: Told
    """Whether it goes in the run's type and not in float32; unknown without a pass in the run's type."""
    text: str
    """The same with its numbers, for people."""
    optimizer: tuple[BlockState, ...]
    """Empty without an optimizer of Adam's family."""

    @property
    def first_forward(self) -> Gone | None:
        """The first that went forward: in the run's type, else in float32."""
        return self.float32.first_forward if self.run is None else self.run.first_forward

    @property
    def first_backward(self) -> Gone | None:
        """The first that went backward, where backward begins at the loss."""
        return self.float32.first_backward if self.run is None else self.run.first_backward

    def to_dict(self) -> dict[str, Any]:
        """As JSON knows it. It has no NaN and no infinity; they are spelled ``"nan"``, ``"inf"`` and ``"-inf"``."""
        plain: dict[str, Any] = _plain(self)
        return {**plain, "first_forward": _plain(self.first_forward), "first_backward": _plain(self.first_backward)}


def _plain(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return value
