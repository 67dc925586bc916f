"""Which positions does each step of one attempt hold, and which step holds a position?

Cutting knows nothing of attempts' trees or of samples: it is given where the cutting begins, which step that is, the
batch sizes by position, and the spans that the cutting passes over (the skips in mode ``jump``, none in ``hole`` and
for the grid of batches). A batch begins at its first position that is not passed over and takes its size from there.

1. Count in *unskipped* positions: u(p) is how many lie outside the spans before p. There a batch of size G is a plain
   interval ``u : u + G``.
2. A batch-size entry at position P governs the batches that begin at P or later, i.e. with u(begin) >= u(P). From a
   base u0 on, ``ceil((u(P) - u0) / G)`` batches begin before P; they are one *segment* of constant size.
3. Segments are listed once, one or none for each entry. A step is then found by a binary search and a product, a
   position by a binary search and a division: the cost does not depend on the step's number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from dataguard.core.spans import SpanSet
from dataguard.plan.document import BatchSize

__all__ = ["Cut", "Cutting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One batch: ``start`` is its first position, ``stop`` one past its last, ``size`` how many it holds between."""

    start: int
    stop: int
    size: int


class Cutting:
    """The batches from one position on, endless.

    Parameters
    ----------
    start
        Position where the cutting begins; the first batch begins at the first position from here that is not passed
        over.
    first_step
        The number of the first batch.
    batch_sizes
        By position, the first at 0, rising.
    passed_over
        Positions that no batch holds.

    Examples
    --------
    >>> sizes = [BatchSize(start=0, size=8), BatchSize(start=240, size=16)]
    >>> cutting = Cutting(start=240, first_step=30, batch_sizes=sizes, passed_over=SpanSet.of([(320, 360)]))
    >>> cutting.cut(34), cutting.cut(35)
    (Cut(start=304, stop=320, size=16), Cut(start=360, stop=376, size=16))
    >>> cutting.step_of(365)
    35
    """

    __slots__ = ("_bases", "_first_steps", "_sizes", "passed_over", "start")

    def __init__(self, *, start: int, first_step: int, batch_sizes: Sequence[BatchSize], passed_over: SpanSet) -> None:
        self.start = start
        self.passed_over = passed_over
        starts = [entry.start for entry in batch_sizes]
        base = passed_over.count_outside_before(start)
        step = first_step
        self._first_steps: list[int] = []
        self._bases: list[int] = []
        self._sizes: list[int] = []
        while True:
            which = bisect_right(starts, passed_over.nth_outside(base)) - 1
            size = batch_sizes[which].size
            self._first_steps.append(step)
            self._bases.append(base)
            self._sizes.append(size)
            if which + 1 == len(starts):
                return
            num_batches = -((base - passed_over.count_outside_before(starts[which + 1])) // size)
            base += num_batches * size
            step += num_batches

    @property
    def first_step(self) -> int:
        """The number of the first batch."""
        return self._first_steps[0]

    def cut(self, step: int) -> Cut:
        """Positions of the batch numbered `step`, from `first_step` on."""
        which = bisect_right(self._first_steps, step) - 1
        assert which >= 0, f"step {step} lies before {self._first_steps[0]}"
        size = self._sizes[which]
        begin = self._bases[which] + (step - self._first_steps[which]) * size
        nth_outside = self.passed_over.nth_outside
        return Cut(start=nth_outside(begin), stop=nth_outside(begin + size - 1) + 1, size=size)

    def stop_before(self, step: int) -> int:
        """One past the last position of the batch before `step`; the start of the cutting where there is none."""
        return self.start if step <= self._first_steps[0] else self.cut(step - 1).stop

    def step_of(self, position: int) -> int:
        """The batch that holds a position; the position is at or after the start and not passed over."""
        number = self.passed_over.count_outside_before(position)
        which = bisect_right(self._bases, number) - 1
        assert which >= 0, f"position {position} lies before {self.start}"
        return self._first_steps[which] + (number - self._bases[which]) // self._sizes[which]
