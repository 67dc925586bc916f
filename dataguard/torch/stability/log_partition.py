"""How are output logits kept from drifting, when cross entropy does not see where they stand?

The loss of a softmax stays the same when all logits of a place move together, so nothing holds log Z, the log of its
sum of exponentials. The z-loss does: a small penalty on its square.
"""

from __future__ import annotations

import math

import torch

from dataguard.errors import UsageError

__all__ = ["z_loss"]


def z_loss(
    logits: torch.Tensor,
    labels: torch.Tensor | None = None,
    *,
    weight: float,
    ignore_index: int = -100,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """The mean of (log Z)**2 over the places that count, times a weight.

    Source: Zoph et al. 2022 (ST-MoE); rows A14 and C8. The weight has no default, since sources differ: 1e-4 is usual
    for the router of a mixture of experts (and what PaLM took for its output), 1e-5 for the head of a language model.

    Parameters
    ----------
    logits
        Shape (..., vocabulary), any floating type; computed in float32 whatever autocast says.
    labels
        Shape (...): what stands at the place of each row of logits (shift them first, as for cross entropy). Where
        `ignore_index` stands, a place does not count.
    weight
        Of this term in the loss, at least 0.
    mask
        Shape (...), bool: True where a place counts. With labels both hold.

    Returns
    -------
    torch.Tensor
        float32, one element. Where no place counts it is 0, and so are its gradients, which exist. What does not count
        passes nothing on, be it NaN or infinite.

    Raises
    ------
    UsageError
        The weight cannot be, or labels or mask do not fit the logits.

    Examples
    --------
    >>> logits = torch.zeros(2, 3, 8)
    >>> round(z_loss(logits, weight=1e-4).item() / 1e-4, 4)  # log(8)**2
    4.3241
    >>> z_loss(logits, torch.full((2, 3), -100), weight=1e-4)
    tensor(0.)
    """
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
        raise UsageError(f"a weight of {weight!r} cannot be", allowed="a finite number, at least 0")
    if not logits.is_floating_point() or logits.dim() < 1 or not logits.shape[-1]:
        raise UsageError(
            f"logits of type {logits.dtype} and shape {tuple(logits.shape)}", allowed="floating, (..., vocabulary)"
        )
    counted = torch.ones(logits.shape[:-1], dtype=torch.bool, device=logits.device)
    for given, what in ((labels, "labels"), (mask, "a mask")):
        if given is not None and given.shape != counted.shape:
            raise UsageError(
                f"{what} of shape {tuple(given.shape)}",
                allowed=f"{tuple(counted.shape)}, one for each row of logits",
                todo="cut labels and logits alike before",
            )
    if labels is not None:
        counted = counted & (labels != ignore_index)
    if mask is not None:
        if mask.dtype != torch.bool:
            raise UsageError(f"a mask of type {mask.dtype}", allowed="bool, True where a place counts")
        counted = counted & mask
    with torch.autocast(logits.device.type, enabled=False):
        # Filled before and not behind: the gradient of logsumexp at a NaN is NaN, even times 0.
        log_z = torch.logsumexp(logits.float().masked_fill(~counted[..., None], 0.0), -1)
        total = log_z.square().masked_fill(~counted, 0.0).sum()
        return weight * total / counted.sum().clamp(min=1)
