"""What do the norms of queries and keys multiply by, and how is that scaled?

With QK-norm the size of the projections divides out, so the gain of the norm is what a clip must touch. Gains are told
apart by what the norm does and not by its name: some multiply by their weight, some (Gemma) by one plus it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dataguard.errors import UsageError

__all__ = ["Gain", "gains_of"]

_PAIRS = (
    ("q_norm", "k_norm"),
    ("query_norm", "key_norm"),
    ("q_layernorm", "k_layernorm"),
    ("norm_q", "norm_k"),
    ("ln_q", "ln_k"),
    ("q_ln", "k_ln"),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gain:
    """The gain of one norm."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    offset: float
    """The gain is this plus the weight."""
    num_heads: int
    """Heads that have a part of the gain of their own; 1 where all share it."""

    @torch.no_grad()
    def scale_(self, factors: torch.Tensor) -> None:
        """Multiply the gain of each head, shape (num_heads,); a head whose factor is 1 keeps every bit."""
        for head in (factors != 1).nonzero()[:, 0].tolist():
            factor = float(factors[head])
            for tensor, offset in ((self.weight, self.offset), (self.bias, 0.0)):
                if tensor is not None:
                    own = tensor.detach().view(self.num_heads, -1)[head]
                    own.copy_(((own.double() + offset) * factor - offset).to(tensor.dtype))


def gains_of(attention: nn.Module, num_heads: int, num_kv_heads: int, width: int) -> tuple[Gain, Gain] | None:
    """The gains of queries and keys, None where an attention has no QK-norm.

    Raises
    ------
    UsageError
        There is a QK-norm without gains, with one of them alone, or whose gains are not understood.

    Examples
    --------
    >>> gains_of(nn.MultiheadAttention(8, 2), 2, 2, 4) is None
    True
    """
    for names in _PAIRS:
        norms = [getattr(attention, name, None) for name in names]
        if all(norm is None or isinstance(norm, nn.Identity) for norm in norms):
            continue
        if not all(isinstance(norm, nn.Module) for norm in norms):
            raise UsageError(f"only one of {names[0]} and {names[1]} is there", allowed="both or none")
        query, key = (
            _gain(norm, name, heads, width)
            for norm, name, heads in zip(norms, names, (num_heads, num_kv_heads), strict=True)
        )
        return query, key
    return None


def _gain(norm: Any, name: str, num_heads: int, width: int) -> Gain:
    weight, bias = getattr(norm, "weight", None), getattr(norm, "bias", None)
    if not isinstance(weight, torch.Tensor):
        raise UsageError(
            f"{name} has no gain, so there is nothing to clip",
            todo="nothing: without gains no logit exceeds the root of the width of a head",
        )
    if weight.dim() != 1 or len(weight) not in (width, num_heads * width):
        raise UsageError(
            f"a gain of shape {tuple(weight.shape)} in {name}", allowed=f"({width},) or ({num_heads * width},)"
        )
    # Alternating signs have a mean of 0 and a mean square of 1, so that what comes out is the gain itself.
    signs = torch.ones_like(weight)
    signs[1::2] = -1
    with torch.no_grad():
        seen = norm(signs).float() - (0.0 if bias is None else bias.float())
    seen = seen * signs.float()
    error = {offset: float((seen - weight.float() - offset).abs().amax()) for offset in (0.0, 1.0)}
    offset = min(error, key=lambda each: error[each])
    if not error[offset] <= 0.02 * (1 + float(weight.float().abs().amax())):
        raise UsageError(f"what {name} ({type(norm).__name__}) multiplies by is not its weight", found=f"{error}")
    return Gain(weight=weight, bias=bias, offset=offset, num_heads=len(weight) // width)
