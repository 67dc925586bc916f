"""How do processes that share one copy of the model come by the same microbatch?

With tensor, pipeline or context parallelism several processes are one data-parallel rank: a replica. The first process
of each replica's group reads, judges and records; the others, its peers, are handed the same microbatch in one of two
ways:

- ``receive``: the first hands it on once it is recorded: tensors, address and all else that is known of it, in one
  block of bytes. Peers read nothing.
- ``compare``: every process reads for itself, and before anything is recorded or handed over the digests of all are
  held against each other. A difference ends all of them, with the digests and the address.

Either way, what ends the first process ends its peers in the same call: an error, the end of the stream, a halt by the
gate. All of them begin the attempt together (`ReplicaPeers`): peers are held to what they were told as well, learn the
attempt from the journal, and write nothing. State follows from what was handed over, so it is the same on all.

Context parallelism slices what was handed over, after shifting the labels: the label of a slice's last token stands in
the next slice::

    labels = torch.nn.functional.pad(microbatch["labels"][:, 1:], (0, 1), value=-100)
    ids, labels = (tensor.chunk(cp_size, dim=1)[cp_rank] for tensor in (microbatch["input_ids"], labels))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.distributed as dist

from dataguard.errors import DataguardError, EnvironmentFailed, RankMissing, RanksDisagree
from dataguard.loader.feed import Fed, Feeder
from dataguard.loader.feeding import Feeding
from dataguard.loader.loader import Loader
from dataguard.loader.reading import Reading
from dataguard.loader.walk import Planned
from dataguard.torch.microbatch import TensorMicrobatch
from dataguard.torch.ranks.peers import StorePeers
from dataguard.torch.tensors import from_shared, to_shared

__all__ = ["Replica", "ReplicaMode", "ReplicaPeers"]

ReplicaMode = Literal["receive", "compare"]


class ReplicaPeers:
    """All processes of a launch, as far as they agree on the attempt: ranks, and the peers within each.

    Parameters
    ----------
    ranks
        The first processes of all replicas; None where there is one replica.
    within
        The processes of this replica.
    rank
        The data-parallel rank that this process takes itself for; all of a replica have the same.
    """

    def __init__(self, ranks: StorePeers | None, within: StorePeers, *, rank: int) -> None:
        self._ranks = ranks if within.rank == 0 else None
        self._within = within
        self._rank = rank

    @property
    def name(self) -> str:
        """What this process is called in messages."""
        return self._within.name

    @property
    def records(self) -> bool:
        """Whether it reads for its rank and records."""
        return self._within.rank == 0

    @property
    def device(self) -> str | None:
        """Where it computes, for people."""
        return self._within.device

    def gather(self, value: Any) -> list[Any]:
        """The picklable value of every process, by rank and place in its replica, on all of them; see `StorePeers`."""
        if not self.records:
            self._within.gather((self._rank, value))
            everybody: list[Any] = self._within.broadcast(None)
            return everybody
        with self._told_both_ways():
            own = self._of_one_rank(self._within.gather((self._rank, value)))
            parts = [own] if self._ranks is None else self._ranks.gather(own)
            flat = [each for part in parts for each in part]
            self._within.broadcast(flat)
        return flat

    def _of_one_rank(self, told: list[tuple[int, Any]]) -> list[Any]:
        """What the processes of this replica said, where they are one data-parallel rank."""
        ranks = [rank for rank, _ in told]
        if len(set(ranks)) > 1:
            raise RanksDisagree(
                "the processes of one replica_group are not one data-parallel rank",
                found="ranks " + ", ".join(map(str, ranks)) + " in their data_parallel_group",
                allowed="processes that share their data in replica_group, processes that read other data in "
                "data_parallel_group",
                todo="make each replica_group of processes that have the same rank in their data-parallel groups",
            )
        return [value for _, value in told]

    def broadcast(self, value: Any) -> Any:
        """The picklable value of rank 0, on all processes."""
        if not self.records:
            return self._within.broadcast(None)
        with self._told_both_ways():
            told = value if self._ranks is None else self._ranks.broadcast(value)
            return self._within.broadcast(told)

    def announce(self, error: BaseException) -> None:
        """Say that this process will not come: whoever waits for it ends in its words."""
        self._within.announce(error)
        if self._ranks is not None:
            self._ranks.announce(error)

    @contextmanager
    def announcing(self) -> Iterator[None]:
        """Announce whatever is raised inside."""
        try:
            yield
        except Exception as error:
            self.announce(error)
            raise

    _told_both_ways = announcing  # who misses a peer tells the other ranks, and the other way round


@dataclass(frozen=True, slots=True, kw_only=True)
class _Word:
    """What a process of a replica says of its next microbatch."""

    name: str
    address: str = ""
    digest: bytes = b""
    """Empty at the end of the stream, and where it failed."""
    error: DataguardError | None = None

    @classmethod
    def failed(cls, name: str, error: Exception) -> _Word:
        """What was raised, in a form that can be sent."""
        known = error if isinstance(error, DataguardError) else None
        return cls(
            name=name,
            error=known or EnvironmentFailed(f"{name} failed", found=f"{type(error).__name__}: {error}"),
        )

    def __str__(self) -> str:
        if not self.digest:
            return f"{self.name} is at the end"
        return f"{self.name} has {self.address}, digest {self.digest.hex()}"


class Replica:
    """The processes of one replica while microbatches are handed over.

    Parameters
    ----------
    group
        Their process group, of gloo or NCCL.
    mode
        ``receive`` or ``compare``.
    peers
        All processes of the launch.
    pin_memory
        Whether a peer that receives hands over page-locked tensors.
    """

    def __init__(
        self, group: dist.ProcessGroup, *, mode: ReplicaMode, peers: ReplicaPeers, pin_memory: bool = False
    ) -> None:
        self.mode = mode
        self._group = group
        self._peers = peers
        self._pin_memory = pin_memory
        self._first = dist.get_global_rank(group, 0)
        self._over = False
        """Nothing more is said: the end or a failure is known to all."""

    @property
    def records(self) -> bool:
        """Whether this process reads for its rank and records: the first of the replica does."""
        return self._peers.records

    def reading(self, reading: Reading) -> Reading:
        """Who reads in this process: what it was to read with, a comparison around that, or the first process."""
        if self.mode == "compare":
            return lambda feeding, feeder, planned: _Compared(self, reading(feeding, feeder, planned))
        return reading if self._peers.records else self._received

    def hand_over(self, loader: Loader) -> Fed | None:
        """Hand over the next microbatch of `loader`, in all processes of the replica or in none.

        Raises
        ------
        RanksDisagree
            The processes do not hold the same microbatch.
        RankMissing
            One of them is gone.
        DataguardError
            What ended the first process.
        """
        loader.begin()
        if self._over or not self._peers.records:
            return loader.hand_over()
        try:
            fed = loader.hand_over()
        except Exception as error:
            if not self._over:
                self._over = True
                self._say(_Word.failed(self._peers.name, error), {})
            raise
        self._over = fed is None
        if fed is None or self.mode == "compare":
            self._say(None if fed is None else fed.planned.address, {})
        else:
            counted = getattr(fed.tensors, "num_loss_tokens", None)
            self._say((replace(fed, tensors=None), counted), fed.tensors)
        return fed

    def close(self) -> None:
        """Say nothing more."""
        self._over = True

    # -- peers that receive

    def _received(self, _feeding: Feeding, _feeder: Feeder, planned: Iterable[Planned]) -> Iterator[Fed]:
        for each in planned:
            said, tensors = self._hear()
            if said is None:
                return
            fed, counted = said
            assert fed.planned.address == each.address, "all processes of a replica walk alike"
            made = TensorMicrobatch.delivered(tensors, fed.microbatch, num_loss_tokens=counted)
            yield replace(fed, tensors=made.pin_memory() if self._pin_memory else made, storage_bytes=0)
        said, _ = self._hear()
        assert said is None, "all processes of a replica walk alike"

    # -- peers that compare

    def compared(self, read: Callable[[], Fed | None]) -> Fed | None:
        """Read, and hold what was read against what the others have."""
        fed, failure = None, None
        try:
            fed = read()
            word = _Word(name=self._peers.name)
            if fed is not None:
                word = replace(word, address=str(fed.planned.address), digest=fed.microbatch.digest)
        except Exception as error:  # noqa: BLE001 - told to the others, and raised below
            failure = error
            word = _Word.failed(self._peers.name, error)
        words: list[Any] = [None] * dist.get_world_size(self._group)
        self._exchanged(lambda: dist.all_gather_object(words, word, group=self._group))
        if failure is not None:
            self._over = True
            raise failure
        for each in words:
            if each.error is not None:
                self._over = True
                raise each.error
        if len({(each.address, each.digest) for each in words}) > 1:
            self._over = True
            raise RanksDisagree(
                f"the processes of one replica do not hold the same microbatch (this is {self._peers.name})",
                found="; ".join(str(each) for each in words),
                allowed="equal digests, which cover samples and tensors",
                todo="look for what differs between the processes: library versions, the transform, the shards they "
                "read (dataguard manifest verify); or have peers receive it: replica='receive'",
            )
        if not self._peers.records:
            self._hear()  # the first has recorded it, or was ended
        return fed

    # -- the group

    def _say(self, said: Any, tensors: Any) -> None:
        """Broadcast from the first process, as one block of bytes behind its size."""
        block = to_shared(said, tensors)
        size = torch.tensor([block.numel()], device=self._device)
        self._exchanged(lambda: dist.broadcast(size, self._first, group=self._group))
        there = block.to(self._device)
        self._exchanged(lambda: dist.broadcast(there, self._first, group=self._group))

    def _hear(self) -> tuple[Any, dict[str, torch.Tensor]]:
        """What the first process said; what ended it is raised."""
        size = torch.zeros(1, dtype=torch.int64, device=self._device)
        self._exchanged(lambda: dist.broadcast(size, self._first, group=self._group))
        block = torch.empty(int(size), dtype=torch.uint8, device=self._device)
        self._exchanged(lambda: dist.broadcast(block, self._first, group=self._group))
        said, tensors = from_shared(block.cpu())
        self._over = said is None or isinstance(said, _Word)
        if isinstance(said, _Word):
            assert said.error is not None
            raise said.error
        return said, tensors

    @property
    def _device(self) -> torch.device:
        nccl = "nccl" in str(dist.get_backend(self._group)).lower()
        return torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")

    def _exchanged(self, exchange: Callable[[], Any]) -> None:
        try:
            exchange()
        except RuntimeError as error:
            self._over = True
            raise RankMissing(
                f"{self._peers.name} has lost the other processes of its replica",
                found=str(error).splitlines()[0] if str(error) else type(error).__name__,
                todo="look at their logs, and resume from the last checkpoint; all that was handed over is recorded",
            ) from error


class _Compared:
    """A reading that goes on only where all processes of the replica have read the same."""

    def __init__(self, replica: Replica, reading: Iterator[Fed]) -> None:
        self._replica = replica
        self._reading = reading

    def __iter__(self) -> Iterator[Fed]:
        return self

    def __next__(self) -> Fed:
        fed = self._replica.compared(lambda: next(self._reading, None))
        if fed is None:
            raise StopIteration
        return fed

    def close(self) -> None:
        """End what reads."""
        close: Callable[[], None] | None = getattr(self._reading, "close", None)
        if close is not None:
            close()
