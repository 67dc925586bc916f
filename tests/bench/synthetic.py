"""Manifests of any size without a byte of data behind them, for what the plan alone costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dataguard.core.manifest import BLOCK_DTYPE, REJECTED_DTYPE, Manifest, Shard, Source

__all__ = ["manifest_of"]

_BLOCKS_OF_SHARD = 64


def manifest_of(num_blocks: int, rows_of_block: int, *, sources: Sequence[str] = ("web",)) -> Manifest:
    """A manifest of Parquet shards of 64 blocks, the blocks shared out over the sources."""
    names = sorted(sources)
    shards, blocks = [], []
    for source in range(len(names)):
        left = num_blocks // len(names)
        for number in range(-(-left // _BLOCKS_OF_SHARD)):
            size = min(_BLOCKS_OF_SHARD, left - number * _BLOCKS_OF_SHARD)
            entries = np.zeros(size, BLOCK_DTYPE)
            entries["shard"], entries["offset_bytes"] = len(shards), -1
            entries["first_row"], entries["num_rows"] = np.arange(size) * rows_of_block, rows_of_block
            entries["group"] = np.arange(size)
            blocks.append(entries)
            shards.append(
                Shard(
                    source=source, path=f"{number:06d}.parquet", format="parquet", compression="none", item_type="",
                    size_bytes=1, digest="0" * 32, num_rows=size * rows_of_block, effect="clean",
                )
            )  # fmt: skip
    return Manifest(
        sources=tuple(Source(name=name, kind="text", text_field="text") for name in names),
        shards=tuple(shards),
        blocks=np.concatenate(blocks),
        rejected=np.zeros(0, REJECTED_DTYPE),
        codes=(),
    )
