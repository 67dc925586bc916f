"""How is a model copied so that nothing that is done to the copy reaches it, or anything that watches it?

``copy.deepcopy`` also copies hooks, and with them whatever they are bound to: a monitor, its open files, a run. Here a
copy has none of them, except those of torch's own utilities (weight norm, pruning), without which a layer computes
something else. Gradients are not copied; tied weights stay tied.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

from torch import nn

from dataguard.errors import UsageError

__all__ = ["copied"]

_WRAPPERS = ("DistributedDataParallel", "DataParallel", "OptimizedModule")
_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
_ABOUT_HOOKS = ("_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs")


def copied(model: nn.Module) -> nn.Module:
    """A copy without hooks and gradients, out of its wrapper where it is in one.

    Raises
    ------
    UsageError
        The parameters are sharded over ranks, or torch cannot copy the model.

    Examples
    --------
    >>> model = nn.Linear(2, 2)
    >>> handle = model.register_forward_hook(lambda *_: print("seen"))
    >>> len(copied(model)._forward_hooks), len(model._forward_hooks)
    (0, 1)
    """
    inside: Any = model
    while type(inside).__name__ in _WRAPPERS:
        inside = getattr(inside, "_orig_mod", None) or inside.module
    for name, parameter in inside.named_parameters():
        if hasattr(parameter, "to_local"):
            raise UsageError(f"{name} is sharded over ranks", todo="gather the model on one rank, and give that")
    memo: dict[int, Any] = {}
    for module in inside.modules():
        for hooks in _HOOKS:
            held = getattr(module, hooks, None)
            if held is not None:
                # What stands in the memo is taken for the copy.
                memo[id(held)] = OrderedDict((key, hook) for key, hook in held.items() if _of_torch(hook))
        for about in _ABOUT_HOOKS:
            held = getattr(module, about, None)
            if held is not None:
                memo[id(held)] = OrderedDict(held)
    try:
        made: nn.Module = copy.deepcopy(inside, memo)
    except (RuntimeError, TypeError) as error:
        raise UsageError(
            f"a {type(inside).__name__} cannot be copied",
            found=str(error).splitlines()[0] if str(error) else type(error).__name__,
            todo="keep tensors with a graph, locks and open files out of the module",
        ) from error
    return made


def _of_torch(hook: Any) -> bool:
    """Whether a hook is one of torch's own utilities, which compute weights."""
    return str(type(hook).__module__).startswith("torch.nn.utils")
