"""How do all ranks come to know the numbers of all ranks at a step?

By one collective a step: each rank gives a short row of float64 (64 bytes and 8 for each watched block on sampled
steps), and has the rows of all. Nothing else of a detector speaks to other ranks. It goes over the CPU where the group
can (gloo, or a group of both kinds), else over this rank's own device, and waits as long as the group does.

Where there is no process group but several ranks, nothing can be known of the others: each rank judges what it sees,
and nothing may be decided from that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from dataguard.errors import GeometryError, UsageError
from dataguard.torch.ranks.peers import device_name
from dataguard.torch.ranks.place import group_of

__all__ = ["Gathering"]

Rows = NDArray[np.float64]


class Gathering:
    """All data-parallel ranks, once a step.

    Parameters
    ----------
    group
        The data-parallel group. Default: the default group, where one was made.
    rank, world_size
        Of this process among the data-parallel ranks, as the attempt has them.

    Raises
    ------
    GeometryError
        The group has another number of ranks than the attempt.
    UsageError
        This process has another rank in the group.

    >>> Gathering(None, rank=0, world_size=1).gather(np.array([1.0, 2.0])).tolist()
    [[1.0, 2.0]]
    """

    def __init__(self, group: Any, *, rank: int, world_size: int) -> None:
        known = group_of(group)
        self.rank = rank
        self.world_size = world_size
        self._group: dist.ProcessGroup | None = None
        if known is None:
            return
        size, own = dist.get_world_size(known), dist.get_rank(known)
        if size != world_size:
            raise GeometryError(
                f"the detector would speak to {size:,} processes, and the attempt has {world_size:,} ranks",
                allowed="a group of the data-parallel ranks, one process each",
                todo="give the monitor group=, the one that the loader was given as data_parallel_group",
            )
        if own != rank:
            raise UsageError(
                f"the monitor logs for rank {rank}, and this process is rank {own} of the group",
                todo="give the monitor the group of the data-parallel ranks: group=",
            )
        if size > 1:
            self._group = known
            self._device = _device_of(known)

    @property
    def is_alone(self) -> bool:
        """Whether there are other ranks that nothing is known of."""
        return self._group is None and self.world_size > 1

    @property
    def num_rows(self) -> int:
        """How many ranks `gather` tells of."""
        return 1 if self._group is None else self.world_size

    def gather(self, row: Rows) -> Rows:
        """The rows of all ranks, shape (num_rows, n), for a row of shape (n,), as long on each of them. Collective."""
        if self._group is None:
            return row[None]
        own = torch.from_numpy(np.array(row, np.float64)).to(self._device)
        rows = [torch.empty_like(own) for _ in range(self.world_size)]
        dist.all_gather(rows, own, group=self._group)
        return torch.stack(rows).cpu().numpy()

    def from_first(self, value: Any) -> Any:
        """The picklable value of rank 0, on all ranks. Collective."""
        if self._group is None:
            return value
        held = [value]
        dist.broadcast_object_list(held, dist.get_global_rank(self._group, 0), group=self._group, device=self._device)
        return held[0]


def _device_of(group: dist.ProcessGroup) -> torch.device:
    kinds = dist.get_backend_config(group)
    on_cpu = "cpu:" in kinds or kinds in ("gloo", "mpi")
    return torch.device("cpu" if on_cpu else device_name())
