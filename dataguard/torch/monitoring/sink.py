"""Where do logged numbers wait until they are there, and who writes them?

A `Sink` writes what is there at once and keeps in order what is still on its way from a device: nothing overtakes, and
no more than `MOST_PENDING` numbers wait before the oldest are waited for. It belongs to the process that made it. When
another attempt begins in the same process, what was logged for the earlier one is written there first.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dataguard.errors import UsageError, WriterConflict
from dataguard.run.run import Run
from dataguard.run.telemetry import TelemetryWriter, open_telemetry, telemetry_records
from dataguard.torch.monitoring.values import Taken

__all__ = ["MOST_PENDING", "Sink"]

MOST_PENDING = 4096
"""Numbers that may wait: about 400 kB."""


class Sink:
    """Writes the telemetry of one rank of the attempts of this process; may be used by several threads."""

    def __init__(self, run: Run, *, wrote: Callable[[NDArray[np.void]], None] | None = None) -> None:
        self._run = run
        self._wrote = wrote
        """Is told what stands in the file by now."""
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._writer: TelemetryWriter | None = None
        self._waiting: deque[tuple[NDArray[np.void], Taken]] = deque()
        self._closed = False
        self.num_pending = 0
        """Numbers that wait."""

    def put(
        self, attempt: int, rank: int, steps: Sequence[int], taken: Taken, *, slots: range | None, time_ns: int
    ) -> None:
        """Keep numbers: written when this returns, unless some of them are still on their way.

        Parameters
        ----------
        steps
            One for all numbers, or one each.
        slots
            One each, where they are of samples.

        Raises
        ------
        UsageError
            A name cannot be kept, or the sink is closed.
        WriterConflict
            A newer attempt has begun, another process has the file, or this one is a fork.
        WriteFailed
            The disk did not take it. What waited before is kept for another try; these numbers are not.
        """
        if os.getpid() != self._pid:
            raise WriterConflict(
                f"a forked child may not log for rank {rank}",
                todo="log in the process that made the monitor, which is the one that trains",
            )
        records = telemetry_records(
            steps if len(steps) > 1 else steps[0] if steps else 0,
            taken.names,
            taken.numbers,
            time_ns=time_ns,
            slots=-1 if slots is None else np.arange(slots.start, slots.stop),
        )
        if not len(records):
            return
        with self._lock:
            if self._closed:
                raise UsageError("this monitor is closed, and logs nothing any more")
            writer = self._writer_of(attempt, rank)
            writer.check()
            if self._waiting:
                self._write_ready(most_pending=MOST_PENDING)
            if not taken.coming and not self._waiting:
                writer.append(records, fenced=False)
                if self._wrote is not None:
                    self._wrote(records)
                return
            self._waiting.append((records, taken))
            self.num_pending += len(records)
            self._write_ready(most_pending=MOST_PENDING)

    def flush(self) -> None:
        """Wait for all numbers on their way, and write them; a fork of the process does nothing."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._write_ready(most_pending=0)

    def close(self) -> None:
        """Write everything, make it durable, and let go of the file."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._closed = True
            writer = self._writer
            if writer is None:
                return
            self._write_ready(most_pending=0)
            writer.sync()
            self._writer = None
            writer.close()

    def _writer_of(self, attempt: int, rank: int) -> TelemetryWriter:
        if self._writer is not None and self._writer.attempt != attempt:
            # Taken while their attempt was the newest, so the fence is not asked again.
            self._write_ready(most_pending=0)
            self._writer.close()
            self._writer = None
        if self._writer is None:
            self._writer = open_telemetry(self._run, attempt, rank)
        return self._writer

    def _write_ready(self, *, most_pending: int) -> None:
        """Write from the oldest on what is there; wait for those beyond what may be pending."""
        while self._waiting and (self.num_pending > most_pending or self._waiting[0][1].ready()):
            records, taken = self._waiting[0]
            records["value"] = taken.settle()
            assert self._writer is not None
            self._writer.append(records, fenced=False)
            if self._wrote is not None:
                self._wrote(records)
            self._waiting.popleft()
            self.num_pending -= len(records)
