"""Small shards for the tests of this room."""

from __future__ import annotations

import gzip
import json
import struct
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


def megatron_files(
    sequences: Sequence[Sequence[int]], documents: Sequence[int] | None = None, *, code: int = 8, modes: bool = False
) -> tuple[bytes, bytes]:
    """The ``.bin`` and ``.idx`` of these sequences; `documents` are the entries, one sequence each if not given."""
    item = np.dtype({1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}[code])
    lengths = [len(sequence) for sequence in sequences]
    entries = range(len(sequences) + 1) if documents is None else documents
    content = b"".join(np.array(sequence, item).tobytes() for sequence in sequences)
    index = megatron_idx(lengths, entries, code=code, item_bytes=item.itemsize)
    return content, index + (np.zeros(len(lengths), "i1").tobytes() if modes else b"")


def megatron_idx(lengths: Sequence[int], entries: Iterable[int], *, code: int = 8, item_bytes: int = 2) -> bytes:
    """An ``.idx`` over sequences of these lengths, without any ``.bin``."""
    pointers, at = [], 0
    for length in lengths:
        pointers.append(at)
        at += length * item_bytes
    listed = list(entries)
    return b"".join(
        (
            struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, code, len(lengths), len(listed)),
            np.array(lengths, "<i4").tobytes(),
            np.array(pointers, "<i8").tobytes(),
            np.array(listed, "<i8").tobytes(),
        )
    )


def megatron(prefix: Path, sequences: Sequence[Sequence[int]], documents: Sequence[int] | None = None) -> Path:
    """A pair on disk; the path of its ``.bin``."""
    content, index = megatron_files(sequences, documents)
    put(prefix.with_suffix(".idx"), index)
    return put(prefix.with_suffix(".bin"), content)


def mds_shard(columns: dict[str, tuple[str, int | None]], samples: Sequence[dict[str, bytes]]) -> bytes:
    """One MDS shard: columns are name -> (encoding, size), samples name -> encoded value."""
    told = {
        "column_encodings": [encoding for encoding, _ in columns.values()],
        "column_names": list(columns),
        "column_sizes": [size for _, size in columns.values()],
        "compression": None, "format": "mds", "hashes": [], "size_limit": 1 << 26, "version": 2,
    }  # fmt: skip
    document = json.dumps(told, sort_keys=True).encode()
    bodies = []
    for sample in samples:
        head = b"".join(struct.pack("<I", len(sample[name])) for name, (_, size) in columns.items() if size is None)
        bodies.append(head + b"".join(sample[name] for name in columns))
    start = 4 * (len(bodies) + 2) + len(document)
    offsets = np.cumsum([start, *(len(body) for body in bodies)])
    return struct.pack("<I", len(bodies)) + offsets.astype("<u4").tobytes() + document + b"".join(bodies)


def mds_texts(texts: Sequence[str]) -> bytes:
    """An MDS shard with a text, an id and a float each."""
    columns = {"id": ("int", 8), "text": ("str", None), "score": ("float32", 4)}
    samples = [
        {"id": struct.pack("<q", i), "text": text.encode(), "score": struct.pack("<f", i / 2)}
        for i, text in enumerate(texts)
    ]
    return mds_shard(columns, samples)


def mds_array(ids: Sequence[int], kind: str = "<u2", *, told: bool = False) -> bytes:
    """Ids as an ``ndarray`` column holds them, with their shape; with their type as well where that is `told`."""
    codes = {"u1": 8, "i1": 9, "u2": 16, "i2": 17, "u4": 32, "i4": 33, "u8": 64, "i8": 65}
    type_byte = bytes([codes[kind.strip("<|")]]) if told else b""
    width = 0 if len(ids) < 256 else 1
    return type_byte + bytes([1 << 2 | width]) + len(ids).to_bytes(1 + width, "little") + np.array(ids, kind).tobytes()


def mds_index(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"version": 2, "shards": list(entries)}).encode()


def mds_entry(name: str, content: bytes, packed: tuple[str, bytes, str] | None = None, **other: Any) -> dict[str, Any]:
    """What an index says of a shard; `packed` is (name, content, compression)."""
    num_samples = int.from_bytes(content[:4], "little")
    start = 4 * (num_samples + 2)
    told = json.loads(content[start : int.from_bytes(content[4:8], "little")])
    entry = {**told, "raw_data": {"basename": name, "bytes": len(content), "hashes": {}}, "samples": num_samples}
    entry["zip_data"] = None
    if packed:
        entry["zip_data"] = {"basename": packed[0], "bytes": len(packed[1]), "hashes": {}}
        entry["compression"] = packed[2]
    return {**entry, **other}
