"""How is a past microbatch made again?

Root, attempt, exceptions and step are all it takes: the attempt's steps give the positions, the stream the samples,
the withheld set, fill and exceptions what each slot held, the reader the bytes. Nothing recorded of the step is used,
so that comparing with the record proves something. In an attempt with a policy, the same gate judges again, through the
same code as when it was delivered; of the exceptions only which rows could not be read is used there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from dataguard.core.address import Address
from dataguard.core.microbatch import Microbatch
from dataguard.core.tensors import Tensors
from dataguard.corpus.contents import slot_contents
from dataguard.corpus.problems import RowProblem
from dataguard.corpus.reader import RowReader
from dataguard.plan.filled import fill_slots
from dataguard.plan.slots import PlannedSlots, plan_slots
from dataguard.plan.steps import Steps
from dataguard.replay.given import refuse_rebuilding
from dataguard.run.exceptions import read_exceptions
from dataguard.run.judging import Answers, judge_of
from dataguard.run.policies import fill_of
from dataguard.run.run import Run
from dataguard.run.settling import Settler

__all__ = ["Rebuilder", "Rebuilt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """A microbatch made again, with what stood in the way."""

    microbatch: Microbatch
    planned: PlannedSlots
    problems: Mapping[int, RowProblem]
    """By place in the microbatch: rows that cannot be read any more, or that hold other bytes now."""
    answers: Answers | None = None
    """What the gate says of the slots; None in an attempt without a policy."""
    tensors: Tensors | None = None
    """What was delivered, where it is known: made again by the transform, or read from the store."""


class Rebuilder:
    """Rebuilds steps of one attempt.

    Parameters
    ----------
    run, attempt
        Which attempt of which run.
    roots
        Where sources lie now, where that is another place than the run remembers.

    Raises
    ------
    UsageError
        The order of the run is given from outside: nothing here knows what its rows are.
    """

    def __init__(self, run: Run, attempt: int, *, roots: Mapping[str, str] | None = None) -> None:
        refuse_rebuilding(run)
        self.attempt = run.attempts().attempt(attempt)
        self.transform = run.begun(attempt).transform or None
        """What made tensors of the samples that were delivered; None where they were delivered as they are."""
        self.first_label = run.first_label
        """What the trainer calls its first step."""
        self.plan = run.plan_of(attempt)
        self.stream = run.stream_of(attempt)
        self.steps: Steps = run.steps_of(attempt)
        self.withheld = run.withheld_of(attempt)
        self.exceptions = read_exceptions(run.layout, attempt, range(self.attempt.geometry.world_size))
        self.reader: RowReader = run.reader(attempt, roots=roots, verify="tell")
        self.seq_len = self.plan.root.seq_len
        self.fill = fill_of(run, attempt)
        self.judge = judge_of(run, attempt)
        self._settler = Settler(
            partial(slot_contents, self.reader, seq_len=self.seq_len),
            stream=self.stream,
            withheld=self.withheld,
            fill=self.fill,
            judge=self.judge,
        )

    def step(self, step: int, *, rank: int | None = None) -> Iterator[Rebuilt]:
        """All microbatches of a step (counted from 0), or one rank's, in order of rank and microbatch."""
        batch = self.steps.batch(step)
        geometry = self.attempt.geometry
        share, size = batch.size // geometry.world_size, geometry.microbatch_size
        for each in range(geometry.world_size) if rank is None else [rank]:
            planned = plan_slots(
                batch,
                self.stream,
                self.withheld,
                fill=self.fill,
                slots=range(each * share, (each + 1) * share),
                epochs=self.attempt.epochs,
                exceptions=self.exceptions if self.judge is None else None,
            )
            for microbatch in range(share // size):
                slots = planned.part(microbatch * size, (microbatch + 1) * size)
                address = Address(step=step, rank=each, microbatch=microbatch)
                yield self._microbatch(address, batch.batch, slots)

    def _microbatch(self, address: Address, batch: int, slots: PlannedSlots) -> Rebuilt:
        masked = answers = None
        if self.judge is None:
            contents = slot_contents(self.reader, slots.delivered_block, slots.delivered_row, seq_len=self.seq_len)
        else:
            settled = self._settler.settle(slots, address, exempted=self.exceptions)
            slots, contents = settled.slots, list(settled.contents)
            masked, answers = settled.masked, settled.answers
        problems = {i: content.problem for i, content in enumerate(contents) if content.problem is not None}
        microbatch = fill_slots(
            slots,
            [content.value for content in contents],
            address=address,
            attempt=self.attempt.number,
            batch=batch,
            manifests=self.stream.manifest_set,
            seq_len=self.seq_len,
            dtype=self.reader.token_dtype,
            masked=masked,
        )
        return Rebuilt(microbatch=microbatch, planned=slots, problems=problems, answers=answers)

    def close(self) -> None:
        """Let go of the reader."""
        self.reader.close()
