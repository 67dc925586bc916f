"""How are attention logits bounded by construction, whatever the weights do?

Queries and keys are normalised to an RMS of 1 over the width d of a head before they meet, so each has the norm
sqrt(d), and a logit q.k / sqrt(d) is at most sqrt(d) times the largest product of the two gains. The gains are learned,
so the bound moves with them: `largest_possible_logit` is worth a look now and then, and `qk_clip_` clips the gains.

Queries that see no key at all (a row of padding) give zeros and finite gradients. Their logits are set to a floor
rather than -inf, so that softmax has something to divide by, and their output is put to zero.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from dataguard.errors import UsageError
from dataguard.torch.stability.softcap import attn_logit_softcap, checked_cap

__all__ = ["QKNormAttention"]


_FLOOR = -32_752.0
"""What is added where a query sees no key: below all logits, and finite in every number type (half of float16's least
number, so that a logit can still be added to it)."""


class QKNormAttention(nn.Module):
    """Multi-head self-attention whose queries and keys are normalised by head.

    Source: Dehghani et al. 2023 (ViT-22B), and the second seed document (row C6); as in Qwen3, Gemma 3 and OLMo 2. The
    projections are ``q_proj``, ``k_proj``, ``v_proj`` and ``o_proj``, the norms ``q_norm`` and ``k_norm``, the names
    that `qk_clip_` and `init_transformer_weights` know.

    Parameters
    ----------
    d_model
        Width of what goes in and comes out.
    num_heads
        Heads of queries; divides `d_model`.
    num_kv_heads
        Heads of keys and values, each shared by a group of heads; divides `num_heads`. Default: one for each head.
    logit_cap
        Where given, logits are capped softly (`attn_logit_softcap`) before the mask; the scores of a whole sequence are
        then held at once, which torch's fused attention avoids.
    bias
        Whether the projections have biases.
    eps
        Added to the mean square before its root.

    Raises
    ------
    UsageError
        The numbers do not divide each other, or the cap cannot be.

    Examples
    --------
    >>> attention = QKNormAttention(64, 4, num_kv_heads=2)
    >>> attention(torch.randn(2, 10, 64), is_causal=True).shape
    torch.Size([2, 10, 64])
    >>> attention.largest_possible_logit
    4.0
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        logit_cap: float | None = None,
        bias: bool = False,
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        shared = num_heads if num_kv_heads is None else num_kv_heads
        if min(d_model, num_heads, shared) < 1 or d_model % num_heads or num_heads % shared:
            raise UsageError(
                f"a width of {d_model} with {num_heads} heads and {shared} of keys cannot be",
                allowed="heads that divide the width, and heads of keys that divide the heads",
            )
        self.num_heads = num_heads
        self.num_kv_heads = shared
        self.head_width = d_model // num_heads
        self.logit_cap = None if logit_cap is None else checked_cap(logit_cap)
        self.q_proj = nn.Linear(d_model, d_model, bias=bias)
        self.k_proj = nn.Linear(d_model, shared * self.head_width, bias=bias)
        self.v_proj = nn.Linear(d_model, shared * self.head_width, bias=bias)
        self.o_proj = nn.Linear(d_model, d_model, bias=bias)
        self.q_norm = nn.RMSNorm(self.head_width, eps=eps)
        self.k_norm = nn.RMSNorm(self.head_width, eps=eps)

    @property
    def largest_possible_logit(self) -> float:
        """The bound that the gains leave, sqrt(d) * max |gain of q * gain of k|, or the cap where that is less."""
        gains = self.q_norm.weight.detach().float() * self.k_norm.weight.detach().float()
        bound: float = self.head_width**0.5 * gains.abs().amax().item()
        return bound if self.logit_cap is None else min(bound, self.logit_cap)

    def forward(
        self,
        x: torch.Tensor,
        mask: torch.Tensor | None = None,
        *,
        is_causal: bool = False,
        rotate: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """Attend.

        Parameters
        ----------
        x
            Shape (size, length, d_model).
        mask
            Broadcastable to (size, num_heads, length, length), with two or four dimensions: bool, True where a query
            may see a key; or floating, added to the logits.
        is_causal
            A query sees no key behind it; together with a mask, both hold.
        rotate
            Applied to queries and keys behind their norm, shape (size, heads, length, width of a head): rotary
            embeddings, which keep norms.

        Returns
        -------
        torch.Tensor
            The shape and type of `x`; zero (before the bias of the last projection) where a query sees no key.
        """
        if x.dim() != 3:
            raise UsageError(f"an input of shape {tuple(x.shape)}", allowed="(size, length, d_model)")
        q = self._heads(self.q_proj(x), self.num_heads)
        k = self._heads(self.k_proj(x), self.num_kv_heads)
        v = self._heads(self.v_proj(x), self.num_kv_heads)
        # Under autocast the gains are wider than what is multiplied; the norm is taken in their type.
        q = self.q_norm(q.to(self.q_norm.weight.dtype)).to(v.dtype)
        k = self.k_norm(k.to(self.k_norm.weight.dtype)).to(v.dtype)
        if rotate is not None:
            q, k = rotate(q), rotate(k)
        k, v = (each.repeat_interleave(self.num_heads // self.num_kv_heads, 1) for each in (k, v))
        if mask is None and self.logit_cap is None:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
        else:
            mixed = self._masked(q, k, v, _hidden(mask, x, is_causal=is_causal), mask)
        # (size, heads, length, width of a head) -> (size, length, d_model)
        result: torch.Tensor = self.o_proj(mixed.transpose(1, 2).flatten(-2))
        return result

    def _heads(self, x: torch.Tensor, num_heads: int) -> torch.Tensor:
        """(size, length, heads * width) -> (size, heads, length, width)."""
        return x.view(*x.shape[:2], num_heads, self.head_width).transpose(1, 2)

    def _masked(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, hidden: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        blind = hidden.all(-1, keepdim=True)
        added = torch.zeros(hidden.shape, dtype=q.dtype, device=q.device)
        if mask is not None and mask.dtype != torch.bool:
            added = added + mask.to(q.dtype).masked_fill(mask == -torch.inf, 0.0)
        added = added.masked_fill(hidden, -torch.inf).masked_fill(blind, _FLOOR)
        if self.logit_cap is None:
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=added)
        else:
            logits = attn_logit_softcap(q @ k.transpose(-2, -1) * self.head_width**-0.5, self.logit_cap)
            mixed = functional.softmax(logits + added, dim=-1, dtype=torch.float32).to(v.dtype) @ v
        return mixed.masked_fill(blind, 0.0)


def _hidden(mask: torch.Tensor | None, x: torch.Tensor, *, is_causal: bool) -> torch.Tensor:
    """Which keys a query may not see, shape (size or 1, heads or 1, length, length)."""
    length = x.shape[1]
    hidden = torch.zeros(1, 1, length, length, dtype=torch.bool, device=x.device)
    if mask is not None:
        if mask.dim() not in (2, 4) or mask.shape[-1] != length or mask.shape[-2] not in (1, length):
            raise UsageError(
                f"a mask of shape {tuple(mask.shape)} for {length} places",
                allowed="(length, length) or (size or 1, heads or 1, length or 1, length)",
            )
        if mask.dtype != torch.bool and not mask.is_floating_point():
            raise UsageError(f"a mask of type {mask.dtype}", allowed="bool, True where a key is seen; or floating")
        hidden = hidden | (~mask if mask.dtype == torch.bool else mask == -torch.inf)
    if is_causal:
        hidden = hidden | torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
    return hidden
