"""What becomes of the slots of a microbatch once their rows are read and judged?

The loader asks it as it reads ahead, a rebuild when it looks back, and both ask here, so they cannot answer otherwise.
Each slot that is to deliver something has a chain of rows: the one planned (or the substitute planned for it), then the
substitutes drawn after it. They are looked at in turn:

1. A row that could not be read is passed over where the fill is ``substitute``, or where its slot is being substituted
   by the gate; else the slot delivers nothing. Reading decides that when it is delivered; looking back, the exception
   that was written down then.
2. A row that was read is judged. *Pass* and *flag* deliver it. *Mask* keeps its inputs: nothing of it counts (status
   ``refused``), or nothing of the token positions that made rules fire that ask for no more. *Substitute* draws on.
   *Halt* leaves the slot empty, and ends the run two steps on (`halting`).
3. A drawn row is delivered only where it passes or is flagged. When eight draws are used up the slot is masked: with
   the inputs of the planned row where that was refused, else with nothing.

Verdict, rules and signals that are recorded are those of the first row that was judged in the slot, or of the one that
halts: what the verdict is about. Length and digest are of what was delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dataguard.core.address import Address
from dataguard.corpus.contents import Content
from dataguard.errors import ShardDamaged
from dataguard.gate.verdict import Verdict
from dataguard.plan.document import Fill
from dataguard.plan.slots import Exempted, PlannedSlots, SlotStatus, Substitute, next_substitute
from dataguard.plan.stream import Stream
from dataguard.plan.withheld import WithheldSet
from dataguard.run.exceptions import ExceptionReason, exception_record
from dataguard.run.judging import Answers, Asked, Judge, Told

__all__ = ["Excepted", "OnUnreadable", "Settled", "Settler", "Stopped"]

OnUnreadable = Literal["withhold", "halt"]

Read = Callable[[NDArray[np.int64], NDArray[np.int64]], list[Content]]
"""Reads rows by (blocks, rows), int64 of shape (n,), blocks numbered through; -1 for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excepted:
    """One slot that the environment decided: what its exception record will say."""

    step: int
    position: int
    reason: ExceptionReason
    draw: int
    """Draw that was delivered, -1 where none was."""
    delivered_shard: int
    delivered_row: int
    failed: int | None
    """Rows that could not be read, a bit each, where a gate decides as well; see `Exempted.failed`."""

    def record(self) -> NDArray[np.void]:
        """Its exception record, shape (1,)."""
        return exception_record(
            step=self.step,
            position=self.position,
            reason=self.reason,
            draw=self.draw,
            delivered_shard=self.delivered_shard,
            delivered_row=self.delivered_row,
            failed=self.failed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """A slot on which a rule says halt."""

    place: int
    """In the microbatch."""
    shard: int
    """Of the row that halts, numbered through."""
    row: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Settled:
    """The slots of a microbatch as they are delivered."""

    slots: PlannedSlots
    contents: Sequence[Content]
    masked: Mapping[int, NDArray[np.int64] | None]
    """By place in the microbatch: positions that do not count, half-open, shape (k, 2); None for all of the sample."""
    answers: Answers | None
    """What the gate said; None without one."""
    exceptions: tuple[Excepted, ...]
    stopped: tuple[Stopped, ...]


@dataclass(slots=True)
class _Chain:
    """Where one slot stands on its chain of rows."""

    failed: int = 0
    reason: ExceptionReason | None = None
    refused: bool = False
    """The gate refused a row of it, so that draws go on whatever the fill."""
    planned: tuple[int, int, int, Content] | None = None
    """Block, shard, row and content of the planned row, where the gate refused that one."""


class Settler:
    """Settles the slots of one attempt; safe for several threads.

    Parameters
    ----------
    read
        Reads rows.
    stream, withheld, fill
        Of the attempt.
    judge
        What judges samples; None where nothing does.
    on_unreadable
        What a row does that cannot be read.
    """

    def __init__(
        self,
        read: Read,
        *,
        stream: Stream,
        withheld: WithheldSet,
        fill: Fill,
        judge: Judge | None = None,
        on_unreadable: OnUnreadable = "withhold",
    ) -> None:
        self._read = read
        self._stream = stream
        self._withheld = withheld
        self._fill = fill
        self._judge = judge
        self._on_unreadable = on_unreadable

    def settle(
        self, slots: PlannedSlots, address: Address, *, exempted: Mapping[int, Exempted] | None = None
    ) -> Settled:
        """Read and judge the slots of one microbatch.

        Parameters
        ----------
        slots
            As planned.
        exempted
            Looking back: which rows could not be read, by position. None where reading says so.

        Raises
        ------
        ShardDamaged
            A row cannot be read, and that halts.
        """
        return next(self.settle_many([(slots, address)], exempted=exempted))

    def settle_many(
        self, parts: Sequence[tuple[PlannedSlots, Address]], *, exempted: Mapping[int, Exempted] | None = None
    ) -> Iterator[Settled]:
        """The same of several microbatches, in order; what they plan is read together, and judged in one call."""
        contents = self._read(
            np.concatenate([slots.delivered_block for slots, _ in parts]),
            np.concatenate([slots.delivered_row for slots, _ in parts]),
        )
        works, start = [], 0
        for slots, address in parts:
            works.append(_Work(self, slots, contents[start : start + len(slots)], address, exempted))
            start += len(slots)
        told: Sequence[dict[int, Told]] = [{} for _ in works]
        if self._judge is not None:
            told = self._judge.judge([work.asked() for work in works])
        for work, own in zip(works, told, strict=True):
            if self._judge is not None or any(content.problem for content in work.contents):
                work.settle_all(own)
            yield work.settled()


class _Work:
    """One microbatch under way."""

    def __init__(
        self,
        settler: Settler,
        slots: PlannedSlots,
        contents: list[Content],
        address: Address,
        exempted: Mapping[int, Exempted] | None,
    ) -> None:
        self.of = settler
        self.judge = settler._judge
        self.slots = slots
        self.contents = contents
        self.address = address
        self.exempted = exempted
        self.masked: dict[int, NDArray[np.int64] | None] = {}
        self.exceptions: list[Excepted] = []
        self.stopped: list[Stopped] = []
        self.answers = None if self.judge is None else self.judge.answers(slots.position)

    def settled(self) -> Settled:
        return Settled(
            slots=self.slots,
            contents=self.contents,
            masked=self.masked,
            answers=self.answers,
            exceptions=tuple(self.exceptions),
            stopped=tuple(self.stopped),
        )

    def asked(self) -> Asked:
        """The rows that are there to be judged."""
        assert self.answers is not None
        places = np.flatnonzero(self.slots.delivered_block >= 0).tolist()
        there = [
            i
            for i in places
            if self.contents[i].value is not None and not self._fails(i, int(self.slots.draw[i]), self.contents[i])
        ]
        contents = [self.contents[i].value for i in there]
        return Asked(places=there, contents=contents, slots=self.slots, answers=self.answers)

    def settle_all(self, told: Mapping[int, Told]) -> None:
        """All slots: those that only pass are done already, the others are gone through one by one."""
        places = np.flatnonzero(self.slots.delivered_block >= 0).tolist()
        odd = [i for i in places if self._fails(i, int(self.slots.draw[i]), self.contents[i])]
        more = sorted({*odd, *(i for i, (verdict, _) in told.items() if verdict > Verdict.FLAG)})
        if not more:
            return
        self.slots = self.slots.copy()
        self.contents = list(self.contents)
        for i in more:
            self._settle(i, told.get(i))

    def _fails(self, i: int, draw: int, content: Content) -> bool:
        """Whether a row of slot i counts as one that could not be read."""
        if self.exempted is None:
            return content.problem is not None
        exempted = self.exempted.get(int(self.slots.position[i]))
        return exempted is not None and bool(exempted.failed >> (draw + 1) & 1)

    def _settle(self, i: int, verdict: Told | None) -> None:
        """Go along the chain of one slot."""
        slots, chain = self.slots, _Chain()
        status, event = int(slots.status[i]), int(slots.event[i])
        row = Substitute(
            draw=int(slots.draw[i]),
            block=int(slots.delivered_block[i]),
            shard=int(slots.delivered_shard[i]),
            row=int(slots.delivered_row[i]),
        )
        content = self.contents[i]
        while True:
            if self._fails(i, row.draw, content):
                self._failed(i, chain, row, content)
                on = self.of._fill == "substitute" or chain.refused
            elif content.value is None:
                # Looking back, and it cannot be read now: whoever compares says so.
                return self._deliver(i, chain, row, content)
            else:
                verdict = verdict or self._judged(i, content)
                if verdict[0] <= Verdict.FLAG:
                    return self._deliver(i, chain, row, content)
                if verdict[0] == Verdict.HALT:
                    self.stopped.append(Stopped(place=i, shard=row.shard, row=row.row))
                    return self._nothing(i, chain, SlotStatus.REFUSED)
                if verdict[0] == Verdict.MASK and row.draw < 0:
                    return self._mask(i, chain, row, content, verdict[1])
                chain.refused = True
                if row.draw < 0:
                    chain.planned = (row.block, row.shard, row.row, content)
                on = True
            verdict = None
            drawn = self._next(i, row.draw) if on else None
            if drawn is None:
                return self._used_up(i, chain, status, event)
            row = drawn
            content = self.of._read(np.array([row.block]), np.array([row.row]))[0]

    def _failed(self, i: int, chain: _Chain, row: Substitute, content: Content) -> None:
        chain.failed |= 1 << (row.draw + 1)
        problem = content.problem
        if self.exempted is not None or problem is None:
            return
        if self.of._on_unreadable == "halt":
            raise ShardDamaged(
                f"{self.address}, slot {int(self.slots.slot[i])}: row {problem.row:,} of {problem.shard} is "
                f"{problem.kind}",
                found=problem.detail,
                todo="mend the shard, quarantine it, or run with on_unreadable = withhold",
            )
        if chain.reason is None:
            chain.reason = ExceptionReason.CHANGED if problem.kind == "changed" else ExceptionReason.UNREADABLE

    def _judged(self, i: int, content: Content) -> Told:
        """What the gate says of a row drawn for slot i."""
        if self.judge is None:
            return Verdict.PASS, None
        assert self.answers is not None
        asked = Asked(places=[i], contents=[content.value], slots=self.slots, answers=self.answers)
        return self.judge.judge([asked])[0][i]

    def _next(self, i: int, draw: int) -> Substitute | None:
        return next_substitute(
            self.of._stream,
            self.of._withheld,
            position=int(self.slots.position[i]),
            source=int(self.slots.source[i]),
            generation=int(self.slots.generation[i]),
            after_draw=draw,
        )

    # -- ends of a chain

    def _deliver(self, i: int, chain: _Chain, row: Substitute, content: Content) -> None:
        self._put(i, row, content)
        if row.draw >= 0:
            self.slots.status[i] = SlotStatus.SUBSTITUTED
        self._except(i, chain, row)

    def _mask(self, i: int, chain: _Chain, row: Substitute, content: Content, spans: NDArray[np.int64] | None) -> None:
        """The inputs stay; what made the rules fire does not count."""
        self._put(i, row, content)
        self.masked[i] = spans
        if spans is None:
            self.slots.status[i] = SlotStatus.REFUSED
        self._except(i, chain, row)

    def _used_up(self, i: int, chain: _Chain, status: int, event: int) -> None:
        """No row is left: the slot is masked."""
        if chain.planned is not None:
            block, shard, number, content = chain.planned
            return self._mask(i, chain, Substitute(draw=-1, block=block, shard=shard, row=number), content, None)
        return self._nothing(i, chain, _why_nothing(status, event))

    def _nothing(self, i: int, chain: _Chain, status: SlotStatus) -> None:
        nothing = Substitute(draw=-1, block=-1, shard=-1, row=-1)
        self._put(i, nothing, Content())
        self.slots.status[i] = status
        self._except(i, chain, nothing)

    def _put(self, i: int, row: Substitute, content: Content) -> None:
        self.contents[i] = content
        self.slots.draw[i], self.slots.delivered_block[i] = row.draw, row.block
        self.slots.delivered_shard[i], self.slots.delivered_row[i] = row.shard, row.row

    def _except(self, i: int, chain: _Chain, row: Substitute) -> None:
        if chain.reason is None:
            return
        drawn = row.draw >= 0
        self.exceptions.append(
            Excepted(
                step=self.address.step,
                position=int(self.slots.position[i]),
                reason=chain.reason,
                draw=row.draw,
                delivered_shard=row.shard if drawn else -1,
                delivered_row=row.row if drawn else -1,
                failed=None if self.judge is None else chain.failed,
            )
        )


def _why_nothing(status: int, event: int) -> SlotStatus:
    """Why a slot is empty whose rows cannot be had; where they were substitutes, why its own was withheld."""
    if event:
        return SlotStatus.QUARANTINED
    return SlotStatus.REMOVED if status == SlotStatus.SUBSTITUTED else SlotStatus.UNREADABLE
