"""What stands in a shard, read the slow and obvious way: the whole file, with the standard tools."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import zstandard


def texts(path: Path, field: str = "text") -> list[bytes | None]:
    """Every stored record's text, None where there is none; good JSON objects only."""
    if path.suffix == ".parquet":
        return [None if text is None else text.encode() for text in pq.read_table(path).column(field).to_pylist()]
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    elif path.suffix == ".zst":
        content = zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True).read()
    records = [json.loads(line) for line in content.split(b"\n") if line.strip()]
    return [r[field].encode() if isinstance(r.get(field), str) else None for r in records]


def windows(path: Path, seq_len: int) -> list[list[int]]:
    """Every whole window of a token shard."""
    ids = np.load(path).reshape(-1)
    return [[int(i) for i in ids[w * seq_len : (w + 1) * seq_len]] for w in range(len(ids) // seq_len)]
