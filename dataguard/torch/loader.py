"""How does a trainer that uses PyTorch get its microbatches?

`GuardedLoader` is a plain object that yields dicts of tensors. Under it lies `dataguard.loader.Loader`, which walks the
rank's part of the stream and records what it hands over; above it, whatever trainer there is:

1. Rank and world size come from the process group where there is one, else from arguments, else from the launcher.
2. Workers read, judge, transform and digest; the record is written in this process before the microbatch is returned.
3. What frameworks call an epoch is a stretch of steps (`steps_per_epoch`). `iter()` goes on with what is left of the
   stretch in hand. The position is moved by handing over and by loading a state, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from dataguard.core.address import Geometry
from dataguard.core.tensors import Tensors
from dataguard.gate.account import Account
from dataguard.loader.feed import Fed
from dataguard.loader.one_process import OfOneProcess
from dataguard.loader.streams import evaluation_settings
from dataguard.plan.attempts import AttemptPlan
from dataguard.run.run import Run
from dataguard.run.streams import NamedStream
from dataguard.torch.asked import (
    check_at_least,
    check_settings,
    has_accelerator,
    refuse_while_a_worker_starts,
    transform_of,
)
from dataguard.torch.making import Collate, Recipe, Transform
from dataguard.torch.microbatch import TensorMicrobatch
from dataguard.torch.opening import Opening
from dataguard.torch.ranks.announced import together
from dataguard.torch.ranks.replicas import ReplicaMode
from dataguard.torch.reading import Readings
from dataguard.torch.tensors import named_tensors
from dataguard.torch.transforms import IGNORE_INDEX
from dataguard.torch.workers import StartMethod, Workers

__all__ = ["GuardedLoader"]


class GuardedLoader(OfOneProcess):
    r"""The microbatches of one rank as tensors, each recorded as it is handed over.

    Parameters
    ----------
    run
        The run that is read and recorded; or a named stream of one, which each `iter()` evaluates from its beginning.
    geometry
        World size and microbatch size, the same on all ranks.
    rank
        This data-parallel rank. Default: that of the process group, else the launcher's.
    data_parallel_group
        The data-parallel process group. Default: the default group, where there is one.
    replica_group, replica
        The processes that share one copy of the model (tensor, pipeline, context parallelism), and how those that do
        not record come by the microbatch: they ``receive`` it, or read it as well and ``compare``; see
        `dataguard.torch.ranks.replicas`.
    transform
        Makes a dict of tensors of a `Record`: tokenizes, cuts, pads. It is called for padding slots as well, with an
        empty record. Default for windows: `WindowTransform`.
    version
        What its author calls it; recorded with its name and the digest of its source.
    collate
        Puts the dicts of all slots together. Default: stacks them.
    label_names, ignore_index
        Which tensors are labels, and what a label is that does not count. Labels stand at the place of the token that
        they are.
    num_workers, prefetch_factor, start_method
        Processes that read ahead (0: this one, a few at once), the microbatches each is ahead, how they are started:
        ``forkserver``, ``spawn`` or ``fork``. They change nothing that is delivered.
    persistent_workers
        Whether workers stay between two stretches of `steps_per_epoch`.
    pin_memory
        Hand over page-locked tensors, where there is an accelerator.
    worker_timeout_seconds
        How long a worker may take for one microbatch; for its first, at least two minutes.
    steps_per_epoch
        Steps of what a framework calls an epoch. Default: `iter()` yields all there is.
    settings
        Further settings of `dataguard.Loader`: steps, epochs, from_step, parent, launch_id, on_unreadable, cache_bytes,
        roots, global_batch, corpus, weights, policy, profile, vocab_size, join_timeout_seconds, fsync, store,
        store_budget_bytes, store_queue_bytes. Of a stream: at_step, at_attempt, where the training stands; without
        them, and at every further evaluation, as far as a loader of this process has come.

    Raises
    ------
    UsageError
        Settings that cannot be, or a transform that cannot be brought to workers.
    GeometryError
        Numbers that do not fit each other, or the process group.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from dataguard import Corpus, Plan
    >>> from dataguard.corpus import build_manifest_file
    >>> from dataguard.torch import ByteTransform
    >>> here = pathlib.Path(tempfile.mkdtemp())
    >>> (here / "web").mkdir()
    >>> _ = (here / "web" / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    >>> _ = build_manifest_file([str(here / "web")], here / "M.parquet")
    >>> run = Run.open(here / "run", plan=Plan(Corpus.open(here / "M.parquet"), seed=17, global_batch=2))
    >>> geometry = Geometry(world_size=1, microbatch_size=2)
    >>> with GuardedLoader(run, geometry=geometry, transform=ByteTransform(8), steps=1) as loader:
    ...     for microbatch in loader:
    ...         print(microbatch.address, tuple(microbatch["input_ids"].shape), microbatch.num_loss_tokens)
    step 0, rank 0, microbatch 0 (2, 8) 6
    """

    def __init__(
        self,
        run: Run | NamedStream,
        *,
        geometry: Geometry,
        rank: int | None = None,
        data_parallel_group: Any = None,
        replica_group: Any = None,
        replica: ReplicaMode = "receive",
        transform: Transform | None = None,
        version: str | None = None,
        collate: Collate | None = None,
        label_names: tuple[str, ...] = ("labels",),
        ignore_index: int = IGNORE_INDEX,
        num_workers: int = 0,
        prefetch_factor: int = 8,
        start_method: StartMethod = "forkserver",
        persistent_workers: bool = True,
        pin_memory: bool = False,
        worker_timeout_seconds: float = 300.0,
        steps_per_epoch: int | None = None,
        **settings: Any,
    ) -> None:
        refuse_while_a_worker_starts()
        # Ranks that come to their first microbatch would wait for one that fails here.
        with together(data_parallel_group=data_parallel_group, replica_group=replica_group):
            check_settings(settings, start_method, worker_timeout_seconds)
            check_at_least(num_workers=(num_workers, 0), prefetch_factor=(prefetch_factor, 1))
            if steps_per_epoch is not None:
                check_at_least(steps_per_epoch=(steps_per_epoch, 1))
            self._stream = run if isinstance(run, NamedStream) else None
            self._stands = "at_step" in settings or "at_attempt" in settings
            if isinstance(run, NamedStream):
                of_runs = {} if steps_per_epoch is None else {"steps_per_epoch": steps_per_epoch}
                settings = evaluation_settings(run, {**settings, **of_runs}, rank=rank)
            self.run = run = run.run if isinstance(run, NamedStream) else run
            self.geometry = geometry
            self.steps_per_epoch = steps_per_epoch
            self._persistent_workers = persistent_workers
            self._global_batch: int | None = settings.get("global_batch")
            self._num_steps: int | None = settings.get("steps") if self._stream is None else self._stream.num_steps
            recipe = Recipe(
                transform=transform_of(run, transform, ignore_index),
                collate=collate,
                label_names=tuple(label_names),
                ignore_index=ignore_index,
                first_label=run.first_label,
            )
            self._readings = Readings(
                recipe,
                Workers(
                    number=num_workers,
                    prefetch_factor=prefetch_factor,
                    start_method=start_method,
                    pin_memory=pin_memory and has_accelerator(),
                    timeout_seconds=worker_timeout_seconds,
                ),
            )
        self._opening = Opening.of(
            run,
            recipe,
            self._readings,
            geometry=geometry,
            place={"rank": rank, "group": data_parallel_group, "replica_group": replica_group},
            replica=replica,
            pin_memory=pin_memory and has_accelerator(),
            version=version,
            settings={**settings, "named": _named, "told": {"steps per epoch": str(steps_per_epoch)}},
        )
        self._replica, self.loader = self._opening.open()
        """Walks and records."""

    # -- handing over

    def __iter__(self) -> Iterator[TensorMicrobatch]:
        """What is left of the stretch of `steps_per_epoch` in hand; at its end, the next one."""
        if self._stream is not None and not (self._stands and self.attempt is None):
            self.close()
            self._replica, self.loader = self._opening.open(evaluation=self._stream.at(None, rank=self.rank))
        return _Stretch(self)

    def take_step(self) -> list[TensorMicrobatch]:
        """Hand over all microbatches that are left of the step in hand; none where the walk has ended."""
        taken: list[TensorMicrobatch] = []
        while (microbatch := self.hand_over()) is not None:
            taken.append(microbatch)
            if self.next_step > microbatch.step:
                break
        return taken

    def hand_over(self) -> TensorMicrobatch | None:
        """Record the next microbatch and hand it over; None at the end."""
        fed = self.loader.hand_over() if self._replica is None else self._replica.hand_over(self.loader)
        if fed is None:
            return None
        microbatch: TensorMicrobatch = fed.tensors
        return microbatch

    def __len__(self) -> int:
        """Microbatches of a stretch of `steps_per_epoch`, else of the whole; TypeError for an endless loader.

        Frameworks ask for it before they load a state, so it begins no attempt, but for `epochs=` and for batch sizes
        that change: there the attempt has to be known.
        """
        num_steps = self.steps_per_epoch or self._num_steps
        if num_steps is None or (self.steps_per_epoch is None and len(self._planned_sizes()) > 1):
            return len(self.loader)
        return num_steps * self.geometry.num_microbatches(self._batch_size())

    def _batch_size(self) -> int:
        """Slots of the batch in hand."""
        attempt = self.attempt
        if attempt is None and self._global_batch is not None:
            return self._global_batch
        if attempt is None and len(self._planned_sizes()) == 1:
            return self._planned_sizes()[0]
        of = self.loader.state().attempt if attempt is None else attempt.number
        return self.run.steps_of(of).size_of(self.next_step) if of else self._planned_sizes()[0]

    def _planned_sizes(self) -> tuple[int, ...]:
        """Batch sizes that are planned, in order; an attempt may have changed them, so all plans count."""
        if self._stream is not None:
            return (self._stream.plan.global_batch,)
        plans = [self.run.plan, *(self.run.plan_of(number) for number in self.run.attempts().numbers)]
        return tuple(dict.fromkeys(entry.size for plan in plans for entry in plan.document.batch_sizes))

    def set_epoch(self, epoch: int) -> None:
        """Nothing: frameworks call it, and the position follows from what was handed over alone."""

    # -- state

    def state_dict(self) -> dict[str, Any]:
        """Where the run stands, as integers and digests, at a step boundary; the same on all ranks.

        A step whose microbatches were not all handed over starts again when it is resumed.
        """
        return self.loader.state().to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that `state_dict` gave, with whatever geometry and workers this loader has.

        Raises
        ------
        AttemptError
            The state is of another stream, or this loader has handed something over already.
        """
        self.loader.load(state)

    # -- the end

    def close(self) -> None:
        """End the walk and its workers; the record is sealed. What was prefetched leaves no trace."""
        if self._replica is not None:
            self._replica.close()
        self.loader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- what it has to say

    @property
    def rank(self) -> int:
        """The data-parallel rank that is this process."""
        return self.loader.rank

    @property
    def records(self) -> bool:
        """Whether this process records for its rank (and logs for it); False for all of a replica but its first."""
        return self._replica is None or self._replica.records

    @property
    def attempt(self) -> AttemptPlan | None:
        """The attempt, once it has begun: at the first microbatch."""
        return self.loader.attempt

    @property
    def next_step(self) -> int:
        """The step in hand, counted from 0: the first whose microbatches were not all handed over."""
        return self.loader.next_step

    @property
    def notes(self) -> tuple[str, ...]:
        """What an engineer should know of this walk."""
        return self.loader.notes

    @property
    def account(self) -> Account:
        """What the policy's rules did on all that this rank was handed."""
        return self.loader.account

    @property
    def bytes_read(self) -> int:
        """Bytes read from shards for what was handed over."""
        return self.loader.bytes_read

    def _stretch_is_over(self, stop_step: int | None) -> bool:
        if stop_step is None or self.next_step < stop_step:
            return False
        if not self._persistent_workers:
            self._readings.pause()
        return True


class _Stretch:
    """An iterator over the rest of one stretch of steps, which its first microbatch decides."""

    def __init__(self, loader: GuardedLoader) -> None:
        self._loader = loader
        self._stop_step: int | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> TensorMicrobatch:
        loader = self._loader
        if loader._stretch_is_over(self._stop_step):
            raise StopIteration
        microbatch = loader.hand_over()
        if microbatch is None:
            raise StopIteration
        if self._stop_step is None and loader.steps_per_epoch is not None:
            self._stop_step = (microbatch.step // loader.steps_per_epoch + 1) * loader.steps_per_epoch
        return microbatch


def _named(fed: Fed) -> Tensors:
    """What the store keeps."""
    return named_tensors(fed.tensors)
