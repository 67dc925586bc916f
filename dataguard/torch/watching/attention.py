"""Where are attention logits visible, and how large do they get?

While a `LogitWatch` is entered, it sees every call of torch's own functions that this thread makes in Python:

1. ``scaled_dot_product_attention``: the logits are computed again, with scale, masks, causality and grouped queries, a
   few queries at a time, so that no score matrix of the whole sequence ever exists.
2. ``multi_head_attention_forward`` (``nn.MultiheadAttention``): the projections as well.
3. ``softmax`` over the last dimension inside a module that is called an attention: its input is the logits.

Kernels of other packages (FlashAttention) and whatever torch.compile runs are not seen.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from dataguard.torch.watching.numbers import local

__all__ = ["LogitWatch", "largest_logit"]

_CHUNK_NUMBERS = 1 << 24  # of logits held at once: 64 MiB
_SOFTMAX = (functional.softmax, torch.softmax, torch.Tensor.softmax, torch.special.softmax)
_ATTENTION = functional.scaled_dot_product_attention
_MULTI_HEAD = functional.multi_head_attention_forward
_MULTI_HEAD_SIGNATURE = inspect.signature(_MULTI_HEAD)


class LogitWatch(TorchFunctionMode):
    """Gives the largest logit of each attention to `found`, as a tensor of one element that stays on its device.

    With `by_head` it is a tensor of one element a head, where the heads have a dimension of their own.
    """

    def __init__(
        self, found: Callable[[torch.Tensor], None], in_attention: Callable[[], bool], *, by_head: bool = False
    ) -> None:
        super().__init__()
        self._found = found
        self._in_attention = in_attention
        self._by_head = by_head

    def __torch_function__(
        self, func: Any, types: Iterable[Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if func is _ATTENTION:
            self._tell(_of_attention(*args, **named, by_head=self._by_head))
        elif func is _MULTI_HEAD:
            self._tell(_of_multi_head(*args, by_head=self._by_head, **named))
        elif func in _SOFTMAX and self._in_attention():
            self._tell(_of_softmax(*args, by_head=self._by_head, **named))
        return func(*args, **named)

    def _tell(self, logit: torch.Tensor | None) -> None:
        if logit is not None:
            self._found(logit)


def largest_logit(
    query: torch.Tensor,
    key: torch.Tensor,
    *,
    scale: float | None = None,
    mask: torch.Tensor | None = None,
    is_causal: bool = False,
    by_head: bool = False,
) -> torch.Tensor:
    """The largest pre-softmax logit, in float32; NaN where one is NaN, -inf where everything is masked.

    Parameters
    ----------
    query, key
        Shapes (..., heads, num_queries, width) and (..., key heads, num_keys, width); with fewer key heads they are
        shared by groups of heads.
    scale
        Default: one over the root of the width.
    mask
        Broadcastable to the logits: bool, True where a key may be seen; or added to them.
    is_causal
        Query i sees the keys up to i.
    by_head
        Give the largest of each head, shape (heads,), where there are four dimensions; else that of all, shape ().

    Examples
    --------
    >>> largest_logit(torch.eye(2) * 3, torch.eye(2), scale=1.0).item()
    3.0
    """
    with torch.no_grad(), torch.autocast(query.device.type, enabled=False):
        q, k = local(query).float(), local(key).float()
        if q.dim() > 2 and q.shape[-3] != k.shape[-3]:
            k = k.repeat_interleave(q.shape[-3] // k.shape[-3], -3)
        factor = q.shape[-1] ** -0.5 if scale is None else scale
        num_queries, num_keys = q.shape[-2], k.shape[-2]
        rest = max(1, q.numel() // max(1, num_queries * q.shape[-1]))
        at_once = max(1, _CHUNK_NUMBERS // max(1, rest * num_keys))
        largest = []
        for first in range(0, num_queries, at_once):
            logits = q[..., first : first + at_once, :] @ k.transpose(-2, -1) * factor
            if mask is not None:
                own = mask[..., first : first + at_once, :] if mask.dim() > 1 and mask.shape[-2] > 1 else mask
                logits = logits.masked_fill(~own, -torch.inf) if own.dtype == torch.bool else logits + own.float()
            if is_causal:
                rows = torch.arange(first, first + logits.shape[-2], device=logits.device)
                columns = torch.arange(num_keys, device=logits.device)
                logits = logits.masked_fill(columns > rows[:, None], -torch.inf)
            largest.append(_largest(logits, by_head=by_head))
        return torch.stack(largest).amax(0)


def _largest(logits: torch.Tensor, *, by_head: bool) -> torch.Tensor:
    """Over everything, or over everything but the heads, which stand third from the end of four dimensions."""
    return logits.amax((0, 2, 3)) if by_head and logits.dim() == 4 else logits.amax()


def _of_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002 - torch's own signature
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: FBT001, FBT002
    *,
    by_head: bool,
) -> torch.Tensor | None:
    del value, dropout_p, enable_gqa
    if query.is_nested or not query.numel() or not key.numel():
        return None
    mask = None if attn_mask is None else local(attn_mask)
    return largest_logit(query, key, scale=scale, mask=mask, is_causal=is_causal, by_head=by_head)


def _of_multi_head(*args: Any, by_head: bool, **kwargs: Any) -> torch.Tensor | None:
    given = _MULTI_HEAD_SIGNATURE.bind(*args, **kwargs)
    given.apply_defaults()
    told = given.arguments
    query, key, num_heads = told["query"], told["key"], told["num_heads"]
    width = told["embed_dim_to_check"]
    if told["static_k"] is not None or not isinstance(query, torch.Tensor) or not query.numel() or not key.numel():
        return None
    with torch.no_grad():
        if told["use_separate_proj_weight"]:
            query_weight, key_weight = told["q_proj_weight"], told["k_proj_weight"]
        else:
            query_weight, key_weight = told["in_proj_weight"][:width], told["in_proj_weight"][width : 2 * width]
        bias = told["in_proj_bias"]
        query_bias, key_bias = (None, None) if bias is None else (bias[:width], bias[width : 2 * width])
        q = functional.linear(query.detach(), query_weight, query_bias)
        k = functional.linear(key.detach(), key_weight, key_bias)
        batched = q.dim() == 3
        q, k = (q, k) if batched else (q[:, None], k[:, None])  # (place, sequence, width)
        if told["bias_k"] is not None:
            k = torch.cat([k, told["bias_k"].expand(1, k.shape[1], width)])
        # (place, sequence, width) -> (sequence, head, place, width of a head)
        q, k = (each.reshape(*each.shape[:2], num_heads, -1).permute(1, 2, 0, 3) for each in (q, k))
        mask, padding = told["attn_mask"], told["key_padding_mask"]
        causal = told["is_causal"] and mask is None
        return largest_logit(q, k, mask=_added(mask, padding, q, k), is_causal=causal, by_head=by_head)


def _added(
    mask: torch.Tensor | None, padding: torch.Tensor | None, q: torch.Tensor, k: torch.Tensor
) -> torch.Tensor | None:
    """Both masks of a multi-head attention (True where a key is hidden, or added) as one that is added."""
    num_sequences, num_heads, num_queries, num_keys = (*q.shape[:3], k.shape[2])
    total: torch.Tensor | None = None
    for each, shape in ((mask, None), (padding, (num_sequences, 1, 1, -1))):
        if each is None:
            continue
        added = (
            torch.zeros_like(each, dtype=torch.float32).masked_fill(each, -torch.inf)
            if each.dtype == torch.bool
            else each
        )
        if shape is not None:
            added = added.reshape(shape)
        elif added.dim() == 3:
            added = added.reshape(num_sequences, num_heads, num_queries, -1)
        added = functional.pad(added.float(), (0, num_keys - added.shape[-1]))  # keys that were appended are seen
        total = added if total is None else total + added
    return total


def _of_softmax(
    input: torch.Tensor,  # noqa: A002 - torch's own name
    dim: int | None = None,
    *_: Any,
    by_head: bool,
    **__: Any,
) -> torch.Tensor | None:
    if not input.is_floating_point() or input.dim() < 3 or dim not in (-1, input.dim() - 1) or not input.numel():
        return None
    return _largest(local(input), by_head=by_head).float()
