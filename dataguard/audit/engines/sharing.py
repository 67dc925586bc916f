"""Which tasks are better done by one process, one after the other?

A compressed stream can only be decoded from its beginning, so tasks that begin in the midst of one stream are dealt to
one process, which decodes it once (`Supply`). Tasks that share no stream stand alone. A run of tasks also ends where
going on elsewhere means to decode little again, a quarter of what the run holds at most: otherwise a corpus of many
small compressed shards, in which each task ends in the midst of one, would be a single run.
"""

from __future__ import annotations

from collections.abc import Sequence

from dataguard.audit.supply import is_stream
from dataguard.audit.tasks import Task
from dataguard.core.manifest import Manifest

__all__ = ["share_streams"]

_MOST_AGAIN = 4
"""A run holds at least so many times what its end makes another process decode again."""


def share_streams(manifest: Manifest, tasks: Sequence[Task]) -> list[tuple[Task, ...]]:
    """Tasks, in order, as runs of tasks, in order.

    >>> import numpy as np
    >>> from dataguard.audit.tasks import plan_tasks
    >>> from dataguard.core.manifest import BLOCK_DTYPE, REJECTED_DTYPE, Shard, Source
    >>> source = Source(name="web", kind="text", text_field="text")
    >>> shards = [Shard(source=0, path=path, format="jsonl", compression=how, item_type="", size_bytes=9, digest="",
    ...                 num_rows=4, effect="clean") for path, how in (("a", "none"), ("b", "zstd"), ("c", "zstd"))]
    >>> blocks = np.zeros(12, BLOCK_DTYPE)
    >>> blocks["shard"], blocks["num_rows"], blocks["content_bytes"] = np.repeat([0, 1, 2], 4), 1, 900
    >>> manifest = Manifest(sources=(source,), shards=tuple(shards), blocks=blocks, codes=(),
    ...                     rejected=np.zeros(0, REJECTED_DTYPE))
    >>> tasks = plan_tasks(manifest, task_bytes=1000)
    >>> [[task.number for task in run] for run in share_streams(manifest, tasks)]
    [[0], [1], [2], [3], [4, 5, 6, 7], [8, 9, 10, 11]]
    """
    blocks = manifest.blocks
    runs: list[list[Task]] = []
    content_bytes = 0
    for task in tasks:
        shard = int(blocks["shard"][task.start])
        again = 0
        if is_stream(manifest.shards[shard]):
            first = int(manifest.block_starts[shard])
            again = int(blocks["content_bytes"][first : task.start].sum())
        is_shared = bool(runs) and int(blocks["shard"][runs[-1][-1].stop - 1]) == shard
        if is_shared and again * _MOST_AGAIN > content_bytes:
            runs[-1].append(task)
            content_bytes += task.content_bytes
        else:
            runs.append([task])
            content_bytes = task.content_bytes
    return [tuple(run) for run in runs]
