"""Which data-parallel rank is this process, of how many, and who tells it?

1. The process group, where there is one: the data-parallel group that was given, else the default group.
2. Else what was told by arguments: ``geometry.world_size`` and ``rank``.
3. Else the launcher: ``RANK`` and ``WORLD_SIZE``, as torchrun sets them. No process group is needed then; ranks meet
   through the run directory, and the launch is told apart by torchrun's run id with its restart count.

Whatever two of them say otherwise is an error with both values. A rank that finds one tells the others, where there is
a group, so that none of them waits for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from dataguard.core.address import Geometry
from dataguard.errors import GeometryError, UsageError
from dataguard.torch.peers import GroupPeers

__all__ = ["Place", "group_of", "place_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where this process stands among the data-parallel ranks."""

    rank: int
    world_size: int
    peers: GroupPeers | None = None
    """The ranks' process group; None where they share the run directory alone."""

    @contextmanager
    def announcing(self) -> Iterator[None]:
        """Whatever is raised inside ends the other ranks as well, where there is a group to tell them by."""
        if self.peers is None:
            yield
        else:
            with self.peers.announcing():
                yield


def place_of(
    geometry: Geometry,
    *,
    rank: int | None = None,
    group: Any = None,
    timeout_seconds: float = 120.0,
    environ: Mapping[str, str] | None = None,
) -> Place:
    """Rank and world size of this process.

    Parameters
    ----------
    geometry, rank
        As told by arguments.
    group
        The data-parallel group (a `ProcessGroup`, or a `DeviceMesh` of one dimension). Default: the default group,
        where one was made.
    timeout_seconds
        How long ranks of a group wait for each other.
    environ
        Where the launcher speaks. Default: the process's environment.

    Raises
    ------
    GeometryError
        The geometry's world size is not that of the group, or of the launcher.
    UsageError
        The rank is not that of the group, or of the launcher; or nobody says which rank this is.

    Examples
    --------
    >>> place_of(Geometry(world_size=4, microbatch_size=2), environ={"RANK": "3", "WORLD_SIZE": "4"}).rank
    3
    >>> place_of(Geometry(world_size=8, microbatch_size=2), environ={"RANK": "3", "WORLD_SIZE": "4"})
    Traceback (most recent call last):
        ...
    dataguard.errors.GeometryError: the geometry has world size 8, and torchrun's environment says 4
      found: world size 8, WORLD_SIZE=4
      allowed: the same number of data-parallel ranks
      next: give geometry the world size 4; with tensor, pipeline or context parallelism, also data_parallel_group=
    """
    known = group_of(group)
    if known is None:
        return _launched(geometry, rank, os.environ if environ is None else environ)  # noqa: TID251 - the launcher's
    world_size, own = dist.get_world_size(known), dist.get_rank(known)
    if own < 0:
        raise UsageError(
            "this process is no member of its data-parallel group",
            found=f"process {dist.get_rank()} of {dist.get_world_size()}",
            todo="give each process the data-parallel group that it belongs to",
        )
    peers = GroupPeers(known, timeout_seconds=timeout_seconds)
    with peers.announcing():
        what = "the process group" if group is None else "the data-parallel group"
        _check_world_size(geometry, world_size, what, f"a group of {world_size}", default=group is None)
        if rank not in (None, own):
            raise UsageError(
                f"rank {rank} was given, and this process is rank {own} of {what}",
                found=f"rank={rank}, group rank {own}",
                todo=f"leave rank out where there is a process group, or give {own}",
            )
    return Place(rank=own, world_size=world_size, peers=peers)


def group_of(group: Any) -> dist.ProcessGroup | None:
    """The process group that was given, or the default one; None where there is none.

    >>> group_of(None) is None
    True
    """
    if group is not None:
        made: dist.ProcessGroup = group.get_group() if hasattr(group, "get_group") else group
        return made
    if dist.is_available() and dist.is_initialized():
        return dist.group.WORLD
    return None


def _launched(geometry: Geometry, rank: int | None, environ: Mapping[str, str]) -> Place:
    """Without a group: arguments and the launcher's environment, which may not say otherwise."""
    told = _told(environ)
    if told is None:
        if rank is None and geometry.world_size > 1:
            raise UsageError(
                f"nobody says which of {geometry.world_size} ranks this process is",
                found="no process group, no rank=, no RANK and WORLD_SIZE",
                todo="start it by torchrun, make a process group first, or give rank=",
            )
        return Place(rank=rank or 0, world_size=geometry.world_size)
    own, world_size = told
    _check_world_size(geometry, world_size, "torchrun's environment", f"WORLD_SIZE={world_size}", default=True)
    if rank not in (None, own):
        raise UsageError(
            f"rank {rank} was given, and torchrun's environment says {own}",
            found=f"rank={rank}, RANK={own}",
            todo=f"leave rank out, or give {own}; or take RANK and WORLD_SIZE out of the environment",
        )
    return Place(rank=own, world_size=world_size)


def _told(environ: Mapping[str, str]) -> tuple[int, int] | None:
    rank, world_size = environ.get("RANK"), environ.get("WORLD_SIZE")
    if rank is None or world_size is None:
        return None
    try:
        own, size = int(rank), int(world_size)
    except ValueError:
        own, size = -1, 0
    if not 0 <= own < size:
        raise UsageError(
            f"RANK={rank} and WORLD_SIZE={world_size} of the environment cannot be",
            allowed="0 <= RANK < WORLD_SIZE",
            todo="start the process by torchrun, or take both out of the environment and give rank=",
        )
    return own, size


def _check_world_size(geometry: Geometry, world_size: int, who: str, found: str, *, default: bool) -> None:
    if geometry.world_size == world_size:
        return
    also = "; with tensor, pipeline or context parallelism, also data_parallel_group=" if default else ""
    raise GeometryError(
        f"the geometry has world size {geometry.world_size}, and {who} says {world_size}",
        found=f"world size {geometry.world_size}, {found}",
        allowed="the same number of data-parallel ranks",
        todo=f"give geometry the world size {world_size}{also}",
    )
