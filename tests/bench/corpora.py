"""Real bytes for the benchmarks that read: Parquet shards of documents of some kilobytes, from a keyed generator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.corpus import Corpus

__all__ = ["parquet_corpus"]

_WORDS = [f"{first}{second}{third}" for first in "bdglmnprst" for second in "aeiou" for third in ("n", "st", "r", "l")]


def parquet_corpus(
    folder: Path,
    *,
    num_shards: int,
    groups_of_shard: int,
    rows_of_group: int,
    words_of_document: int = 400,
    statistics: bool = True,
) -> Corpus:
    """Shards under ``folder/web`` (zstd, one column ``text``), and their manifest ``folder/M.parquet``.

    A document is a random stretch of a text of 2 MB, 400 words (1.6 kB) on average. With `statistics`, which is what
    writers do unless told otherwise, the footer holds the smallest and the largest document of every row group.
    """
    source = folder / "web"
    source.mkdir(parents=True)
    dice = np.random.default_rng(17)
    text = " ".join(np.array(_WORDS)[dice.integers(0, len(_WORDS), 500_000)].tolist())
    mean = words_of_document * 4
    for shard in range(num_shards):
        num_rows = groups_of_shard * rows_of_group
        starts = dice.integers(0, len(text) - 10 * mean, num_rows)
        lengths = np.minimum(dice.exponential(mean, num_rows).astype(np.int64) + 20, 9 * mean)
        rows = [
            f"{shard}:{row} {text[start : start + length]}"
            for row, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True))
        ]
        table = pa.table({"text": rows})
        pq.write_table(
            table, source / f"{shard:05d}.parquet", row_group_size=rows_of_group, compression="zstd",
            write_page_checksum=True, use_dictionary=False, write_statistics=statistics,
        )  # fmt: skip
    build_manifest_file([str(source)], folder / "M.parquet", num_workers=1)
    return Corpus.open(folder / "M.parquet")
