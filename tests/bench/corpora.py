"""Bytes for the benchmarks that read: Parquet shards of documents from a keyed generator, and real texts."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path
from pydoc_data import topics

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.corpus import Corpus

__all__ = ["parquet_corpus", "real_documents"]

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


def real_documents(num_bytes: int) -> list[str]:
    """Documentation and code that come with Python, two parts to three, as documents of 4 kB and a little more.

    Both are cut at blank lines. What is not valid UTF-8 is left out; there may be less of it than asked for.
    """
    prose = _cut(iter(topics.topics.values()), num_bytes * 2 // 5)
    code = _cut(_modules(), num_bytes - sum(map(len, prose)))
    return [*prose, *code]


def _modules() -> Iterator[str]:
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        try:
            yield path.read_bytes().decode()
        except UnicodeDecodeError:
            continue


def _cut(texts: Iterator[str], num_bytes: int) -> list[str]:
    """Pieces of at least 4,000 characters where there is so much, together about `num_bytes`."""
    documents: list[str] = []
    total = 0
    for text in texts:
        start = 0
        while start < len(text) and total < num_bytes:
            stop = text.find("\n\n", start + 4_000)
            stop = len(text) if stop < 0 else stop + 2
            documents.append(text[start:stop])
            total += stop - start
            start = stop
    return documents
