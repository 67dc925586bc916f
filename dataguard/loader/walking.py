"""What is under way once an attempt has begun: reading ahead, and handing over what was recorded?

All that costs something lives here: the stream, the reader, the threads that read ahead, the writer of the record. A
microbatch is recorded when it is handed over, and never before. What failed once stays failed.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataguard.errors import AnswerNo, AttemptError, WriterConflict
from dataguard.gate.account import Account
from dataguard.gate.judged import Judged
from dataguard.gate.verdict import Verdict
from dataguard.loader.demand import demand_of
from dataguard.loader.feed import Fed, OnUnreadable
from dataguard.loader.feeding import Feeding
from dataguard.loader.keeping import Keeping
from dataguard.loader.proposals import propose_met
from dataguard.loader.reading import Reading
from dataguard.loader.tidying import Tidying
from dataguard.loader.unrecorded import Unrecorded
from dataguard.loader.walk import End, Walk
from dataguard.plan.attempts import AttemptPlan
from dataguard.plan.slots import SlotStatus
from dataguard.run.begin import idle_skips
from dataguard.run.clock import now
from dataguard.run.halting import Halt, HaltWatch, answer_of, publish_halt, record_halts
from dataguard.run.join import fence
from dataguard.run.judging import Answers, Judge, account_of, judge_of
from dataguard.run.places import this_host
from dataguard.run.policies import fill_of
from dataguard.run.progress import Progress
from dataguard.run.run import Run
from dataguard.run.writer import Fsync, RankWriter

__all__ = ["BatchPart", "Walking"]


_COUNTED_AT_ONCE = 512
"""Calls of the gate that are counted together."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchPart:
    """A microbatch as rules over batches see it: arrays of shape (n,)."""

    positions: NDArray[np.int64]
    source: NDArray[np.int32]
    """Index of each sample's source, -1 where nothing was judged."""
    live: NDArray[np.bool_]
    """Where it is trained on."""
    columns: dict[str, NDArray[np.float64]]


class Walking:
    """A loader under way; see `dataguard.loader.loader.Loader` for the settings.

    With `records` False another process reads for this rank, judges and records: the same is handed over and nothing is
    written, nor is a halt looked for, which is that process's to tell.
    """

    def __init__(
        self,
        run: Run,
        attempt: AttemptPlan,
        *,
        rank: int,
        end: End,
        roots: Mapping[str, str],
        cache_bytes: int | None,
        on_unreadable: OnUnreadable | None,
        fsync: Fsync,
        reading: Reading,
        keeping: Keeping,
        background: bool = True,
        records: bool = True,
    ) -> None:
        self.run = run
        self._records = records
        self.rank = rank
        self.attempt = attempt
        plan = run.plan_of(attempt.number)
        stream = run.stream_of(attempt.number, bulk=True)
        steps = run.steps_of(attempt.number)
        demand = demand_of(plan, stream, attempt.geometry)
        judge = judge_of(run, attempt.number)
        self.judge = judge
        policy = None if judge is None else judge.policy
        keeping.check(policy)
        self.progress = run.progress[rank] = Progress(attempt=attempt.number, records=records)
        self._notes = (*demand.notes, *_without_effect(run, attempt), *_lacking(judge))
        self.walk = Walk(
            stream=stream,
            steps=steps,
            withheld=run.withheld_of(attempt.number),
            fill=fill_of(run, attempt.number),
            geometry=attempt.geometry,
            rank=rank,
            attempt=attempt.number,
            first_step=attempt.fork_step,
            end=end,
        )
        feeding = Feeding(
            path=str(run.path),
            attempt=attempt.number,
            roots=dict(roots),
            cache_bytes=cache_bytes or demand.cache_bytes,
            on_unreadable=on_unreadable,
        )
        feeder = feeding.feeder(run)
        self.reader = feeder.reader
        self.storage_bytes = 0
        """Read by other processes, for what was handed over."""
        self._watch = None if judge is None or not records else HaltWatch(run.layout, attempt.number)
        self._account = Account.empty(0 if judge is None else len(judge.policy.rules))
        self._uncounted: list[Judged] = []
        self.batch_parts: list[BatchPart] = []
        """This rank's part of the step in hand, for rules over batches; empty where the policy has none."""
        self.next_step = steps.next_delivered(attempt.fork_step)
        self._steps = steps
        self._pid = os.getpid()
        self._closed = False
        self._failure: BaseException | None = None
        self._fed: Iterator[Fed] = reading(feeding, feeder, self.walk)
        # Workers read from now on: whatever keeps the rest from being opened ends them, and not the garbage collector.
        with ExitStack() as opened:
            opened.callback(self._end_reading)
            self.writer = self._writer(fsync=fsync, background=background) if records else Unrecorded()
            opened.callback(self.writer.close, seal=False)
            kept = keeping if records else Keeping.read("none", None, None, None)
            self.keeper = kept.keeper(run, attempt, rank=rank, policy=policy, clock=now, background=background)
            opened.callback(self.keeper.close)
            self._tidying = Tidying(run, attempt.number, background=background) if records and rank == 0 else None
            opened.pop_all()
        # Who drops a loader without closing it leaves the record as a kill does: frames, and no file held open.
        self._let_go = weakref.finalize(self, self.writer.close, seal=False)
        self._let_go.atexit = False

    def _writer(self, *, fsync: Fsync, background: bool) -> RankWriter | Unrecorded:
        run, attempt = self.run, self.attempt
        head, begun = run.head(), run.begun(attempt.number)
        return RankWriter.open(
            run.layout,
            run_id=run.run_id,
            attempt=attempt.number,
            rank=self.rank,
            first_step=attempt.fork_step,
            microbatch_size=attempt.geometry.microbatch_size,
            digests={"plan": begun.plan, "attempt": begun.attempt_digest},
            head=(head.number, head.sha256),
            clock=now,
            fsync=fsync,
            fence=fence(run, attempt.number),
            background=background,
            record=None if self.judge is None else self.judge.record,
            host=this_host(),
        )

    def _end_reading(self) -> None:
        close: Callable[[], None] | None = getattr(self._fed, "close", None)
        if close is not None:
            close()
        self.reader.close()

    def next(self) -> Fed | None:
        """Record the next microbatch and hand it over; None at the end.

        What failed once fails for ever: going on behind a microbatch that was not handed over would leave a gap, and
        an end would be taken for the end of the stream.
        """
        if isinstance(self._failure, AnswerNo):
            raise self._failure
        if self._closed:
            return None
        if os.getpid() != self._pid:
            raise WriterConflict(
                f"a forked child may not go on with rank {self.rank} of attempt {self.attempt.number}",
                todo="iterate in the process that began, or begin an attempt of its own after the fork",
            )
        if self._failure is not None:
            raise AttemptError(
                f"attempt {self.attempt.number} has failed on rank {self.rank}, in step "
                f"{self.run.label(self.next_step):,}",
                found=str(self._failure).splitlines()[0] if str(self._failure) else type(self._failure).__name__,
                todo="resume from the state of the last checkpoint, as a new attempt",
            ) from self._failure
        began = time.perf_counter()
        try:
            fed = self._hand_over()
        except BaseException as error:
            self._failure = error
            raise
        if fed is not None:
            self.storage_bytes += fed.storage_bytes
            self.progress.handed_over(fed.planned.address.step, time.perf_counter() - began)
        return fed

    def _hand_over(self) -> Fed | None:
        fed = next(self._fed, None)
        if fed is None or fed.planned.address.microbatch == 0:
            self._look_for_halt(None if fed is None else fed.planned.address.step)
        if fed is None:
            return None
        self.keeper.check()
        for exception in fed.settled.exceptions:
            self.writer.append_exception(exception.record())
        if fed.settled.stopped and self._records:
            self._halt(fed)
        self.writer.append(fed.records)
        self.keeper.keep(fed)
        if fed.settled.answers is not None:
            self._uncounted += fed.settled.answers.parts
            if len(self._uncounted) >= _COUNTED_AT_ONCE:
                self.account()
            self._keep_for_batch(fed, fed.settled.answers)
        if fed.planned.last_of_step:
            self.next_step = self._steps.next_delivered(fed.planned.address.step + 1)
        return fed

    @property
    def notes(self) -> tuple[str, ...]:
        """What an engineer should know of this walk."""
        tidied = () if self._tidying is None else self._tidying.notes
        return (*self._notes, *tidied, *self.keeper.notes)

    def account(self) -> Account:
        """What the rules did on all that was handed over, substitutes that were drawn included."""
        self._account += account_of(self._uncounted, len(self._account.fired))
        self._uncounted = []
        return self._account

    def _look_for_halt(self, step: int | None) -> None:
        """Before a step (None: before the end): AnswerNo where the gate stops all ranks here."""
        halt = None if self._watch is None else self._watch.lowest()
        if halt is not None and (step is None or step >= halt.stop_step):
            begun = self.next_step - 1 if self.next_step > halt.stop_step else None
            raise answer_of(self.run, halt, begun_beyond=begun)

    def _keep_for_batch(self, fed: Fed, answers: Answers) -> None:
        """What rules over batches need of a microbatch, where the policy has such rules."""
        assert self.judge is not None
        if not self.judge.policy.batch_rules:
            return
        if fed.planned.address.microbatch == 0:
            self.batch_parts = []
        slots = fed.settled.slots
        # What the gate substituted has left the batch, and of what it drew instead no signals are kept.
        drawn_by_plan = (slots.status == SlotStatus.SUBSTITUTED) & (answers.verdict <= Verdict.FLAG)
        live = answers.judged & ((slots.status == SlotStatus.LIVE) | drawn_by_plan)
        self.batch_parts.append(
            BatchPart(
                positions=slots.position,
                source=np.where(answers.judged, slots.source, -1).astype(np.int32),
                live=live,
                columns={name: answers.signal_values[:, i] for i, name in enumerate(answers.signals)},
            )
        )

    def _halt(self, fed: Fed) -> None:
        """Publish that all ranks stop two steps on, before the microbatch is recorded and handed over."""
        assert self.judge is not None
        assert fed.settled.answers is not None
        address, stopped = fed.planned.address, fed.settled.stopped[0]
        bits = int(fed.settled.answers.rules[stopped.place])
        rules = [rule for rule in self.judge.policy.rules if bits >> rule.bit & 1 and rule.verdict == Verdict.HALT]
        after = self._steps.next_delivered(address.step + 1)
        publish_halt(
            self.run.layout,
            Halt(
                run=self.run.run_id,
                attempt=self.attempt.number,
                stop_step=self._steps.next_delivered(after + 1),
                step=address.step,
                rank=address.rank,
                microbatch=address.microbatch,
                slot=int(fed.planned.slots.slot[stopped.place]),
                position=int(fed.planned.slots.position[stopped.place]),
                shard=self.walk.stream.manifest_set.shard_name(stopped.shard),
                row=stopped.row,
                rules=tuple(rule.name for rule in rules),
                signals=fed.settled.answers.values_of(stopped.place),
            ),
        )

    def close(self) -> None:
        """End threads, seal the record, and propose what was met on the way."""
        if self._closed:
            return
        self._closed = True
        self._let_go.detach()
        if os.getpid() != self._pid:
            self.writer.close()
            self.keeper.close()
            return
        try:
            self._end_reading()
        finally:
            try:
                self.writer.close()
            finally:
                self.keeper.close()
        if self._records and self.rank == 0:
            record_halts(self.run)
            propose_met(self.run)
            assert self._tidying is not None
            self._tidying.finish()


def _lacking(judge: Judge | None) -> list[str]:
    """Rules that are skipped everywhere, since what they need was not given."""
    return [] if judge is None else [f"policy {judge.policy.name}, {problem.told()}" for problem in judge.gate.remarks]


def _without_effect(run: Run, attempt: AttemptPlan) -> list[str]:
    """Skips that are new to this attempt and lie before its start."""
    parent = None if attempt.parent is None else run.attempts().attempt(attempt.parent)
    known = set() if parent is None else {skip.event for skip in parent.skips}
    return [
        f"the skip of event {skip.event} (positions {skip.start:,}:{skip.stop:,}) lies before position "
        f"{attempt.start_position:,}, where attempt {attempt.number} begins: it changes nothing"
        for skip in idle_skips(attempt)
        if skip.event not in known
    ]
