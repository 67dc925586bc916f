"""What did the environment decide in an attempt, that no plan could know?

An unreadable row is withheld (or another delivered in its place) on the spot; the decision is an *exception*: one
small record, durable before the microbatch is handed over. With root and attempt it is all a rebuild needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from dataguard.errors import RunDamaged
from dataguard.plan.slots import Exempted
from dataguard.run.frames import FramesScan, scan_frames
from dataguard.run.layout import Layout
from dataguard.run.records import EXCEPTION_RECORD, JUDGED_EXCEPTION_RECORD

__all__ = ["ExceptionReason", "exception_record", "read_exceptions", "scan_exceptions"]


class ExceptionReason(IntEnum):
    """Why a row could not be delivered. The numbers are on disk."""

    UNREADABLE = 1
    """The storage or the decoder failed, after retries."""
    CHANGED = 2
    """The bytes are not those the manifest was built over."""

    @property
    def text(self) -> str:
        """As people read it."""
        return self.name.lower()


def exception_record(
    *,
    step: int,
    position: int,
    reason: ExceptionReason,
    draw: int = -1,
    delivered_shard: int = -1,
    delivered_row: int = -1,
    failed: int | None = None,
) -> NDArray[np.void]:
    """One EXCEPTION_RECORD, shape (1,), to hand to `RankWriter.append_exception`.

    With `failed` (which of the slot's rows could not be read, a bit each) it is a JUDGED_EXCEPTION_RECORD, as an
    attempt with a policy writes it.

    >>> exception_record(step=3, position=99, reason=ExceptionReason.UNREADABLE)["draw"].tolist()
    [-1]
    """
    facts = (step, position, reason, draw, delivered_shard, delivered_row)
    record: NDArray[np.void] = np.zeros(1, EXCEPTION_RECORD if failed is None else JUDGED_EXCEPTION_RECORD)
    record[0] = facts if failed is None else (*facts, failed)
    return record


def scan_exceptions(layout: Layout, attempt: int, rank: int) -> FramesScan | None:
    """One rank's exceptions as they lie there; None where it had none.

    Raises
    ------
    RunDamaged
        The system cannot read the file.
    """
    try:
        return scan_frames(layout.exceptions(attempt, rank), "exceptions")
    except FileNotFoundError:
        return None


def read_exceptions(layout: Layout, attempt: int, ranks: Iterable[int]) -> dict[int, Exempted]:
    """All exceptions of an attempt by position, as the plan takes them. Of two for a position the later one counts.

    Parameters
    ----------
    layout
        Names of the run.
    attempt
        Its number.
    ranks
        Those of the attempt's geometry.

    Raises
    ------
    RunDamaged
        A file is damaged: what was delivered can then not be told from the plan alone.
    """
    exceptions: dict[int, Exempted] = {}
    for rank in ranks:
        scan = scan_exceptions(layout, attempt, rank)
        if scan is None:
            continue
        header = scan.header
        if scan.damage or header is None or (header.attempt, header.rank) != (attempt, rank):
            raise RunDamaged(
                f"the exceptions of attempt {attempt}, rank {rank} are damaged",
                found=f"{scan.path}: {scan.damage[0] if scan.damage else f'its header says {header}'}",
                todo="dataguard verify lists what is damaged in a run",
            )
        for _step, position, reason, draw, shard, row, *failed in scan.records.tolist():
            exceptions[position] = Exempted(
                reason=_text(reason), draw=draw, shard=shard, row=row, failed=failed[0] if failed else 0
            )
    return exceptions


def _text(reason: int) -> str:
    known = {member.value: member.text for member in ExceptionReason}
    return known.get(reason, f"reason {reason}")
