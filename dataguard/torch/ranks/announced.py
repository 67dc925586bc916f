"""How does what fails on one rank before it has a loader end the others, which would wait for it?

A loader tells the other ranks what ends it. A run that cannot be opened on one rank, or a tokenizer that is not there,
fails before there is one, and the others miss that rank until `join_timeout_seconds` are over. So the lines that make
run and loader may stand in `together`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

from dataguard.torch.ranks.peers import GroupPeers
from dataguard.torch.ranks.place import group_of

__all__ = ["together"]


@contextmanager
def together(*, data_parallel_group: Any = None, replica_group: Any = None) -> Iterator[None]:
    """What is raised inside on one rank ends all others at their first microbatch, in its words.

    It waits for nobody, and says nothing where all goes well or there is no process group.

    Parameters
    ----------
    data_parallel_group, replica_group
        As the loader is given them.

    Examples
    --------
    >>> with together():
    ...     run = "here a run is opened, and a loader made"
    """
    peers = _peers(group_of(data_parallel_group), group_of(replica_group) if replica_group is not None else None)
    begun = [each.num_launches for each in peers]
    try:
        yield
    except Exception as error:
        for each, before in zip(peers, begun, strict=True):
            # Whoever has spoken in here has told what went wrong; once more would be heard by the next launch.
            if each.num_launches == before:
                each.announce(error)
        raise


def _peers(ranks: dist.ProcessGroup | None, within: dist.ProcessGroup | None) -> list[GroupPeers]:
    """Those who listen to this process: the ranks, and where it is one of a replica, the others of that."""
    groups = [within, ranks if within is None or dist.get_rank(within) == 0 else None]
    return [GroupPeers(group) for group in groups if group is not None and dist.get_rank(group) >= 0]
