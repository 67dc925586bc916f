"""How does one rank walk its part of the stream, and what does it promise?

1. Nothing happens before the first microbatch is asked for. Then rank 0 begins an attempt in the journal and every
   other rank joins it, after checking that it was told the same.
2. Microbatches are read and assembled ahead by a few threads and handed over in order.
3. At hand-over, and never before, a microbatch is recorded; only then is it returned. So what is recorded is what was
   delivered, plus at most one microbatch that the consumer never saw.
4. `state()` is a few integers, always at a step boundary; `load()` says where the next attempt begins.

It knows no framework. `dataguard.torch` puts it under a trainer; `dataguard rehearse` walks it without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from dataguard.core.address import Geometry
from dataguard.core.microbatch import Microbatch
from dataguard.errors import AnswerNo, AttemptError, UsageError
from dataguard.gate.account import Account
from dataguard.loader.agreeing import agree, all_or_none
from dataguard.loader.feed import Fed, OnUnreadable
from dataguard.loader.keeping import Keeping, Named
from dataguard.loader.one_process import OfOneProcess
from dataguard.loader.peers import Peers
from dataguard.loader.reading import Reading, reading_by_threads
from dataguard.loader.walk import End
from dataguard.loader.walking import BatchPart, Walking
from dataguard.plan.attempts import AttemptPlan
from dataguard.plan.given import require_planned_order
from dataguard.plan.state import JournalHead, LoaderState, read_state
from dataguard.run.events import EvaluatedAt, TransformIdentity
from dataguard.run.launch import AttemptRequest
from dataguard.run.policies import GateChoice
from dataguard.run.run import Run
from dataguard.run.writer import Fsync

if TYPE_CHECKING:
    from dataguard.gate.policy import Policy
    from dataguard.run.judging import Judge
    from dataguard.score.profile import Profile

__all__ = ["Loader"]


class Loader(OfOneProcess):
    """An iterator of the microbatches of one rank, each recorded as it is handed over.

    Parameters
    ----------
    run
        The run that is read and recorded.
    geometry
        World size and microbatch size, the same on all ranks.
    rank
        This rank.
    steps, epochs
        Where the walk ends: after so many steps, or after so many whole epochs of every source (the rest of the last
        batch is masked padding, never repeats). Without any of the two it has no end.
    from_step, parent
        First step of the attempt (0-based) and the attempt it forks from, where no state is loaded. Default: a fresh
        run begins at step 0.
    launch_id
        What all ranks of this launch share and no other launch has. Default: the launcher's own (torchrun, SLURM), or
        a fresh one where there is one rank.
    num_threads, prefetch
        Threads that read ahead (0 reads at hand-over), and microbatches they are ahead. They change nothing that is
        delivered.
    on_unreadable
        ``withhold`` a slot whose row cannot be read (recorded as an exception), or ``halt``. Default: as the policy
        says, else ``withhold``.
    cache_bytes
        Bound of the cache of decoded blocks. Default: what the plan's windows need, at most 2 GiB.
    roots
        Where sources lie now, where that is another place than the run remembers.
    global_batch, corpus, weights
        What changes from this attempt's start on: batch size, corpus, weights.
    policy, profile, vocab_size
        What judges samples before they are delivered, as `Run.open` takes them. Default: what the run was opened with,
        else what the attempt it forks from had, else what the run was created with.
    join_timeout_seconds
        How long a rank waits for rank 0.
    fsync
        ``each`` makes each record durable at hand-over; ``seal`` leaves that to the system until a segment ends.
    store, store_budget_bytes, store_queue_bytes
        What is kept itself of what is handed over, beside its record: ``none``, ``flagged`` (``flagged:RULE,RULE``),
        ``last:N`` steps or ``all``; how much of that may lie on disk (of this rank; 1 GiB for ``flagged``, else no
        bound) and wait to be written (256 MiB). What does not fit is let go of and counted.
    reading, peers, transform, named, told
        For adapters to frameworks: who reads ahead instead of threads, how ranks speak to each other, what makes
        tensors of samples (it is recorded), which tensors the store is to keep instead of samples, and what else has to
        be the same on ranks that can speak.
    evaluation
        For a named stream (`dataguard.loader.streams`), of which a walk is an evaluation: where the training stands.

    Raises
    ------
    GeometryError
        Before the first microbatch, where the numbers do not fit.
    UsageError
        A number that cannot be; or the order of the run is given from outside, and no plan has it.
    """

    def __init__(
        self,
        run: Run,
        *,
        geometry: Geometry,
        rank: int = 0,
        steps: int | None = None,
        epochs: int | None = None,
        from_step: int | None = None,
        parent: int | None = None,
        launch_id: str | None = None,
        num_threads: int = 2,
        prefetch: int = 8,
        on_unreadable: OnUnreadable | None = None,
        cache_bytes: int | None = None,
        roots: Mapping[str, str] | None = None,
        global_batch: int | None = None,
        corpus: Any = None,
        weights: Mapping[str, Any] | None = None,
        policy: str | Path | Policy | None = None,
        profile: str | Path | Profile | None = None,
        vocab_size: int | None = None,
        join_timeout_seconds: float = 120.0,
        fsync: Fsync = "seal",
        reading: Reading | None = None,
        peers: Peers | None = None,
        transform: TransformIdentity | None = None,
        store: str = "none",
        store_budget_bytes: int | None = None,
        store_queue_bytes: int | None = None,
        named: Named | None = None,
        evaluation: EvaluatedAt | None = None,
        told: Mapping[str, str] | None = None,
    ) -> None:
        geometry.check_rank(rank)
        require_planned_order(
            run.plan_document().root,
            "a loader of the plan's stream",
            todo="watch the loader with dataguard.torch.guard()",
        )
        counts = (
            ("steps", steps, 1),
            ("epochs", epochs, 1),
            ("num_threads", num_threads, 0),
            ("prefetch", prefetch, 1),
        )
        for name, value, least in counts:
            if value is not None and value < least:
                raise UsageError(f"{name} {value} cannot be", allowed=f"at least {least}")
        if steps is not None and epochs is not None:
            raise UsageError("steps and epochs cannot both be given", todo="give the one that ends the run")
        self.run = run
        self.geometry = geometry
        self.rank = rank
        self._steps = steps
        self._epochs = epochs
        self._background = reading is not None or num_threads > 0
        self._reading = reading or reading_by_threads(num_threads, prefetch)
        self._peers = peers
        self._told = {"steps": str(steps), **(told or {})}
        self._on_unreadable = on_unreadable
        self._cache_bytes = cache_bytes
        self._roots = dict(roots or {})
        self._corpus = corpus
        self._join_timeout_seconds = join_timeout_seconds
        self._fsync = fsync
        self._keeping = Keeping.read(store, store_budget_bytes, store_queue_bytes, named)
        gate = GateChoice.read(policy, profile, vocab_size).over(run.gate)
        if gate.policy is not None or gate.no_policy:
            # What an attempt before this one had is known when it begins, and looked at then.
            self._keeping.check(gate.policy)
        self._request: dict[str, Any] = {
            "launch_id": launch_id,
            "geometry": geometry,
            "parent": parent,
            "fork_step": from_step,
            "global_batch": global_batch,
            "manifest": None if corpus is None else corpus.manifest,
            "weights": weights,
            "epochs": epochs,
            "gate": gate,
            "transform": transform,
            "evaluation": evaluation,
        }
        self._state: LoaderState | None = None
        self._walking: Walking | None = None
        if global_batch is not None:
            geometry.check(global_batch)
        elif evaluation is not None or (from_step is None and not len(run.attempts())):
            run.plan.check(geometry)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Microbatch:
        """Record the next microbatch and hand it over."""
        fed = self.hand_over()
        if fed is None:
            raise StopIteration
        return fed.microbatch

    def hand_over(self) -> Fed | None:
        """Record the next microbatch and hand it over with all that was read and judged; None at the end."""
        if self._walking is None:
            self._walking = self._begin()
        try:
            fed = self._walking.next()
        except AnswerNo:
            # The gate stops all ranks here: the record ends as at any other end.
            self.close()
            raise
        if fed is None:
            self.close()
        return fed

    def begin(self) -> AttemptPlan:
        """Begin the attempt now, and not with the first microbatch; the one that has begun where one has."""
        if self._walking is None:
            self._walking = self._begin()
        return self._walking.attempt

    def take_step(self) -> list[Microbatch]:
        """Hand over all microbatches that are left of the step in hand; none where the walk has ended.

        For loops that accumulate gradients: one call is one optimizer step.
        """
        taken: list[Microbatch] = []
        for microbatch in self:
            taken.append(microbatch)
            if self.next_step > microbatch.step:
                break
        return taken

    def __len__(self) -> int:
        """Microbatches that a finite walk delivers in all; TypeError for an endless one."""
        if self._steps is None and self._epochs is None:
            raise TypeError("an endless loader has no length; give steps= or epochs=")
        if self._walking is None:
            self._walking = self._begin()
        return self._walking.walk.num_microbatches()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the walk: threads end, the record is sealed. What was prefetched leaves no trace."""
        if self._walking is not None:
            self._walking.close()

    # -- state

    def state(self) -> LoaderState:
        """Where the run stands, at a step boundary: a step whose microbatches were not all handed over starts again."""
        self._require_run("has no state")
        if self._walking is None and self._state is not None:
            return self._state
        head = self.run.head()
        return LoaderState(
            root_digest=self.run.plan.root.digest,
            attempt=self._stands_in() if self.attempt is None else self.attempt.number,
            next_step=self.next_step,
            journal_head=JournalHead(number=head.number, sha256=head.sha256),
        )

    def _require_run(self, why: str) -> None:
        if self._request["evaluation"] is not None:
            raise UsageError(f"an evaluation {why}", todo="begin another: it gives the same batches from the first on")

    def _stands_in(self) -> int:
        """Before the attempt begins: the one it is to fork from, 0 where it is a fresh start."""
        from_step, parent = self._request["fork_step"], self._request["parent"]
        attempts = self.run.attempts()
        if from_step is None or (from_step == 0 and parent is None and not len(attempts)):
            return 0
        return attempts.owner(from_step) if parent is None else parent

    def load(self, state: LoaderState | Mapping[str, Any] | bytes | str) -> None:
        """Go on from a state that `state()` gave, with whatever geometry this loader has.

        Raises
        ------
        AttemptError
            The state is of another stream, or this loader has handed something over already.
        """
        self._require_run("is not gone on with")
        if self._walking is not None:
            raise AttemptError(
                f"this loader has begun attempt {self._walking.attempt.number} already, so no state can be loaded",
                todo="load the state before the first microbatch is asked for, into a new Loader",
            )
        if isinstance(state, LoaderState):
            read = state
        else:
            read = read_state(dict(state) if isinstance(state, Mapping) else state)
        read.check_root(self.run.plan.root.digest)
        self._state = read

    # -- what it has to say

    @property
    def attempt(self) -> AttemptPlan | None:
        """The attempt, once it has begun."""
        return None if self._walking is None else self._walking.attempt

    @property
    def next_step(self) -> int:
        """The step in hand, counted from 0: the first whose microbatches were not all handed over."""
        if self._walking is not None:
            return self._walking.next_step
        if self._state is not None:
            return self._state.next_step
        return self._request["fork_step"] or 0

    @property
    def notes(self) -> tuple[str, ...]:
        """What an engineer should know of this walk: what its geometry costs in bytes read, skips without effect."""
        return () if self._walking is None else self._walking.notes

    @property
    def judge(self) -> Judge | None:
        """What judges the samples of the attempt; None where nothing does, or it has not begun."""
        return None if self._walking is None else self._walking.judge

    @property
    def account(self) -> Account:
        """What the policy's rules did on all that this rank was handed."""
        return Account.empty(0) if self._walking is None else self._walking.account()

    @property
    def batch_parts(self) -> list[BatchPart]:
        """The part of this rank of the step in hand, for rules over batches; empty where the policy has none."""
        return [] if self._walking is None else self._walking.batch_parts

    @property
    def bytes_read(self) -> int:
        """Bytes this rank has read from shards so far."""
        walking = self._walking
        return 0 if walking is None else walking.reader.counts.storage_bytes + walking.storage_bytes

    def _begin(self) -> Walking:
        attempt = self._agree()
        return all_or_none(self._peers, lambda: self._walk(attempt), what="open its part", undo=Walking.close)

    def _walk(self, attempt: AttemptPlan) -> Walking:
        return Walking(
            self.run,
            attempt,
            rank=self.rank,
            end=End(num_steps=self._steps, epochs=self._epochs),
            roots=self._roots,
            cache_bytes=self._cache_bytes,
            on_unreadable=self._on_unreadable,
            fsync=self._fsync,
            reading=self._reading,
            keeping=self._keeping,
            background=self._background,
            records=self._peers is None or self._peers.records,
        )

    def _agree(self) -> AttemptPlan:
        """Rank 0 begins the attempt, all others join it."""
        return agree(
            self.run,
            self._asked,
            launch_id=self._request["launch_id"],
            rank=self.rank,
            world_size=self.geometry.world_size,
            roots=self._roots,
            corpus=self._corpus,
            peers=self._peers,
            also=self._told,
            join_timeout_seconds=self._join_timeout_seconds,
        )

    def _asked(self, launch_id: str) -> AttemptRequest:
        """What this rank was told."""
        request = {**self._request, "launch_id": launch_id}
        state = self._state
        if state is not None and state.attempt == 0:
            # It was taken before the first iteration: a fresh start, which forks from step 0 where attempts exist.
            state = None
            request["fork_step"] = 0 if len(self.run.attempts()) else None
        if state is not None:
            request["parent"] = request["fork_step"] = None
        root = self.run.plan.root
        return AttemptRequest(state=state, root_digest=root.digest, seed=root.seed, **request)
