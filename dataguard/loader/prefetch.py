"""How is the next microbatch read while the trainer works on this one?

`ahead` maps a function over an iterator with a few threads and hands the results out in order. At most `depth` are
under way or waiting. The iterator itself is only advanced by the consumer, so what it holds needs no lock, and what was
read ahead and never handed over leaves no trace. With no threads the function runs at hand-over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["ahead"]

T = TypeVar("T")
U = TypeVar("U")


def ahead(function: Callable[[T], U], items: Iterable[T], *, num_threads: int, depth: int) -> Iterator[U]:
    """Map in order, `depth` results ahead of the consumer.

    An exception of `function` or of the iterator is raised where its result would have come, after all before it.

    >>> list(ahead(lambda x: x * x, range(5), num_threads=2, depth=3))
    [0, 1, 4, 9, 16]
    """
    if num_threads == 0:
        yield from map(function, items)
        return
    pool = ThreadPoolExecutor(num_threads, thread_name_prefix="dataguard-read")
    waiting: deque[Future[U]] = deque()
    try:
        failure: Exception | None = None
        upcoming = iter(items)
        while True:
            try:
                item = next(upcoming)
            except StopIteration:
                break
            except Exception as error:  # noqa: BLE001 - raised below, when its turn has come
                failure = error
                break
            waiting.append(pool.submit(function, item))
            if len(waiting) > depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
        if failure is not None:
            raise failure
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
