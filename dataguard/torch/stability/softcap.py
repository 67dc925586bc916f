"""How are attention logits kept inside a band without a kink?

``cap * tanh(logits / cap)``: what is small against the cap stays as it is, what is large saturates. It belongs *before*
the mask: of a masked logit, which is -inf, it would make -cap, a logit like any other, and what was hidden is seen.
"""

from __future__ import annotations

import math

import torch

from dataguard.errors import UsageError

__all__ = ["attn_logit_softcap"]


def attn_logit_softcap(logits: torch.Tensor, cap: float) -> torch.Tensor:
    """Bring logits smoothly into [-cap, cap], before the mask and the softmax.

    Source: exercise 5 of the second seed document (row C23), after Rybakov et al.; Gemma 2 caps at 50.

    Parameters
    ----------
    logits
        Any shape, a floating type. Infinite ones become the cap, NaN stays NaN.
    cap
        In the logits' own unit, above 0.

    Returns
    -------
    torch.Tensor
        The same shape and type. A logit x moves by about x**3 / (3 * cap**2) where it is small against the cap.

    Raises
    ------
    UsageError
        The cap is not a finite number above 0, or the logits have no floating type.

    Examples
    --------
    >>> attn_logit_softcap(torch.tensor([0.5, 50.0, 5000.0]), cap=50.0)
    tensor([ 0.5000, 38.0797, 50.0000])
    """
    cap = checked_cap(cap)
    if not logits.is_floating_point():
        raise UsageError(f"logits of type {logits.dtype} cannot be capped", allowed="a floating type")
    return cap * torch.tanh(logits / cap)


def checked_cap(cap: float) -> float:
    """The cap as a float, or an error."""
    if isinstance(cap, bool) or not isinstance(cap, int | float) or not 0 < cap < math.inf:
        raise UsageError(f"a cap of {cap!r} cannot be", allowed="a finite number above 0")
    return float(cap)
