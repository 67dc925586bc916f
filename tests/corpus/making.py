"""Small shards for the tests of this room."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zstandard


def lines(texts: Iterable[Any], **fields: Any) -> bytes:
    """JSON lines with a text each."""
    return b"".join(json.dumps({"text": text, **fields}, ensure_ascii=False).encode() + b"\n" for text in texts)


def put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def jsonl(path: Path, texts: Iterable[Any], **fields: Any) -> Path:
    """JSON lines, compressed as the name says."""
    content = lines(texts, **fields)
    if path.suffix == ".gz":
        content = gzip.compress(content, mtime=0)
    elif path.suffix == ".zst":
        content = zstandard.ZstdCompressor(write_checksum=True).compress(content)
    return put(path, content)


def parquet(path: Path, texts: Sequence[str | None], *, group: int = 3, column: str = "text") -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"id": list(range(len(texts))), column: pa.array(texts, pa.string())})
    pq.write_table(table, path, row_group_size=group)
    return path


def npy(path: Path, ids: Sequence[int], kind: str = "<u2") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, np.array(ids, kind))
    return path


def flip(path: Path, offset: int) -> None:
    """Change one byte."""
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x01
    path.write_bytes(bytes(content))
