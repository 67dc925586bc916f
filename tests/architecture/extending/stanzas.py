"""How are files of stanzas read: a first line ``%STANZAS``, then records between blank lines?

One block a file. Nothing can be wrong with a record but that it is not UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import pyarrow as pa

from dataguard.corpus.formats.content import is_utf8, text_digest
from dataguard.corpus.formats.protocol import (
    BlockPlace,
    Finding,
    ReadBlock,
    ScanEnd,
    ScannedBlock,
    ScanOptions,
    ShardFile,
)
from dataguard.corpus.formats.streams import DecodedStream
from dataguard.errors import ShardDamaged

__all__ = ["Stanzas"]

_SIGN = b"%STANZAS\n"


class Stanzas:
    """Stanzas: `Format` of text."""

    name: str = "stanzas"
    kind: Literal["text", "tokens"] = "text"
    random_access: bool = False

    def recognise(self, head: bytes, path: str) -> int:
        """By the sign that they begin with."""
        return 3 if head.startswith(_SIGN) else 0

    def scan(self, shard: ShardFile, options: ScanOptions) -> Iterator[ScannedBlock | ScanEnd]:
        """One block, then the end."""
        rows, findings = _rows(shard, options)
        text = pa.array([row if is_utf8(row) else None for row in rows], pa.large_binary())
        rejected = [
            Finding(code="invalid-utf8", detail="no UTF-8", row=i) for i, row in enumerate(text) if not row.is_valid
        ]
        content_bytes, digest = text_digest(text)
        place = BlockPlace(first_row=0, num_rows=len(rows))
        yield ScannedBlock(place=place, content_bytes=content_bytes, digest=digest, rejected=tuple(rejected))
        yield ScanEnd(findings=findings)

    def read(self, shard: ShardFile, place: BlockPlace, options: ScanOptions, *, fields: bool = False) -> ReadBlock:
        """The rows of the block."""
        return next(self.read_all(shard, [place], options, fields=fields))

    def read_all(
        self, shard: ShardFile, places: Sequence[BlockPlace], options: ScanOptions, *, fields: bool = False
    ) -> Iterator[ReadBlock]:
        """The one block there is."""
        for place in places:
            rows, findings = _rows(shard, options)
            if findings or len(rows) != place.num_rows:
                raise ShardDamaged(f"shard {shard.name} cannot be read any more", found=f"{len(rows):,} stanzas")
            text = pa.array([row if is_utf8(row) else None for row in rows], pa.large_binary())
            yield ReadBlock(text=text, fields=pa.table({}) if fields else None)


def _rows(shard: ShardFile, options: ScanOptions) -> tuple[list[bytes], tuple[Finding, ...]]:
    with shard.open() as file:
        stream = DecodedStream.of(shard, file, options)
        content = b"".join(stream)
    stanzas = content.removeprefix(_SIGN).split(b"\n\n")
    return [stanza.strip(b"\n") for stanza in stanzas if stanza.strip(b"\n")], stream.findings
