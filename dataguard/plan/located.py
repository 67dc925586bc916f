"""Where does a position stand, and what does a step hold? The two values that `plan.steps` answers with.

(What is skipped is answered by `plan.skips.SkippedBy`.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Located", "StepBatch"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepBatch:
    """The global batch of one step, in slot order."""

    step: int
    attempt: int
    """The attempt that owns the step on the lineage."""
    batch: int
    """Index of its first position's cell on the grid that ignores skips."""
    size: int
    """Slots, G."""
    positions: NDArray[np.int64]
    """(size,): ordered by (position mod lanes, position)."""
    skipped: NDArray[np.bool_]
    """(size,): True for padding; only in mode ``hole``."""
    first_position: int
    """The lowest of the positions."""
    stop_position: int
    """One past the highest of the positions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Where a lineage delivers a position."""

    position: int
    step: int
    attempt: int
    slot: int
    batch: int
    """The index of the step's batch, as in `StepBatch.batch`."""
