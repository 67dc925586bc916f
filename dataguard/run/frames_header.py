"""What does a frames file say about itself?

The first 4,096 bytes are canonical JSON of `FramesHeader`, spaces, the xxh3-64 of all that as 16 hexadecimal digits,
and a line feed: ``head -c 4096`` shows it. The number in the digits seeds the checksum of every frame.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np
import xxhash

from dataguard.core.digests import canonical_json
from dataguard.run.headline import SCALES_VERSION
from dataguard.run.records import (
    RECORD_DTYPES,
    FramesKind,
    headline_fields,
    packed,
)

__all__ = ["CHECKSUM_BYTES", "HEADER_BYTES", "TRAILER_BYTES", "FramesHeader", "frame_checksum", "seed_of"]

HEADER_BYTES = 4096
_FIRST_VERSIONS = tuple(RECORD_DTYPES.values())
CHECKSUM_BYTES = 8
TRAILER_BYTES = 17
"""16 hexadecimal digits and a line feed."""


class FramesHeader(msgspec.Struct, frozen=True, kw_only=True, tag_field="format", tag="dataguard-frames"):
    """What a frames file says about itself in its first 4,096 bytes."""

    version: Literal[1] = 1
    """Of the frames format."""
    kind: FramesKind
    record_version: int
    """Of the record, see `records.RECORD_VERSIONS`."""
    dtype: tuple[tuple[str, str], ...]
    """Fields of a record as (name, NumPy format), packed in this order."""
    records_per_frame: int
    frame_bytes: int
    run_id: str
    attempt: int
    rank: int | None
    """Null for what all ranks share."""
    first_step: int
    """First step the file may hold."""
    digests: dict[str, str] = {}
    """By what they are of: ``plan``, ``attempt``."""
    journal_head: tuple[int, str] = (0, "")
    """Number and SHA-256 of the newest journal event known to the writer."""
    created: str = ""
    """UTC, ISO 8601: for people only."""
    scales: int | msgspec.UnsetType = msgspec.UNSET
    """Which scales its headline bytes are of (`headline.SCALES_VERSION`); left out where it holds none."""
    host: str | msgspec.UnsetType = msgspec.UNSET
    """Name of the machine that its writer ran on; left out where nobody said it. In no digest."""

    def __post_init__(self) -> None:
        if self.records_per_frame < 1 or self.frame_bytes != self.data_bytes + CHECKSUM_BYTES:
            raise ValueError(f"frame_bytes {self.frame_bytes} is not {self.data_bytes} + {CHECKSUM_BYTES}")

    @classmethod
    def of(
        cls,
        kind: FramesKind,
        *,
        records_per_frame: int,
        run_id: str,
        attempt: int,
        rank: int | None,
        first_step: int,
        digests: dict[str, str],
        journal_head: tuple[int, str],
        created: str,
        record: np.dtype[np.void] | None = None,
    ) -> FramesHeader:
        """A header for records of that kind: of version 1, or as `record` says.

        >>> header = FramesHeader.of("seals", records_per_frame=1, run_id="r", attempt=1, rank=0, first_step=0,
        ...                          digests={}, journal_head=(1, "ab"), created="")
        >>> header.frame_bytes
        88
        """
        record = RECORD_DTYPES[kind] if record is None else record
        return cls(
            kind=kind,
            record_version=1 if record in _FIRST_VERSIONS else 2,
            dtype=tuple((name, _format(record[name])) for name in record.names or ()),
            records_per_frame=records_per_frame,
            frame_bytes=records_per_frame * record.itemsize + CHECKSUM_BYTES,
            run_id=run_id,
            attempt=attempt,
            rank=rank,
            first_step=first_step,
            digests=digests,
            journal_head=journal_head,
            created=created,
            scales=SCALES_VERSION if headline_fields(record) else msgspec.UNSET,
        )

    @property
    def record_dtype(self) -> np.dtype[np.void]:
        """The record as NumPy reads it."""
        return packed(self.dtype)

    @property
    def data_bytes(self) -> int:
        """Bytes of a frame before its checksum."""
        return self.records_per_frame * self.record_dtype.itemsize

    def encode(self) -> bytes:
        """The 4,096 bytes a file begins with."""
        body = canonical_json(self).ljust(HEADER_BYTES - TRAILER_BYTES)
        if len(body) > HEADER_BYTES - TRAILER_BYTES:
            raise ValueError(f"a frames header of {len(body):,} bytes does not fit {HEADER_BYTES:,}")
        return body + f"{xxhash.xxh3_64_intdigest(body):016x}\n".encode()


def _format(dtype: np.dtype[Any]) -> str:
    """``<u8``, ``|u1``, ``V16``: the spelling that makes the same dtype again."""
    return f"V{dtype.itemsize}" if dtype.kind == "V" else dtype.str


def seed_of(header: bytes) -> int:
    """The number in the digits at the end of an encoded header."""
    return int(header[HEADER_BYTES - TRAILER_BYTES : HEADER_BYTES - 1], 16)


def frame_checksum(data: bytes | memoryview, seed: int, ordinal: int) -> int:
    """xxh3-64 of a frame's records, tied to its file (``seed``) and its place (``ordinal``)."""
    return xxhash.xxh3_64_intdigest(data, (seed + ordinal) & 0xFFFFFFFFFFFFFFFF)
