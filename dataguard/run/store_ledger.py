"""What was the store of one rank told to keep, and what of that did it let go of?

Beside the step folders of an attempt lie, for each rank that has a store, ``rank=00000.json`` (`StoreSettings`, written
before anything is kept) and, once something was let go of, ``rank=00000.frames``: one record for each microbatch that
is not kept though the rule wanted it, with the reason, written at hand-over (or before a file is removed by hand). What
the rule wanted, does not stand and has no record here was lost with its process: `store_account` counts that against
the index, so nothing vanishes unseen.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from dataguard.core.digests import canonical_json
from dataguard.errors import RunDamaged, UsageError, WriterConflict
from dataguard.run.atomic import publish_new
from dataguard.run.frames import FramesFile, FramesHeader, scan_frames
from dataguard.run.layout import Layout
from dataguard.run.records import STORE_RECORD
from dataguard.run.store_rule import StoreRule

__all__ = [
    "WHOLE_STEP",
    "Ledger",
    "LetGo",
    "StoreSettings",
    "header_of",
    "read_let_go",
    "read_settings",
    "told",
    "write_settings",
]

WHOLE_STEP = 2**32 - 1
"""For a microbatch: all that stood of the step."""


class LetGo(IntEnum):
    """Why a microbatch is not kept. The numbers are on disk."""

    QUEUE = 1
    """What waited to be written was as much as its queue may hold."""
    BUDGET = 2
    """The store had used up the bytes it was given."""
    DISK = 3
    """The system did not take it; the rank's next hand-over failed with its words."""
    TOO_LARGE = 4
    """It is larger than what any store file may hold."""
    PRUNED = 5
    """Somebody removed it with ``dataguard store prune``."""

    @property
    def text(self) -> str:
        """As people read it."""
        return self.name.lower().replace("_", " ")


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the store of one rank of an attempt was told."""

    version: Literal[1] = 1
    run: str
    attempt: Annotated[int, msgspec.Meta(ge=1)]
    rank: Annotated[int, msgspec.Meta(ge=0)]
    keep: str
    """``flagged``, ``flagged:RULE,RULE``, ``last:N`` or ``all``."""
    rule_bits: Annotated[int, msgspec.Meta(ge=0)] = 0
    """The rules listed, as bits of a sample's rule bits."""
    budget_bytes: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """On disk, of this rank in this attempt; null where nothing bounds it."""
    queue_bytes: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """What may wait to be written; null where it is written at hand-over."""
    first_step: Annotated[int, msgspec.Meta(ge=0)]
    """Of the attempt, counted from 0."""
    created: str
    """UTC, ISO 8601: for people only."""


def write_settings(layout: Layout, settings: StoreSettings) -> None:
    """Write down what a rank's store is told, once and for ever.

    Raises
    ------
    WriterConflict
        The store of this rank and attempt has had its writer.
    WriteFailed
        The operating system failed.
    """
    path = layout.store_settings(settings.attempt, settings.rank)
    if not publish_new(path, canonical_json(settings) + b"\n", tmp=layout.tmp):
        raise WriterConflict(
            f"the store of rank {settings.rank} of attempt {settings.attempt} has had its writer",
            found=f"{path} exists",
            todo="begin a new attempt; no rank of an attempt is ever written twice",
        )


def read_settings(layout: Layout, attempt: int, rank: int, *, run_id: str | None = None) -> StoreSettings | None:
    """What a rank's store was told; None where it has none. Of which run is not asked where `run_id` is None.

    Raises
    ------
    RunDamaged
        The file cannot be read, says nothing that a store can be told, or is another's.
    """
    path = layout.store_settings(attempt, rank)
    try:
        settings = msgspec.json.decode(path.read_bytes(), type=StoreSettings)
        StoreRule.parse(settings.keep)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, OSError, UsageError) as error:
        raise RunDamaged(f"{path} cannot be read", found=str(error).splitlines()[0]) from error
    said = _another((settings.run, settings.attempt, settings.rank), (run_id, attempt, rank))
    if said is not None:
        raise RunDamaged(f"{path} is another file in this one's place", found=f"it says {said}")
    return settings


def _whose(header: FramesHeader) -> tuple[str, int, int | None]:
    return header.run_id, header.attempt, header.rank


def _another(said: tuple[str, int, int | None], whose: tuple[str | None, int, int | None]) -> str | None:
    """Whose a file is where it is not the one it should be."""
    return None if said == (whose[0] or said[0], *whose[1:]) else f"run {said[0]}, attempt {said[1]}, rank {said[2]}"


class Ledger:
    """The one writer of what a rank's store lets go of; for any thread. The file is made when it is first needed."""

    def __init__(self, layout: Layout, header: FramesHeader) -> None:
        self._layout = layout
        self._header = header
        self._lock = threading.Lock()
        self._file: FramesFile | None = None
        self._pid = os.getpid()
        self.counts: dict[LetGo, int] = {}
        """Microbatches, by reason."""

    @classmethod
    def reopen(cls, layout: Layout, settings: StoreSettings) -> Ledger:
        """Go on with the ledger of a rank whose writer is gone (the caller holds its lock).

        Raises
        ------
        RunDamaged
            Its header cannot be read, or is another's.
        """
        header = header_of(settings)
        ledger = cls(layout, header)
        path = layout.store_ledger(settings.attempt, settings.rank)
        if path.exists():
            file = FramesFile.reopen(path, "store", fsync_each=True)
            said = _another(_whose(file.header), _whose(header))
            if said is not None:
                file.close()
                raise RunDamaged(f"{path} is another file in this one's place", found=f"it says {said}")
            ledger._file = file
        return ledger

    def add(self, step: int, microbatch: int, num_bytes: int, reason: LetGo) -> None:
        """Write down one microbatch.

        Raises
        ------
        WriteFailed
            The system did not take the record either.
        """
        record: NDArray[np.void] = np.zeros(1, STORE_RECORD)
        record[0] = (step, microbatch, num_bytes, reason)
        with self._lock:
            if os.getpid() != self._pid:
                raise WriterConflict("a forked child may not write the ledger of a store")
            self.counts[reason] = self.counts.get(reason, 0) + 1
            if self._file is None:
                assert self._header.rank is not None
                path = self._layout.store_ledger(self._header.attempt, self._header.rank)
                self._file = FramesFile.create(path, self._header, tmp=self._layout.tmp)
            self._file.append(record)

    def close(self) -> None:
        """Let go of the file; closing twice is fine."""
        with self._lock:
            if self._file is not None:
                self._file.close()


def header_of(settings: StoreSettings) -> FramesHeader:
    """The header of a rank's ledger."""
    return FramesHeader.of(
        "store",
        records_per_frame=1,
        run_id=settings.run,
        attempt=settings.attempt,
        rank=settings.rank,
        first_step=settings.first_step,
        digests={},
        journal_head=(0, ""),
        created=settings.created,
    )


def read_let_go(
    layout: Layout, attempt: int, rank: int, *, run_id: str | None = None
) -> tuple[NDArray[np.void], tuple[str, ...]]:
    """STORE_RECORDs of what a rank's store let go of, and what is wrong with the file.

    A torn tail is dropped: of it nothing is known, and what it spoke of counts as lost. Of which run is not asked where
    `run_id` is None.
    """
    path: Path = layout.store_ledger(attempt, rank)
    nothing: NDArray[np.void] = np.zeros(0, STORE_RECORD)
    try:
        scan = scan_frames(path, "store")
    except FileNotFoundError:
        return nothing, ()
    header = scan.header
    if header is not None:
        said = _another(_whose(header), (run_id, attempt, rank))
        if said is not None:
            return nothing, (f"{path} is another file in this one's place: it says {said}",)
    return scan.records, tuple(f"{path}: {damage}" for damage in scan.damage)


def told(counts: Iterable[tuple[LetGo, int]]) -> str:
    """Counts by reason, for people: ``3 queue, 1 budget``."""
    return ", ".join(f"{count:,} {reason.text}" for reason, count in sorted(counts))
