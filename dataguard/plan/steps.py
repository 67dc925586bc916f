"""Which positions does a step of a lineage hold, in which slots, and which step delivers a position?

A lineage is a chain of attempts, root first; each owns the steps (and thereby the positions) from its start to the
next one's. Within one attempt `Cutting` does the arithmetic. Here the chain is put over it:

1. step -> attempt by binary search in the fork steps; -> positions by the attempt's cutting.
2. A batch's positions, ordered by (lane, position), are its slots 0..G-1.
3. position -> attempt by binary search in the start positions; -> skipped, or a step by the attempt's cutting.
4. *Batches* are numbered on a grid that ignores skips, cut from position 0 by the leaf's batch sizes: the name of a
   stretch of the stream that no skip changes.

``jump``: a step holds the next G positions that no skip holds. ``hole``: steps lie on the grid from the attempt's
start; one that is skipped whole is not delivered, one skipped in part keeps its slots and flags the skipped ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

import numpy as np

from dataguard.core.address import Geometry
from dataguard.core.spans import Span, SpanSet, check_span
from dataguard.errors import AttemptError, NotInRun, PlanError
from dataguard.plan.attempts import AttemptPlan, Skip, amend, check_fork
from dataguard.plan.cutting import Cutting
from dataguard.plan.document import BatchSize, Mixture, SkipMode
from dataguard.plan.located import Located, StepBatch
from dataguard.plan.skips import SkippedBy, SkipRange
from dataguard.plan.withheld import Withheld

__all__ = ["Located", "StepBatch", "Steps", "label_of_step", "step_of_label"]

_STOP_POSITION = 1 << 60  # where the stream ends too: plan.stages.LARGEST_POSITION


def step_of_label(label: int, first_label: int, *, what: str = "step") -> int:
    """Turn the trainer's label of a step into the step, counted from 0; NotInRun where the label is below the first.

    >>> step_of_label(1, 1), label_of_step(0, 1)
    (0, 1)
    """
    if label < first_label:
        raise NotInRun(
            f"{what} {label:,} is not in this run",
            allowed=f"{what}{'es' if what == 'batch' else 's'} count from {first_label}",
        )
    return label - first_label


def label_of_step(step: int, first_label: int) -> int:
    """Name a step, counted from 0, as the trainer does."""
    return step + first_label


class Steps:
    """The steps of one lineage.

    Parameters
    ----------
    attempts
        The chain of one lineage, root first.
    lanes
        Lanes of the stream, a power of two.
    skip_mode
        Of the run.
    first_label
        What the trainer calls step 0; messages speak in its labels, arguments and answers count from 0.

    Raises
    ------
    AttemptError
        The attempts are no chain, or one does not begin where its parent's step before the fork ends.

    Examples
    --------
    >>> lists = dict(mixtures=(Mixture(start=0, manifest="m", weights={"web": 1}),),
    ...              batch_sizes=(BatchSize(start=0, size=16),), geometry=Geometry(world_size=4, microbatch_size=2))
    >>> first = AttemptPlan(number=1, **lists)
    >>> spike = Skip(start=640, stop=720, event=3, reason="spike")
    >>> second = AttemptPlan(number=2, parent=1, fork_step=35, start_position=560, skips=(spike,), **lists)
    >>> steps = Steps([first, second], lanes=1)
    >>> steps.batch(40).batch, steps.batch(42).batch, steps.batch(42).first_position
    (45, 47, 752)
    >>> str(steps.steps_of_batch(42))
    'positions 672:688 skipped in attempt 2 by event 3, because: spike'
    """

    def __init__(
        self,
        attempts: Sequence[AttemptPlan],
        *,
        lanes: int,
        skip_mode: SkipMode = "jump",
        first_label: int = 0,
    ) -> None:
        if not attempts:
            raise AttemptError("a lineage of no attempts has no steps")
        if lanes < 1 or lanes & (lanes - 1):
            raise PlanError(f"lanes {lanes} is not a power of two", allowed="1, 2, 4, ... 1,024 ...")
        self.attempts = tuple(attempts)
        self.lanes = lanes
        self.skip_mode: SkipMode = skip_mode
        self.first_label = first_label
        self._cuttings = [attempt.cutting(skip_mode) for attempt in self.attempts]
        self._forks = [attempt.fork_step for attempt in self.attempts]
        self._starts = [attempt.start_position for attempt in self.attempts]
        self._check_chain()
        self._grid = Cutting(start=0, first_step=0, batch_sizes=self.leaf.batch_sizes, passed_over=SpanSet())

    def _check_chain(self) -> None:
        if self.attempts[0].parent is not None:
            raise AttemptError(
                f"a lineage begins with the root attempt, not with attempt {self.attempts[0].number}",
                found=f"attempt {self.attempts[0].number} forks from attempt {self.attempts[0].parent}",
            )
        for cutting, parent, child in zip(self._cuttings, self.attempts, self.attempts[1:], strict=False):
            if child.parent != parent.number or child.fork_step < parent.fork_step:
                raise AttemptError(
                    f"attempt {child.number} does not follow attempt {parent.number} on a lineage",
                    found=f"it forks from attempt {child.parent} at step {child.fork_step + self.first_label:,}",
                    allowed=f"a fork from attempt {parent.number} at or after its first step, "
                    f"{parent.fork_step + self.first_label:,}",
                )
            start = cutting.stop_before(child.fork_step)
            if child.start_position != start:
                raise AttemptError(
                    f"attempt {child.number} cannot begin at position {child.start_position:,}",
                    found=f"the step before {child.fork_step + self.first_label:,} of attempt {parent.number} stops at "
                    f"position {start:,}",
                    allowed=f"position {start:,}",
                )

    @property
    def leaf(self) -> AttemptPlan:
        """The last attempt of the chain."""
        return self.attempts[-1]

    def up_to(self, attempt: int) -> Steps:
        """Cut the lineage after one of its attempts: as that attempt planned it, without those that forked from it."""
        for i, each in enumerate(self.attempts):
            if each.number == attempt:
                if each is self.leaf:
                    return self
                return Steps(
                    self.attempts[: i + 1], lanes=self.lanes, skip_mode=self.skip_mode, first_label=self.first_label
                )
        raise NotInRun(
            f"attempt {attempt} is not on the lineage of attempt {self.leaf.number}",
            found="that lineage is " + " > ".join(str(each.number) for each in self.attempts),
        )

    # step -> positions

    def batch(self, step: int) -> StepBatch:
        """The global batch of a step.

        Raises
        ------
        NotInRun
            A step below the first, or (in mode ``hole``) one that is skipped whole and therefore not delivered.
        """
        owner = self._owner_of_step(step)
        attempt, cutting = self.attempts[owner], self._cuttings[owner]
        cut = cutting.cut(step)
        if cut.stop > _STOP_POSITION:
            raise NotInRun(
                f"step {step + self.first_label:,} lies beyond the largest position", allowed="positions in 0:2^60"
            )
        if cut.stop - cut.start == cut.size:
            positions = np.arange(cut.start, cut.stop, dtype=np.int64)
        else:
            first = cutting.passed_over.count_outside_before(cut.start)
            positions = cutting.passed_over.nth_outside(np.arange(first, first + cut.size, dtype=np.int64))
        if self.lanes > 1:
            positions = positions[np.argsort(positions & (self.lanes - 1), kind="stable")]
        if self.skip_mode == "hole" and attempt.spans.intersects(cut.start, cut.stop):
            if attempt.spans.covers(cut.start, cut.stop):
                raise self._not_delivered(step, owner)
            skipped = attempt.spans.contains(positions)
        else:
            skipped = np.zeros(cut.size, dtype=bool)
        return StepBatch(
            step=step,
            attempt=attempt.number,
            batch=self._grid.step_of(cut.start),
            size=cut.size,
            positions=positions,
            skipped=skipped,
            first_position=cut.start,
            stop_position=cut.stop,
        )

    def size_of(self, step: int) -> int:
        """Slots of a step's batch, G."""
        return self._cuttings[self._owner_of_step(step)].cut(step).size

    def start_of(self, step: int) -> int:
        """One past the last position of the step before: where an attempt that forks at `step` begins."""
        return self._cuttings[self._owner_of_step(step)].stop_before(step)

    def skipped(self, step: int) -> SkippedBy | None:
        """Why a step is not delivered: all its positions are skipped (only in mode ``hole``); None where it is."""
        owner = self._owner_of_step(step)
        cut = self._cuttings[owner].cut(step)
        if self.skip_mode == "jump" or not self.attempts[owner].spans.covers(cut.start, cut.stop):
            return None
        return self._skipped_by(owner, cut.start, cut.stop)

    def next_delivered(self, step: int) -> int:
        """Find the first step at or after `step` that is delivered; in mode ``jump`` that is every step."""
        owner = self._owner_of_step(step)
        while self.skip_mode == "hole":
            cutting, spans = self._cuttings[owner], self.attempts[owner].spans
            unskipped = spans.skip_to_outside(cutting.cut(step).start)
            step = max(step, cutting.step_of(unskipped))
            if owner + 1 == len(self.attempts) or step < self._forks[owner + 1]:
                return step
            step = self._forks[owner + 1]
            owner = self._owner_of_step(step)
        return step

    # position -> step

    def locate(self, position: int, *, attempt: int | None = None) -> Located | SkippedBy:
        """Where the lineage delivers a position, or by which events it is skipped.

        Parameters
        ----------
        attempt
            One on the lineage: ask for what it planned, as if nothing had forked from it.
        """
        if attempt is not None and attempt != self.leaf.number:
            return self.up_to(attempt).locate(position)
        owner = self._owner_of_position(position)
        if self.attempts[owner].spans.contains(position):
            return self._skipped_by(owner, position, position + 1)
        batch = self.batch(self._cuttings[owner].step_of(position))
        slot = int(np.flatnonzero(batch.positions == position)[0])
        return Located(position=position, step=batch.step, attempt=batch.attempt, slot=slot, batch=batch.batch)

    def batch_index(self, position: int) -> int:
        """The batch whose stretch of the stream holds a position, whether skipped or not."""
        self._owner_of_position(position)
        return self._grid.step_of(position)

    def positions_of_batch(self, batch: int) -> Span:
        """The stretch of positions that a batch names."""
        if batch < 0:
            raise NotInRun(f"batch {batch} is not in this run", allowed="batches count from 0")
        cut = self._grid.cut(batch)
        return cut.start, cut.stop

    def steps_of_batch(self, batch: int) -> range | SkippedBy:
        """From the first to the last step that delivers a position of a batch, or by what all of them are skipped.

        One step, unless a skip or another batch size has shifted steps against the grid.
        """
        start, stop = self.positions_of_batch(batch)
        steps = self._steps_holding(start, stop)
        if steps is not None:
            return range(*steps)
        return self._skipped_by(self._owner_of_position(start), start, stop)

    # translating skips

    def span_of_steps(self, start: int, stop: int) -> Span:
        """Positions from the first of step `start` to one past the last of step ``stop - 1``; SpanError where empty."""
        check_span(start, stop, what="step range")
        first = self._cuttings[self._owner_of_step(start)].cut(start).start
        return first, self._cuttings[self._owner_of_step(stop - 1)].cut(stop - 1).stop

    def skip_of_steps(self, start: int, stop: int) -> SkipRange:
        """What skipping steps ``start:stop`` of this lineage means; skips between them are part of it."""
        return self._skip_range((start, stop), self.span_of_steps(start, stop))

    def skip_of_batches(self, start: int, stop: int) -> SkipRange:
        """What skipping batches ``start:stop`` means, whichever steps of this lineage hold them."""
        check_span(start, stop, what="batch range")
        positions = self.positions_of_batch(start)[0], self.positions_of_batch(stop - 1)[1]
        return self._skip_range(self._steps_holding(*positions), positions)

    # a new attempt

    def fork(
        self,
        *,
        number: int,
        fork_step: int,
        parent_next_step: int,
        geometry: Geometry,
        skips: Iterable[Skip] = (),
        withheld: Iterable[Withheld] = (),
        global_batch: int | None = None,
        mixture: tuple[str, dict[str, int]] | None = None,
    ) -> AttemptPlan:
        """Begin an attempt that resumes from this lineage's leaf.

        Parameters
        ----------
        number
            Of the new attempt.
        fork_step, parent_next_step
            The step to begin with, and one past the last complete step of the leaf: both as steps, from 0.
        geometry
            Checked against every batch size planned from there on.
        skips, withheld
            All that are unrevoked now.
        global_batch
            Another batch size from the attempt's start on.
        mixture
            Another (manifest digest, whole weights) from the attempt's start on.

        Raises
        ------
        AttemptError
            The fork step is not one of the leaf's own.
        GeometryError
            The geometry does not divide a batch size.
        """
        check_fork(self.leaf, fork_step, parent_next_step, first_label=self.first_label)
        start = self.start_of(fork_step)
        batch_sizes, mixtures = self.leaf.batch_sizes, self.leaf.mixtures
        if global_batch is not None:
            batch_sizes = amend(batch_sizes, BatchSize(start=start, size=global_batch))
        if mixture is not None:
            mixtures = amend(mixtures, Mixture(start=start, manifest=mixture[0], weights=mixture[1]))
        return AttemptPlan(
            number=number,
            parent=self.leaf.number,
            fork_step=fork_step,
            start_position=start,
            geometry=geometry,
            mixtures=mixtures,
            batch_sizes=batch_sizes,
            skips=tuple(skips),
            withheld=tuple(withheld),
        )

    # pieces

    def _owner_of_step(self, step: int) -> int:
        if step < 0:
            raise NotInRun(
                f"step {step + self.first_label:,} is not in this run", allowed=f"steps count from {self.first_label}"
            )
        return bisect_right(self._forks, step) - 1

    def _owner_of_position(self, position: int) -> int:
        if position < 0:
            raise NotInRun(f"position {position:,} is not in this run", allowed="positions count from 0")
        return bisect_right(self._starts, position) - 1

    def _skipped_by(self, owner: int, start: int, stop: int) -> SkippedBy:
        """Name the skips over a range; where it reaches into later attempts, theirs too."""
        skips: list[Skip] = []
        for i in range(owner, len(self.attempts)):
            upper = self._starts[i + 1] if i + 1 < len(self.attempts) else stop
            low, high = max(start, self._starts[i]), min(stop, upper)
            if low < high:
                skips += [skip for skip in self.attempts[i].skips_over(low, high) if skip not in skips]
        ordered = tuple(sorted(skips, key=lambda skip: (skip.event, skip.start)))
        return SkippedBy(attempt=self.attempts[owner].number, positions=(start, stop), skips=ordered)

    def _not_delivered(self, step: int, owner: int) -> NotInRun:
        cut = self._cuttings[owner].cut(step)
        return NotInRun(
            f"step {step + self.first_label:,} was not delivered: all its positions are skipped",
            found=str(self._skipped_by(owner, cut.start, cut.stop)),
            todo=f"the next step that is delivered is {self.next_delivered(step) + self.first_label:,}",
        )

    def _steps_holding(self, start: int, stop: int) -> Span | None:
        """The steps from the first to the last that deliver any of the positions ``start:stop``."""
        first = last = None
        for i in range(self._owner_of_position(start), len(self.attempts)):
            upper = min(stop, self._starts[i + 1]) if i + 1 < len(self.attempts) else stop
            spans, cutting = self.attempts[i].spans, self._cuttings[i]
            low = max(start, self._starts[i])
            num_before, num_to = spans.count_outside_before(low), spans.count_outside_before(max(low, upper))
            if num_before == num_to:
                continue
            first = cutting.step_of(spans.nth_outside(num_before)) if first is None else first
            last = cutting.step_of(spans.nth_outside(num_to - 1))
        return None if first is None or last is None else (first, last + 1)

    def _skip_range(self, steps: Span | None, positions: Span) -> SkipRange:
        start, stop = positions
        return SkipRange(
            attempt=self.leaf.number,
            steps=steps,
            batches=(self.batch_index(start), self.batch_index(stop - 1) + 1),
            positions=positions,
            later_mixtures=tuple(entry.start for entry in self.leaf.mixtures if start < entry.start < stop),
        )
