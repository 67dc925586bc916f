"""How do other tools cut a stream into members and frames? Builders of compressed files, for the tests."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise

import xxhash
import zstandard

__all__ = ["gzip_member", "gzip_members", "pieces", "seek_table", "seekable", "skippable", "zstd_frame", "zstd_frames"]


def pieces(content: bytes, cuts: Sequence[int]) -> list[bytes]:
    """The content cut at these offsets, wherever they fall."""
    bounds = sorted({0, len(content), *(cut % (len(content) + 1) for cut in cuts)})
    return [content[start:stop] for start, stop in pairwise(bounds)] or [b""]


def gzip_member(content: bytes, *, level: int = 6, name: bytes = b"", extra: bytes = b"") -> bytes:
    """One gzip member, with the optional header fields that some writers use."""
    flags = (4 if extra else 0) | (8 if name else 0)
    header = b"\x1f\x8b\x08" + bytes([flags]) + bytes(5) + b"\xff"
    if extra:
        header += struct.pack("<H", len(extra)) + extra
    if name:
        header += name + b"\0"
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)
    body = packer.compress(content) + packer.flush()
    return header + body + struct.pack("<II", zlib.crc32(content), len(content) & 0xFFFFFFFF)


def gzip_members(parts: Sequence[bytes]) -> bytes:
    return b"".join(gzip_member(part, name=b"x.jsonl" if i % 2 else b"") for i, part in enumerate(parts))


def zstd_frame(content: bytes, *, checksum: bool = True, size: bool = True, level: int = 3) -> bytes:
    """One zstd frame, with or without its checksum and its content size."""
    packer = zstandard.ZstdCompressor(level=level, write_checksum=checksum, write_content_size=size)
    if size:
        return packer.compress(content)
    stream = packer.compressobj()
    return stream.compress(content) + stream.flush()


def zstd_frames(parts: Sequence[bytes]) -> bytes:
    return b"".join(zstd_frame(part, checksum=bool(i % 2), size=i % 3 > 0) for i, part in enumerate(parts))


def skippable(content: bytes, kind: int = 0) -> bytes:
    """A frame that a decoder passes over."""
    return struct.pack("<II", 0x184D2A50 + kind, len(content)) + content


def seek_table(sizes: Sequence[tuple[int, int]], *, checksums: Sequence[int] = ()) -> bytes:
    """The table at the end of zstd's seekable format: (stored, decoded) bytes of every frame."""
    rows = [struct.pack("<II", *size) for size in sizes]
    if checksums:
        rows = [row + struct.pack("<I", checksum) for row, checksum in zip(rows, checksums, strict=True)]
    footer = struct.pack("<IBI", len(sizes), 0x80 if checksums else 0, 0x8F92EAB1)
    return skippable(b"".join(rows) + footer, 14)


def seekable(parts: Sequence[bytes], *, size: bool = True, checksums: bool = False) -> bytes:
    """A file in zstd's seekable format, a frame a part."""
    frames = [zstd_frame(part, size=size) for part in parts]
    sums = [xxhash.xxh64_intdigest(part) & 0xFFFFFFFF for part in parts] if checksums else []
    sizes = [(len(frame), len(part)) for frame, part in zip(frames, parts, strict=True)]
    return b"".join(frames) + seek_table(sizes, checksums=sums)
