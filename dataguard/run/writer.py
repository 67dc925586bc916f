"""How does one rank record what it hands over?

`RankWriter.open` claims (attempt, rank) for ever, by making the rank's seals file exclusively. `append` is called at
hand-over, never at prefetch, with the records of one microbatch: one frame, one ``write``. So what is recorded is what
was delivered, plus at most one microbatch.

The record is cut into segments: a segment ends where the next step lies behind a multiple of ``segment_steps``, or
where it has grown past ``segment_bytes`` and a step is complete. A segment's first step is one past the last step of
the segment before (for the first one, the attempt's own first step), so all names can be computed. A finished segment
is sealed (see `seal`) by one thread of the writer's own, so that delivery does not wait; what goes wrong there is
raised at the next `append` or at `close`, and the frames stay.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Literal, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from dataguard.errors import WriterConflict
from dataguard.run.atomic import remove_durably
from dataguard.run.frames import FramesFile, FramesHeader
from dataguard.run.layout import Layout
from dataguard.run.records import INDEX_RECORD, JUDGED_EXCEPTION_RECORD, FramesKind
from dataguard.run.seal import Seal, seal_segment

__all__ = ["SEGMENT_BYTES", "SEGMENT_STEPS", "Fsync", "RankWriter"]

Fsync = Literal["each", "seal"]

SEGMENT_STEPS = 10_000
"""Segments end at multiples of this many steps."""
SEGMENT_BYTES = 64 << 20
"""Segments end at the first complete step past this size."""


def _free() -> None:
    """Nothing fences this writer."""


class RankWriter:
    """The one writer of a rank's record in an attempt; made by `open`, closed by `close` or a ``with`` block.

    `append` belongs to one thread; `append_exception` may be called from any.
    """

    def __init__(
        self,
        layout: Layout,
        header: FramesHeader,
        seals: FramesFile,
        *,
        segment_steps: int,
        segment_bytes: int,
        fsync: Fsync,
        fence: Callable[[], None],
        background: bool,
        exception_record: np.dtype[np.void] | None,
    ) -> None:
        self.layout = layout
        self.attempt = header.attempt
        assert header.rank is not None
        self.rank: int = header.rank
        self._header = header
        self._seals = seals
        self._segment_steps = segment_steps
        self._segment_bytes = segment_bytes
        self._fsync_each = fsync == "each"
        self._fence = fence
        self._exception_record = exception_record
        self._pid = os.getpid()
        self._pool = ThreadPoolExecutor(1, f"seal-rank-{self.rank}") if background else None
        self._sealing: list[Future[Seal | None]] = []
        self._exceptions: FramesFile | None = None
        self._exceptions_lock = threading.Lock()
        self._last: tuple[int, int] = (-1, -1)
        """Step and microbatch of the newest frame."""
        self._boundary: int | None = None
        """Step at which the segment ends; known from its first record on."""
        self._closed = False
        self._first = header.first_step
        self._segment = self._create(self._first)

    @classmethod
    def open(
        cls,
        layout: Layout,
        *,
        run_id: str,
        attempt: int,
        rank: int,
        first_step: int,
        microbatch_size: int,
        digests: Mapping[str, str],
        head: tuple[int, str],
        clock: Callable[[], str],
        segment_steps: int = SEGMENT_STEPS,
        segment_bytes: int = SEGMENT_BYTES,
        fsync: Fsync = "seal",
        fence: Callable[[], None] = _free,
        background: bool = True,
        record: np.dtype[np.void] | None = None,
        host: str | None = None,
    ) -> Self:
        """Claim (attempt, rank), which nobody can claim again, and open its first segment.

        Parameters
        ----------
        layout
            Names of the run.
        run_id, attempt, rank, digests, head
            What every file of the record says about itself; ``head`` is number and SHA-256 of the newest journal
            event, ``digests`` are of ``plan`` and ``attempt``.
        first_step
            First step of the attempt.
        microbatch_size
            Records a frame.
        clock
            The time as text (UTC, ISO 8601), for people who read headers.
        segment_steps, segment_bytes
            Where segments end.
        fsync
            ``each`` makes every frame durable at hand-over, ``seal`` leaves that to the system until sealing.
        fence
            Called before each frame; raises (`WriterConflict`) where a newer attempt has begun.
        background
            Seal in a thread of the writer's own; otherwise `append` seals before it returns.
        record
            What `append` will be given: `records.index_record` of an attempt with a policy, else INDEX_RECORD.
        host
            Name of this machine; the rank's seals file keeps it (see `places`).

        Raises
        ------
        WriterConflict
            (attempt, rank) has had its writer.
        WriteFailed
            The operating system failed.
        """
        judged = record is not None and record != INDEX_RECORD

        def header(kind: FramesKind, records_per_frame: int) -> FramesHeader:
            return FramesHeader.of(
                kind,
                records_per_frame=records_per_frame,
                run_id=run_id,
                attempt=attempt,
                rank=rank,
                first_step=first_step,
                digests=dict(digests),
                journal_head=head,
                created=clock(),
                record=record if kind == "index" else None,
            )

        of_rank = msgspec.structs.replace(header("seals", 1), host=host or msgspec.UNSET)
        try:
            seals = FramesFile.create(layout.seals(attempt, rank), of_rank, tmp=layout.tmp, lock=True)
        except WriterConflict as error:
            raise WriterConflict(
                f"rank {rank} of attempt {attempt} has had its writer",
                found=f"{layout.seals(attempt, rank)} exists",
                todo="begin a new attempt; no rank of an attempt is ever written twice",
            ) from error
        try:
            return cls(
                layout,
                header("index", microbatch_size),
                seals,
                segment_steps=segment_steps,
                segment_bytes=segment_bytes,
                fsync=fsync,
                fence=fence,
                background=background,
                exception_record=JUDGED_EXCEPTION_RECORD if judged else None,
            )
        except BaseException:
            seals.close()
            raise

    def append(self, records: NDArray[np.void]) -> None:
        """Record one microbatch (as `open` was told, in slot order); when this returns it may be handed over.

        Raises
        ------
        WriteFailed
            It is not recorded, and may not be handed over. Also where sealing an earlier segment failed.
        WriterConflict
            A newer attempt fences this one, or this process is a fork of the writer.
        ValueError
            The records do not follow those before.
        """
        self._fence()
        address = (int(records["step"][0]), int(records["microbatch"][0]))
        if address <= self._last or address[0] < self._header.first_step:
            raise ValueError(
                f"step {address[0]}, microbatch {address[1]} does not follow step {self._last[0]}, "
                f"microbatch {self._last[1]} (the attempt begins at step {self._header.first_step})"
            )
        step = address[0]
        if self._sealing and self._sealing[0].done():
            self._sealing.pop(0).result()
        if self._boundary is None:
            self._boundary = (step // self._segment_steps + 1) * self._segment_steps
        elif step > self._last[0] and (step >= self._boundary or self._segment.end_bytes >= self._segment_bytes):
            self._rotate(step)
        self._segment.append(records)
        self._last = address

    def append_exception(self, record: NDArray[np.void]) -> None:
        """Record what the environment decided (see `exceptions.exception_record`); durable when this returns.

        Raises
        ------
        WriteFailed
            It is not recorded; the microbatch may not be handed over.
        WriterConflict
            As for `append`.
        """
        self._check_process()
        self._fence()
        with self._exceptions_lock:
            if self._exceptions is None:
                self._exceptions = FramesFile.create(
                    self.layout.exceptions(self.attempt, self.rank),
                    self._of_kind("exceptions"),
                    tmp=self.layout.tmp,
                    fsync_each=True,
                )
            self._exceptions.append(record)

    def sync(self) -> None:
        """Make everything recorded so far durable, whatever ``fsync`` says.

        Raises
        ------
        WriteFailed
            The disk did not take it.
        """
        self._segment.sync()

    def close(self, *, seal: bool = True) -> None:
        """End the record; with ``seal`` every segment is sealed when this returns.

        A fork of the writer only lets go. Closing twice is fine.

        Raises
        ------
        WriteFailed, RunDamaged
            Sealing failed; the frames stay, and ``dataguard seal`` can finish later.
        """
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._pid:
            return
        try:
            if self._last < (0, 0):
                self._segment.close()
                remove_durably(self._segment.path)
            elif seal:
                self._segment.sync()
                self._segment.close()
                self._submit(self._segment.path, self._first)
            errors = [error for future in self._sealing if (error := future.exception()) is not None]
            for error in errors[1:]:
                errors[0].add_note(f"and {error}")
            if errors:
                raise errors[0]
        finally:
            if self._pool is not None:
                self._pool.shutdown(wait=True)
            self._sealing.clear()
            for file in (self._segment, self._exceptions, self._seals):
                if file is not None:
                    file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def _rotate(self, step: int) -> None:
        """Open the next segment, then have the finished one sealed."""
        self._check_process()
        finished, first, next_first = self._segment, self._first, self._last[0] + 1
        self._segment = self._create(next_first)
        self._first = next_first
        self._boundary = (step // self._segment_steps + 1) * self._segment_steps
        with finished:
            finished.sync()
        self._submit(finished.path, first)

    def _submit(self, path: Path, first: int) -> None:
        if self._pool is None:
            seal_segment(self.layout, path, seals=self._seals, first=first)
        else:
            task = self._pool.submit(seal_segment, self.layout, path, seals=self._seals, first=first)
            self._sealing.append(task)

    def _create(self, first: int) -> FramesFile:
        return FramesFile.create(
            self.layout.hot_segment(self.attempt, self.rank, first),
            self._of_kind("index", first),
            tmp=self.layout.hot_tmp,
            fsync_each=self._fsync_each,
        )

    def _of_kind(self, kind: FramesKind, first: int | None = None) -> FramesHeader:
        header = self._header
        return FramesHeader.of(
            kind,
            records_per_frame=header.records_per_frame if kind == "index" else 1,
            run_id=header.run_id,
            attempt=header.attempt,
            rank=header.rank,
            first_step=header.first_step if first is None else first,
            digests=header.digests,
            journal_head=header.journal_head,
            created=header.created,
            record=header.record_dtype if kind == "index" else self._exception_record,
        )

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise WriterConflict(
                f"a forked child may not write the record of rank {self.rank}",
                todo="record in the process that made the writer",
            )
