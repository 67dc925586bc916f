"""How is a batch of somebody else's loader addressed, judged and recorded before it is handed over?

Batches are counted: `accumulate` of them are a step, and what is left of a step when the loader ends (or is begun
again) is recorded as padding, since frameworks step there too. For each batch, in this order:

1. its tensors are found, and the digest of every sample is taken of them;
2. the gate judges, labels are masked where it says so;
3. one frame is written, of as many records as a microbatch has slots: the samples, then padding;
4. the store takes the batch where its rule wants it; only then is it handed over.

A batch that halts is handed over with its labels masked, and all ranks stop two steps on.

Nothing of it uses Arrow in a thread of its own, as `Loader` does to seal and to compact: the DataLoader may fork its
workers at any time, and a lock that is held at a fork is held for ever in the child.
"""

from __future__ import annotations

import atexit
import os
import time
import weakref
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataguard.core.address import Address
from dataguard.errors import AnswerNo, AttemptError, UsageError, WriterConflict
from dataguard.gate.account import Account
from dataguard.gate.judged import Judged
from dataguard.gate.verdict import Verdict
from dataguard.loader.keeping import Keeping
from dataguard.loader.proposals import propose_met
from dataguard.loader.tidying import Tidying
from dataguard.plan.attempts import AttemptPlan
from dataguard.plan.slots import SlotStatus
from dataguard.run.clock import now
from dataguard.run.halting import Halt, HaltWatch, answer_of, publish_halt, record_halts
from dataguard.run.join import fence
from dataguard.run.judging import Answers, account_of, judge_of
from dataguard.run.places import this_host
from dataguard.run.progress import Progress
from dataguard.run.records import INDEX_RECORD, SIGNAL_PREFIX
from dataguard.run.run import Run
from dataguard.run.store_file import KeptMicrobatch
from dataguard.run.writer import Fsync, RankWriter
from dataguard.torch.guarding.judge import Naming, answers_of, check_policy
from dataguard.torch.guarding.take import Taken, take
from dataguard.torch.tensors import named_tensors

__all__ = ["Walk"]

_COUNTED_AT_ONCE = 512


class Walk:
    """One rank of an attempt under way.

    Parameters
    ----------
    naming, keeping
        What tensors are called, and which batches are kept themselves.
    whole
        Whether each batch is one sample.
    """

    def __init__(
        self,
        run: Run,
        attempt: AttemptPlan,
        *,
        rank: int,
        naming: Naming,
        keeping: Keeping,
        whole: bool,
        fsync: Fsync,
    ) -> None:
        self.run = run
        self.attempt = attempt
        self.rank = rank
        self._naming = naming
        self._whole = whole
        self.judge = judge = judge_of(run, attempt.number)
        policy = None if judge is None else judge.policy
        check_policy(policy)
        bits = keeping.rule.bits(policy)
        self._steps = steps = run.steps_of(attempt.number)
        first = steps.batch(attempt.fork_step)
        self._size = first.size
        self._share = first.size // attempt.geometry.world_size
        self._num_microbatches = self._share // attempt.geometry.microbatch_size
        self._first, self._first_batch = first.first_position, first.batch
        self.progress = run.progress[rank] = Progress(attempt=attempt.number)
        self.next_step = attempt.fork_step
        self._microbatch = 0
        """Of the step in hand, the next one."""
        begun, head = run.begun(attempt.number), run.head()
        self._record = INDEX_RECORD if judge is None else judge.record
        self._empty = _padding(attempt.geometry.microbatch_size, self._record)
        self.writer = RankWriter.open(
            run.layout,
            run_id=run.run_id,
            attempt=attempt.number,
            rank=rank,
            first_step=attempt.fork_step,
            microbatch_size=attempt.geometry.microbatch_size,
            digests={"plan": begun.plan, "attempt": begun.attempt_digest},
            head=(head.number, head.sha256),
            clock=now,
            fsync=fsync,
            fence=fence(run, attempt.number),
            background=False,
            record=None if judge is None else judge.record,
            host=this_host(),
        )
        try:
            self._store = keeping.writer(run, attempt, rank=rank, policy=policy, clock=now)
        except BaseException:
            self.writer.close(seal=False)
            raise
        self._wants = (keeping.rule, bits)
        self._watch = None if judge is None else HaltWatch(run.layout, attempt.number)
        self._account = Account.empty(0 if policy is None else len(policy.rules))
        self._uncounted: list[Judged] = []
        self._told: dict[str, None] = {}
        if policy is not None and policy.batch_rules:
            names = ", ".join(rule.name for rule in policy.batch_rules)
            self._told[f"policy {policy.name}: rules over global batches ({names}) are not judged while training"] = (
                None
            )
        for problem in () if judge is None else judge.gate.remarks:
            self._told[f"policy {judge.policy.name}, {problem.told()}"] = None  # type: ignore[union-attr]
        self._tidying = Tidying(run, attempt.number, background=False) if rank == 0 else None
        # Who drops it without closing leaves the record as a kill does: frames, which every reader takes.
        self._let_go = weakref.finalize(self, self.writer.close, seal=False)
        self._let_go.atexit = False
        self._pid = os.getpid()
        # A script that somebody has closes nothing, so an interpreter that ends does.
        self._at_exit = partial(_end, weakref.ref(self))
        atexit.register(self._at_exit)
        self._closed = False
        self._failure: BaseException | None = None

    @property
    def address(self) -> Address:
        """Of the next batch."""
        return Address(step=self.next_step, rank=self.rank, microbatch=self._microbatch)

    @property
    def notes(self) -> tuple[str, ...]:
        """What an engineer should know of this walk."""
        tidied = () if self._tidying is None else self._tidying.notes
        return (*self._told, *tidied, *(() if self._store is None else self._store.notes))

    def account(self) -> Account:
        """What the rules did on all that was handed over."""
        self._account += account_of(self._uncounted, len(self._account.fired))
        self._uncounted = []
        return self._account

    def wait(self) -> None:
        """Wait until the store has what was handed over, for whoever reads it back at once."""
        if self._store is not None and not self._closed:
            self._store.wait()

    def check(self) -> None:
        """Before a batch is asked for: raise where this walk cannot go on."""
        if isinstance(self._failure, AnswerNo):
            raise self._failure
        if self._closed:
            raise AttemptError(
                f"attempt {self.attempt.number} was closed", todo="guard the loader again: that begins a new attempt"
            )
        if os.getpid() != self._pid:
            raise WriterConflict(
                f"a forked child may not go on with rank {self.rank} of attempt {self.attempt.number}",
                todo="iterate in the process that began, or guard the loader in the child",
            )
        if self._failure is not None:
            raise AttemptError(
                f"attempt {self.attempt.number} has failed on rank {self.rank}, in step "
                f"{self.run.label(self.next_step):,}",
                found=str(self._failure).splitlines()[0] if str(self._failure) else type(self._failure).__name__,
                todo="resume from the state of the last checkpoint, as a new attempt",
            ) from self._failure
        if self._microbatch == 0:
            self._look_for_halt()

    def hand_over(self, batch: Any, rows: NDArray[np.int64] | None, began: float) -> Address:
        """Record a batch; when this returns it may be handed over. `began` is when the trainer began to wait."""
        try:
            address, num_samples = self._hand_over(batch, rows)
        except BaseException as error:
            self._failure = error
            raise
        short = None if num_samples == self.attempt.geometry.microbatch_size else num_samples
        self.progress.handed_over(address.step, time.perf_counter() - began, num_samples=short)
        return address

    def _hand_over(self, batch: Any, rows: NDArray[np.int64] | None) -> tuple[Address, int]:
        """Its address, and how many samples it has."""
        address, size = self.address, self.attempt.geometry.microbatch_size
        slot = self.rank * self._share + self._microbatch * size
        first_position = self._first + (address.step - self.attempt.fork_step) * self._size
        taken = take(
            batch,
            rows,
            judge=self.judge,
            naming=self._naming,
            whole=self._whole,
            first_row=first_position + slot,
        )
        num_samples = len(taken.rows)
        if num_samples > size:
            raise UsageError(
                f"a batch of {num_samples:,} samples does not fit into a microbatch of {size:,}",
                found=f"step {self.run.label(address.step):,}, microbatch {address.microbatch}",
                todo=f"say how many a batch may hold at most: guard(..., batch_size={num_samples})",
            )
        records = self._records(address, first_position, slot)
        mine = records[:num_samples]
        mine["row"], mine["status"], mine["length"] = taken.rows, taken.status, taken.lengths
        mine["digest"] = np.frombuffer(b"".join(digest[:8] for digest in taken.digests), "V8")
        if num_samples:  # a batch of no samples is padding
            records["microbatch_digest"][0] = np.void(taken.digest)
        if taken.judged is not None:
            self._judge(taken, mine, address)
        self.writer.append(records)
        self._keep(address, slot, num_samples, taken, mine)
        self._forward()
        return address, num_samples

    def _records(self, address: Address, first_position: int, slot: int) -> NDArray[np.void]:
        """A microbatch of padding at an address."""
        records = self._empty.copy()
        records["step"], records["microbatch"] = address.step, address.microbatch
        records["batch"] = self._first_batch + address.step - self.attempt.fork_step
        records["slot"] += np.uint32(slot)
        records["position"] += np.uint64(first_position + slot)
        return records

    def _judge(self, taken: Taken, mine: NDArray[np.void], address: Address) -> None:
        judge, judged = self.judge, taken.judged
        assert judge is not None
        assert judged is not None
        answers = answers_of(judge, judged, mine["position"].astype(np.int64))
        answers.write(mine)
        if taken.unmasked:
            self._told[
                f"policy {judge.policy.name} masks samples, and the batches have no tensor of labels "
                f"{self._naming.labels!r} that could be masked: they are handed over as they are"
            ] = None
        self._uncounted.append(judged)
        if len(self._uncounted) >= _COUNTED_AT_ONCE:
            self.account()
        for place in np.flatnonzero(judged.verdict == Verdict.HALT)[:1].tolist():
            self._halt(address, mine[place], answers, place)

    def _halt(self, address: Address, record: Any, answers: Answers, place: int) -> None:
        """Publish that all ranks stop two steps on, before the batch is recorded and handed over."""
        assert self.judge is not None
        bits = int(answers.rules[place])
        shards = self.run.stream_of(self.attempt.number).manifest_set
        publish_halt(
            self.run.layout,
            Halt(
                run=self.run.run_id,
                attempt=self.attempt.number,
                stop_step=address.step + 2,
                step=address.step,
                rank=address.rank,
                microbatch=address.microbatch,
                slot=int(record["slot"]),
                position=int(record["position"]),
                shard=shards.shard_name(int(record["shard"])),
                row=int(record["row"]),
                rules=tuple(
                    rule.name
                    for rule in self.judge.policy.rules
                    if bits >> rule.bit & 1 and rule.verdict == Verdict.HALT
                ),
                signals=answers.values_of(place),
            ),
        )

    def _look_for_halt(self) -> None:
        halt = None if self._watch is None else self._watch.lowest()
        if halt is not None and self.next_step >= halt.stop_step:
            begun = self.next_step - 1 if self.next_step > halt.stop_step else None
            self._failure = answer_of(self.run, halt, begun_beyond=begun)
            self.close()
            raise self._failure

    def _keep(self, address: Address, slot: int, num_samples: int, taken: Taken, mine: NDArray[np.void]) -> None:
        if self._store is None:
            return
        rule, bits = self._wants

        def kept() -> KeptMicrobatch:
            return KeptMicrobatch(
                microbatch=address.microbatch,
                form="tensors",
                slots=range(slot, slot + num_samples),
                made_of=taken.made_of,
                digest=taken.digest,
                tensors=named_tensors(taken.tensors),
            )

        wanted = bool(rule.wants(mine, bits).any())
        last = address.microbatch == self._num_microbatches - 1
        self._store.offer(address.step, kept if wanted else None, last_of_step=last)

    def _forward(self) -> None:
        self._microbatch += 1
        if self._microbatch == self._num_microbatches:
            self._microbatch, self.next_step = 0, self.next_step + 1

    def end_step(self) -> None:
        """Record what is left of the step in hand as padding: the loader has ended, or was begun again."""
        while self._microbatch:
            address = self.address
            slot = self.rank * self._share + self._microbatch * self.attempt.geometry.microbatch_size
            first_position = self._first + (address.step - self.attempt.fork_step) * self._size
            self.writer.append(self._records(address, first_position, slot))
            if self._store is not None:
                last = address.microbatch == self._num_microbatches - 1
                self._store.offer(address.step, None, last_of_step=last)
            self._forward()

    def close(self, *, tidy: bool = True) -> None:
        """Seal the record, write what the store waits with, tell the journal of halts; compact what came before."""
        if self._closed:
            return
        self._closed = True
        self._let_go.detach()
        atexit.unregister(self._at_exit)
        try:
            if self._store is not None:
                self._store.close()
        finally:
            self.writer.close()
        if os.getpid() == self._pid and self._tidying is not None:
            record_halts(self.run)
            propose_met(self.run)
            if tidy:
                self._tidying.finish()


def _end(walk: weakref.ref[Walk]) -> None:
    """At the end of the interpreter: seal what is still open, without what would keep somebody waiting."""
    alive = walk()
    if alive is not None and os.getpid() == alive._pid:
        alive.close(tidy=False)


def _padding(size: int, record: np.dtype[np.void]) -> NDArray[np.void]:
    """A microbatch in which nothing is delivered, at slot 0 of position 0."""
    empty: NDArray[np.void] = np.zeros(size, record)
    empty["slot"] = empty["position"] = np.arange(size)
    empty["status"] = SlotStatus.ENDED
    empty["delivered_shard"] = empty["delivered_row"] = -1
    for name in record.names or ():
        if name.startswith(SIGNAL_PREFIX):
            empty[name] = np.nan
    return empty
