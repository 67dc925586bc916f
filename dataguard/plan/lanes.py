"""Which part of a source does each lane of the stream read?

Position p of the stream belongs to lane ``p mod L``. A source of N samples in blocks has ``L_i`` lanes of its own
(fewer where it is small); source lane a owns places ``floor(a N / L_i) : floor((a + 1) N / L_i)`` of the source's
order, and the ``R = L / L_i`` stream lanes ``a, a + L_i, a + 2 L_i, ...`` take turns in it: the j-th draw of stream
lane l is ordinal ``j R + l div L_i`` of source lane ``l mod L_i``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataguard.core.manifest import Manifest
from dataguard.errors import PlanError
from dataguard.plan.document import Form
from dataguard.plan.tables import samples_of_blocks

__all__ = ["BLOCKS_PER_LANE", "MOST_LANES", "LaneSplit", "default_lanes", "lanes_of_source"]

BLOCKS_PER_LANE = 8
"""A lane is left at least so many blocks, so that windows of blocks can be shuffled within it."""

MOST_LANES = 1024
"""The default never goes above it; a root may."""


def lanes_of_source(num_blocks: int, lanes: int) -> int:
    """Lanes of a source with so many blocks with samples: a power of two up to `lanes`.

    >>> lanes_of_source(100, 64), lanes_of_source(16, 64), lanes_of_source(3, 64)
    (8, 2, 1)
    """
    found = 1
    while found < lanes and num_blocks // (2 * found) >= BLOCKS_PER_LANE:
        found *= 2
    return found


def default_lanes(manifest: Manifest, form: Form, seq_len: int | None, global_batch: int) -> int:
    """Lanes of a new root: the largest power of two that divides the global batch and leaves 8 blocks a lane.

    The blocks are those with samples, of the source that has most of them; never above 1,024.

    Raises
    ------
    PlanError
        If `global_batch` is below 1.
    """
    if global_batch < 1:
        raise PlanError(f"a global batch of {global_batch} cannot be", allowed="at least 1")
    counts = samples_of_blocks(manifest, form, seq_len)
    most = 0
    for source in range(len(manifest.sources)):
        blocks = manifest.blocks_of(source)
        most = max(most, int(np.count_nonzero(counts[blocks.start : blocks.stop])))
    return lanes_of_source(most, min(global_batch & -global_batch, MOST_LANES))


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSplit:
    """How L stream lanes share the N samples of a source.

    >>> split = LaneSplit(lanes=4, source_lanes=2, num_samples=7)
    >>> split.turns, [split.part(a) for a in range(2)]
    (2, [(0, 3), (3, 7)])
    """

    lanes: int
    """L, lanes of the stream."""
    source_lanes: int
    """L_i, lanes of the source; divides L."""
    num_samples: int
    """N, at least L_i."""

    def __post_init__(self) -> None:
        assert self.lanes % self.source_lanes == 0
        assert self.num_samples >= self.source_lanes

    @property
    def turns(self) -> int:
        """R, the stream lanes that share one source lane."""
        return self.lanes // self.source_lanes

    def part(self, source_lane: Any) -> tuple[Any, Any]:
        """Places ``start : stop`` that a source lane owns; integers or arrays of them."""
        start = source_lane * self.num_samples // self.source_lanes
        return start, (source_lane + 1) * self.num_samples // self.source_lanes

    def length(self, source_lane: Any) -> Any:
        """n_a, how many places a source lane owns: the samples of one epoch of it."""
        start, stop = self.part(source_lane)
        return stop - start

    def owner(self, place: int) -> int:
        """The source lane that owns a place."""
        return ((place + 1) * self.source_lanes - 1) // self.num_samples

    def first_draws(self, epoch: int) -> NDArray[np.int64]:
        """For every stream lane, its first draw that is of `epoch` or later: int64, shape (lanes,)."""
        lane = np.arange(self.lanes, dtype=np.int64)
        ordinal = epoch * self.length(lane % self.source_lanes)
        return np.asarray(-((lane // self.source_lanes - ordinal) // self.turns))
