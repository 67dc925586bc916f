"""Which attempt delivered the step that was asked for, on which lineage, and what did it record?

Steps come in the trainer's labels and are turned into steps here; everything below counts from 0. Looking up computes
names and reads single row groups or frames; it never lists the record and never needs the corpus.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dataguard.errors import NotInRun, RunDamaged
from dataguard.plan.attempts import AttemptPlan, AttemptTree, DeliveryLabel
from dataguard.plan.skips import SkippedBy as PlannedSkip
from dataguard.plan.steps import StepBatch, Steps, step_of_label
from dataguard.replay.answers import SkippedBatch, SkippedBy
from dataguard.run.events import SkipAdded
from dataguard.run.index import Index, StepRecords
from dataguard.run.reached import complete_before, complete_steps
from dataguard.run.run import Run

__all__ = ["Found", "Lookup"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    """One delivered step."""

    step: int
    """From 0."""
    attempt: AttemptPlan
    """The attempt that delivered it."""
    lineage: tuple[int, ...]
    """The lineage it was asked on."""
    label: DeliveryLabel
    batch: StepBatch
    steps: Steps
    """Of the attempt that delivered it."""
    records: StepRecords


class Lookup:
    """Questions to one run directory, answered from journal and index alone."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.index = Index(run.layout)

    @cached_property
    def tree(self) -> AttemptTree:
        """Every attempt."""
        return self.run.attempts()

    def chain(self, attempt: int | None) -> tuple[AttemptPlan, ...]:
        """The attempts on the lineage of `attempt` (default: the newest leaf's), root first.

        Raises
        ------
        NotInRun
            There is none.
        RunDamaged
            There is none to be read, since the journal is damaged.
        """
        try:
            return tuple(self.tree.lineage(attempt))
        except NotInRun as error:
            problems = self.run.problems()
            if not problems:
                raise
            raise RunDamaged(
                f"the journal is damaged, so it cannot be told whether this is so: {error.asked}",
                found="; ".join(problems[:3]),
                todo="restore the event files from a copy; `dataguard verify` lists what is wrong",
            ) from error

    @cached_property
    def complete(self) -> dict[int, int]:
        """For every attempt, one past its last complete step."""
        return complete_steps(self.run)

    def lineage(self, attempt: int | None) -> tuple[int, ...]:
        """Numbers of the attempts on the lineage of `attempt` (default: the newest leaf's), root first."""
        return tuple(each.number for each in self.chain(attempt))

    def find(self, label: int, *, attempt: int | None = None, rank: int | None = None) -> Found | SkippedBatch:
        """The delivery of a step on a lineage, or by what it was skipped.

        Raises
        ------
        NotInRun
            Nothing on the lineage has delivered it; the error names the attempts that have. Or no such rank.
        """
        step = self.run.step(label)
        leaf = self.chain(attempt)[-1].number
        owner = self.tree.attempt(self.tree.owner(step, leaf))
        if rank is not None and not 0 <= rank < owner.geometry.world_size:
            raise NotInRun(
                f"rank {rank} did not take part in attempt {owner.number}", allowed=f"0:{owner.geometry.world_size}"
            )
        steps = self.run.steps_of(owner.number)
        skipped = steps.skipped(step)
        if skipped is not None:
            return self._skipped(skipped, step=label, batch=None)
        num_ranks = owner.geometry.world_size
        records = self.index.step(owner.number, step, rank=rank, num_ranks=num_ranks)
        if not len(records.records) and not records.damage:
            self.tree.holder(step, self.complete, leaf)
        batch = steps.batch(step)
        # Where every slot is recorded the step is complete, and no rank's end needs to be looked for.
        is_whole = rank is None and len(records.records) == batch.size
        reached = step + 1 if is_whole else complete_before(self.run, owner.number)
        return Found(
            step=step,
            attempt=owner,
            lineage=self.lineage(leaf),
            label=self.tree.label(owner.number, step, {owner.number: reached}, leaf),
            batch=batch,
            steps=steps,
            records=records,
        )

    def labels_of_batch(self, batch: int, *, attempt: int | None = None) -> range | SkippedBatch:
        """The steps that deliver a batch of a lineage (both in the trainer's labels), or by what it was skipped."""
        index = step_of_label(batch, self.run.first_label, what="batch")
        found = self.run.steps_of(self.chain(attempt)[-1].number).steps_of_batch(index)
        if isinstance(found, range):
            return range(self.run.label(found.start), self.run.label(found.stop))
        return self._skipped(found, step=None, batch=batch)

    def explain(self, skip: PlannedSkip) -> tuple[SkippedBy, ...]:
        """Who skipped it, when and why."""
        return self.skips([(each.start, each.stop, each.event) for each in skip.skips])

    def skips(self, ranges: list[tuple[int, int, int]]) -> tuple[SkippedBy, ...]:
        """Skip ranges (start, stop, event) with what the journal says of their events."""
        entries = {entry.number: entry for entry in self.run.read().entries}
        told = []
        for start, stop, number in ranges:
            entry = entries[number]
            assert isinstance(entry.event, SkipAdded), f"event {number} is no skip"
            told.append(
                SkippedBy(
                    event=number,
                    reason=entry.event.reason,
                    by=entry.by,
                    time=entry.time,
                    positions=(start, stop),
                    batches=entry.event.batches,
                )
            )
        return tuple(told)

    def _skipped(self, skip: PlannedSkip, *, step: int | None, batch: int | None) -> SkippedBatch:
        return SkippedBatch(
            step=step,
            batch=batch,
            attempt=skip.attempt,
            status="skipped",
            positions=skip.positions,
            skips=self.explain(skip),
        )
