"""How are the numbers of a sampled step made, without the device being waited for and without a copy of the model?

Every number is a float32 tensor of one element that stays on its device. bfloat16 and float16 are summed in float32. Of
a DTensor (FSDP, tensor parallelism) this rank's own part counts, of a sparse gradient its values.
"""

from __future__ import annotations

import math
from typing import Any

import torch

__all__ = [
    "AdamMoments",
    "adam_moments",
    "joined_heads",
    "joined_max",
    "joined_norm",
    "joined_rms",
    "joined_sum",
    "local",
    "log_z",
    "norm",
    "ratio",
]

_CHUNK_NUMBERS = 1 << 24  # float32 numbers held at once: 64 MiB


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What of a tensor lies on this rank, without its graph."""
    held: Any = tensor.detach()
    if hasattr(held, "to_local"):
        held = held.to_local()
    if held.layout == torch.sparse_coo:
        held = held.coalesce().values()
    assert isinstance(held, torch.Tensor)
    return held


def norm(tensor: torch.Tensor) -> torch.Tensor:
    """The L2 norm in float32.

    >>> norm(torch.full((4,), 200.0, dtype=torch.float16)).item()
    400.0
    """
    result: torch.Tensor = torch.linalg.vector_norm(local(tensor), dtype=torch.float32)
    return result


def joined_norm(norms: list[torch.Tensor]) -> torch.Tensor:
    """The norm of several parts from theirs."""
    result: torch.Tensor = torch.linalg.vector_norm(_stacked(norms))
    return result


def joined_max(values: list[torch.Tensor]) -> torch.Tensor:
    """The largest; NaN where one is NaN."""
    return _stacked(values).amax()


def joined_heads(values: list[torch.Tensor]) -> torch.Tensor:
    """The largest of each head, shape (heads,), over values of that shape; NaN where one is NaN."""
    return _stacked(values).amax(0)


def joined_sum(values: list[torch.Tensor]) -> torch.Tensor:
    """The sum."""
    return _stacked(values).sum()


def joined_rms(norms: list[torch.Tensor], num_numbers: int) -> torch.Tensor:
    """The root of the mean square over all numbers of several parts from their norms."""
    return joined_norm(norms) / math.sqrt(num_numbers)


def log_z(logits: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Sum over all places of the log of the sum of exponentials over the last dimension, and how many places there are.

    >>> total, num_places = log_z(torch.zeros(2, 3, 8))
    >>> round(total.item() / num_places, 4)
    2.0794
    """
    rows = local(logits).reshape(-1, logits.shape[-1])
    at_once = max(1, _CHUNK_NUMBERS // max(1, rows.shape[1]))
    sums = [torch.logsumexp(part.float(), -1).sum() for part in torch.split(rows, at_once)]
    return joined_sum(sums), rows.shape[0]


class AdamMoments:
    """The moments of one parameter, both corrected for their beginning at zero."""

    __slots__ = ("eps", "first", "second")

    def __init__(self, first: torch.Tensor, second: torch.Tensor, eps: float | torch.Tensor) -> None:
        self.first = first
        self.second = second
        self.eps = eps


def adam_moments(state: dict[str, Any], group: dict[str, Any]) -> AdamMoments | None:
    """The moments that an optimizer of Adam's family holds of a parameter after its step; None where it holds none.

    Where ``amsgrad`` is on, the second is the largest so far, which is what the update was divided by.
    """
    first, second = state.get("exp_avg"), state.get("exp_avg_sq")
    step, betas, eps = state.get("step"), group.get("betas"), group.get("eps")
    if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
        return None
    if step is None or betas is None or eps is None:
        return None
    if group.get("amsgrad") and isinstance(state.get("max_exp_avg_sq"), torch.Tensor):
        second = state["max_exp_avg_sq"]
    # A `step` that lies on the device is used there: reading it would wait.
    return AdamMoments(
        first=local(first).float() / (1 - betas[0] ** step),
        second=local(second).float() / (1 - betas[1] ** step),
        eps=eps,
    )


def ratio(moments: AdamMoments) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The update ratio |m| / (sqrt(v) + eps): its norm and its largest; and how many roots lie below ten epsilon.

    >>> moments = AdamMoments(torch.tensor([0.3, -0.4]), torch.tensor([1.0, 1e-20]), 1e-8)
    >>> largest, at_floor = ratio(moments)[1:]
    >>> round(largest.item() / 1e7, 3), at_floor.item()
    (3.96, 1.0)
    """
    root = moments.second.sqrt()
    at_floor = (root < 10 * moments.eps).sum().float()
    ratios = moments.first.abs() / (root + moments.eps)
    return torch.linalg.vector_norm(ratios), ratios.amax(), at_floor


def _stacked(values: list[torch.Tensor]) -> torch.Tensor:
    device = values[0].device
    return torch.stack([value if value.device == device else value.to(device, non_blocking=True) for value in values])
