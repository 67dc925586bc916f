"""Which microbatches does one rank get, in which order, and when does the stream end for it?

A walk is pure: it turns (attempt, geometry, rank, first step, end) into the planned slots of one microbatch after the
other. It holds no bytes and may be started anywhere at the same cost: the first step is looked up alone, the following
ones together in groups that grow, since one look-up of a thousand samples costs little more than one of ten.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

import numpy as np

from dataguard.core.address import Address, Geometry
from dataguard.plan.document import Fill
from dataguard.plan.slots import PlannedSlots, plan_slots
from dataguard.plan.steps import StepBatch, Steps
from dataguard.plan.stream import Samples, Stream
from dataguard.plan.withheld import WithheldSet

__all__ = ["End", "Planned", "Walk"]

_LOOKED_UP_AT_ONCE = 1024  # samples


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Where a finite walk ends. Without any of the two the stream goes on for ever."""

    num_steps: int | None = None
    """How many steps are delivered."""
    epochs: int | None = None
    """Whole epochs of every source; what lies past them is padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One microbatch, planned: its address, its batch and its slots."""

    address: Address
    batch: int
    slots: PlannedSlots
    last_of_step: bool


@dataclass(frozen=True, kw_only=True)
class Walk:
    """The microbatches of one rank of one attempt, in order."""

    stream: Stream
    steps: Steps
    withheld: WithheldSet
    fill: Fill
    geometry: Geometry
    rank: int
    attempt: int
    first_step: int
    end: End = field(default_factory=End)

    @cached_property
    def stop_step(self) -> int | None:
        """First step at which epochs have ended; None for a stream without such an end."""
        if self.end.epochs is None:
            return None
        end = self.stream.end_of_epochs(self.end.epochs)
        # Every step holds at least one position, so none past `end` can begin before it.
        return bisect_left(range(end + self.first_step + 1), end, key=self._first_position, lo=self.first_step)

    def _first_position(self, step: int) -> int:
        """Where a step's batch begins: behind what is skipped, which may reach past the end."""
        return self.steps.span_of_steps(step, step + 1)[0]

    def delivered_steps(self) -> Iterator[int]:
        """Steps to deliver, rising; holes passed over."""
        return islice(self._steps_to_the_end(), self.end.num_steps)

    def _steps_to_the_end(self) -> Iterator[int]:
        step = self.steps.next_delivered(self.first_step)
        while self.stop_step is None or step < self.stop_step:
            yield step
            step = self.steps.next_delivered(step + 1)

    def num_microbatches(self) -> int:
        """Microbatches of a finite walk, in all."""
        assert self.end != End(), "an endless walk has no length"
        sizes = {entry.size for entry in self.steps.leaf.planned_batch_sizes}
        if len(sizes) == 1 and (self.stop_step is None or self.steps.skip_mode == "jump"):
            stop = self.stop_step
            num_steps = self.end.num_steps if stop is None else max(0, stop - self.first_step)
            assert num_steps is not None
            return num_steps * self.geometry.num_microbatches(sizes.pop())
        return sum(self.geometry.num_microbatches(self.steps.size_of(step)) for step in self.delivered_steps())

    def __iter__(self) -> Iterator[Planned]:
        steps = self.delivered_steps()
        num_steps = 1
        while batches := [self.steps.batch(step) for step in islice(steps, num_steps)]:
            shares = [self._share(batch) for batch in batches]
            positions = [batch.positions[own.start : own.stop] for batch, own in zip(batches, shares, strict=True)]
            samples = self.stream.samples(np.concatenate(positions))
            start = 0
            for batch, own in zip(batches, shares, strict=True):
                yield from self._microbatches(batch, own, samples.part(start, start + len(own)))
                start += len(own)
            num_steps = min(2 * num_steps, max(1, _LOOKED_UP_AT_ONCE // len(shares[-1])))

    def _share(self, batch: StepBatch) -> range:
        """The slots of a batch that are this rank's."""
        share = batch.size // self.geometry.world_size
        return range(self.rank * share, (self.rank + 1) * share)

    def _microbatches(self, batch: StepBatch, own: range, samples: Samples) -> Iterator[Planned]:
        """The microbatches of one step."""
        num_microbatches = self.geometry.num_microbatches(batch.size)
        planned = plan_slots(
            batch,
            self.stream,
            self.withheld,
            fill=self.fill,
            slots=own,
            samples=samples,
            epochs=self.end.epochs,
        )
        size = self.geometry.microbatch_size
        for microbatch in range(num_microbatches):
            yield Planned(
                address=Address(step=batch.step, rank=self.rank, microbatch=microbatch),
                batch=batch.batch,
                slots=planned.part(microbatch * size, (microbatch + 1) * size),
                last_of_step=microbatch == num_microbatches - 1,
            )
