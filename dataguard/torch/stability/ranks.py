"""What does every rank say, in one collective, and which of them saw NaN or infinity?

A decision that changes what a rank does next (a skip, a stop) is the same on all of them, or the others wait for ever.
So facts are gathered, and each rank decides from the facts of all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from dataguard.errors import UsageError
from dataguard.torch.ranks.place import group_of

__all__ = ["gathered", "nonfinite_ranks", "num_ranks"]


def nonfinite_ranks(*values: float | torch.Tensor, group: Any = None) -> tuple[int, ...]:
    """The ranks of which some value holds NaN or infinity; a collective, the same answer on all of them.

    Source: the second seed document (row C16), whose answer is yes or no. Give it what this rank saw *before* anything
    was reduced (its own loss, its own gradient norm): behind an all-reduce one NaN is on every rank.

    Parameters
    ----------
    values
        Numbers, or tensors of any shape and type; of a sharded one this rank's part.
    group
        Ranks are counted in this process group (or `DeviceMesh` of one dimension). Default: the default group. Without
        any, this process is rank 0.

    Raises
    ------
    UsageError
        A value is no number.

    Examples
    --------
    >>> nonfinite_ranks(torch.tensor([1.0, 2.0]), 3.0), nonfinite_ranks(float("nan"))
    ((), (0,))
    """
    bad: torch.Tensor | bool = False
    for value in values:
        if isinstance(value, torch.Tensor):
            held: Any = value.detach()
            held = held.to_local() if hasattr(held, "to_local") else held
            bad = (~torch.isfinite(held)).any() | bad
        elif isinstance(value, int | float):
            bad = bad | (not math.isfinite(value))
        else:
            raise UsageError(f"a {type(value).__name__} cannot be looked at", allowed="a number or a tensor")
    return tuple(rank for rank, (flag,) in enumerate(gathered([bad], group)) if flag)


def gathered(numbers: Sequence[float | torch.Tensor], group: Any = None) -> list[list[float]]:
    """The numbers of each rank, as many on all of them, in order of rank; one collective, and one wait for the device.

    >>> gathered([1.5, 2**53])
    [[1.5, 9007199254740992.0]]
    """
    known = group_of(group)
    tensors = [number for number in numbers if isinstance(number, torch.Tensor)]
    device = tensors[0].device if tensors else torch.device("cpu")
    if known is not None and dist.get_backend(known) == "nccl" and device.type == "cpu":
        device = torch.device("cuda", torch.cuda.current_device())
    # float64 holds every count of tokens exactly; MPS has none, and no process groups either.
    kind = torch.float32 if device.type == "mps" else torch.float64
    made = [
        number.detach().to(device, kind).reshape(())
        if isinstance(number, torch.Tensor)
        else torch.tensor(number, device=device, dtype=kind)
        for number in numbers
    ]
    own = torch.stack(made)
    if known is None:
        return [own.tolist()]
    of_all = [torch.empty_like(own) for _ in range(dist.get_world_size(known))]
    dist.all_gather(of_all, own, group=known)
    return [each.tolist() for each in torch.stack(of_all).unbind()]


def num_ranks(group: Any = None) -> int:
    """How many there are.

    >>> num_ranks()
    1
    """
    known = group_of(group)
    return 1 if known is None else dist.get_world_size(known)
