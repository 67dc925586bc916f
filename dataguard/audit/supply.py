"""Where do a task's decoded blocks come from, when several tasks share one stream?

A shard with random access is walked by each task for itself. One that is a compressed stream can only be decoded from
its beginning; it is decoded once for all tasks of this process: they take their blocks from it in their order, one at
a time, and score them side by side. A task that is early waits. Tasks are begun in their order, so whoever is waited
for has begun.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from dataguard.audit.job import Job, Segment
from dataguard.audit.tasks import Task
from dataguard.core.manifest import Shard
from dataguard.corpus.blocks import DecodedBlock
from dataguard.corpus.problems import Retry
from dataguard.corpus.recognition import format_named
from dataguard.corpus.shard_file import ByteCounter
from dataguard.corpus.shards import BlockProblem, Shards

__all__ = ["Found", "GivenUp", "Supply", "is_stream"]

Found = DecodedBlock | BlockProblem


class GivenUp(Exception):  # noqa: N818 - no error of its own: another task's ended the work
    """The work was given up while this task waited for its blocks."""


class Supply:
    """Decoded blocks for the tasks of one process. Safe for several threads.

    Parameters
    ----------
    job
        What is scored.
    tasks
        All that will be done here, in the order in which they will be begun.
    retry, sleep
        How storage that fails is asked again.
    """

    def __init__(
        self,
        job: Job,
        tasks: Sequence[Task],
        *,
        retry: Retry | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.job = job
        self.counter = ByteCounter()
        self._shards = Shards([job.corpus], cache=None, retry=retry or Retry(), counter=self.counter, sleep=sleep)
        self._change = threading.Condition()
        self._given_up = False
        self._streams: dict[int, _Stream] = {}
        owners = job.corpus.manifest.blocks["shard"]
        for task in tasks:
            # Only the first and the last shard of a task can belong to other tasks too
            for shard in sorted({int(owners[task.start]), int(owners[task.stop - 1])}):
                if self._touches(task, shard) and is_stream(job.corpus.manifest.shards[shard]):
                    self._streams.setdefault(shard, _Stream()).order.append(task)

    def blocks(self, task: Task, segment: Segment) -> Iterator[tuple[int, Found]]:
        """The needed blocks of a task's segment, with their numbers, in order.

        Raises
        ------
        GivenUp
            `give_up` was called.
        """
        stream = self._streams.get(segment.shard)
        if stream is None or (len(stream.order) == 1 and not stream.has_begun):
            for block, found in zip(segment.needed, self._shards.walk(segment.needed), strict=True):
                if self._given_up:
                    raise GivenUp
                yield block, found
            return
        yield from self._taken(stream, task, segment)

    def give_up(self) -> None:
        """End every wait: the work has failed elsewhere, or was interrupted."""
        with self._change:
            self._given_up = True
            self._change.notify_all()

    def _touches(self, task: Task, shard: int) -> bool:
        return any(segment.shard == shard for segment in self.job.segments(task))

    def _taken(self, stream: _Stream, task: Task, segment: Segment) -> list[tuple[int, Found]]:
        """All blocks of the segment at once, so that the next task can have its own."""
        with self._change:
            self._change.wait_for(lambda: self._given_up or stream.order[0] is task)
            if self._given_up:
                raise GivenUp
        if stream.walk is None:
            wanted = [
                block
                for each in stream.order
                for part in self.job.segments(each)
                if part.shard == segment.shard
                for block in part.needed
            ]
            blocks = sorted(set(wanted))
            stream.walk = zip(blocks, self._shards.walk(blocks), strict=True)
            stream.has_begun = True
        taken: list[tuple[int, Found]] = []
        for block in segment.needed:
            while block not in stream.kept:
                number, found = next(stream.walk)
                stream.kept[number] = found
            taken.append((block, stream.kept[block]))
        with self._change:
            stream.order.popleft()
            # a window may reach into a block that the next task begins with
            last = segment.needed[-1]
            stream.kept = {number: found for number, found in stream.kept.items() if stream.order and number >= last}
            if not stream.order:
                stream.walk = None
            self._change.notify_all()
        return taken


def is_stream(shard: Shard) -> bool:
    """Whether a shard can only be decoded from its beginning."""
    return shard.compression != "none" or not format_named(shard.format).random_access


class _Stream:
    """One compressed shard while it is decoded."""

    def __init__(self) -> None:
        self.order: deque[Task] = deque()
        """Tasks that have not had their blocks, in order."""
        self.walk: Iterator[tuple[int, Found]] | None = None
        self.has_begun = False
        self.kept: dict[int, Found] = {}
        """Blocks that were decoded, and that a later task may need again."""
