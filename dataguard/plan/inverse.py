"""At which positions does a row stand, and where does an epoch end?

The exact inverse of the stream, step by step: row -> place in the order of an epoch -> source lane and ordinal ->
stream lane and draw -> mixture and place in it -> position. Only the epochs that lanes can be in within the range asked
for are looked at, and each gives at most one position.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataguard.core.manifest import ManifestSet
from dataguard.errors import NotInRun, PlanError, SpanError
from dataguard.plan.generations import Generation
from dataguard.plan.mixture import LARGEST_POSITION
from dataguard.plan.stages import Stages

__all__ = ["Placement", "end_of_epoch", "end_of_epochs", "find"]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Placement:
    """One position that holds a row."""

    position: int
    epoch: int


def find(stages: Stages, numbering: ManifestSet, shard: int, row: int, *, start: int, stop: int) -> list[Placement]:
    """Every position in ``start:stop`` that holds a row of a shard numbered through; see `Stream.find`."""
    if not 0 <= start <= stop <= LARGEST_POSITION:
        raise SpanError(f"positions {start:,}:{stop:,} cannot be", allowed="0 <= start <= stop <= 2^60")
    if not 0 <= shard < numbering.num_shards:
        raise NotInRun(f"shard number {shard:,} is not in the stream", allowed=f"0:{numbering.num_shards:,}")
    ordinal, local = numbering.split_shard(shard)
    num_rows = numbering.manifests[ordinal].shards[local].num_rows
    if not 0 <= row < num_rows:
        raise NotInRun(f"row {row:,} is not in shard {numbering.shard_name(shard)}", allowed=f"0:{num_rows:,}")
    name = numbering.source_name(shard)
    if name not in stages.names or start == stop:
        return []
    number = stages.number(name)
    chain = stages.chains[number]
    # Both before looking at the generations: entering the mixtures is what makes them.
    before, after = stages.drawn_before(start)[:, number], stages.drawn_before(stop)[:, number]
    begun = chain.epochs_begun(after)
    if begun is None:
        return []
    lowest, highest = chain.lowest_next_epoch(before), begun[1]
    lanes, draws, epochs = [], [], []
    for g, generation in enumerate(chain.generations):
        if generation.manifest_ordinal != ordinal:
            continue
        at = generation.order.table.find(local, row)
        if at is None:
            continue
        first, end = chain.epochs_of(g)
        for epoch in range(max(first, lowest), highest + 1 if end is None else min(end, highest + 1)):
            lane, draw = _draw_of(generation, epoch, *at)
            if before[lane] <= draw < after[lane]:
                lanes.append(lane)
                draws.append(draw)
                epochs.append(epoch)
    positions = stages.positions_of_draws(lanes, number, draws)
    return sorted(Placement(position=p, epoch=e) for p, e in zip(positions, epochs, strict=True))


def _draw_of(generation: Generation, epoch: int, block: int, offset: int) -> tuple[int, int]:
    """(stream lane, its draw) that holds a sample in an epoch."""
    split = generation.split
    _, source_lane, within = generation.order.find(epoch, block, offset)
    ordinal = epoch * int(split.length(source_lane)) + within
    lane = source_lane + split.source_lanes * (ordinal % split.turns)
    turn = ordinal // split.turns
    return lane, int(generation.entry_draws[lane] + turn - generation.entry_turns[lane])


def end_of_epoch(stages: Stages, source: str, epoch: int) -> int:
    """One past the last position that holds a row of an epoch of a source; see `Stream.end_of_epoch`."""
    if epoch < 0:
        raise NotInRun(f"epoch {epoch} is not one of source {source!r}", allowed="0 and above")
    number = stages.number(source)
    start, stop = _draws_before(stages, number, epoch), _draws_before(stages, number, epoch + 1)
    end = _end_of_draws(stages, number, start, stop)
    if not end:
        raise NotInRun(
            f"no position holds a row of epoch {epoch:,} of source {source!r}",
            found="the source leaves the mixture before it",
        )
    return end


def end_of_epochs(stages: Stages, epochs: int) -> int:
    """One past the last position of any sample of an epoch below `epochs`; see `Stream.end_of_epochs`."""
    if epochs < 1:
        raise PlanError(f"{epochs} epochs cannot be", allowed="at least 1")
    none = np.zeros(stages.root.lanes, dtype=np.int64)
    return max(
        _end_of_draws(stages, number, none, _draws_before(stages, number, epochs))
        for number in range(len(stages.names))
    )


def _draws_before(stages: Stages, number: int, epoch: int) -> NDArray[np.int64]:
    """Draws of each lane, of those it ever makes, that are of epochs below `epoch`."""
    last = stages.stage(len(stages.mixtures) - 1)
    chain = stages.chains[number]
    most = max(generation.split.num_samples for generation in chain.generations)
    if epoch * most >= LARGEST_POSITION:
        raise NotInRun(
            f"epoch {epoch:,} of source {chain.name!r} lies past the last position", allowed="positions 0:2^60"
        )
    draws = chain.draws_before(epoch)
    return draws if number in last.sources else np.minimum(draws, last.drawn[:, number])


def _end_of_draws(stages: Stages, number: int, start: NDArray[np.int64], stop: NDArray[np.int64]) -> int:
    """One past the last position of any lane's draws ``start:stop`` of a source, 0 where there is none."""
    lanes = np.flatnonzero(stop > start)
    positions = stages.positions_of_draws(lanes.tolist(), number, (stop[lanes] - 1).tolist())
    end = max(positions, default=-1) + 1
    if end > LARGEST_POSITION:
        raise NotInRun(f"position {end - 1:,} lies past the last one", allowed="0:2^60")
    return end
