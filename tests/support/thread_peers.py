"""A launch whose ranks are threads of this process: `Peers` without a process group, for every way to fail in turn."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dataguard.errors import RankMissing

SECONDS = 20.0
"""Nobody waits longer: a rank that hangs fails the test."""


class ThreadGroup:
    """What the ranks of one launch share."""

    def __init__(self, world_size: int, *, wait_seconds: float = SECONDS) -> None:
        self.world_size = world_size
        self.barrier = threading.Barrier(world_size)
        self.values: list[Any] = [None] * world_size
        self.wait_seconds = wait_seconds


class ThreadPeers:
    """One rank of a `ThreadGroup`. Ranks of a launch make the same calls in the same order."""

    def __init__(self, group: ThreadGroup, rank: int) -> None:
        self.group = group
        self.rank = rank
        self.calls: list[str] = []

    @property
    def name(self) -> str:
        return f"rank {self.rank}"

    @property
    def records(self) -> bool:
        return True

    @property
    def device(self) -> str | None:
        return f"cpu:{self.rank}"

    def gather(self, value: Any) -> list[Any]:
        self.calls.append("gather")
        return self._exchange(value)

    def broadcast(self, value: Any) -> Any:
        self.calls.append("broadcast")
        return self._exchange(value)[0]

    def _exchange(self, value: Any) -> list[Any]:
        self.group.values[self.rank] = value
        try:
            self.group.barrier.wait(self.group.wait_seconds)
            values = list(self.group.values)
            self.group.barrier.wait(self.group.wait_seconds)
        except threading.BrokenBarrierError:
            raise RankMissing(f"rank {self.rank} waited in vain") from None
        return values


def in_threads(world_size: int, work: Callable[[int], Any]) -> list[Any]:
    """Do something as every rank at once: what each returns, or the exception it raises, in order of rank."""

    def tried(rank: int) -> Any:
        try:
            return work(rank)
        except Exception as error:  # noqa: BLE001
            return error

    with ThreadPoolExecutor(world_size) as pool:
        return [future.result(2 * SECONDS) for future in [pool.submit(tried, rank) for rank in range(world_size)]]
