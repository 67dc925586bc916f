"""Which positions of a stretch should have been delivered, and which were: once, twice, never?

One flag a position, so that a run of a billion samples is judged in a few gigabytes; records are taken in whatever
order their files hold them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dataguard.plan.attempts import AttemptPlan
from dataguard.plan.steps import Steps

__all__ = ["Coverage"]

_TOLD = 100


class Coverage:
    """The positions of steps ``first:stop`` of one attempt.

    Parameters
    ----------
    steps
        Of the attempt's lineage.
    """

    def __init__(self, attempt: AttemptPlan, steps: Steps, first: int, stop: int) -> None:
        self.start = steps.start_of(first)
        self.stop = max(self.start, steps.start_of(stop))
        self.num_recorded = 0
        self.doubled: set[int] = set()
        """Positions recorded twice; the first hundred met."""
        self.extra: set[int] = set()
        """Positions that are none of this stretch; the first hundred met."""
        self._wanted = np.ones(self.stop - self.start, dtype=np.bool_)
        self._seen = np.zeros(self.stop - self.start, dtype=np.bool_)
        for low, high in self._passed_over(attempt, steps, first, stop):
            self._wanted[max(low - self.start, 0) : max(high - self.start, 0)] = False

    @staticmethod
    def _passed_over(attempt: AttemptPlan, steps: Steps, first: int, stop: int) -> list[tuple[int, int]]:
        """Positions that no step delivers: all skipped ones, or (in holes) those of steps that are skipped whole."""
        if steps.skip_mode == "jump":
            return list(attempt.spans.spans)
        if not attempt.skips:
            return []
        cutting, passed_over, step = attempt.cutting("hole"), [], first
        while step < stop:
            delivered = min(steps.next_delivered(step), stop)
            if delivered > step:
                passed_over.append((cutting.cut(step).start, cutting.cut(delivered - 1).stop))
            step = delivered + 1
        return passed_over

    def add(self, positions: NDArray[np.int64]) -> None:
        """Take recorded positions, in any order."""
        self.num_recorded += len(positions)
        inside = (positions >= self.start) & (positions < self.stop)
        at = np.sort(positions[inside] - self.start)
        twice = np.concatenate([at[1:][at[1:] == at[:-1]], at[self._seen[at]]])
        _note(self.doubled, twice + self.start)
        _note(self.extra, positions[~inside])
        _note(self.extra, at[~self._wanted[at]] + self.start)
        self._seen[at] = True

    def missing(self) -> list[tuple[int, int]]:
        """Stretches of positions that were never recorded, half-open; the first hundred."""
        return _runs(np.flatnonzero(self._wanted & ~self._seen) + self.start)[:_TOLD]

    def extras(self) -> list[tuple[int, int]]:
        """`extra` as stretches, half-open."""
        return _runs(np.array(sorted(self.extra), dtype=np.int64))


def _note(known: set[int], positions: NDArray[np.int64]) -> None:
    known.update(positions[: max(0, _TOLD - len(known))].tolist())


def _runs(values: NDArray[np.int64]) -> list[tuple[int, int]]:
    if not len(values):
        return []
    cuts = np.flatnonzero(np.diff(values) > 1) + 1
    return [(int(part[0]), int(part[-1]) + 1) for part in np.split(values, cuts[:_TOLD])][:_TOLD]
