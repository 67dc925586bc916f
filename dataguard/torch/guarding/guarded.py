"""What is a loader of a trainer's own, once it is on record?

`Guarded` is a plain object that iterates the loader it wraps, records each batch before it yields it, and takes
whatever it has not itself from that loader. An attempt begins with the first batch; an iteration that ends, or is begun
again, ends the step in hand. States are taken at step boundaries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from dataguard.core.address import Address
from dataguard.errors import AttemptError, UsageError
from dataguard.gate.account import Account
from dataguard.loader.keeping import Keeping
from dataguard.plan.attempts import AttemptPlan
from dataguard.plan.state import JournalHead, LoaderState, read_state
from dataguard.run.policies import GateChoice
from dataguard.run.run import Run
from dataguard.run.store_rule import StoreRule
from dataguard.run.writer import Fsync
from dataguard.torch.guarding.begin import Beginning, place_here
from dataguard.torch.guarding.indices import IndexWatch, inner_loader, is_indexed
from dataguard.torch.guarding.judge import Naming, check_policy
from dataguard.torch.guarding.walk import Walk

if TYPE_CHECKING:
    from dataguard.torch.guarding.replay import Replayed

__all__ = ["Guarded"]

_END = object()


class Guarded:
    """A loader on record; made by `guard`. Whatever it has not itself it takes from the loader that it wraps."""

    def __init__(
        self,
        dataloader: Any,
        run: Run | str | Path,
        *,
        accumulate: int,
        batch_size: int | None,
        by: Literal["index", "order"] | None,
        naming: Naming,
        gate: GateChoice,
        start_step: int | Callable[[], int] | None,
        first_label: Literal[0, 1],
        rank: int | None,
        world_size: int | None,
        group: Any,
        launch_id: str | None,
        keep: StoreRule | None,
        store_bounds: tuple[int | None, int | None],
        fsync: Fsync,
        join_timeout_seconds: float,
    ) -> None:
        if isinstance(dataloader, Guarded):
            raise UsageError("this loader is guarded already", todo="guard it once, outermost")
        if by == "index" and not is_indexed(dataloader):
            raise UsageError(
                f"a {type(dataloader).__name__} gives no indices of a data set", todo="leave by out, or say by='order'"
            )
        check_policy(gate.policy)
        self.dataloader = dataloader
        """The loader that is wrapped."""
        self._watch = IndexWatch(dataloader) if is_indexed(dataloader) and by != "order" else None
        self._whole = self._watch is not None and not self._watch.has_batches
        self._naming = naming
        default = "none" if self._watch is not None else "all"
        budget, queue = store_bounds
        self._keep = Keeping.read(keep or default, budget, queue)
        self._fsync = fsync
        self._beginning = Beginning(
            run,
            num_rows=None if self._watch is None else self._watch.num_rows,
            accumulate=accumulate,
            first_label=first_label,
            gate=gate,
            launch_id=launch_id,
            place=place_here(rank, world_size, group, join_timeout_seconds),
            join_timeout_seconds=join_timeout_seconds,
        )
        self._batch_size = 1 if self._whole else batch_size or _batch_size_of(dataloader)
        if self._batch_size is not None:
            self._beginning.open(self._batch_size)
        self._start_step = start_step
        self._state: LoaderState | None = None
        self._walk: Walk | None = None
        self._address: Address | None = None
        self._loader_state: Any = None
        """Of the wrapped loader, as it was before the step in hand."""

    # -- iterating

    def __iter__(self) -> Iterator[Any]:
        if self._walk is not None:
            self._walk.check()
            self._walk.end_step()
            self._remember()
        return self._batches(self._unjudged())

    def _batches(self, source: Any) -> Iterator[Any]:
        is_first = True
        try:
            while True:
                walk = self._walk
                if walk is not None:
                    walk.check()
                    if walk.address.microbatch == 0 and not is_first:
                        self._remember()
                is_first = False
                began = time.perf_counter()
                batch, rows = next(source, (_END, None))
                if batch is _END:
                    break
                if walk is None:
                    walk = self._walk = self._begin(batch, rows)
                self._address = walk.hand_over(batch, rows, began)
                yield batch
                del batch  # the trainer alone keeps it while the next one is made
        finally:
            source.close()
        if self._walk is not None:
            self._walk.end_step()

    def _unjudged(self) -> Any:
        """Generator of batches with their rows, as the loader gives them."""
        return self._in_order(iter(self.dataloader)) if self._watch is None else self._watch.batches()

    @staticmethod
    def _in_order(source: Iterator[Any]) -> Iterator[tuple[Any, None]]:
        for batch in source:
            yield batch, None
            del batch  # as above

    def _begin(self, batch: Any, rows: Any) -> Walk:
        size = self._beginning.agreed_size(self._batch_size, batch, rows, self._naming)

        def walk(run: Run, attempt: AttemptPlan, rank: int) -> Walk:
            return Walk(
                run, attempt, rank=rank, naming=self._naming, keeping=self._keep, whole=self._whole, fsync=self._fsync
            )

        return self._beginning.begin(size, state=self._state, start_step=self._started(), walk=walk)

    def __len__(self) -> int:
        return len(self.dataloader)

    def __getattr__(self, name: str) -> Any:
        if name == "dataloader":  # not made yet: a copy, or a pickle
            raise AttributeError(name)
        if name == "multiprocessing_context":  # of use to nobody but who makes another DataLoader of this one's parts
            raise UsageError(
                "a loader that is made of the parts of a guarded one would hand over batches that nobody records",
                found="skip_first_batches of Accelerate, or something like it, given a guarded loader",
                allowed="the other way round: guard(skip_first_batches(loader, n), run, start_step=STEP)",
                todo="tell a Hugging Face Trainer that resumes TrainingArguments(ignore_data_skip=True), and guard() "
                "start_step=lambda: trainer.state.global_step",
            )
        return getattr(self.dataloader, name)

    @property
    def worker_init_fn(self) -> Any:
        """The wrapped loader's; Lightning sets it where it is to seed workers, so it is set there."""
        return self.dataloader.worker_init_fn

    @worker_init_fn.setter
    def worker_init_fn(self, function: Any) -> None:
        self.dataloader.worker_init_fn = function

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the attempt: the record is sealed. A script that ends without it leaves a record that is as good."""
        if self._walk is not None:
            self._walk.close()

    # -- what it has to say

    @property
    def run(self) -> Run:
        """The run; UsageError before the first batch where its size had to be known first."""
        return self._beginning.run

    @property
    def rank(self) -> int:
        """Data-parallel rank of this process."""
        return self._beginning.place.rank

    @property
    def attempt(self) -> AttemptPlan | None:
        """The attempt, once it has begun: with the first batch."""
        return None if self._walk is None else self._walk.attempt

    @property
    def address(self) -> Address | None:
        """Of the batch that was handed over last; None before the first."""
        return self._address

    @property
    def next_step(self) -> int:
        """The step in hand, counted from 0: the first whose batches were not all handed over."""
        if self._walk is not None:
            return self._walk.next_step
        return self._started() or 0 if self._state is None else self._state.next_step

    @property
    def account(self) -> Account:
        """What the policy's rules did on all that was handed over."""
        return Account.empty(0) if self._walk is None else self._walk.account()

    @property
    def notes(self) -> tuple[str, ...]:
        """What an engineer should know: rules that were skipped, labels that could not be masked, what was not kept."""
        return () if self._walk is None else self._walk.notes

    def replay(self, step: int, *, attempt: int | None = None, rank: int | None = None) -> Replayed:
        """Make a step again (in the trainer's labels), and compare it with what was handed over, bit for bit.

        Batches that came by index are made by the data set and collate function of this loader, in this process; what
        the store has is compared as well, and is all there is of batches that came by order.

        Parameters
        ----------
        attempt
            The lineage; default the newest.
        rank
            One rank alone; default all of them.

        Raises
        ------
        NotInRun
            Nothing on the lineage has delivered the step.
        """
        from dataguard.torch.guarding.replay import replay_step

        if self._walk is not None:
            self._walk.wait()
        loader = None if self._watch is None else inner_loader(self.dataloader)
        return replay_step(self.run, step, loader=loader, naming=self._naming, attempt=attempt, rank=rank)

    # -- state

    def state_dict(self) -> dict[str, Any]:
        """Where the run stands, with the wrapped loader's own state where it has one; at a step boundary.

        Of a step whose batches were not all handed over, both are as they were before it.
        """
        head = self.run.head()
        if self._walk is None and self._state is not None:
            state = self._state
        else:
            state = LoaderState(
                root_digest=self.run.plan_document().root.digest,
                attempt=0 if self._walk is None else self._walk.attempt.number,
                next_step=self.next_step,
                journal_head=JournalHead(number=head.number, sha256=head.sha256),
            )
        within = self._walk is not None and self._walk.address.microbatch > 0
        return {"dataguard": state.to_dict(), "loader": self._loader_state if within else self._own_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state: the wrapped loader too, where it has one; else the trainer must see to its position.

        Raises
        ------
        AttemptError
            The state is of another run, or something was handed over already.
        """
        if self._walk is not None:
            raise AttemptError(
                f"this loader has begun attempt {self._walk.attempt.number} already, so no state can be loaded",
                todo="load the state before the first batch is asked for",
            )
        if set(state) != {"dataguard", "loader"}:
            raise AttemptError(
                "this is no state of a guarded loader", found=", ".join(map(str, state)), allowed="dataguard and loader"
            )
        read = read_state(dict(state["dataguard"]))
        if self._beginning.is_open:
            read.check_root(self.run.plan_document().root.digest)
        if state["loader"] is not None:
            load = getattr(self.dataloader, "load_state_dict", None)
            if load is None:
                raise AttemptError(
                    f"the state holds one of the wrapped loader, and a {type(self.dataloader).__name__} takes none",
                    todo="guard the same kind of loader as before",
                )
            load(state["loader"])
        self._loader_state = state["loader"]
        self._state = read

    def _started(self) -> int | None:
        """Steps that the trainer has done, as it says."""
        if not callable(self._start_step):
            return self._start_step
        step = int(self._start_step())
        if step < 0:
            raise UsageError(f"start_step {step} cannot be", allowed="at least 0")
        return step

    def _own_state(self) -> Any:
        """The wrapped loader's state; None where it has none."""
        take = getattr(self.dataloader, "state_dict", None)
        if take is None or getattr(self.dataloader, "use_stateful_dataloader", None) is False:
            return None  # loaders prepared by Accelerate have the method, and a state only where they are told to
        if self._watch is None:
            return take()
        with self._watch.in_place():  # asking may make the iterator
            return take()

    def _remember(self) -> None:
        if self._beginning.accumulate > 1:
            self._loader_state = self._own_state()


def _batch_size_of(loader: Any) -> int | None:
    """The most samples of a batch, as the loader says."""
    sampler = getattr(loader, "batch_sampler", None)
    size = getattr(loader, "batch_size", None)
    if size is None:
        size = getattr(sampler, "batch_size", None)
    if getattr(sampler, "split_batches", False) and isinstance(size, int):
        size //= getattr(sampler, "num_processes", 1)
    return size if isinstance(size, int) and size > 0 else None
