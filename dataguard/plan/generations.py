"""What does a source's n-th draw mean when the source has grown or shrunk in between?

A mixture with another manifest begins a new *generation* of each source whose shards changed, at epoch
``e* = 1 + the highest epoch any stream lane has begun``; until then the old order is finished, lane by lane. The
draws of a (stream lane, source) are counted through all mixtures and generations:

- generation g holds the epochs ``E_g : E_{g+1}``. Its lane split is computed anew; a stream lane enters it at its
  first draw of epoch E_g or later, j0, and leaves it at its first of E_{g+1} or later;
- so lane l's draws ``D_g(l) : D_{g+1}(l)`` belong to generation g, with ``j = j0_g(l) + d - D_g(l)``, and
  ``D_{g+1}(l) = D_g(l) + j0 of E_{g+1} in generation g - j0_g(l)``.

A source that changes twice before a new epoch begins leaves a generation of no epochs, which needs no rule of its
own. A manifest that leaves a source as it was changes nothing: its rows keep the numbers of the manifest they came
with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataguard.core.manifest import Manifest
from dataguard.plan.lanes import LaneSplit
from dataguard.plan.order import SourceOrder
from dataguard.plan.tables import SourceTable

__all__ = ["Chain", "Generation", "gone_shards", "shards_changed"]


def shards_changed(old: SourceTable, new: SourceTable) -> bool:
    """Whether two manifests differ in what a source holds: its shards (path, digest, effect, ...) or its text field."""
    return _contents(old) != _contents(new)


def _contents(table: SourceTable) -> tuple[object, ...]:
    manifest = table.manifest
    source = manifest.sources[table.source]
    shards = (manifest.shards[i] for i in manifest.shards_of(table.source))
    return (
        source.kind,
        source.text_field,
        tuple(
            (s.path, s.digest, s.effect, s.format, s.compression, s.item_type, s.num_rows, s.size_bytes) for s in shards
        ),
    )


def gone_shards(old: SourceTable, new: SourceTable) -> NDArray[np.bool_]:
    """Which shards of the old manifest the new one no longer delivers, by path and digest: bool, shape (shards,)."""
    manifest = new.manifest
    kept = {
        (shard.path, shard.digest)
        for shard in (manifest.shards[i] for i in manifest.shards_of(new.source))
        if shard.effect != "excluded"
    }
    gone = np.zeros(len(old.manifest.shards), dtype=bool)
    for i in old.manifest.shards_of(old.source):
        gone[i] = (old.manifest.shards[i].path, old.manifest.shards[i].digest) not in kept
    return gone


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Generation:
    """One state of a source's shards, and the epochs that read it."""

    manifest: Manifest
    manifest_ordinal: int
    """Place of the manifest among the stream's, for numbers counted through."""
    first_epoch: int
    """E_g."""
    order: SourceOrder
    entry_draws: NDArray[np.int64]
    """D_g(l): the first draw of each stream lane that belongs to it (or to a later one), shape (lanes,)."""
    entry_turns: NDArray[np.int64]
    """j0_g(l): the turn j that draw stands for, shape (lanes,)."""

    @property
    def split(self) -> LaneSplit:
        """How the stream's lanes share its samples."""
        return self.order.split


class Chain:
    """All generations of one source so far, oldest first."""

    def __init__(self, name: str, lanes: int) -> None:
        self.name = name
        self.generations: list[Generation] = []
        self._lanes = lanes
        self._gone: dict[tuple[int, int], NDArray[np.bool_]] = {}

    def add(self, order: SourceOrder, *, manifest_ordinal: int, drawn: NDArray[np.int64]) -> None:
        """Begin a generation where each stream lane has drawn so often: int64, shape (lanes,)."""
        first_epoch = 0
        entry = np.zeros(self._lanes, dtype=np.int64)
        if self.generations:
            begun = self.epochs_begun(drawn)
            first_epoch = 0 if begun is None else 1 + begun[1]
            entry = self.draws_before(first_epoch)
        self.generations.append(
            Generation(
                manifest=order.table.manifest,
                manifest_ordinal=manifest_ordinal,
                first_epoch=first_epoch,
                order=order,
                entry_draws=entry,
                entry_turns=order.split.first_draws(first_epoch),
            )
        )

    def locate(
        self, lanes: NDArray[np.int64], draws: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """(generation, epoch, source lane, s in the lane's part) of draws of stream lanes, each int64, shape (n,)."""
        number = np.zeros(len(draws), dtype=np.int64)
        for later in self.generations[1:]:
            number += later.entry_draws[lanes] <= draws
        epoch = np.empty_like(number)
        source_lane = np.empty_like(number)
        within = np.empty_like(number)
        for g, generation in enumerate(self.generations):
            mine = slice(None) if len(self.generations) == 1 else np.flatnonzero(number == g)
            lane, split = lanes[mine], generation.split
            if not len(lane):
                continue
            turn = generation.entry_turns[lane] + draws[mine] - generation.entry_draws[lane]
            ordinal = turn * split.turns + lane // split.source_lanes
            source_lane[mine] = lane % split.source_lanes
            epoch[mine], within[mine] = np.divmod(ordinal, split.length(source_lane[mine]))
        return number, epoch, source_lane, within

    def epochs_begun(self, drawn: NDArray[np.int64]) -> tuple[int, int] | None:
        """(lowest, highest) epoch of the last draws of the stream lanes that have drawn at all, None where none has."""
        lanes = np.flatnonzero(drawn)
        if not len(lanes):
            return None
        _, epoch, _, _ = self.locate(lanes, drawn[lanes] - 1)
        return int(epoch.min()), int(epoch.max())

    def lowest_next_epoch(self, drawn: NDArray[np.int64]) -> int:
        """The lowest epoch that a stream lane draws from next."""
        _, epoch, _, _ = self.locate(np.arange(self._lanes), drawn)
        return int(epoch.min())

    def epochs_of(self, generation: int) -> tuple[int, int | None]:
        """Epochs ``first : stop`` of a generation; stop is None for the last, which has no end."""
        stop = self.generations[generation + 1].first_epoch if generation + 1 < len(self.generations) else None
        return self.generations[generation].first_epoch, stop

    def draws_before(self, epoch: int) -> NDArray[np.int64]:
        """Each stream lane's draws from epochs below `epoch`: int64, shape (lanes,)."""
        number = sum(later.first_epoch <= epoch for later in self.generations[1:])
        generation = self.generations[number]
        return generation.entry_draws + generation.split.first_draws(epoch) - generation.entry_turns

    def gone(self, generation: int, newest: int) -> NDArray[np.bool_]:
        """Which shards of a generation's manifest a later generation no longer has: bool, shape (shards,)."""
        pair = (generation, newest)
        if pair not in self._gone:
            old, new = (self.generations[g].order.table for g in pair)
            self._gone[pair] = gone_shards(old, new)
        return self._gone[pair]
