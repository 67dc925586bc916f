"""How does a record survive the death of its writer?

A frames file is append-only: a 4,096-byte header (`FramesHeader`), then frames of one size. Frame k lies at
``4096 + k * frame_bytes`` and holds ``records_per_frame`` packed little-endian records (the unused ones, at its end,
all zero), then one little-endian u64: the xxh3-64 of the records' bytes, seeded with ``(D + k) mod 2**64``, D being
the number in the last 16 digits of the header. The seed ties a frame to its file and its place, so that flips, swaps,
drops, doubles and frames of another file all show.

One microbatch is one frame and one ``write``. What the system has taken survives the death of the process; what fails
is cut off again before anybody hears of it. Reading is in `frames_scan`;
``numpy.fromfile(path, [("records", dtype, records_per_frame), ("checksum", "<u8")], offset=4096)`` reads it, too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import weakref
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dataguard.errors import RunDamaged, WriteFailed, WriterConflict
from dataguard.run.atomic import publish_new, write_failed
from dataguard.run.frames_header import HEADER_BYTES, FramesHeader, frame_checksum, seed_of
from dataguard.run.frames_scan import Damage, FramesReader, FramesScan, scan_frames
from dataguard.run.locks import try_lock
from dataguard.run.records import FramesKind

__all__ = ["HEADER_BYTES", "Damage", "FramesFile", "FramesHeader", "FramesReader", "FramesScan", "scan_frames"]

_open_files: weakref.WeakSet[FramesFile] = weakref.WeakSet()


def _drop_in_child() -> None:
    """A forked child lets go of every frames file: it may not write, and its copies would keep the locks held."""
    for file in list(_open_files):
        file._abandon()


os.register_at_fork(after_in_child=_drop_in_child)


class FramesFile:
    """The one writer of one frames file: made exclusively, appended to a frame at a time, one ``write`` each.

    Not for two threads at once. Use as a context manager or call `close`.
    """

    def __init__(
        self, path: Path, descriptor: int, header: FramesHeader, seed: int, num_frames: int, *, fsync_each: bool
    ) -> None:
        self.path = path
        self.header = header
        self.num_frames = num_frames
        """Frames appended so far: the ordinal of the next."""
        self._descriptor = descriptor
        self._fsync_each = fsync_each
        self._dtype = header.record_dtype
        self._data_bytes = header.data_bytes
        self._frame_bytes = header.frame_bytes
        self._end = HEADER_BYTES + num_frames * header.frame_bytes
        self._seed = seed
        self._pid = os.getpid()
        self._broken: str | None = None
        self._buffer = bytearray(header.frame_bytes)
        self._data = memoryview(self._buffer)[: header.data_bytes]
        self._filled = 0
        self._unused = bytes(self._dtype.itemsize)
        self._put_checksum = struct.Struct("<Q").pack_into
        _open_files.add(self)

    @classmethod
    def create(
        cls, path: Path, header: FramesHeader, *, tmp: Path, fsync_each: bool = False, lock: bool = False
    ) -> FramesFile:
        """Make the file, which must not exist, with its header durable before it gets its name.

        Raises
        ------
        WriterConflict
            The file exists: somebody else is (or was) its writer.
        WriteFailed
            The operating system failed; there is no such file.
        """
        first = header.encode()
        if not publish_new(path, first, tmp=tmp):
            raise WriterConflict(f"{path} exists: it has had its one writer")
        return cls._open(path, header, seed_of(first), 0, fsync_each=fsync_each, lock=lock)

    @classmethod
    def reopen(cls, path: Path, kind: FramesKind, *, fsync_each: bool = False) -> FramesFile:
        """Go on with a file whose writer is gone (the caller holds its lock); its torn tail is cut off.

        Raises
        ------
        RunDamaged
            Its header cannot be read.
        WriteFailed
            The operating system failed.
        """
        scan = scan_frames(path, kind)
        if scan.header is None:
            raise RunDamaged(f"{path} cannot be gone on with", found=str(scan.damage[0]))
        seed = seed_of(scan.header.encode())
        num_frames = (scan.end_bytes - HEADER_BYTES) // scan.header.frame_bytes
        file = cls._open(path, scan.header, seed, num_frames, fsync_each=fsync_each, lock=False)
        if scan.torn_bytes:
            try:
                file._cut()
            except BaseException:
                file.close()
                raise
        return file

    @classmethod
    def _open(
        cls, path: Path, header: FramesHeader, seed: int, num_frames: int, *, fsync_each: bool, lock: bool
    ) -> FramesFile:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise write_failed(path, error, doing="open") from error
        try:
            free = not lock or try_lock(descriptor, path)
        except BaseException:
            os.close(descriptor)
            raise
        if not free:
            os.close(descriptor)
            raise WriterConflict(f"{path} was locked by another process as soon as it was made")
        return cls(path, descriptor, header, seed, num_frames, fsync_each=fsync_each)

    @property
    def end_bytes(self) -> int:
        """Where the next frame goes: the bytes that are whole."""
        return self._end

    def append(self, records: NDArray[np.void]) -> None:
        """Write one frame: 1 to ``records_per_frame`` records, the last of which is not all zero.

        Returns when the system has the bytes (and, with ``fsync_each``, the disk).

        Raises
        ------
        WriteFailed
            Disk full or the like: the file was cut back to its last good end, nothing of this frame remains.
        WriterConflict
            This process is a fork of the writer.
        ValueError
            Records of another dtype, none, too many, or an unused one last.
        """
        if os.getpid() != self._pid:
            raise WriterConflict(
                f"a forked child may not write {self.path}",
                todo="record in the process that made the writer, or start workers that own their rank",
            )
        if self._broken is not None:
            raise WriteFailed(f"{self.path} is closed: {self._broken}")
        if records.dtype != self._dtype:
            raise ValueError(f"{self.path} holds records of {self._dtype}, not {records.dtype}")
        content = records.tobytes()
        size = len(content)
        if not 0 < size <= self._data_bytes:
            raise ValueError(f"a frame holds 1 to {self.header.records_per_frame:,} records, not {len(records):,}")
        if content.endswith(self._unused):
            raise ValueError("a record whose bytes are all zero is an unused one and cannot be written")
        buffer = self._buffer
        buffer[:size] = content
        if size < self._filled:
            buffer[size : self._filled] = bytes(self._filled - size)
        self._filled = size
        checksum = frame_checksum(self._data, self._seed, self.num_frames)
        self._put_checksum(buffer, self._data_bytes, checksum)
        try:
            written = os.pwrite(self._descriptor, buffer, self._end)
            if self._fsync_each:
                os.fsync(self._descriptor)
        except OSError as error:
            self._cut()
            raise write_failed(self.path, error, doing="append to") from error
        if written != self._frame_bytes:
            # The system takes a part only where the rest has no room.
            self._cut()
            took = f"{os.strerror(errno.ENOSPC)} (it took {written:,} of {self._frame_bytes:,} bytes)"
            raise write_failed(self.path, OSError(errno.ENOSPC, took), doing="append to")
        self._end += self._frame_bytes
        self.num_frames += 1

    def _cut(self) -> None:
        """Back to the last good end; a file that cannot be cut takes no more frames."""
        try:
            os.ftruncate(self._descriptor, self._end)
        except OSError as error:
            self._broken = f"it could not be cut back to {self._end:,} bytes"
            raise write_failed(self.path, error, doing="cut back") from error

    def sync(self) -> None:
        """Make every frame durable.

        Raises
        ------
        WriteFailed
            The disk did not take them.
        """
        if os.getpid() != self._pid:
            raise WriterConflict(f"a forked child may not write {self.path}")
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise write_failed(self.path, error, doing="make durable") from error

    def close(self) -> None:
        """Let go of the file and its lock; closing twice is fine."""
        descriptor, self._descriptor = self._descriptor, -1
        self._broken = self._broken or "its writer closed it"
        _open_files.discard(self)
        if descriptor >= 0:
            try:
                os.close(descriptor)
            except OSError as error:
                raise write_failed(self.path, error, doing="close") from error

    def _abandon(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()
