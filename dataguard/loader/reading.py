"""Who reads the planned microbatches ahead of the trainer?

A `Reading` turns what is planned into what was read and judged, in the same order; threads of this process do it, or
an adapter's own worker processes. It may be ahead by as much as it likes: nothing counts before it is handed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from dataguard.loader.feed import Fed, Feeder
from dataguard.loader.feeding import Feeding
from dataguard.loader.prefetch import ahead
from dataguard.loader.walk import Planned

__all__ = ["Reading", "reading_by_threads"]

Reading = Callable[[Feeding, Feeder, Iterable[Planned]], Iterator[Fed]]
"""What another process needs, what this one feeds with, and what is planned; out come the results, in order.

What is planned may be advanced in the consumer's thread alone. An exception is raised where its result would have come.
Closing the iterator ends whatever it started."""


def reading_by_threads(num_threads: int, depth: int) -> Reading:
    """Threads of this process; with none of them, at hand-over."""

    def read(_: Feeding, feeder: Feeder, planned: Iterable[Planned]) -> Iterator[Fed]:
        return ahead(feeder.feed, planned, num_threads=num_threads, depth=depth)

    return read
