"""What do the eight cells of the replay experiment say together, as one word?

The design of row A8 is {checkpoint before the step, an earlier one} x {the batch of the event, a placebo batch} x
{this node, another}. Each cell was answered *yes* (the event shows, beyond the run's difference from itself), *no*, or
nobody looked. `replay_of` reads them in this order, and the first that holds is the answer:

1. Nothing was told: not run.
2. On equal inputs this node shows it and another does not, and no other node shows it anywhere: the **node**. Both
   nodes were asked, or this is never said. Nodes that differ in any other way contradict each other: inconclusive.
3. From here on nodes agree where both were asked, and count as one. Asking one node alone is allowed, since one is all
   that many have: then the placebo on that node is what speaks against the node. What contradicts itself is
   inconclusive: a placebo that shows what the batch itself does not, from the same checkpoint; or anything that shows
   from an earlier checkpoint and not from the one right before the step.
4. The batch shows it from the checkpoint before, and so does the placebo: the **state** (or the configuration).
5. The batch shows it from both checkpoints, and the placebo was seen not to, from both: the **batch**.
6. The batch shows it from the checkpoint before and not from an earlier one, and the placebo from the one before was
   seen not to: the **batch from this state**.
7. The batch does not show it from the checkpoint before, and no cell shows anything: **not reproduced**, which proves
   nothing by itself: the state may have been damaged already, and a sick node predicts the same.
8. Anything else is inconclusive: cells are missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dataguard.core.evidence import Replay, Told

__all__ = ["CELLS", "Cell", "replay_of"]

Checkpoint = Literal["before", "earlier"]
Batch = Literal["event", "placebo"]
Node = Literal["this", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One of the eight cells: which batch was fed, from which checkpoint, on which node.

    >>> str(Cell(checkpoint="before", batch="placebo", node="other"))
    'the placebo batch from the checkpoint before, on another node'
    """

    checkpoint: Checkpoint
    """The newest one before the step, or one of many steps earlier."""
    batch: Batch
    """That of the event, or one that was chosen by key."""
    node: Node
    """Where the event was seen (or where the experiment runs), or another."""

    def __post_init__(self) -> None:
        for value, allowed in (
            (self.checkpoint, ("before", "earlier")),
            (self.batch, ("event", "placebo")),
            (self.node, ("this", "other")),
        ):
            if value not in allowed:
                raise ValueError(f"{value!r} is none of {', '.join(allowed)}")

    def __str__(self) -> str:
        checkpoint = "the checkpoint before" if self.checkpoint == "before" else "an earlier checkpoint"
        node = "this node" if self.node == "this" else "another node"
        batch = "the batch" if self.batch == "event" else "the placebo batch"
        return f"{batch} from {checkpoint}, on {node}"


_CHECKPOINTS: tuple[Checkpoint, ...] = ("before", "earlier")
_BATCHES: tuple[Batch, ...] = ("event", "placebo")
_NODES: tuple[Node, ...] = ("this", "other")

CELLS: tuple[Cell, ...] = tuple(
    Cell(checkpoint=checkpoint, batch=batch, node=node)
    for node in _NODES
    for checkpoint in _CHECKPOINTS
    for batch in _BATCHES
)
"""All eight, in the order in which they are worth running: this node first, the checkpoint before first."""


def replay_of(shows: Mapping[Cell, Told]) -> Replay:
    """What the cells say together; total over all 3^8 answers.

    Parameters
    ----------
    shows
        Of each cell that was run, whether the event showed there beyond the baseline; cells left out are unknown.

    Examples
    --------
    >>> yes = {Cell(checkpoint=c, batch="event", node="this"): Told.YES for c in ("before", "earlier")}
    >>> no = {Cell(checkpoint=c, batch="placebo", node="this"): Told.NO for c in ("before", "earlier")}
    >>> replay_of(yes | no)
    <Replay.BATCH: 'batch'>
    >>> replay_of(yes)
    <Replay.INCONCLUSIVE: 'inconclusive'>
    """
    told = {cell: answer for cell, answer in shows.items() if answer is not Told.UNKNOWN}
    if not told:
        return Replay.NOT_RUN
    nodes = _of_nodes(told)
    if nodes is not None:
        return nodes
    batch, placebo = _joined(told, "event"), _joined(told, "placebo")
    if _contradicts(batch, placebo):
        return Replay.INCONCLUSIVE
    before = (batch["before"], placebo["before"])
    earlier = (batch["earlier"], placebo["earlier"])
    if before == (Told.YES, Told.YES):
        return Replay.STATE
    if before == (Told.YES, Told.NO):
        if earlier == (Told.YES, Told.NO):
            return Replay.BATCH
        if earlier[0] is Told.NO:
            return Replay.BATCH_FROM_THIS_STATE
    if before[0] is Told.NO and Told.YES not in told.values():
        return Replay.NOT_REPRODUCED
    return Replay.INCONCLUSIVE


def _of_nodes(told: Mapping[Cell, Told]) -> Replay | None:
    """What two nodes say of equal inputs; None where they agree, or where one alone was asked."""
    only_here = only_there = False
    for cell in CELLS[:4]:
        there = Cell(checkpoint=cell.checkpoint, batch=cell.batch, node="other")
        answers = (told.get(cell), told.get(there))
        only_here |= answers == (Told.YES, Told.NO)
        only_there |= answers == (Told.NO, Told.YES)
    if not (only_here or only_there):
        return None
    shows_there = any(answer is Told.YES for cell, answer in told.items() if cell.node == "other")
    return Replay.INCONCLUSIVE if shows_there else Replay.NODE


def _joined(told: Mapping[Cell, Told], batch: Batch) -> dict[Checkpoint, Told]:
    """Of each checkpoint, what the nodes say that were asked; they agree."""
    joined = {}
    for checkpoint in _CHECKPOINTS:
        cells = (Cell(checkpoint=checkpoint, batch=batch, node=node) for node in _NODES)
        joined[checkpoint] = next((told[cell] for cell in cells if cell in told), Told.UNKNOWN)
    return joined


def _contradicts(batch: Mapping[Checkpoint, Told], placebo: Mapping[Checkpoint, Told]) -> bool:
    """Whether something shows where less should show it."""
    without_the_batch = any(
        placebo[checkpoint] is Told.YES and batch[checkpoint] is Told.NO for checkpoint in _CHECKPOINTS
    )
    only_earlier = any(each["earlier"] is Told.YES and each["before"] is Told.NO for each in (batch, placebo))
    return without_the_batch or only_earlier
