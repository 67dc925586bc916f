"""A small good file of every registered format, for the tests that damage it.

A new format without an entry here fails tests/corpus/formats/test_damage.py.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.corpus.formats.archives import webdataset
from tests.corpus.formats.support import MemoryShard
from tests.corpus.making import mds_array, mds_shard, mds_texts, megatron_files

__all__ = ["SAMPLES", "Sample"]

TEXTS = ["one", "two \u20ac", "", "four four", "five"]


def _never(_: bytes) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A good file and what may be said of its beginnings."""

    content: bytes
    path: str
    is_legal_end: Callable[[bytes], bool] = _never
    """Whether a beginning of the file is a good file of fewer records (or of the same)."""
    is_stream: bool = True
    """Whether what is delivered of a cut file is a beginning of what the good one holds; else any part of it."""
    has_end: bool = True
    """Whether bytes behind a good file can be told from its own."""
    compressions: tuple[str, ...] = ("none", "gzip", "zstd")
    companion: tuple[str, bytes] | None = None
    """Path and content of the other file of the shard, which stays whole."""
    is_companion: bool = False
    """Whether `content` is the companion and `companion` the shard's own file."""
    options: dict[str, Any] = field(default_factory=dict)

    def shard(self, packed: bytes, compression: str) -> MemoryShard:
        """The shard of which this file holds these bytes now."""
        shard = MemoryShard(packed, self.path, compression)
        if self.companion is None:
            return shard
        path, content = self.companion
        other = MemoryShard(content, path, "none")
        own, companion = (other, shard) if self.is_companion else (shard, other)
        own.companions = [companion]
        return own


def _json_lines() -> bytes:
    return b"".join(json.dumps({"text": text, "id": i}).encode() + b"\n" for i, text in enumerate(TEXTS))


def _whole_lines(beginning: bytes) -> bool:
    try:
        return all(isinstance(json.loads(line), dict) for line in beginning.split(b"\n") if line.strip())
    except ValueError:
        return False


def _npy() -> bytes:
    sink = io.BytesIO()
    np.save(sink, np.arange(50, dtype="<u2"))
    return sink.getvalue()


def _parquet() -> bytes:
    sink = io.BytesIO()
    table = pa.table({"text": TEXTS})
    pq.write_table(table, sink, row_group_size=2, write_page_checksum=True, compression="none", store_schema=False)
    return sink.getvalue()


def _arrow() -> bytes:
    sink = io.BytesIO()
    table = pa.table({"text": TEXTS})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return sink.getvalue()


def _arrow_file() -> bytes:
    sink = io.BytesIO()
    table = pa.table({"text": TEXTS})
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return sink.getvalue()


def _tar() -> bytes:
    whole = webdataset({"0": {"txt": b"one", "json": b"{}"}, "1": {"txt": "two \u20ac".encode()}})
    return whole[: _TAR_MEMBERS_BYTES + 1024]  # without the padding to 10,240 bytes


_TAR_MEMBERS_BYTES = 3 * 1024


def _has_end_mark(beginning: bytes) -> bool:
    return len(beginning) >= _TAR_MEMBERS_BYTES + 512


def _mds_ids(encoding: str, value: bytes) -> bytes:
    return mds_shard({"tokens": (encoding, None)}, [{"tokens": value}] * 4)


_BIN, _IDX = megatron_files([[1, 2, 3], [], [4, 5], [6, 7, 8, 9]])

SAMPLES: dict[str, list[Sample]] = {
    "arrow": [
        Sample(content=_arrow(), path="x.arrows", compressions=("none",)),
        Sample(content=_arrow_file(), path="x.arrow", compressions=("none",)),
    ],
    "jsonl": [
        Sample(content=_json_lines(), path="x.jsonl", is_legal_end=_whole_lines),
        Sample(content=_json_lines(), path="x.jsonl", is_legal_end=_whole_lines, options={"block_bytes": 40}),
    ],
    "mds": [
        Sample(content=mds_texts(TEXTS), path="x.mds"),
        Sample(content=mds_texts(TEXTS), path="x.mds", options={"block_bytes": 40}),
    ],
    "mds-tokens": [
        Sample(content=_mds_ids("ndarray:uint16", mds_array([1, 2, 3])), path="x.mds"),
        Sample(content=_mds_ids("ndarray", mds_array([1, 2, 3], told=True)), path="x.mds", options={"block_tokens": 2}),
        Sample(content=_mds_ids("bytes", bytes(6)), path="x.mds", options={"dtype": "<u2"}),
    ],
    "megatron": [
        Sample(content=_BIN, path="x.bin", companion=("x.idx", _IDX), compressions=("none",)),
        Sample(content=_IDX, path="x.idx", companion=("x.bin", _BIN), is_companion=True, compressions=("none",)),
    ],
    "npy": [Sample(content=_npy(), path="x.npy", options={"block_tokens": 16})],
    "parquet": [Sample(content=_parquet(), path="x.parquet", is_stream=False, compressions=("none",))],
    "raw": [
        Sample(
            content=np.arange(50, dtype="<u2").tobytes(),
            path="x.bin",
            is_legal_end=lambda beginning: len(beginning) % 2 == 0,
            has_end=False,
            options={"dtype": "uint16", "block_tokens": 16},
        )
    ],
    "text": [Sample(content="one\u20ac two\n".encode(), path="x.txt", is_legal_end=lambda _: True)],
    "webdataset": [Sample(content=_tar(), path="x.tar", is_legal_end=_has_end_mark)],
}
"""Format -> small good files of it."""
