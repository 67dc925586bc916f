"""How do the tests of the formats look at a shard? Scanned, read block by block, and read as a whole: one answer."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from dataguard.core.digests import block_digest
from dataguard.corpus.formats.content import text_digest
from dataguard.corpus.formats.findings import effect_of, shard_effect
from dataguard.corpus.formats.protocol import Declared, Finding, Format, ScanEnd, ScannedBlock, ScanOptions
from dataguard.corpus.formats.streams import detect_compression
from dataguard.errors import ShardDamaged


class MemoryShard:
    """A `ShardFile` over bytes in memory."""

    def __init__(self, content: bytes, path: str = "shard", compression: Any = None) -> None:
        self.content = content
        self.name = f"memory/{path}"
        self.path = path
        self.size_bytes = len(content)
        self.local_path: str | None = None
        self.compression: Literal["none", "gzip", "zstd"] = compression or detect_compression(content[:8])
        self.declared: Declared | None = None
        self.companions: list[MemoryShard] = []
        self.num_read = 0

    def open(self) -> BinaryIO:
        return io.BytesIO(self.content)

    def read_at(self, offset_bytes: int, size_bytes: int) -> bytes:
        part = self.content[offset_bytes : offset_bytes + size_bytes]
        self.num_read += len(part)
        if len(part) != size_bytes:
            raise ShardDamaged(f"shard {self.name} ends early")
        return part


class FileShard(MemoryShard):
    """A `ShardFile` over a local file, of any size."""

    def __init__(self, path: Path, compression: Any = None) -> None:
        with path.open("rb") as file:
            super().__init__(file.read(8), path.name, compression)
        self.content = b""
        self.local = path
        self.size_bytes = path.stat().st_size

    def open(self) -> BinaryIO:
        return self.local.open("rb")

    def read_at(self, offset_bytes: int, size_bytes: int) -> bytes:
        with self.local.open("rb") as file:
            file.seek(offset_bytes)
            part = file.read(size_bytes)
        if len(part) != size_bytes:
            raise ShardDamaged(f"shard {self.name} ends early")
        return part


@dataclass(kw_only=True)
class Seen:
    """What a scan said, checked against what reading says."""

    blocks: list[ScannedBlock]
    end: ScanEnd
    rows: list[bytes | None] = field(default_factory=list)
    """Text of every stored row, None where it is rejected."""
    tokens: list[int] = field(default_factory=list)

    @property
    def rejected(self) -> list[Finding]:
        return [finding for block in self.blocks for finding in block.rejected]

    @property
    def codes(self) -> list[str]:
        """Codes of the findings about the shard."""
        return [finding.code for finding in self.end.findings]

    @property
    def documents(self) -> list[bytes]:
        return [row for row in self.rows if row is not None]

    @property
    def effect(self) -> str:
        num_rows = sum(block.place.num_rows for block in self.blocks)
        return shard_effect(self.end.findings, num_deliverable=num_rows - len(self.rejected))


def scan_only(kind: Format, shard: MemoryShard, **options: Any) -> Seen:
    """A scan whose blocks follow one another and whose account balances."""
    *blocks, end = kind.scan(shard, ScanOptions(**options))
    assert isinstance(end, ScanEnd)
    row = 0
    for block in blocks:
        assert isinstance(block, ScannedBlock)
        assert block.place.first_row == row
        assert block.place.num_rows > 0
        assert len(block.digest) == 16
        rejected = [finding.row for finding in block.rejected]
        assert rejected == sorted(set(rejected))
        row += block.place.num_rows
        assert all(block.place.first_row <= at < row for at in rejected)
        assert all(effect_of(finding.code) == "rejected" for finding in block.rejected)
    assert all(effect_of(finding.code) != "rejected" and finding.row is None for finding in end.findings)
    return Seen(blocks=blocks, end=end)


def look(kind: Format, shard: MemoryShard, **options: Any) -> Seen:
    """A scan, and the proof that reading the blocks one by one and all at once gives what was scanned."""
    seen = scan_only(kind, shard, **options)
    if seen.effect == "excluded":
        return seen
    told = ScanOptions(**options)
    places = [block.place for block in seen.blocks]
    at_once = list(kind.read_all(shard, places, told))
    assert len(at_once) == len(places)
    if shard.compression != "none" and len(places) > 8:
        singly = at_once
    else:
        singly = [kind.read(shard, place, told) for place in places]
    for block, one, other in zip(seen.blocks, singly, at_once, strict=True):
        if kind.kind == "text":
            assert one.text is not None
            assert other.text is not None
            assert len(one.text) == block.place.num_rows
            assert one.text.equals(other.text)
            assert text_digest(one.text) == (block.content_bytes, block.digest)
            rows = one.text.to_pylist()
            rejected = {finding.row - block.place.first_row for finding in block.rejected}
            assert {at for at, row in enumerate(rows) if row is None} == rejected
            seen.rows += rows
        else:
            assert one.tokens is not None
            assert np.array_equal(one.tokens, other.tokens)
            assert one.tokens.dtype.isnative
            stored = np.dtype(seen.end.item_type)
            values = one.tokens.astype(stored.newbyteorder("<")).tobytes()
            assert block.content_bytes == len(values)
            assert block.digest == block_digest(np.array([len(one.tokens)]), values)
            seen.tokens += one.tokens.tolist()
    return seen
