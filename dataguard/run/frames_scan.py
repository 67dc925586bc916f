"""What does a frames file hold, and how much of it can be trusted?

Reading (`scan_frames`) tells three things apart, in this order:

1. *torn*: an incomplete last frame, or zeros from somewhere before a frame's checksum to the end of the file. This is
   what dying processes and nodes leave; it is dropped and reported, and is no failure.
2. *good*: a whole frame whose checksum fits its place.
3. *damage*: everything else. What follows is still read; a frame that stands in another's place is told, and read once.

A damaged header is told as well. The frames behind it are read all the same: their size is found by trying.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from dataguard.errors import RunDamaged
from dataguard.run.frames_header import (
    CHECKSUM_BYTES,
    HEADER_BYTES,
    TRAILER_BYTES,
    FramesHeader,
    frame_checksum,
    seed_of,
)
from dataguard.run.headline import SCALES_VERSION
from dataguard.run.records import JUDGED_EXCEPTION_RECORD, RECORD_DTYPES, RECORD_VERSIONS, FramesKind, used

__all__ = ["Damage", "FramesReader", "FramesScan", "scan_frames"]

_REACH = 16  # how many places away a displaced frame is looked for
_MOST_RECORDS = 4096  # records a frame that are tried when the header cannot be read
_MOST_JUDGED = 256  # the same for records with signals, of which the number is tried as well
_MOST_SIGNALS = 64
_NUM_HEADLINE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """One stretch of a frames file that is neither good nor torn."""

    ordinal: int | None
    """0-based place of the (first) frame; None for the header."""
    offset: int
    """Byte offset in the file."""
    why: str

    def __str__(self) -> str:
        where = "header" if self.ordinal is None else f"frame {self.ordinal:,}"
        return f"{where} at byte {self.offset:,}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FramesScan:
    """What one frames file holds, and what of it can be trusted."""

    path: Path
    header: FramesHeader | None
    """None where it cannot be read; records may have been read all the same."""
    records: NDArray[np.void]
    """Every record of every good frame, in order of frames, unused ones left out."""
    num_frames: int
    """Good frames."""
    end_bytes: int
    """Where the next frame belongs: everything before is whole (good or damaged), everything behind is torn."""
    torn_bytes: int
    """Dropped at the end."""
    damage: tuple[Damage, ...]


class FramesReader:
    """Frames of one file by ordinal, each checked; positioned reads, never a memory map.

    Parameters
    ----------
    path
        The file.
    kind
        What it should hold. With it, frames can be read even where the header is damaged.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    RunDamaged
        The system cannot read it.
    """

    def __init__(self, path: Path, kind: FramesKind) -> None:
        self.path = path
        self.header: FramesHeader | None = None
        """None where it is damaged or of another kind or version; see `header_damage`."""
        self.header_damage: str | None = None
        self.dtype: np.dtype[np.void] = RECORD_DTYPES[kind]
        self.records_per_frame = 0
        """0 where no frame can be made out."""
        self._seed = 0
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise RunDamaged(f"cannot read {path}: {error.strerror}") from error
        try:
            self.size_bytes = os.fstat(self._descriptor).st_size
            self._read_header(kind)
        except BaseException:
            self.close()
            raise

    @property
    def data_bytes(self) -> int:
        """Bytes of a frame before its checksum."""
        return self.records_per_frame * self.dtype.itemsize

    @property
    def frame_bytes(self) -> int:
        """Bytes of a frame."""
        return self.data_bytes + CHECKSUM_BYTES

    @property
    def num_whole(self) -> int:
        """Frames that lie whole in the file, good or not."""
        if not self.records_per_frame:
            return 0
        return max(0, self.size_bytes - HEADER_BYTES) // self.frame_bytes

    def offset(self, ordinal: int) -> int:
        """Byte offset of a frame."""
        return HEADER_BYTES + ordinal * self.frame_bytes

    def _read_header(self, kind: FramesKind) -> None:
        first = self.pread(HEADER_BYTES, 0)
        if len(first) < HEADER_BYTES:
            self.header_damage = f"the file ends after {len(first):,} of the header's {HEADER_BYTES:,} bytes"
            return
        body, trailer = first[:-TRAILER_BYTES], first[-TRAILER_BYTES:]
        computed = xxhash.xxh3_64_intdigest(body)
        if trailer == f"{computed:016x}\n".encode():
            try:
                header = msgspec.json.decode(body, type=FramesHeader)
            except (msgspec.MsgspecError, ValueError) as error:
                self.header_damage = f"this version of dataguard does not know such a file: {error}"
                return
            if header.kind != kind:
                self.header_damage = f"the file holds {header.kind}, and stands where {kind} belong"
                return
            unknown = header.record_version > RECORD_VERSIONS[kind]
            if unknown or not set(self.dtype.names or ()) <= {name for name, _ in header.dtype}:
                self.header_damage = (
                    f"it holds {kind} of record version {header.record_version}, with other fields than those of "
                    f"version {RECORD_VERSIONS[kind]}, which this dataguard reads"
                )
                return
            if header.scales is not msgspec.UNSET and header.scales > SCALES_VERSION:
                self.header_damage = (
                    f"its headline bytes are of scales {header.scales}, and this dataguard knows {SCALES_VERSION}"
                )
                return
            self.header, self.dtype = header, header.record_dtype
            self.records_per_frame, self._seed = header.records_per_frame, computed
            return
        self.header_damage = "its checksum does not fit"
        stored = [seed_of(first)] if all(digit in b"0123456789abcdef" for digit in trailer[:-1]) else []
        self._guess(kind, [*stored, computed])

    def _guess(self, kind: FramesKind, seeds: list[int]) -> None:
        """Find size and seed of the frames without the header: the first frames tell when they fit.

        Which signals a record holds stands in the header alone, so records with signals are read without them.
        """
        plain = RECORD_DTYPES[kind]
        fits = self._fitting(plain.itemsize, _MOST_RECORDS, seeds)
        if fits is None and kind == "exceptions":
            self.dtype = JUDGED_EXCEPTION_RECORD
            fits = self._fitting(self.dtype.itemsize, _MOST_JUDGED, seeds)
        if fits is None and kind == "index":
            for num_signals in range(_MOST_SIGNALS + 1):
                rest = _NUM_HEADLINE + 4 * num_signals
                fits = self._fitting(plain.itemsize + rest, _MOST_JUDGED, seeds)
                if fits is not None:
                    self.dtype = np.dtype([*plain.descr, ("unnamed", f"V{rest}")])
                    break
        if fits is not None:
            self.records_per_frame, self._seed = fits

    def _fitting(self, record_bytes: int, most: int, seeds: list[int]) -> tuple[int, int] | None:
        """Records a frame, and seed, that the first frames fit."""
        start = self.pread(most * record_bytes * 2 + 2 * CHECKSUM_BYTES, HEADER_BYTES)
        for seed in seeds:
            for records in range(1, most + 1):
                data = records * record_bytes
                for ordinal in (0, 1):
                    begin = ordinal * (data + CHECKSUM_BYTES)
                    checksum = start[begin + data : begin + data + CHECKSUM_BYTES]
                    if len(checksum) < CHECKSUM_BYTES:
                        break
                    if frame_checksum(start[begin : begin + data], seed, ordinal) == int.from_bytes(checksum, "little"):
                        return records, seed
        return None

    def read(self, first: int, stop: int) -> tuple[NDArray[np.void], NDArray[np.bool_]]:
        """Frames ``first:stop`` (as many as lie whole in the file), and which of them are good.

        Returns
        -------
        frames
            Structured, shape (n,): ``records`` of shape (records_per_frame,), and ``checksum``.
        good
            bool, shape (n,).
        """
        frames, good, _ = self.read_with_bytes(first, stop)
        return frames, good

    def read_with_bytes(self, first: int, stop: int) -> tuple[NDArray[np.void], NDArray[np.bool_], bytes]:
        """As `read`, with the bytes the frames were made of."""
        layout: np.dtype[np.void] = np.dtype([("records", self.dtype, (self.records_per_frame,)), ("checksum", "<u8")])
        num_frames = max(0, min(stop, self.num_whole) - first)
        content = self.pread(num_frames * self.frame_bytes, self.offset(first)) if num_frames else b""
        num_frames = len(content) // self.frame_bytes if num_frames else 0
        frames: NDArray[np.void] = np.frombuffer(content, layout, count=num_frames)
        view, data, size, seed = memoryview(content), self.data_bytes, self.frame_bytes, self._seed + first
        found = np.fromiter(
            (frame_checksum(view[k * size : k * size + data], seed, k) for k in range(num_frames)),
            dtype=np.uint64,
            count=num_frames,
        )
        return frames, found == frames["checksum"], content

    def ordinal_of(self, frame: bytes, near: Iterable[int]) -> int | None:
        """Whose place a frame's checksum fits, of the ordinals given."""
        data, checksum = frame[: self.data_bytes], int.from_bytes(frame[self.data_bytes :], "little")
        return next((k for k in near if k >= 0 and frame_checksum(data, self._seed, k) == checksum), None)

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """Bytes of the file; fewer only where it ends."""
        parts = []
        try:
            while size_bytes > 0 and (part := os.pread(self._descriptor, size_bytes, offset)):
                parts.append(part)
                size_bytes -= len(part)
                offset += len(part)
        except OSError as error:
            raise RunDamaged(f"cannot read {self.path} at byte {offset:,}: {error.strerror}") from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Let go of the file."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


def scan_frames(path: Path, kind: FramesKind, *, first_frame: int = 0) -> FramesScan:
    """Read a whole file (from one frame on), telling good, torn and damaged apart.

    Parameters
    ----------
    path
        The file.
    kind
        What it should hold.
    first_frame
        Frames before this ordinal are not looked at.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    RunDamaged
        The system cannot read it. (Damage inside the file raises nothing: it is in the answer.)
    """
    with FramesReader(path, kind) as reader:
        damage = []
        if reader.header_damage is not None:
            damage.append(Damage(ordinal=None, offset=0, why=reader.header_damage))
        if not reader.records_per_frame:
            return FramesScan(
                path=path, header=reader.header, records=np.empty(0, reader.dtype), num_frames=0,
                end_bytes=min(reader.size_bytes, HEADER_BYTES), torn_bytes=0, damage=tuple(damage),
            )  # fmt: skip
        frames, good, content = reader.read_with_bytes(first_frame, reader.num_whole)
        whole = len(frames)
        tail = reader.pread(reader.size_bytes - reader.offset(first_frame + whole), reader.offset(first_frame + whole))
        # Zeros to the end take every frame from the first whose checksum they cover.
        if not tail.strip(b"\0"):
            nonzero = len(content.rstrip(b"\0"))
            zeros = max(0, -((reader.data_bytes - nonzero) // reader.frame_bytes))
            whole = min(whole, zeros)
        order = np.arange(first_frame, first_frame + whole)
        kept = good[:whole].copy()
        damage += _examine(reader, content, first_frame, order, kept)
        chosen = np.flatnonzero(kept)
        chosen = chosen[np.argsort(order[chosen], kind="stable")]
        end = reader.offset(first_frame + whole)
        return FramesScan(
            path=path,
            header=reader.header,
            records=used(frames["records"][chosen]),
            num_frames=len(chosen),
            end_bytes=end,
            torn_bytes=max(0, reader.size_bytes - end),
            damage=tuple(damage),
        )


def _examine(
    reader: FramesReader, content: bytes, first: int, order: NDArray[np.int64], kept: NDArray[np.bool_]
) -> list[Damage]:
    """Say what is wrong with each frame that does not fit its place; frames of another place are kept, once.

    ``order`` (the ordinal each frame was written as) and ``kept`` (which frames are read) are brought up to date.
    """
    damage: list[Damage] = []
    seen = {first + int(place) for place in np.flatnonzero(kept)}
    shift, shifted = 0, None
    for place in np.flatnonzero(~kept).tolist():
        ordinal, offset = first + place, reader.offset(first + place)
        frame = content[place * reader.frame_bytes : (place + 1) * reader.frame_bytes]
        near = [ordinal + shift, *(ordinal + sign * d for d in range(1, _REACH + 1) for sign in (1, -1))]
        written_as = reader.ordinal_of(frame, near)
        if written_as is None:
            why = "zeros before valid data" if not frame.strip(b"\0") else "its checksum does not fit"
            damage.append(Damage(ordinal=ordinal, offset=offset, why=why))
            continue
        double = written_as in seen
        if not double:
            seen.add(written_as)
            kept[place], order[place] = True, written_as
        if double or written_as - ordinal != shift or shifted != place - 1:
            told = "a second time" if double else "and is read from there, as are those behind it that fit"
            damage.append(
                Damage(ordinal=ordinal, offset=offset, why=f"frame {written_as:,} stands in its place {told}")
            )
        shift, shifted = written_as - ordinal, place
    return damage
