"""How is what a trainer logs kept?

In long form: one small record a value (step, time, name, slot, value), in one frames file for each rank of an attempt,
``telemetry/attempt=0001/rank=00000.frames``. Whoever makes that file is its one writer for ever. A batch of values is
one frame, or several where it does not fit; what `TelemetryWriter.append` has returned from survives the death of the
process. Steps count from 0 here, whatever the trainer calls its first. A value that is no sample's has slot -1. NaN is
NaN and infinity is infinity: they are what somebody will look for.

Reading is in `telemetry_reading`, the wide form (a row a step, a column a name) in `telemetry_table`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dataguard.errors import UsageError, WriterConflict
from dataguard.run.clock import now
from dataguard.run.frames import FramesFile, FramesHeader
from dataguard.run.join import fence
from dataguard.run.layout import Layout
from dataguard.run.records import TELEMETRY_NAME_BYTES, TELEMETRY_RECORD
from dataguard.run.run import Run

__all__ = [
    "RECORDS_PER_FRAME",
    "RESERVED_NAMES",
    "TelemetryWriter",
    "encoded_name",
    "open_telemetry",
    "telemetry_records",
]

RECORDS_PER_FRAME = 4
"""Values a frame: a trainer's step is about as many, and one that logs more takes several frames."""

RESERVED_NAMES = frozenset({"attempt", "rank", "slot", "step", "time"})
"""What no value may be called: these columns a table of telemetry has besides the values."""


def _free() -> None:
    """Nothing fences this writer."""


@lru_cache(maxsize=4096)
def encoded_name(name: str) -> bytes:
    """A value's name as it is kept: UTF-8, at most 64 bytes.

    Raises
    ------
    UsageError
        It is empty, too long, reserved, or holds what cannot be printed.

    Examples
    --------
    >>> encoded_name("grad_norm/block.11")
    b'grad_norm/block.11'
    """
    encoded = name.encode("utf-8", "surrogatepass") if isinstance(name, str) else b""
    if not encoded or not name.isprintable():
        raise UsageError(f"{name!r} is no name for a value", allowed=f"1 to {TELEMETRY_NAME_BYTES} printable bytes")
    if len(encoded) > TELEMETRY_NAME_BYTES:
        raise UsageError(
            f"the name {name!r} is too long for a value",
            found=f"{len(encoded):,} bytes of UTF-8",
            allowed=f"at most {TELEMETRY_NAME_BYTES}",
            todo="give it a shorter name",
        )
    if name in RESERVED_NAMES:
        raise UsageError(
            f"no value can be called {name!r}: that is a column of every table of telemetry",
            found=f"reserved: {', '.join(sorted(RESERVED_NAMES))}",
            todo="give it another name",
        )
    return encoded


def telemetry_records(
    steps: ArrayLike,
    names: str | Sequence[str],
    values: ArrayLike,
    *,
    time_ns: ArrayLike,
    slots: ArrayLike = -1,
) -> NDArray[np.void]:
    """Values as records to hand to `TelemetryWriter.append`.

    Parameters
    ----------
    steps
        Counted from 0; one for all values, or one each.
    names
        One for all values, or one each.
    values
        float64, shape (n,).
    time_ns
        Unix time in nanoseconds; one for all, or one each.
    slots
        Of the global batch, where values are of samples; one each, or -1.

    Returns
    -------
    ndarray
        TELEMETRY_RECORD, shape (n,).

    Raises
    ------
    UsageError
        A name cannot be kept, or a step lies below 0.

    Examples
    --------
    >>> telemetry_records(7, ["loss", "lr"], [2.5, 1e-3], time_ns=1)[["step", "name", "value"]].tolist()
    [(7, b'loss', 2.5), (7, b'lr', 0.001)]
    """
    numbers = np.asarray(values, np.float64)
    lowest = steps if isinstance(steps, int) else int(np.min(steps, initial=0))
    if lowest < 0:
        raise UsageError(f"step {lowest:,} cannot be", allowed="steps count from 0")
    records: NDArray[np.void] = np.zeros(numbers.shape, TELEMETRY_RECORD)
    records["step"] = steps
    records["time"] = time_ns
    records["name"] = encoded_name(names) if isinstance(names, str) else [encoded_name(name) for name in names]
    records["slot"] = slots
    records["value"] = numbers
    return records


class TelemetryWriter:
    """The one writer of what a rank logs in an attempt; made by `open` (or `open_telemetry`), closed by `close`.

    Not for two threads at once. A fork of the writer writes nothing.
    """

    def __init__(self, file: FramesFile, fence: Callable[[], None]) -> None:
        self._file = file
        self._fence = fence
        self._per_frame = file.header.records_per_frame

    @classmethod
    def open(
        cls,
        layout: Layout,
        *,
        run_id: str,
        attempt: int,
        rank: int,
        first_step: int,
        digests: Mapping[str, str],
        head: tuple[int, str],
        created: str,
        fence: Callable[[], None] = _free,
    ) -> Self:
        """Claim the telemetry of (attempt, rank), which nobody can claim again.

        Parameters
        ----------
        layout
            Names of the run.
        run_id, attempt, rank, first_step, digests, head, created
            What the file says about itself, as for `RankWriter.open`.
        fence
            Called before each batch; raises (`WriterConflict`) where a newer attempt has begun.

        Raises
        ------
        WriterConflict
            It has had its writer.
        WriteFailed
            The operating system failed.
        """
        path = layout.telemetry(attempt, rank)
        header = FramesHeader.of(
            "telemetry",
            records_per_frame=RECORDS_PER_FRAME,
            run_id=run_id,
            attempt=attempt,
            rank=rank,
            first_step=first_step,
            digests=dict(digests),
            journal_head=head,
            created=created,
        )
        try:
            file = FramesFile.create(path, header, tmp=layout.tmp)
        except WriterConflict as error:
            raise WriterConflict(
                f"the telemetry of rank {rank} of attempt {attempt} has had its writer",
                found=f"{path} exists",
                allowed="one writer for each rank of an attempt, for ever",
                todo="log through the one that is open; where several processes are one rank, let one of them log",
            ) from error
        return cls(file, fence)

    @property
    def attempt(self) -> int:
        """Whose telemetry it is."""
        return self._file.header.attempt

    @property
    def num_frames(self) -> int:
        """Frames written so far."""
        return self._file.num_frames

    def check(self) -> None:
        """Refuse to go on, as `append` would, where a newer attempt has begun.

        Raises
        ------
        WriterConflict
            A newer attempt fences this one.
        """
        self._fence()

    def append(self, records: NDArray[np.void], *, fenced: bool = True) -> None:
        """Keep values (`telemetry_records`); when this returns, the death of the process loses none of them.

        Parameters
        ----------
        fenced
            False for values that were taken while the attempt was still the newest.

        Raises
        ------
        WriteFailed
            Disk full or the like: nothing of the frame that failed remains, and none after it was written.
        WriterConflict
            A newer attempt fences this one, or this process is a fork of the writer.
        """
        if fenced:
            self._fence()
        for first in range(0, len(records), self._per_frame):
            self._file.append(records[first : first + self._per_frame])

    def sync(self) -> None:
        """Make all values durable.

        Raises
        ------
        WriteFailed
            The disk did not take them.
        """
        self._file.sync()

    def close(self) -> None:
        """Let go of the file; closing twice is fine."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


def open_telemetry(run: Run, attempt: int, rank: int, *, fenced: bool = True) -> TelemetryWriter:
    """Claim the telemetry of a rank of an attempt of a run.

    Parameters
    ----------
    fenced
        Stop once a newer attempt has begun, as whoever trains must.

    Raises
    ------
    NotInRun
        The run has no such attempt.
    GeometryError
        The attempt has no such rank.
    WriterConflict
        It has had its writer.
    WriteFailed
        The operating system failed.
    """
    begun = run.begun(attempt)
    run.attempts().attempt(attempt).geometry.check_rank(rank)
    head = run.head()
    return TelemetryWriter.open(
        run.layout,
        run_id=run.run_id,
        attempt=attempt,
        rank=rank,
        first_step=begun.fork_step,
        digests={"plan": begun.plan, "attempt": begun.attempt_digest},
        head=(head.number, head.sha256),
        created=now(),
        fence=fence(run, attempt) if fenced else _free,
    )
