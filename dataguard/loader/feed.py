"""How does a planned microbatch become bytes, and what happens to a slot whose row cannot be read?

1. The rows of all slots that deliver something are read together.
2. A row that cannot be read does not stop the run: its slot is withheld, or holds a substitute where the plan's fill
   says so (drawn again while a draw is unreadable itself), and that is written down as an exception, since the
   environment decided it and not the plan. With ``on_unreadable = "halt"`` it raises instead.
3. The contents are assembled, in the one way a rebuild assembles them too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dataguard.core.manifest import ManifestSet
from dataguard.core.microbatch import Microbatch
from dataguard.corpus.contents import Content, slot_contents
from dataguard.corpus.reader import RowReader
from dataguard.errors import ShardDamaged
from dataguard.loader.walk import Planned, Walk
from dataguard.plan.filled import fill_slots
from dataguard.plan.slots import PlannedSlots, SlotStatus, Substitute, next_substitute
from dataguard.run.exceptions import ExceptionReason, exception_record

__all__ = ["Excepted", "Fed", "Feeder", "OnUnreadable"]

OnUnreadable = Literal["withhold", "halt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Excepted:
    """One slot that the environment decided: what its exception record will say."""

    step: int
    position: int
    reason: ExceptionReason
    draw: int
    """Draw that was delivered, -1 where nothing was."""
    delivered_shard: int
    delivered_row: int

    def record(self) -> NDArray[np.void]:
        """Its EXCEPTION_RECORD, shape (1,)."""
        return exception_record(
            step=self.step,
            position=self.position,
            reason=self.reason,
            draw=self.draw,
            delivered_shard=self.delivered_shard,
            delivered_row=self.delivered_row,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fed:
    """A microbatch ready for hand-over, with the exceptions to be written before it."""

    microbatch: Microbatch
    planned: Planned
    exceptions: tuple[Excepted, ...]


class Feeder:
    """Reads and assembles the microbatches of one rank; safe for several threads."""

    def __init__(
        self,
        walk: Walk,
        reader: RowReader,
        *,
        manifest_set: ManifestSet,
        seq_len: int | None,
        on_unreadable: OnUnreadable,
    ) -> None:
        self._walk = walk
        self._reader = reader
        self._manifests = manifest_set
        self._seq_len = seq_len
        self._on_unreadable = on_unreadable

    def feed(self, planned: Planned) -> Fed:
        """Read one planned microbatch."""
        slots = planned.slots
        contents = slot_contents(self._reader, slots.delivered_block, slots.delivered_row, seq_len=self._seq_len)
        exceptions: list[Excepted] = []
        if any(content.problem for content in contents):
            slots, contents, exceptions = self._without_problems(planned, contents)
        microbatch = fill_slots(
            slots,
            [content.value for content in contents],
            address=planned.address,
            attempt=self._walk.attempt,
            batch=planned.batch,
            manifests=self._manifests,
            seq_len=self._seq_len,
            dtype=self._reader.token_dtype,
        )
        return Fed(microbatch=microbatch, planned=planned, exceptions=tuple(exceptions))

    def _without_problems(
        self, planned: Planned, contents: list[Content]
    ) -> tuple[PlannedSlots, list[Content], list[Excepted]]:
        """Withhold or substitute every slot whose row could not be read."""
        slots = planned.slots.copy()
        exceptions = []
        for i, content in enumerate(contents):
            problem = content.problem
            if problem is None:
                continue
            if self._on_unreadable == "halt":
                raise ShardDamaged(
                    f"{planned.address}, slot {int(slots.slot[i])}: row {problem.row:,} of {problem.shard} is "
                    f"{problem.kind}",
                    found=problem.detail,
                    todo="mend the shard, quarantine it, or run with on_unreadable = withhold",
                )
            substitute, contents[i] = self._substitute(slots, i)
            if substitute is None:
                slots.status[i] = _nothing(int(slots.status[i]), int(slots.event[i]))
                substitute = Substitute(draw=-1, block=-1, shard=-1, row=-1)
            else:
                slots.status[i] = SlotStatus.SUBSTITUTED
            slots.draw[i], slots.delivered_block[i] = substitute.draw, substitute.block
            slots.delivered_shard[i], slots.delivered_row[i] = substitute.shard, substitute.row
            exceptions.append(
                Excepted(
                    step=planned.address.step,
                    position=int(slots.position[i]),
                    reason=ExceptionReason.CHANGED if problem.kind == "changed" else ExceptionReason.UNREADABLE,
                    draw=substitute.draw,
                    delivered_shard=substitute.shard,
                    delivered_row=substitute.row,
                )
            )
        return slots, contents, exceptions

    def _substitute(self, slots: PlannedSlots, i: int) -> tuple[Substitute | None, Content]:
        """The next draw that can be read, with what it holds; None where there is none."""
        draw = int(slots.draw[i])
        while self._walk.fill == "substitute":
            found = next_substitute(
                self._walk.stream,
                self._walk.withheld,
                position=int(slots.position[i]),
                source=int(slots.source[i]),
                generation=int(slots.generation[i]),
                after_draw=draw,
            )
            if found is None:
                break
            content = slot_contents(
                self._reader, np.array([found.block]), np.array([found.row]), seq_len=self._seq_len
            )[0]
            if content.problem is None:
                return found, content
            draw = found.draw
        return None, Content()


def _nothing(status: int, event: int) -> SlotStatus:
    """Why a slot is empty whose row cannot be read; where that row was a substitute, why its own was withheld."""
    if event:
        return SlotStatus.QUARANTINED
    return SlotStatus.REMOVED if status == SlotStatus.SUBSTITUTED else SlotStatus.UNREADABLE
