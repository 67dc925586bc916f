"""What does each slot of a step hold: the planned sample, a substitute, or nothing, and why?

1. The step's positions give the planned samples; they never change, whatever follows.
2. A slot delivers nothing where its position lies in a skip (``hole``) or past the end of a finite stream.
3. A slot is withheld where its row is quarantined or its shard was removed by a later mixture. With fill ``mask`` it
   delivers nothing; with ``substitute`` another row of the same source and generation, drawn by the key of (position,
   draw): the first of eight draws that is not withheld itself, else nothing.
4. What the environment decided overrides all that: an exception of the attempt says what a slot really held.

The normal case, in which nothing is withheld, costs a handful of array operations; only withheld slots are looked at
one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from dataguard.errors import NotInRun
from dataguard.plan.document import Fill
from dataguard.plan.steps import StepBatch
from dataguard.plan.stream import Samples, Stream
from dataguard.plan.withheld import WithheldSet

__all__ = [
    "MAX_DRAWS",
    "PADDING",
    "Exempted",
    "PlannedSlots",
    "SlotStatus",
    "Substitute",
    "next_substitute",
    "plan_slots",
]

MAX_DRAWS = 8
"""How often a substitute is drawn before the slot is masked."""


class SlotStatus(IntEnum):
    """What became of a slot's planned sample. The numbers are on disk."""

    LIVE = 0
    """Delivered."""
    SUBSTITUTED = 1
    """Withheld; another row was delivered in its place."""
    QUARANTINED = 2
    """Withheld by an event; nothing was delivered."""
    UNREADABLE = 3
    """Could not be read; nothing was delivered."""
    SKIPPED = 4
    """Padding: its position lies in a skip."""
    ENDED = 5
    """Padding: past the end of a finite stream."""
    REFUSED = 6
    """Refused by the gate."""
    REMOVED = 7
    """Withheld since a later mixture's manifest no longer holds its shard; nothing was delivered."""


PADDING = (SlotStatus.SKIPPED, SlotStatus.ENDED)
"""Statuses of slots that hold no sample by design: they are neither delivered nor withheld."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exempted:
    """What an exception of the attempt says of one position: not the plan decided, but the environment."""

    reason: str
    """Why the planned row (or the substitute planned for it) was not delivered."""
    draw: int = -1
    """Draw that was delivered, -1 where nothing was."""
    shard: int = -1
    """Delivered shard, numbered through, -1 where nothing was."""
    row: int = -1
    """Delivered row, -1 where nothing was."""
    failed: int = 0
    """Where a gate decides beside the environment: which of the slot's rows could not be read; bit 0 the one planned,
    bit k + 1 the substitute of draw k."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Substitute:
    """A row drawn in place of a withheld one; shard and block are numbered through."""

    draw: int
    block: int
    shard: int
    row: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedSlots:
    """Some slots of a step: arrays of shape (n,). Shards and blocks are numbered through the stream's manifests."""

    slot: NDArray[np.int64]
    """Place in the global batch."""
    position: NDArray[np.int64]
    source: NDArray[np.int32]
    """Index into the stream's `source_names`."""
    generation: NDArray[np.int32]
    epoch: NDArray[np.int64]
    shard: NDArray[np.int64]
    """Of the planned sample, delivered or not."""
    row: NDArray[np.int64]
    block: NDArray[np.int64]
    status: NDArray[np.uint8]
    """`SlotStatus`."""
    delivered_shard: NDArray[np.int64]
    """Of what the slot delivers; -1 where nothing."""
    delivered_row: NDArray[np.int64]
    delivered_block: NDArray[np.int64]
    draw: NDArray[np.int64]
    """Draw of the substitute, -1 where none."""
    event: NDArray[np.int64]
    """Journal event that withholds the planned row, 0 where none does."""

    def __len__(self) -> int:
        return len(self.slot)

    def part(self, start: int, stop: int) -> PlannedSlots:
        """Entries ``start:stop`` of these slots, as views."""
        if not 0 <= start <= stop <= len(self.slot):
            raise NotInRun(f"entries {start:,}:{stop:,} are not among these slots", allowed=f"0:{len(self.slot):,}")
        return PlannedSlots(**{name: getattr(self, name)[start:stop] for name in _SLOT_FIELDS})

    def copy(self) -> PlannedSlots:
        """Copy every array, for whoever must write down what the environment decided."""
        return PlannedSlots(**{name: getattr(self, name).copy() for name in _SLOT_FIELDS})


_SLOT_FIELDS = tuple(f.name for f in fields(PlannedSlots))


def plan_slots(
    batch: StepBatch,
    stream: Stream,
    withheld: WithheldSet,
    *,
    fill: Fill,
    slots: range | None = None,
    samples: Samples | None = None,
    end_position: int | None = None,
    epochs: int | None = None,
    exceptions: Mapping[int, Exempted] | None = None,
) -> PlannedSlots:
    """What the slots of a step hold.

    Parameters
    ----------
    batch
        The step's positions, from `Steps.batch`.
    stream
        Of the attempt that owns the step.
    withheld
        Of the same attempt, over `stream.manifest_set`.
    fill
        What a withheld slot holds.
    slots
        The slots wanted, a range of step 1; all where None. A rank computes its own alone.
    samples
        What the stream holds at the positions of these slots, where that is known already.
    end_position
        Positions from here on are padding.
    epochs
        Samples of this epoch and later ones are padding.
    exceptions
        What the environment decided in this attempt, by position.

    Raises
    ------
    NotInRun
        Slots outside ``0:batch.size``.
    """
    wanted = range(batch.size) if slots is None else slots
    if wanted.step != 1 or not 0 <= wanted.start <= wanted.stop <= batch.size:
        raise NotInRun(f"{wanted} are no slots of step {batch.step:,}", allowed=f"0:{batch.size:,}")
    positions = batch.positions[wanted.start : wanted.stop]
    if samples is None:
        samples = stream.samples(positions)
    assert len(samples.position) == len(positions)
    events = withheld.mask(samples.shard, samples.row)
    planned = PlannedSlots(
        slot=np.arange(wanted.start, wanted.stop, dtype=np.int64),
        position=positions.copy(),
        source=samples.source,
        generation=samples.generation,
        epoch=samples.epoch,
        shard=samples.shard,
        row=samples.row,
        block=samples.block,
        status=np.zeros(len(positions), dtype=np.uint8),
        delivered_shard=samples.shard.copy(),
        delivered_row=samples.row.copy(),
        delivered_block=samples.block.copy(),
        draw=np.full(len(positions), -1, dtype=np.int64),
        event=events,
    )
    padding = _padding(batch.skipped[wanted.start : wanted.stop], samples, end_position=end_position, epochs=epochs)
    held = (events > 0) | samples.removed
    for i in np.flatnonzero((padding > 0) | held).tolist():
        if padding[i]:
            _deliver_nothing(planned, i, int(padding[i]))
            planned.event[i] = 0
            continue
        substitute = None
        if fill == "substitute":
            substitute = _substitute(planned, i, stream, withheld, after_draw=-1)
        if substitute is None:
            _deliver_nothing(planned, i, SlotStatus.QUARANTINED if events[i] else SlotStatus.REMOVED)
        else:
            _deliver(planned, i, substitute)
    if exceptions:
        for i, position in enumerate(positions.tolist()):
            exempted = exceptions.get(position)
            if exempted is not None and not padding[i]:
                _except(planned, i, stream, exempted, removed=bool(samples.removed[i]))
    return planned


def next_substitute(
    stream: Stream,
    withheld: WithheldSet,
    *,
    position: int,
    source: int,
    generation: int,
    after_draw: int = -1,
) -> Substitute | None:
    """Draw the next substitute of a slot that may be delivered; None when eight draws have been used up.

    Parameters
    ----------
    position
        Of the slot.
    source, generation
        Of its planned sample.
    after_draw
        The draw before, which could not be read either; -1 for the first.
    """
    for draw in range(after_draw + 1, MAX_DRAWS):
        block, shard, row = stream.substitute(position, source, generation, draw)
        if withheld and withheld.event_of(shard, row):
            continue
        if not stream.is_removed(position, source, generation, shard):
            return Substitute(draw=draw, block=block, shard=shard, row=row)
    return None


def _padding(
    skipped: NDArray[np.bool_], samples: Samples, *, end_position: int | None, epochs: int | None
) -> NDArray[np.uint8]:
    """Status of slots that are padding whatever the plan says of their rows, 0 for all others."""
    padding = np.zeros(len(skipped), dtype=np.uint8)
    if end_position is not None:
        padding[samples.position >= end_position] = SlotStatus.ENDED
    if epochs is not None:
        padding[samples.epoch >= epochs] = SlotStatus.ENDED
    padding[skipped] = SlotStatus.SKIPPED
    return padding


def _substitute(
    planned: PlannedSlots, i: int, stream: Stream, withheld: WithheldSet, *, after_draw: int
) -> Substitute | None:
    return next_substitute(
        stream,
        withheld,
        position=int(planned.position[i]),
        source=int(planned.source[i]),
        generation=int(planned.generation[i]),
        after_draw=after_draw,
    )


def _deliver_nothing(planned: PlannedSlots, i: int, status: int) -> None:
    planned.status[i] = status
    planned.draw[i] = -1
    planned.delivered_shard[i] = planned.delivered_row[i] = planned.delivered_block[i] = -1


def _deliver(planned: PlannedSlots, i: int, substitute: Substitute) -> None:
    planned.status[i] = SlotStatus.SUBSTITUTED
    planned.draw[i] = substitute.draw
    planned.delivered_shard[i] = substitute.shard
    planned.delivered_row[i] = substitute.row
    planned.delivered_block[i] = substitute.block


def _except(planned: PlannedSlots, i: int, stream: Stream, exempted: Exempted, *, removed: bool) -> None:
    """Write over slot i what its exception says; a row that the plan withholds keeps that as its reason."""
    if exempted.shard >= 0:
        block = _block_of(stream, exempted.shard, exempted.row)
        _deliver(planned, i, Substitute(draw=exempted.draw, block=block, shard=exempted.shard, row=exempted.row))
    elif planned.event[i]:
        _deliver_nothing(planned, i, SlotStatus.QUARANTINED)
    else:
        _deliver_nothing(planned, i, SlotStatus.REMOVED if removed else SlotStatus.UNREADABLE)


def _block_of(stream: Stream, shard: int, row: int) -> int:
    """The block, numbered through, that holds a row (of a window: its first token)."""
    which, local = stream.manifest_set.split_shard(shard)
    stored = row if stream.root.seq_len is None else row * stream.root.seq_len
    return int(stream.manifest_set.block_starts[which]) + stream.manifest_set.manifests[which].block_of(local, stored)
