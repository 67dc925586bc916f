"""How large do the attention logits of each head get in one forward pass?

Fused kernels never hold the logits, so they are computed again beside the attention (`dataguard.torch.watching`), a few
queries at a time. That costs as much as the attention itself: measure every few hundred steps, on one small microbatch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dataguard.torch.watching.attention import LogitWatch
from dataguard.torch.watching.blocks import is_attention

__all__ = ["attention_logits"]


def attention_logits(model: nn.Module, call: Callable[[], Any]) -> dict[str, torch.Tensor]:
    """The largest logit of each head of each attention, while something is called.

    Parameters
    ----------
    model
        Whose attentions are told apart, by path.
    call
        Runs the model; gradients are not needed. In evaluation without gradients torch's own transformer layers take a
        path in which nothing is seen.

    Returns
    -------
    dict[str, torch.Tensor]
        Path of the innermost module that is called an attention (empty where that is the model itself) -> float32,
        shape (num_heads,), of all calls of it; NaN where a logit is. An attention that torch's own functions do not run
        is not seen.

    Examples
    --------
    >>> from dataguard.torch.stability import QKNormAttention
    >>> attention = QKNormAttention(8, 2)
    >>> seen = attention_logits(attention, lambda: attention(torch.randn(1, 5, 8)))
    >>> seen[""].shape, bool((seen[""] <= attention.largest_possible_logit).all())
    (torch.Size([2]), True)
    """
    stack: list[str] = []
    found: dict[str, torch.Tensor] = {}

    def keep(logits: torch.Tensor) -> None:
        own = logits.reshape(-1)
        name = stack[-1] if stack else ""
        found[name] = torch.maximum(found[name], own) if name in found else own

    handles = []
    for name, module in model.named_modules():
        if not is_attention(name, module):
            continue
        handles.append(module.register_forward_pre_hook(lambda *_, name=name: stack.append(name)))
        handles.append(module.register_forward_hook(lambda *_: _pop(stack), always_call=True))
    try:
        with LogitWatch(keep, lambda: bool(stack), by_head=True):
            call()
    finally:
        for handle in handles:
            handle.remove()
    return found


def _pop(stack: list[str]) -> None:
    stack.pop()
