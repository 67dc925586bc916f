"""Which decoded blocks are still at hand?

A least-recently-used cache bounded in bytes. Threads that ask for the same block at once wait for one load (single
flight); a load that fails fails for all who waited, and is not kept. A process that was forked begins with an empty
cache and fresh locks, for a lock that some thread of the parent held would never open again.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, Protocol, TypeVar

__all__ = ["BlockCache", "Sized"]


class Sized(Protocol):
    """What can be kept: it knows its size."""

    @property
    def num_bytes(self) -> int:
        """Bytes of memory it holds."""
        ...


T = TypeVar("T", bound=Sized)


class BlockCache(Generic[T]):
    """Decoded blocks by key, at most `limit_bytes` of them together.

    One value larger than the limit is handed out and not kept.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, T] = OrderedDict()
        self._flights: dict[Hashable, Future[T]] = {}
        self._held_bytes = 0
        self._pid = os.getpid()

    @property
    def held_bytes(self) -> int:
        """Bytes kept at the moment."""
        return self._held_bytes

    def __contains__(self, key: Hashable) -> bool:
        return self._pid == os.getpid() and key in self._kept

    def get(self, key: Hashable, load: Callable[[], T]) -> T:
        """The value of a key, loaded by one thread if it is not kept."""
        if self._pid != os.getpid():
            self._begin()
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            flight = self._flights.get(key)
            is_mine = flight is None
            if flight is None:
                flight = self._flights[key] = Future()
        if not is_mine:
            return flight.result()
        try:
            value = load()
        except BaseException as error:
            with self._lock:
                del self._flights[key]
            flight.set_exception(error)
            raise
        with self._lock:
            del self._flights[key]
            self._keep(key, value)
        flight.set_result(value)
        return value

    def _keep(self, key: Hashable, value: T) -> None:
        if value.num_bytes > self.limit_bytes:
            return
        self._kept[key] = value
        self._held_bytes += value.num_bytes
        while self._held_bytes > self.limit_bytes:
            _, gone = self._kept.popitem(last=False)
            self._held_bytes -= gone.num_bytes

    def drop(self, key: Hashable) -> None:
        """Forget one value."""
        with self._lock:
            gone = self._kept.pop(key, None)
            if gone is not None:
                self._held_bytes -= gone.num_bytes
