"""How is a file of token ids without any header read?

Nothing in it says what it holds, so it is read only where its type was given (``--dtype``, kept in the manifest), and a
row is one id from its first byte on. Bytes that are left over at the end make no id: the shard is flagged and their
number told, for a wrong type or a cut file looks like that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from dataguard.corpus.formats.lines import ByteRanges
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
from dataguard.corpus.formats.tokens import IdTooLarge, read_run, scan_run
from dataguard.corpus.formats.zstd_file import ranges_of
from dataguard.errors import ShardDamaged

__all__ = ["RawTokens", "is_raw_name"]

_ENDINGS = (".bin", ".raw", ".tokens")


def is_raw_name(path: str) -> bool:
    """Whether a file is called as files of ids without a header are; an ending of compression may follow.

    >>> is_raw_name("a/train.bin"), is_raw_name("a/train.tokens.zst"), is_raw_name("a/train.dat")
    (True, True, False)
    """
    name = path.lower()
    for ending in (".gz", ".gzip", ".zst", ".zstd"):
        name = name.removesuffix(ending)
    return name.endswith(_ENDINGS)


class RawTokens:
    """Files of ids and nothing else: `Format` of tokens, a run of ids a block."""

    name: str = "raw"
    kind: Literal["text", "tokens"] = "tokens"
    random_access: bool = True

    def recognise(self, head: bytes, path: str) -> int:  # noqa: ARG002 - recognition.py asks whether a type was given
        """0: nothing tells such a file from others."""
        return 0

    def scan(self, shard: ShardFile, options: ScanOptions) -> Iterator[ScannedBlock | ScanEnd]:
        """Blocks in row order, then exactly one ScanEnd."""
        if not options.dtype:
            yield ScanEnd(findings=(Finding(code="unknown-type", detail="no type of ids was given: --dtype uint16"),))
            return
        dtype = np.dtype(options.dtype)
        with shard.open() as file:
            stream = DecodedStream.of(shard, file, options)
            try:
                num_bytes = yield from scan_run(
                    ByteRanges(stream), dtype=dtype, offset_bytes=0, num_tokens=None, block_tokens=options.block_tokens
                )
            except IdTooLarge as error:
                yield ScanEnd(findings=(error.finding,), item_type=dtype.str)
                return
        findings, left = list(stream.findings), num_bytes % dtype.itemsize
        if left:
            detail = f"{left} bytes are left over: {num_bytes:,} bytes are no multiple of the {dtype.itemsize} of an id"
            findings.append(Finding(code="trailing-bytes", detail=detail, offset_bytes=num_bytes - left))
        yield ScanEnd(findings=tuple(findings), item_type=dtype.str)

    def read(self, shard: ShardFile, place: BlockPlace, options: ScanOptions, *, fields: bool = False) -> ReadBlock:
        """The ids of one block, native-endian. ShardDamaged where they cannot be read any more."""
        return next(self.read_all(shard, [place], options, fields=fields))

    def read_all(
        self, shard: ShardFile, places: Sequence[BlockPlace], options: ScanOptions, *, fields: bool = False
    ) -> Iterator[ReadBlock]:
        """These blocks, given in row order, decoding the shard once at most."""
        if not options.dtype:
            raise ShardDamaged(f"shard {shard.name} cannot be read", found="the manifest has no type for its ids")
        with shard.open() as file:
            yield from read_run(ranges_of(shard, file, options), shard, places, np.dtype(options.dtype), fields=fields)
