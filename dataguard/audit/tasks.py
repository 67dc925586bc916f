"""Which blocks make one unit of work?

Blocks of a manifest, in its order, are dealt to tasks: a run of neighbours, of one shard or of many, whose content and
rows together are about the same amount of work. So a huge shard is many tasks, and a thousand small ones are a few.
Where a task begins is a function of the manifest and of nothing else: whoever goes on with an audit, on any machine,
has the same tasks.

Samples of text are records, and a block has as many as it has rows. Samples of token shards are windows of `seq_len`
tokens; a window belongs to the block in which it begins, and the last one of a shard may be short.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataguard.core.manifest import Manifest

__all__ = ["ROW_COST_BYTES", "TASK_BYTES", "Task", "num_samples", "plan_tasks", "windows_of_block"]

TASK_BYTES = 8 << 20
"""Work of one task: bytes of content, and `ROW_COST_BYTES` for every row."""

ROW_COST_BYTES = 128
"""What a row costs beside its bytes, so that many small records do not become one task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A run of blocks, ``start:stop``."""

    number: int
    """0-based, in the order of the manifest."""
    start: int
    stop: int
    content_bytes: int
    """Bytes of content of its blocks, by the manifest; of a sample of it, all the same."""


def plan_tasks(manifest: Manifest, *, task_bytes: int = TASK_BYTES) -> tuple[Task, ...]:
    """The tasks of a manifest: every block is in exactly one of them.

    >>> from dataguard.core.manifest import BLOCK_DTYPE, REJECTED_DTYPE, Shard, Source
    >>> source = Source(name="web", kind="text", text_field="text")
    >>> shard = Shard(source=0, path="a", format="jsonl", compression="none", item_type="", size_bytes=9, digest="",
    ...               num_rows=3, effect="clean")
    >>> blocks = np.zeros(3, BLOCK_DTYPE)
    >>> blocks["first_row"], blocks["num_rows"], blocks["content_bytes"] = [0, 1, 2], 1, [500, 10, 10]
    >>> manifest = Manifest(sources=(source,), shards=(shard,), blocks=blocks, rejected=np.zeros(0, REJECTED_DTYPE),
    ...                     codes=())
    >>> [(task.start, task.stop, task.content_bytes) for task in plan_tasks(manifest, task_bytes=600)]
    [(0, 1, 500), (1, 3, 20)]
    """
    blocks = manifest.blocks
    # tokens have as many rows as ids, and cost what their bytes cost
    is_text = np.array([manifest.sources[shard.source].kind == "text" for shard in manifest.shards], dtype=bool)
    rows = np.where(is_text[blocks["shard"]], blocks["num_rows"], 0) if len(blocks) else blocks["num_rows"]
    ends = np.cumsum(blocks["content_bytes"] + ROW_COST_BYTES * rows)
    content = np.cumsum(blocks["content_bytes"])
    tasks: list[Task] = []
    start = done = told = 0
    while start < len(blocks):
        # up to and with the block that reaches the amount
        stop = min(int(np.searchsorted(ends, done + task_bytes, side="left")) + 1, len(blocks))
        upto = int(content[stop - 1])
        tasks.append(Task(number=len(tasks), start=start, stop=stop, content_bytes=upto - told))
        start, done, told = stop, int(ends[stop - 1]), upto
    return tuple(tasks)


def windows_of_block(first_row: int, num_rows: int, seq_len: int) -> range:
    """The windows of a token shard that begin in a block of it.

    >>> windows_of_block(0, 10, 4), windows_of_block(10, 10, 4), windows_of_block(9, 3, 4)
    (range(0, 3), range(3, 5), range(3, 3))
    """
    return range(-(-first_row // seq_len), -(-(first_row + num_rows) // seq_len))


def num_samples(manifest: Manifest, *, seq_len: int) -> NDArray[np.int64]:
    """Samples of every block, rejected ones among them, int64, shape (blocks,)."""
    blocks = manifest.blocks
    is_text = np.array([manifest.sources[shard.source].kind == "text" for shard in manifest.shards], dtype=bool)
    first, stop = blocks["first_row"], blocks["first_row"] + blocks["num_rows"]
    windows = -(-stop // seq_len) - -(-first // seq_len)
    return np.where(is_text[blocks["shard"]], blocks["num_rows"], windows).astype(np.int64)
