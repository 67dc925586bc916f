"""Which data-parallel rank is this process, of how many, and who tells it?

1. The process group, where there is one: the data-parallel group that was given, else the default group.
2. Else what was told by arguments: ``geometry.world_size`` and ``rank``.
3. Else the launcher: ``RANK`` and ``WORLD_SIZE``, as torchrun sets them. No process group is needed then; ranks meet
   through the run directory, and the launch is told apart by torchrun's run id with its restart count.

Where several processes share one copy of the model, the group of each replica is given beside the data-parallel group;
its processes have the same rank, and the first of them reads and records for all (`dataguard.torch.ranks.replicas`).

Whatever two of them say otherwise is an error with both values. A rank that finds one tells the others, where there is
a group, so that none of them waits for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, get_args

import torch.distributed as dist

from dataguard.core.address import Geometry
from dataguard.errors import GeometryError, UsageError
from dataguard.torch.ranks.peers import GroupPeers
from dataguard.torch.ranks.replicas import Replica, ReplicaMode, ReplicaPeers

__all__ = ["Place", "group_of", "place_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where this process stands among the data-parallel ranks."""

    rank: int
    world_size: int
    peers: GroupPeers | ReplicaPeers | None = None
    """All processes of the launch; None where they share the run directory alone."""
    replica_group: dist.ProcessGroup | None = None
    """The processes that share this rank; None where it is one."""

    def replica(self, mode: ReplicaMode, *, pin_memory: bool = False) -> Replica | None:
        """The processes that share this rank, while microbatches are handed over; None where it is one."""
        if mode not in get_args(ReplicaMode):
            raise UsageError(f"replica {mode!r} cannot be", allowed=" or ".join(get_args(ReplicaMode)))
        if self.replica_group is None:
            return None
        assert isinstance(self.peers, ReplicaPeers)
        return Replica(self.replica_group, mode=mode, peers=self.peers, pin_memory=pin_memory)

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
    replica_group: Any = None,
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
    replica_group
        The processes that share a copy of the model, as `group`. Default: each process has its own.
    timeout_seconds
        How long ranks of a group wait for each other; with replicas up to three times as long.
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
    if replica_group is not None:
        return _in_replica(geometry, rank, group, replica_group, timeout_seconds)
    known = group_of(group)
    if known is None:
        return _launched(geometry, rank, os.environ if environ is None else environ)  # noqa: TID251 - the launcher's
    _check_member(known, "data-parallel group")
    peers = GroupPeers(known, timeout_seconds=timeout_seconds)
    with peers.announcing():
        own, world_size = _in_group(geometry, rank, known, given=group is not None)
    return Place(rank=own, world_size=world_size, peers=peers)


def _in_replica(geometry: Geometry, rank: int | None, group: Any, replica_group: Any, timeout_seconds: float) -> Place:
    """A process that shares its rank with others."""
    within = group_of(replica_group)
    assert within is not None
    _check_member(within, "replica group")
    ranks = group_of(group) if group is not None else None
    alone = dist.get_world_size(within) == dist.get_world_size()
    if ranks is None and not alone:
        raise UsageError(
            f"a replica group of {dist.get_world_size(within)} of {dist.get_world_size()} processes says nothing of "
            "the other replicas",
            found="replica_group without data_parallel_group",
            todo="give both: the processes that read other data, and those that share this process's data",
        )
    if ranks is not None:
        _check_member(ranks, "data-parallel group")
    own = 0 if ranks is None else dist.get_rank(ranks)
    # Whoever waits for somebody who may be waiting waits longer, so that it hears who is missing and does not guess:
    # other ranks longer than the first process of a replica does for its peers, and peers longer than both.
    first = dist.get_rank(within) == 0
    shared = dist.get_world_size(within)
    peers = ReplicaPeers(
        GroupPeers(ranks, timeout_seconds=2 * timeout_seconds) if first and ranks is not None else None,
        GroupPeers(
            within,
            timeout_seconds=timeout_seconds if first else 3 * timeout_seconds,
            names=[f"rank {own}", *(f"process {other} of the replica of rank {own}" for other in range(1, shared))],
        ),
        rank=own,
    )
    with peers.announcing():
        if ranks is None:
            _check_world_size(geometry, 1, "the only replica", "one replica", default=False)
            _check_rank(rank, 0, "the only replica")
        else:
            _in_group(geometry, rank, ranks, given=True)
    return Place(rank=own, world_size=geometry.world_size, peers=peers, replica_group=within if shared > 1 else None)


def _in_group(geometry: Geometry, rank: int | None, group: dist.ProcessGroup, *, given: bool) -> tuple[int, int]:
    """Rank and world size of a group, which arguments may not contradict."""
    own, world_size = dist.get_rank(group), dist.get_world_size(group)
    what = "the data-parallel group" if given else "the process group"
    _check_world_size(geometry, world_size, what, f"a group of {world_size}", default=not given)
    _check_rank(rank, own, what)
    return own, world_size


def _check_rank(rank: int | None, own: int, what: str) -> None:
    if rank in (None, own):
        return
    raise UsageError(
        f"rank {rank} was given, and this process is rank {own} of {what}",
        found=f"rank={rank}, group rank {own}",
        todo=f"leave rank out where there is a process group, or give {own}",
    )


def _check_member(group: dist.ProcessGroup, what: str) -> None:
    if dist.get_rank(group) >= 0:
        return
    raise UsageError(
        f"this process is no member of its {what}",
        found=f"process {dist.get_rank()} of {dist.get_world_size()}",
        todo="give each process the group that it belongs to",
    )


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
