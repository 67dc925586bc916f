"""The slow, obvious reader of a frames file: one frame after the other, straight from the page that defines it."""

from __future__ import annotations

import json
from dataclasses import dataclass

import xxhash

__all__ = ["Told", "read_slowly"]


@dataclass(frozen=True)
class Told:
    good: tuple[int, ...]
    """Ordinals of frames whose checksum fits their place."""
    damaged: tuple[int, ...]
    torn_bytes: int


def read_slowly(content: bytes) -> Told:
    """Of a file whose header is good."""
    header = json.loads(content[: 4096 - 17])
    size, seed = header["frame_bytes"], int(content[4096 - 17 : 4095], 16)
    good, damaged = [], []
    at, ordinal = 4096, 0
    while at + size <= len(content):
        frame = content[at : at + size]
        data, checksum = frame[:-8], int.from_bytes(frame[-8:], "little")
        if xxhash.xxh3_64_intdigest(data, (seed + ordinal) % 2**64) == checksum:
            good.append(ordinal)
        elif checksum == 0 and not any(content[at + size :]):
            break
        else:
            damaged.append(ordinal)
        at, ordinal = at + size, ordinal + 1
    return Told(good=tuple(good), damaged=tuple(damaged), torn_bytes=len(content) - at)
