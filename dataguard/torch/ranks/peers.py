"""How do the ranks of a process group speak to each other before the first step, without ever waiting for ever?

torch's own object collectives wait as long as their group was told to (10 to 30 minutes), and a rank that does not come
ends them by an abort (NCCL) or without a name. So what ranks tell each other here goes through the key-value store that
the process group met by: it needs no device, waits exactly as long as it is told, and shows who has not come.

1. `gather`: each rank puts its value, rank 0 takes all of them and puts the list, which the others take.
2. `broadcast`: rank 0 puts its value, the others take it.
3. Whoever fails before a call says so (`announce`), and every rank that waits ends with those words at once. So does
   whoever waited in vain: it names the ranks that did not come. What failed once stays failed.

These are a few small values at the start of an attempt; nothing of it happens while training.
"""

from __future__ import annotations

import hashlib
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from dataguard.errors import RankMissing, RanksDisagree

__all__ = ["GroupPeers", "StorePeers", "device_name"]

_FIRST_PAUSE_SECONDS = 0.001
_LAST_PAUSE_SECONDS = 0.1
_SHOWN = 16

_SESSIONS: Counter[str] = Counter()
"""How many launches each set of ranks has begun in this process. All ranks count alike, so their keys meet; it goes on
counting where a group is made anew, so no key of an earlier one is taken for a new one. Who stayed away from a launch
without a word counts one less from then on, and is missed at the next one as well: it takes new processes."""


class StorePeers:
    """Ranks that share a key-value store.

    Parameters
    ----------
    store
        What they share.
    rank, world_size
        Place of this one among them.
    name
        The same on all of them, another for every other set of ranks.
    names
        What each rank is called in messages.
    timeout_seconds
        How long one call waits for the others.
    device
        Where this rank computes, for people.

    Examples
    --------
    >>> alone = StorePeers(dist.HashStore(), rank=0, world_size=1, name="doctest")
    >>> alone.gather("here"), alone.broadcast("all")
    (['here'], 'all')
    """

    def __init__(
        self,
        store: distributed_c10d.Store,
        *,
        rank: int,
        world_size: int,
        name: str,
        names: Sequence[str] = (),
        timeout_seconds: float = 120.0,
        device: str | None = None,
        session: int | None = None,
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self._store = store
        self._name = name
        self._names = list(names) or [f"rank {other}" for other in range(world_size)]
        self._timeout_seconds = timeout_seconds
        self._device = device
        self._session = session
        self._num_calls = 0

    @property
    def name(self) -> str:
        """What this process is called in messages."""
        return self._names[self.rank]

    @property
    def records(self) -> bool:
        """Whether it reads for its rank and records: every one of these does."""
        return True

    @property
    def device(self) -> str | None:
        """Where this rank computes, for people; None where nobody said."""
        return self._device

    @property
    def num_launches(self) -> int:
        """Launches of these ranks in which this process has said something so far."""
        return _SESSIONS[self._name]

    def gather(self, value: Any) -> list[Any]:
        """The picklable value of every rank, in order of rank, on all ranks.

        Raises
        ------
        RankMissing
            Ranks did not come in time, and which; or the store is gone with the process that held it.
        RanksDisagree
            A rank said that it will not come, and why.
        """
        call = self._next_call()
        self._put(f"{call}/{self.rank}", value)
        if self.rank == 0:
            deadline = self._deadline()
            values = [self._take(f"{call}/{other}", deadline, call) for other in range(self.world_size)]
            self._put(f"{call}/all", values)
            return values
        taken: list[Any] = self._take(f"{call}/all", self._deadline(), call)
        return taken

    def broadcast(self, value: Any) -> Any:
        """The picklable value of rank 0, on all ranks; raises as `gather` does."""
        call = self._next_call()
        if self.rank == 0:
            self._put(f"{call}/all", value)
            return value
        return self._take(f"{call}/all", self._deadline(), None)

    def announce(self, error: BaseException) -> None:
        """Say that this rank will not come: whoever waits for it, now or later, ends in its words."""
        self._fail((self.rank, f"{type(error).__name__}: {error}", ()))

    @contextmanager
    def announcing(self) -> Iterator[None]:
        """Announce whatever is raised inside."""
        try:
            yield
        except Exception as error:
            self.announce(error)
            raise

    # -- the store

    def _next_call(self) -> int:
        if self._there("failed"):
            # Ranks may have failed in different calls, so what one of them says now is no answer to another.
            raise self._failure(*self._get("failed"))
        self._num_calls += 1
        return self._num_calls

    def _deadline(self) -> float:
        return time.monotonic() + self._timeout_seconds

    def _key(self, key: str) -> str:
        if self._session is None:
            # Taken at the first word, since whoever fails before it has none to say.
            self._session = _SESSIONS[self._name]
            _SESSIONS[self._name] += 1
        return f"dataguard/{self._name}/{self._session}/{key}"

    def _put(self, key: str, value: Any) -> None:
        self._asked(lambda: self._store.set(self._key(key), _text(value)))

    def _there(self, key: str) -> bool:
        return bool(self._asked(lambda: self._store.check([self._key(key)])))

    def _get(self, key: str) -> Any:
        text = self._asked(lambda: self._store.get(self._key(key)))
        return pickle.loads(bytes.fromhex(text.decode()))  # noqa: S301 - from ranks of this job, as torch's own objects

    def _take(self, key: str, deadline: float, call: int | None) -> Any:
        """The value under a key, once it is there; `call` is its gather, None where rank 0 alone puts it."""
        pause = _FIRST_PAUSE_SECONDS
        while not self._there(key):
            if self._there("failed"):
                raise self._failure(*self._get("failed"))
            if time.monotonic() >= deadline:
                missing = self._missing(call)
                self._fail((self.rank, f"{self._names[self.rank]} waited {self._timeout_seconds:g} s", missing))
                raise self._failure(*self._get("failed"))
            time.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE_SECONDS)
        return self._get(key)

    def _missing(self, call: int | None) -> tuple[int, ...]:
        """Who has not come to a gather; rank 0 where all have, since it takes them."""
        if call is None:
            return (0,)
        return tuple(other for other in range(self.world_size) if not self._there(f"{call}/{other}")) or (0,)

    def _fail(self, failure: tuple[int, str, tuple[int, ...]]) -> None:
        """The first failure counts, so that all ranks end in the same words."""
        self._asked(lambda: self._store.compare_set(self._key("failed"), "", _text(failure)))

    def _failure(self, rank: int, told: str, missing: tuple[int, ...]) -> RankMissing | RanksDisagree:
        if not missing:
            return RanksDisagree(
                f"{self._names[rank]} could not begin", found=told, todo="mend that rank; no rank was handed anything"
            )
        shown = ", ".join(self._names[other] for other in missing[:_SHOWN])
        more = f" and {len(missing) - _SHOWN:,} more" if len(missing) > _SHOWN else ""
        return RankMissing(
            f"{shown}{more} did not come ({self.world_size:,} were to)",
            found=told,
            allowed="every rank makes its loader and asks it for the first microbatch",
            todo="look at the log of what is missing; where ranks start further apart, give join_timeout_seconds",
        )

    def _asked(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except RuntimeError as error:  # torch's DistStoreError and DistNetworkError are
            raise RankMissing(
                "the store of the process group does not answer",
                found=str(error).splitlines()[0] if str(error) else type(error).__name__,
                allowed="the process that holds it, mostly that of rank 0, lives until all have begun",
                todo="look at the log of that process",
            ) from error


class GroupPeers(StorePeers):
    """The ranks of a process group of any backend: gloo, NCCL or another.

    Parameters
    ----------
    group
        Default: all processes.
    timeout_seconds
        How long one call waits for the others.
    names
        What each of them is called. Default: by its rank in the group.
    """

    def __init__(
        self, group: dist.ProcessGroup | None = None, *, timeout_seconds: float = 120.0, names: Sequence[str] = ()
    ) -> None:
        ranks = dist.get_process_group_ranks(group)
        # The store in which all groups of this process met: there is no public way to it.
        store = distributed_c10d._get_default_store()
        named = [
            f"rank {rank}" if rank == process else f"rank {rank} (process {process} of {dist.get_world_size()})"
            for rank, process in enumerate(ranks)
        ]
        super().__init__(
            store,
            rank=dist.get_rank(group),
            world_size=len(ranks),
            name=hashlib.sha256(",".join(map(str, ranks)).encode()).hexdigest()[:16],
            names=names or named,
            timeout_seconds=timeout_seconds,
            device=device_name(),
        )


def _text(value: Any) -> str:
    """A picklable value as text, since stores compare text."""
    return pickle.dumps(value).hex()


def device_name() -> str:
    """Where this process computes, as far as it has chosen.

    >>> device_name()
    'cpu'
    """
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return f"cuda:{torch.cuda.current_device()}"
    return "cpu"
