"""Which sample stands at position p of the stream, and at which positions does a sample stand?

The stream is a pure function of the root, the mixtures and their manifests. Position p is the ``t = p div L``-th of
lane ``l = p mod L``. The mixture in force says which source it draws from and the how-many-th draw of that (lane,
source) it is (`plan.mixture`, `plan.stages`); the source's generations say which epoch and ordinal that draw is
(`plan.generations`); the order of the epoch says which row (`plan.order`). Every step has an exact inverse
(`plan.inverse`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from dataguard.core.keys import derive_key
from dataguard.core.manifest import Manifest, ManifestSet
from dataguard.core.permute import permute
from dataguard.errors import NotInRun, PlanError
from dataguard.plan import inverse
from dataguard.plan.document import ALGORITHMS, Mixture, Root
from dataguard.plan.inverse import Placement
from dataguard.plan.mixture import BLOCK, LARGEST_POSITION
from dataguard.plan.order import ArrayPermutation, groups
from dataguard.plan.stages import Stage, Stages

__all__ = ["Placement", "Samples", "Stream"]

_LARGE = 1 << 16  # places of a permutation that is worth loading the compiler for
_CHUNK = 1 << 16  # positions worked on at once: bounds temporaries where each needs a mixture block of its own


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Samples:
    """What stands at some positions; every field is an array of shape (n,)."""

    position: NDArray[np.int64]
    source: NDArray[np.int32]
    """Index into the stream's `source_names`."""
    generation: NDArray[np.int32]
    """State of the source's shards the row was drawn from, 0-based by source."""
    epoch: NDArray[np.int64]
    lane: NDArray[np.int32]
    """Lane of the stream."""
    place: NDArray[np.int64]
    """Place in the source's order of that epoch, 0:N."""
    block: NDArray[np.int64]
    """Numbered through the stream's `manifest_set`."""
    shard: NDArray[np.int64]
    """Numbered through the stream's `manifest_set`."""
    row: NDArray[np.int64]
    """Stored row; for form ``window`` the window's number in its shard: tokens row * seq_len : (row + 1) * seq_len."""
    removed: NDArray[np.bool_]
    """The source's newest shards at that position no longer hold the row's shard: it is withheld."""

    def part(self, start: int, stop: int) -> Samples:
        """Entries ``start:stop``, as views."""
        if not 0 <= start <= stop <= len(self.position):
            raise NotInRun(
                f"entries {start:,}:{stop:,} are not among these samples", allowed=f"0:{len(self.position):,}"
            )
        return Samples(**{name: getattr(self, name)[start:stop] for name in _SAMPLE_FIELDS})


_SAMPLE_FIELDS = tuple(f.name for f in fields(Samples))


class Stream:
    """Position -> sample and back. Nothing is walked: any position costs the same. Safe to share between threads.

    Parameters
    ----------
    root
        Seed, form, lanes, window and shuffle.
    mixtures
        Rising by start, the first at position 0.
    manifests
        By digest, at least those the mixtures name.
    bulk
        Send permutations through the compiled kernels once a large one has come (imports numba); the samples are the
        same.
    mixture_block
        Places of a mixture block; another than 256 is for tests alone.

    Raises
    ------
    PlanError
        If the mixtures do not rise from 0, name a manifest that is not given or a source it lacks, if a source has no
        sample of the root's form, or if the root was made by another version of an algorithm.

    """

    def __init__(
        self,
        root: Root,
        mixtures: Sequence[Mixture],
        manifests: Mapping[str, Manifest],
        *,
        bulk: bool = False,
        mixture_block: int = BLOCK,
    ) -> None:
        if root.algorithms != ALGORITHMS:
            raise PlanError(
                "the root was planned with other versions of the stream's algorithms",
                found=str(root.algorithms),
                allowed=str(ALGORITHMS),
                todo="use the version of dataguard that made the run",
            )
        self.root = root
        self.mixtures = tuple(mixtures)
        self._stages = Stages(
            root, mixtures, manifests, permutation=_bulk_permutation() if bulk else permute, block=mixture_block
        )
        self.manifest_set = ManifestSet(self._stages.manifests)
        """The manifests in the order in which the mixtures first name them."""
        self.source_names: tuple[str, ...] = tuple(self._stages.names)
        """All sources of all mixtures, in byte order."""

    def samples(self, positions: NDArray[np.int64]) -> Samples:
        """What stands at each position.

        Parameters
        ----------
        positions
            int64, shape (n,), any order, repeats allowed, each in 0:2^60.

        Raises
        ------
        NotInRun
            If a position lies outside.
        """
        positions = np.asarray(positions)
        if positions.ndim != 1 or positions.dtype.kind != "i":
            raise PlanError(
                f"positions of dtype {positions.dtype} and shape {positions.shape} cannot be",
                allowed="signed integers in one dimension",
            )
        positions = positions.astype(np.int64, copy=False)
        if len(positions) and not 0 <= int(positions.min()) <= int(positions.max()) < LARGEST_POSITION:
            raise NotInRun(
                f"positions {int(positions.min()):,} to {int(positions.max()):,} are not all in the stream",
                allowed="0:2^60",
            )
        parts = [self._chunk(positions[i : i + _CHUNK]) for i in range(0, max(len(positions), 1), _CHUNK)]
        if len(parts) == 1:
            return parts[0]
        return Samples(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in _SAMPLE_FIELDS})

    def substitute(self, position: int, source: int, generation: int, draw: int) -> tuple[int, int, int]:
        """(block, shard, row), numbered through, that is drawn in place of a withheld sample.

        Parameters
        ----------
        position
            Of the withheld slot.
        source, generation
            Of the withheld sample, as `samples` gives them: the substitute comes from the same rows.
        draw
            0-based; a draw that is itself withheld is drawn again.
        """
        self._stages.stage(self._stages.index_at(position))
        entry = self._stages.chains[source].generations[generation]
        table = entry.order.table
        number = derive_key("substitute", self.root.seed, position, draw) % table.num_samples
        block, shard, row = table.samples(np.array([number]))
        which = entry.manifest_ordinal
        return (
            int(block[0] + self.manifest_set.block_starts[which]),
            int(shard[0] + self.manifest_set.shard_starts[which]),
            int(row[0]),
        )

    def is_removed(self, position: int, source: int, generation: int, shard: int) -> bool:
        """Whether a shard (numbered through) of a generation is removed at a position, as `Samples.removed` says."""
        newest = self._stages.stage(self._stages.index_at(position)).newest[source]
        if newest <= generation:
            return False
        _, local = self.manifest_set.split_shard(shard)
        return bool(self._stages.chains[source].gone(generation, newest)[local])

    def find(self, shard: int, row: int, *, start: int = 0, stop: int) -> list[Placement]:
        """Every position in ``start:stop`` that holds a row, in order: the exact inverse of `samples`.

        Parameters
        ----------
        shard
            Numbered through `manifest_set`. A shard that several manifests hold has a number in each.
        row
            Stored row, or window number. A rejected row, or one of a shard that no mixture reads, stands nowhere.

        Raises
        ------
        NotInRun
            If there is no such shard, or the shard has no such row.
        SpanError
            If the range is negative or reversed.
        """
        return inverse.find(self._stages, self.manifest_set, shard, row, start=start, stop=stop)

    def epochs_begun(self, source: str, position: int) -> tuple[int, int] | None:
        """(lowest, highest) epoch the stream lanes stand in before a position; None where none has drawn yet."""
        number = self._stages.number(source)
        return self._stages.chains[number].epochs_begun(self._stages.drawn_before(position)[:, number])

    def end_of_epoch(self, source: str, epoch: int) -> int:
        """One past the last position that holds a row of that epoch.

        Raises
        ------
        NotInRun
            If no position does: the epoch is negative, or the source leaves the mixture before it.
        """
        return inverse.end_of_epoch(self._stages, source, epoch)

    def end_of_epochs(self, epochs: int) -> int:
        """One past the last position of any sample of an epoch below `epochs`, over all sources.

        Raises
        ------
        PlanError
            If `epochs` is below 1.
        """
        return inverse.end_of_epochs(self._stages, epochs)

    def _chunk(self, positions: NDArray[np.int64]) -> Samples:
        n = len(positions)
        out = Samples(
            position=positions,
            source=np.zeros(n, np.int32),
            generation=np.zeros(n, np.int32),
            epoch=np.zeros(n, np.int64),
            lane=(positions % self.root.lanes).astype(np.int32),
            place=np.zeros(n, np.int64),
            block=np.zeros(n, np.int64),
            shard=np.zeros(n, np.int64),
            row=np.zeros(n, np.int64),
            removed=np.zeros(n, np.bool_),
        )
        everywhere = np.arange(n)
        for index, mine in groups(np.searchsorted(self._stages.starts, positions, side="right") - 1):
            self._fill_mixture(out, everywhere[mine], self._stages.stage(index))
        return out

    def _fill_mixture(self, out: Samples, mine: NDArray[np.int64], stage: Stage) -> None:
        turns, lanes = np.divmod(out.position[mine], self.root.lanes)
        dealt, draws = stage.dealer.deal(lanes, turns - stage.first_places[lanes])
        sources = stage.sources[dealt]
        out.source[mine] = sources
        draws = draws + stage.drawn[lanes, sources]
        for source, chosen in groups(sources):
            self._fill_source(out, mine[chosen], lanes[chosen], draws[chosen], source, stage.newest[source])

    def _fill_source(
        self,
        out: Samples,
        mine: NDArray[np.int64],
        lanes: NDArray[np.int64],
        draws: NDArray[np.int64],
        source: int,
        newest: int,
    ) -> None:
        chain = self._stages.chains[source]
        number, epoch, lane, within = chain.locate(lanes, draws)
        out.generation[mine], out.epoch[mine] = number, epoch
        for g, chosen in groups(number):
            to = mine[chosen]
            generation = chain.generations[g]
            place = generation.order.places(epoch[chosen], lane[chosen], within[chosen])
            block, shard, row = generation.order.samples(epoch[chosen], place)
            out.place[to], out.row[to] = place, row
            out.block[to] = block + self.manifest_set.block_starts[generation.manifest_ordinal]
            out.shard[to] = shard + self.manifest_set.shard_starts[generation.manifest_ordinal]
            if newest > g:
                out.removed[to] = chain.gone(g, newest)[shard]


def _bulk_permutation() -> ArrayPermutation:
    """The NumPy twin until a large permutation comes, and from then on the compiled one for all.

    Loading the compiler takes longer than the twin takes for some millions of places, so a rank that walks a corpus of
    few blocks starts sooner, and smaller, without it.
    """
    chosen: ArrayPermutation = permute

    def bulk(n: NDArray[np.int64], key: NDArray[np.uint64], index: NDArray[np.int64]) -> NDArray[np.int64]:
        nonlocal chosen
        if chosen is permute and np.broadcast(n, key, index).size >= _LARGE:
            from dataguard.core.permute_kernels import permute_bulk

            chosen = permute_bulk
        return chosen(n, key, index)

    return bulk
