"""Small corpora for tests that go from shards to batches. Every record says where it stands: ``SOURCE/path:row``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.formats.protocol import ScanOptions
from tests.corpus.making import jsonl, npy, parquet

Sources = Mapping[str, Mapping[str, int]]
"""Rows (tokens of ``.npy`` shards) of each shard, by source and path; the path's ending says the format."""


def text_of(name: str, row: int) -> str:
    """What the record at ``SOURCE/path:row`` holds; lengths differ."""
    return f"{name}:{row} " + "abcdefghij"[row % 10] * (row * 7 % 23)


def token_of(name: str, place: int) -> int:
    """The id at a place of a token shard: the shard's number in its high bits."""
    return (sum(name.encode()) % 32 << 10) + place


def place_of(record: bytes) -> tuple[str, int]:
    """The shard and row that a delivered record names, read from its text alone."""
    name, _, row = record.decode().partition(" ")[0].rpartition(":")
    assert record.decode() == text_of(name, int(row)), "a record is delivered whole or not at all"
    return name, int(row)


def put_shard(folder: Path, source: str, path: str, num_rows: int, *, group: int = 3) -> Path:
    """Write one shard of ``num_rows`` rows (or tokens)."""
    name = f"{source}/{path}"
    target = folder / source / path
    if target.suffix == ".npy":
        return npy(target, [token_of(name, place) for place in range(num_rows)])
    texts = [text_of(name, row) for row in range(num_rows)]
    return parquet(target, texts, group=group) if target.suffix == ".parquet" else jsonl(target, texts)


def manifest_of(folder: Path, names: Sequence[str], *, output: str = "M.parquet", **options: Any) -> Path:
    """Build the manifest of sources that lie in ``folder`` under their names; `options` are of the scan."""
    made_of = [f"{name}={folder / name}" for name in names]
    build_manifest_file(made_of, folder / output, num_workers=1, options=ScanOptions(**options))
    return folder / output


def make_corpus(folder: Path, sources: Sources, *, group: int = 3, output: str = "M.parquet", **options: Any) -> Corpus:
    """Write shards and manifest, and open them; Parquet shards have blocks of ``group`` rows."""
    for source, shards in sources.items():
        for path, num_rows in shards.items():
            put_shard(folder, source, path, num_rows, group=group)
    return Corpus.open(manifest_of(folder, list(sources), output=output, **options))


def damage(path: Path, old: bytes, new: bytes) -> None:
    """Replace bytes of a shard by as many others."""
    content = path.read_bytes()
    assert len(old) == len(new)
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, new))


def window_place(ids: np.ndarray, names: Sequence[str]) -> tuple[str, int]:
    """The token shard and first place that a delivered window names, read from its ids alone."""
    first = int(ids[0])
    (name,) = [name for name in names if sum(name.encode()) % 32 == first >> 10]
    assert ids.tolist() == [token_of(name, (first & 1023) + i) for i in range(len(ids))]
    return name, first & 1023
