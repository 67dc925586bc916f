"""How is an attention whose logits have grown too large put back, by exactly as much as it needs?

A logit is linear in the queries and in the keys of its head, so multiplying both by the root of tau / (largest logit)
makes the largest logit tau. Call it behind the optimizer's step, with logits that were measured on the weights that are
clipped (`attention_logits` measures them).

- **By head.** A head below tau keeps every bit.
- **Shared keys** (grouped queries). A head of keys that serves several heads is left alone and the whole factor goes
  to the queries of the head that fired: that head ends at tau and its neighbours do not change. A part taken from the
  shared keys would pull down every head of the group, also those that need nothing. (The report that introduced the
  clip treats its shared rotary keys the same way.)
- **With QK-norm** the size of the projections divides out, and the gains are clipped instead. Where all heads share
  one gain, the head with the largest logit decides for all.
- **Biases** of the projections, and the learned extra key of `MultiheadAttention` (``bias_k``), are scaled with them.

What is added to the logits behind the product (ALiBi, relative positions) is not linear in the weights: measure before
it. Where logits are capped softly, measure before the cap. An optimizer that keeps master weights in float32 needs the
clip on those.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from dataguard.errors import UsageError
from dataguard.torch.stability.projections import Projection, Projections, heads_of, projections_of, projections_to
from dataguard.torch.stability.qk_norms import Gain, gains_of

__all__ = ["qk_clip_"]


@torch.no_grad()
def qk_clip_(
    attention: nn.Module | tuple[torch.Tensor, torch.Tensor],
    max_logits: Sequence[float] | torch.Tensor,
    tau: float,
    *,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    biases: tuple[torch.Tensor | None, torch.Tensor | None] = (None, None),
) -> tuple[int, ...]:
    """Clip queries and keys of the heads whose largest logit exceeds tau, in place.

    Source: Kimi K2 (MuonClip, 2025), and the second seed document (row C7), whose version sets all weights to zero at
    an infinite logit, passes over NaN, and knows one logit for all heads.

    Parameters
    ----------
    attention
        A module of a layout that `projections` knows, or the weights of queries and keys, shapes (heads * width, in)
        and (heads of keys * width, in).
    max_logits
        The largest pre-softmax logit of each head, shape (num_heads,), scaled as the attention scales it.
    tau
        What no logit should exceed, above 0. The report took 100 as a backstop that seldom fires.
    num_heads, num_kv_heads
        Default: as the module says. Of tensors the first must be given; the second is the first by default.
    biases
        With tensors, those of queries and keys.

    Returns
    -------
    tuple[int, ...]
        The heads that fired, in order. Log how many: it is the best single sign of logits that grow.

    Raises
    ------
    UsageError
        A logit is NaN or infinite (nothing is changed: no factor mends that; look at the weights), tau cannot be, the
        layout is not known, numbers of heads do not fit, or weights are sharded over ranks.

    Examples
    --------
    >>> q, k = torch.full((4, 2), 2.0), torch.full((4, 2), 2.0)  # two heads of width 2
    >>> qk_clip_((q, k), [400.0, 50.0], 100.0, num_heads=2)
    (0,)
    >>> q[:, 0].tolist(), k[:, 0].tolist()
    ([1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 2.0, 2.0])
    """
    if isinstance(tau, bool) or not isinstance(tau, int | float) or not 0 < tau < math.inf:
        raise UsageError(f"tau {tau!r} cannot be", allowed="a finite number above 0")
    found = _found(attention, num_heads, num_kv_heads, biases)
    logits = torch.as_tensor(max_logits).detach().double().cpu()
    if logits.shape != (found.query.num_heads,):
        raise UsageError(
            f"logits of shape {tuple(logits.shape)}", allowed=f"({found.query.num_heads},): the largest of each head"
        )
    bad = (~logits.isfinite()).nonzero()[:, 0].tolist()
    if bad:
        raise UsageError(
            f"the largest logit of head {bad[0]} is {float(logits[bad[0]])}",
            found=f"{len(bad)} of {len(logits)} heads without a finite logit; nothing was changed",
            allowed="finite logits",
            todo="see with dataguard.torch.stability.probe which layer goes first",
        )
    fired = logits > tau
    heads = tuple(fired.nonzero()[:, 0].tolist())
    if not heads:
        return ()
    factors = torch.where(fired, tau / logits.clamp(min=tau), 1.0)
    extra_key: torch.Tensor | None = None
    if isinstance(attention, nn.Module):
        gains = gains_of(attention, found.query.num_heads, found.key.num_heads, found.query.rows.shape[1])
        if gains is not None:
            query, key = gains
            if query.num_heads == 1 or key.num_heads == 1:
                # A gain that all heads share cannot follow one of them, so one factor is for all of them.
                for gain in gains:
                    gain.scale_(factors.amin().sqrt().expand(gain.num_heads))
            else:
                _scale(query, key, factors, query.num_heads // key.num_heads)
            return heads
        extra_key = attention.bias_k if isinstance(attention, nn.MultiheadAttention) else None
    _scale(found.query, found.key, factors, found.group)
    if extra_key is not None:
        own = extra_key.detach().view(found.key.num_heads, -1)
        own.copy_((own.double() * factors.sqrt().to(own.device)[:, None]).to(own.dtype))
    return heads


def _scale(query: Projection | Gain, key: Projection | Gain, factors: torch.Tensor, group: int) -> None:
    """The root to both sides, or all to the queries where keys are shared."""
    if group == 1:
        query.scale_(factors.sqrt())
        key.scale_(factors.sqrt())
    else:
        query.scale_(factors)


def _found(
    attention: nn.Module | tuple[torch.Tensor, torch.Tensor],
    num_heads: int | None,
    num_kv_heads: int | None,
    biases: tuple[torch.Tensor | None, torch.Tensor | None],
) -> Projections:
    if isinstance(attention, nn.Module):
        found = projections_of(attention, num_heads=num_heads, num_kv_heads=num_kv_heads)
    else:
        heads, kv_heads = heads_of(nn.Module(), num_heads, num_kv_heads)
        query, key = attention
        given = [(weight, bias, False) for weight, bias in zip((query, key), biases, strict=True)]
        found = projections_to(given[0], given[1], heads, kv_heads, "the given tensors")
    for weight in (found.query.weight, found.key.weight):
        if hasattr(weight, "to_local"):
            raise UsageError(
                "weights that are sharded over ranks cannot be clipped by head", todo="gather them (full_tensor) first"
            )
    return found
