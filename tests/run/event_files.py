"""TensorBoard event files made byte by byte, the slow and obvious way."""

from __future__ import annotations

import struct
from pathlib import Path


def crc32c(content: bytes) -> int:
    """Bit by bit."""
    value = 0xFFFFFFFF
    for byte in content:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def masked(content: bytes) -> bytes:
    crc = crc32c(content)
    rotated = ((crc >> 15) | (crc << 17)) & 0xFFFFFFFF
    return struct.pack("<I", (rotated + 0xA282EAD8) & 0xFFFFFFFF)


def framed(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + masked(length) + content + masked(content)


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def inside(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def simple(tag: str, value: float) -> bytes:
    return inside(1, inside(1, tag.encode()) + varint(2 << 3 | 5) + struct.pack("<f", value))


def tensor(tag: str, content: bytes, *, plugin: str = "") -> bytes:
    metadata = inside(9, inside(1, inside(1, plugin.encode()))) if plugin else b""
    return inside(1, inside(1, tag.encode()) + metadata + inside(8, content))


def event(step: int, *values: bytes, time: float = 1.0e9) -> bytes:
    head = varint(1 << 3 | 1) + struct.pack("<d", time)
    where = varint(2 << 3) + varint(step) if step else b""
    return framed(head + where + inside(5, b"".join(values)))


def version() -> bytes:
    return framed(varint(1 << 3 | 1) + struct.pack("<d", 1.0e9) + inside(3, b"brain.Event:2"))


def write(path: Path, *events: bytes) -> Path:
    path.write_bytes(version() + b"".join(events))
    return path
