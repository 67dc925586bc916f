"""How is a NumPy file of token ids read?

The header says type, order and shape; the ids follow without a gap, so a block is a byte range. A row is one id of the
array flattened row by row. Any integer type of any byte order is read, one or two dimensions; what is stored column by
column is refused, since its flat order is not the order of its rows. Nothing is ever unpickled.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

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
from dataguard.corpus.formats.tokens import FileRanges, IdTooLarge, read_run, scan_run
from dataguard.corpus.formats.zstd_file import ranges_of
from dataguard.errors import ShardDamaged

__all__ = ["NumpyTokens"]

_MAGIC = b"\x93NUMPY"
_MOST_HEADER_BYTES = 1 << 16
_MOST_IDS = 1 << 63  # along one dimension: no file can hold so many


class NumpyTokens:
    """NumPy files: `Format` of tokens, a run of ids a block."""

    name: str = "npy"
    kind: Literal["text", "tokens"] = "tokens"
    random_access: bool = True

    def recognise(self, head: bytes, path: str) -> int:
        r"""3 where the head has NumPy's magic number, 1 where only the name says so, else 0.

        >>> NumpyTokens().recognise(b"\x93NUMPY", "x"), NumpyTokens().recognise(b"", "x.npy")
        (3, 1)
        """
        if head.startswith(_MAGIC):
            return 3
        return int(path.lower().removesuffix(".gz").removesuffix(".zst").endswith(".npy"))

    def scan(self, shard: ShardFile, options: ScanOptions) -> Iterator[ScannedBlock | ScanEnd]:
        """Blocks in row order, then exactly one ScanEnd."""
        with shard.open() as file:
            stream = DecodedStream.of(shard, file, options)
            ranges = ByteRanges(stream)
            layout = _read_layout(ranges, shard)
            if isinstance(layout, Finding):
                yield ScanEnd(findings=(*stream.findings, layout))
                return
            try:
                found = yield from scan_run(
                    ranges,
                    dtype=layout.dtype,
                    offset_bytes=layout.header_bytes,
                    num_tokens=layout.num_tokens,
                    block_tokens=options.block_tokens,
                )
            except IdTooLarge as error:
                yield ScanEnd(findings=(error.finding,), item_type=layout.dtype.str)
                return
            if layout.header_bytes + found < layout.num_bytes:
                short = layout.too_short(layout.header_bytes + found)
                yield ScanEnd(findings=(*stream.findings, short), item_type=layout.dtype.str)
                return
            rest = ranges.drain(layout.num_bytes)
        findings = list(stream.findings)
        if rest:
            detail = f"trailing bytes after the array ({rest:,} bytes): {layout.num_bytes:,} bytes are expected"
            findings.append(Finding(code="trailing-bytes", detail=detail, offset_bytes=layout.num_bytes))
        yield ScanEnd(findings=tuple(findings), item_type=layout.dtype.str)

    def read(self, shard: ShardFile, place: BlockPlace, options: ScanOptions, *, fields: bool = False) -> ReadBlock:
        """The ids of one block, native-endian. ShardDamaged where they cannot be read any more."""
        return next(self.read_all(shard, [place], options, fields=fields))

    def read_all(
        self, shard: ShardFile, places: Sequence[BlockPlace], options: ScanOptions, *, fields: bool = False
    ) -> Iterator[ReadBlock]:
        """These blocks, given in row order, decoding the shard once at most."""
        with shard.open() as file:
            ranges = ranges_of(shard, file, options)
            layout = _read_layout(ranges, shard)
            if isinstance(layout, Finding):
                raise ShardDamaged(f"shard {shard.name} cannot be read any more", found=layout.detail)
            yield from read_run(ranges, shard, places, layout.dtype, fields=fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """What a header says, where it is a layout that can be read."""

    dtype: np.dtype[Any]
    num_tokens: int
    header_bytes: int

    @property
    def num_bytes(self) -> int:
        """Bytes of header and array together."""
        return self.header_bytes + self.num_tokens * self.dtype.itemsize

    def too_short(self, found_bytes: int) -> Finding:
        detail = f"{self.num_tokens:,} tokens of {self.dtype.str} make {self.num_bytes:,} bytes, found {found_bytes:,}"
        return Finding(code="too-short", detail=detail, offset_bytes=found_bytes)


def _read_layout(ranges: ByteRanges | FileRanges, shard: ShardFile) -> _Layout | Finding:
    """The header at the beginning of a stream, or what is wrong with it."""
    prefix = bytes(ranges.take(0, 12))
    if prefix[:6] != _MAGIC:
        begins = f", it begins with {prefix[:6]!r}" if prefix else ""
        size_bytes = shard.size_bytes
        return Finding(code="bad-npy-header", detail=f"{shard.name} is no npy file ({size_bytes:,} bytes){begins}")
    major = prefix[6] if len(prefix) > 6 else 0
    start = 10 if major == 1 else 12
    length = int.from_bytes(prefix[8:start], "little")
    if len(prefix) < start and major in (0, 1, 2, 3):
        return Finding(code="bad-npy-header", detail=f"the file ends after {len(prefix)} bytes, within its header")
    if major not in (1, 2, 3) or length > _MOST_HEADER_BYTES:
        return Finding(code="bad-npy-header", detail=f"version {major} with a header of {length:,} bytes")
    header = prefix[start:] + bytes(ranges.take(12, max(start + length - 12, 0)))
    if len(header) < length:
        return Finding(
            code="bad-npy-header",
            detail=f"the header has {length:,} bytes, the file ends after {len(header):,} of them",
        )
    try:
        described = _parse_header(header[:length].decode("utf-8" if major == 3 else "latin-1"))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        return Finding(code="bad-npy-header", detail=f"the header makes no sense: {error}")
    dtype, is_fortran, shape = described
    if dtype is None or dtype.kind not in "iu":
        return Finding(code="not-integers", detail=f"an array of {dtype or 'a compound type'}")
    if not 1 <= len(shape) <= 2:
        return Finding(code="bad-shape", detail=f"shape {shape}, allowed are one or two dimensions")
    if is_fortran and sum(size > 1 for size in shape) > 1:
        todo = "write it again from numpy.ascontiguousarray(array)"
        return Finding(code="fortran-order", detail=f"shape {shape} is stored column by column: {todo}")
    return _Layout(dtype=dtype, num_tokens=math.prod(shape), header_bytes=start + length)


def _parse_header(text: str) -> tuple[np.dtype[Any] | None, bool, tuple[int, ...]]:
    """Type (None for a compound one), whether in Fortran order, and shape; ValueError where the header is none."""
    header = ast.literal_eval(re.sub(r"(\d)L\b", r"\1", text.strip()))  # Python 2 wrote 10L
    if not isinstance(header, dict) or set(header) != {"descr", "fortran_order", "shape"}:
        raise ValueError(f"not the three entries that are expected: {text.strip()[:80]!r}")
    shape = header["shape"]
    if not isinstance(shape, tuple) or not all(type(size) is int and 0 <= size <= _MOST_IDS for size in shape):
        raise ValueError(f"shape {shape!r}"[:200])
    if header["fortran_order"] not in (True, False):
        raise ValueError(f"fortran_order {header['fortran_order']!r}")
    descr = header["descr"]
    return (np.dtype(descr) if isinstance(descr, str) else None), bool(header["fortran_order"]), shape
