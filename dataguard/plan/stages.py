"""Where has every (lane, source) got to when a mixture begins?

A mixture that begins at position P continues each lane's draws of each source where the mixture before left them. So
the state at P is a small table of counts (lanes x sources), computed in closed form from the mixture before it and
never by walking the stream. Mixtures are entered in order, the first time a position in them (or behind them) is
asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataguard.core.manifest import Manifest
from dataguard.core.permute import permute
from dataguard.errors import NotInRun, PlanError
from dataguard.plan.document import Mixture, Root
from dataguard.plan.generations import Chain, shards_changed
from dataguard.plan.lanes import LaneSplit, lanes_of_source
from dataguard.plan.mixture import BLOCK, LARGEST_POSITION, Dealer
from dataguard.plan.order import ArrayPermutation, SourceOrder
from dataguard.plan.tables import SourceTable

__all__ = ["Stage", "Stages", "places_before"]


def places_before(position: int, lanes: int) -> NDArray[np.int64]:
    """How many positions below `position` each lane has: int64, shape (lanes,).

    >>> places_before(5, 4)
    array([2, 1, 1, 1])
    """
    return -((np.arange(lanes, dtype=np.int64) - position) // lanes)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stage:
    """One mixture, and the state of the stream where it begins."""

    mixture: Mixture
    dealer: Dealer
    sources: NDArray[np.int64]
    """The stream's number of each source of the dealer, shape (dealer sources,)."""
    first_places: NDArray[np.int64]
    """Each lane's first t in the mixture, shape (lanes,)."""
    drawn: NDArray[np.int64]
    """Draws of each source before the mixture, shape (lanes, sources of the stream)."""
    newest: tuple[int, ...]
    """Newest generation of each source of the stream, -1 where it has none yet."""

    def drawn_before(self, position: int) -> NDArray[np.int64]:
        """Draws of each source before a position at or behind the mixture's start, shape (lanes, sources)."""
        lanes = len(self.first_places)
        drawn = self.drawn.copy()
        places = places_before(position, lanes) - self.first_places
        drawn[:, self.sources] += self.dealer.drawn(np.arange(lanes), places)
        return drawn


class Stages:
    """The mixtures of a stream with their states, entered when they are needed. Safe to share between threads."""

    def __init__(
        self,
        root: Root,
        mixtures: Sequence[Mixture],
        manifests: Mapping[str, Manifest],
        *,
        permutation: ArrayPermutation = permute,
        block: int = BLOCK,
    ) -> None:
        starts = [mixture.start for mixture in mixtures]
        if not starts or starts[0] != 0 or starts != sorted(set(starts)):
            raise PlanError(f"the mixtures start at positions {starts}", allowed="0 first, then rising")
        self.root = root
        self.mixtures = tuple(mixtures)
        self.starts = np.array(starts, dtype=np.int64)
        self.manifests: list[Manifest] = []
        """In the order in which the mixtures first name them."""
        self.names = sorted({name for mixture in mixtures for name in mixture.weights}, key=str.encode)
        """All sources of all mixtures, in byte order."""
        self.chains = [Chain(name, root.lanes) for name in self.names]
        self._permutation = permutation
        self._block = block
        self._number = {name: i for i, name in enumerate(self.names)}
        self._tables: list[dict[str, SourceTable]] = []
        self._ordinals: dict[str, int] = {}
        known: dict[tuple[str, str], SourceTable] = {}
        for mixture in mixtures:
            if mixture.manifest not in self._ordinals:
                if mixture.manifest not in manifests:
                    raise PlanError(
                        f"the mixture from position {mixture.start:,} on reads manifest {mixture.manifest[:12]}...",
                        found=f"{len(manifests)} manifests, not this one",
                        todo="give the manifest it was planned with",
                    )
                self._ordinals[mixture.manifest] = len(self.manifests)
                self.manifests.append(manifests[mixture.manifest])
            for name in mixture.weights:
                if (mixture.manifest, name) not in known:
                    known[mixture.manifest, name] = SourceTable.of(
                        manifests[mixture.manifest], name, root.form, root.seq_len
                    )
            self._tables.append({name: known[mixture.manifest, name] for name in mixture.weights})
        self._stages: list[Stage] = []
        self._lock = threading.Lock()

    def index_at(self, position: int) -> int:
        """Which mixture holds a position."""
        return int(np.searchsorted(self.starts, position, side="right")) - 1

    def stage(self, index: int) -> Stage:
        """The index-th mixture, entering those before it where that was not done yet."""
        if index >= len(self._stages):
            with self._lock:
                while index >= len(self._stages):
                    self._stages.append(self._enter(len(self._stages)))
        return self._stages[index]

    def drawn_before(self, position: int) -> NDArray[np.int64]:
        """Draws of each (lane, source) before a position: int64, shape (lanes, sources)."""
        if not 0 <= position <= LARGEST_POSITION:
            raise NotInRun(f"position {position:,} is not in the stream", allowed="0:2^60")
        return self.stage(self.index_at(position)).drawn_before(position)

    def number(self, name: str) -> int:
        """The stream's number of a source."""
        if name not in self._number:
            raise NotInRun(f"no source of the stream is called {name!r}", found=", ".join(self.names))
        return self._number[name]

    def positions_of_draws(self, lanes: Sequence[int], source: int, draws: Sequence[int]) -> list[int]:
        """Where lanes make their draws of a source, all of which they make."""
        found = [-1] * len(lanes)
        left = list(range(len(lanes)))
        for index in range(len(self.mixtures)):
            if not left:
                break
            stage, now, later = self.stage(index), left, []
            if index + 1 < len(self.mixtures):
                ends = self.stage(index + 1).drawn[:, source]
                now = [i for i in left if draws[i] < ends[lanes[i]]]
                later = [i for i in left if draws[i] >= ends[lanes[i]]]
            left = later
            if not now:
                continue
            mine = int(np.flatnonzero(stage.sources == source)[0])
            in_mixture = [draws[i] - int(stage.drawn[lanes[i], source]) for i in now]
            places = stage.dealer.places([lanes[i] for i in now], mine, in_mixture)
            for i, place in zip(now, places, strict=True):
                found[i] = (int(stage.first_places[lanes[i]]) + place) * self.root.lanes + lanes[i]
        return found

    def _enter(self, index: int) -> Stage:
        mixture, lanes = self.mixtures[index], self.root.lanes
        if index:
            drawn = self._stages[index - 1].drawn_before(mixture.start)
        else:
            drawn = np.zeros((lanes, len(self.names)), dtype=np.int64)
        dealer = Dealer(self.root.seed, mixture, block=self._block, permutation=self._permutation)
        for name in dealer.names:
            table, number = self._tables[index][name], self._number[name]
            chain = self.chains[number]
            if chain.generations and not shards_changed(chain.generations[-1].order.table, table):
                continue
            chain.add(self._order(table), manifest_ordinal=self._ordinals[mixture.manifest], drawn=drawn[:, number])
        return Stage(
            mixture=mixture,
            dealer=dealer,
            sources=np.array([self._number[name] for name in dealer.names], dtype=np.int64),
            first_places=places_before(mixture.start, lanes),
            drawn=drawn,
            newest=tuple(len(chain.generations) - 1 for chain in self.chains),
        )

    def _order(self, table: SourceTable) -> SourceOrder:
        root = self.root
        split = LaneSplit(
            lanes=root.lanes,
            source_lanes=lanes_of_source(table.num_blocks, root.lanes),
            num_samples=table.num_samples,
        )
        return SourceOrder(
            table,
            split,
            seed=root.seed,
            window_blocks=root.window_blocks,
            shuffle=root.shuffle,
            permutation=self._permutation,
        )
