"""What was added to a frames file since somebody looked last?

A frames file is append-only, so whoever follows a live run reads each frame once:

1. The first look begins near the end (`tail_frames`), whatever the length of the file.
2. Each later look reads the frames that came since; where the file has not grown that is one ``stat``.
3. What lies before the begin is read backwards, a bounded stretch at a time, by whoever asks for it (`earlier`).

Frames at the end that are not good may just be being written: they are left for the next look. A bad frame with a good
one behind it is damage: told, and left out. Nothing is ever waited for, and nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dataguard.run.frames_header import HEADER_BYTES
from dataguard.run.frames_scan import FramesReader
from dataguard.run.records import RECORD_DTYPES, FramesKind, used

__all__ = ["FramesFollower"]

_CHUNK_BYTES = 8 << 20


class FramesFollower:
    """Reads each frame of one growing file once.

    Parameters
    ----------
    path, kind
        The file, which need not exist yet, and what it should hold.
    first_frame
        Frames before this ordinal are never looked at.
    tail_frames
        How many of the newest frames the first look reads; None for all.
    before_step
        Only frames before the first one of this step or a later one (steps climb in all files but a few rows): for what
        a later attempt goes on from. Such a follower does not grow.

    Examples
    --------
    >>> import tempfile
    >>> follower = FramesFollower(Path(tempfile.mkdtemp()) / "rank=00000.frames", "telemetry")
    >>> len(follower.added()), follower.is_whole
    (0, True)
    """

    def __init__(
        self,
        path: Path,
        kind: FramesKind,
        *,
        first_frame: int = 0,
        tail_frames: int | None = None,
        before_step: int | None = None,
    ) -> None:
        self.path = path
        self.kind: FramesKind = kind
        self.damage: list[str] = []
        """What could not be trusted, once each."""
        self.changed_seconds: float | None = None
        """Unix second at which the file was changed last; None while there is none."""
        self.begin = 0
        """The earliest frame that was read, or will be read by `added` next."""
        self.next = 0
        """The frame that `added` reads next."""
        self.num_records = 0
        """Records that were read so far."""
        self._first = first_frame
        self._tail = tail_frames
        self._before = before_step
        self._seen_bytes = -1
        self._has_begun = False
        self._is_waiting = False
        """Whether frames at the end were not good when they were read."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing lies before what was read; also while there is no file."""
        return self.begin <= self._first

    def added(self) -> NDArray[np.void]:
        """The records that came since the last look, in order; at the first look those of the newest frames.

        Raises
        ------
        RunDamaged
            The system cannot read the file.
        """
        try:
            found = os.stat(self.path)  # noqa: PTH116 - asked of every rank at every look
        except (FileNotFoundError, NotADirectoryError):
            return self._none()
        self.changed_seconds = found.st_mtime
        if found.st_size == self._seen_bytes and not self._is_waiting:
            return self._none()
        try:
            reader = FramesReader(self.path, self.kind)
        except FileNotFoundError:
            return self._none()
        with reader:
            self._seen_bytes = reader.size_bytes
            if reader.header_damage is not None and reader.size_bytes >= HEADER_BYTES:
                self._note(f"{self.path}: {reader.header_damage}")
            if not reader.records_per_frame or (self._has_begun and self._before is not None):
                return self._none()
            if not self._has_begun:
                self._begin(reader)
            stop = reader.num_whole if self._before is None else _first_of_step(reader, self._before)
            return self._read(reader, stop)

    def earlier(self, most_bytes: int) -> tuple[NDArray[np.void], int]:
        """Records of a stretch that ends where what was read begins, and the bytes that were read for it.

        Nothing once `is_whole`, or where the file is gone by now (then nothing says what it held: see the sealed file).
        """
        if self.is_whole:
            return self._none(), 0
        try:
            reader = FramesReader(self.path, self.kind)
        except FileNotFoundError:
            return self._none(), 0
        with reader:
            if not reader.records_per_frame:
                return self._none(), 0
            num_frames = max(1, most_bytes // reader.frame_bytes)
            first = max(self._first, self.begin - num_frames)
            frames, good = reader.read(first, self.begin)
            for place in np.flatnonzero(~good).tolist():
                self._note(f"{self.path}: frame {first + place:,}: its checksum does not fit")
            size = (self.begin - first) * reader.frame_bytes
            self.begin = first
            records = used(frames["records"][good])
            self.num_records += len(records)
            return records, size

    def _begin(self, reader: FramesReader) -> None:
        self._has_begun = True
        stop = reader.num_whole if self._before is None else _first_of_step(reader, self._before)
        self.begin = self._first if self._tail is None else max(self._first, stop - self._tail)
        self.next = self.begin

    def _read(self, reader: FramesReader, stop: int) -> NDArray[np.void]:
        """Frames from `next` on, up to the last good one."""
        at_once = max(1, _CHUNK_BYTES // reader.frame_bytes)
        parts, bad = [], []
        for first in range(self.next, stop, at_once):
            frames, good = reader.read(first, min(first + at_once, stop))
            bad += [first + place for place in np.flatnonzero(~good).tolist()]
            if good.any():
                self.next = first + int(np.flatnonzero(good)[-1]) + 1
                parts.append(used(frames["records"][good]))
        self._is_waiting = self.next < stop
        for ordinal in bad:
            if ordinal < self.next:
                self._note(f"{self.path}: frame {ordinal:,}: its checksum does not fit")
        if not parts:
            return self._none()
        records: NDArray[np.void] = parts[0] if len(parts) == 1 else np.concatenate(parts)
        self.num_records += len(records)
        return records

    def _none(self) -> NDArray[np.void]:
        return np.empty(0, RECORD_DTYPES[self.kind])

    def _note(self, text: str) -> None:
        if text not in self.damage:
            self.damage.append(text)


def _first_of_step(reader: FramesReader, step: int) -> int:
    """The first frame of a step or a later one, by bisection."""

    def is_before(ordinal: int) -> bool:
        frames, good = reader.read(ordinal, ordinal + 1)
        return bool(good.all()) and int(frames["records"][0, 0]["step"]) < step

    return _bisected(reader.num_whole, is_before)


def _bisected(stop: int, is_before: Callable[[int], bool]) -> int:
    low, high = 0, stop
    while low < high:
        middle = (low + high) // 2
        if is_before(middle):
            low = middle + 1
        else:
            high = middle
    return low
