"""How does the attempt of a watched loader begin: with which run, which plan, which size of a batch?

The plan follows from the data set's length and the size of a batch, so it is made here and held against the run's,
where one stands. World size and size of a batch may be others at every attempt; the data set may not. Where the loader
does not say how many samples a batch holds, the first batch does, the largest of all ranks.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch.distributed as dist

from dataguard.core.address import Geometry
from dataguard.errors import AttemptError, UsageError
from dataguard.loader.agreeing import agree, all_or_none
from dataguard.plan.attempts import AttemptPlan
from dataguard.plan.given import given_plan, row_kind
from dataguard.plan.plan import Plan
from dataguard.plan.state import LoaderState
from dataguard.run.launch import AttemptRequest
from dataguard.run.policies import GateChoice
from dataguard.run.run import Run
from dataguard.torch.guarding.batch import find_tensors, num_samples_of
from dataguard.torch.guarding.judge import Naming
from dataguard.torch.guarding.walk import Walk
from dataguard.torch.ranks.place import Place, group_of, place_of

__all__ = ["Beginning", "place_here"]


def place_here(rank: int | None, world_size: int | None, group: Any, timeout_seconds: float) -> Place:
    """Rank and world size: of the process group, else as given, else of the launcher's environment, else alone."""
    known = group_of(group)
    environ = os.environ  # noqa: TID251 - the launcher speaks through the environment
    if world_size is None:
        told = environ.get("WORLD_SIZE", "")  # what is no number is told by `place_of`
        world_size = dist.get_world_size(known) if known is not None else int(told) if told.isdecimal() else 1
    geometry = Geometry(world_size=world_size, microbatch_size=1)
    place = place_of(geometry, rank=rank, group=group, timeout_seconds=timeout_seconds)
    geometry.check_rank(place.rank)
    return place


class Beginning:
    """What begins an attempt; see `dataguard.torch.guard` for the settings."""

    def __init__(
        self,
        run: Run | str | Path,
        *,
        num_rows: int | None,
        accumulate: int,
        first_label: Literal[0, 1],
        gate: GateChoice,
        launch_id: str | None,
        place: Place,
        join_timeout_seconds: float,
    ) -> None:
        self.accumulate = accumulate
        self.place = place
        self._given = run
        self._num_rows = num_rows
        self._first_label = first_label
        self._gate = gate
        self._launch_id = launch_id
        self._join_timeout_seconds = join_timeout_seconds
        self._run: Run | None = None

    @property
    def is_open(self) -> bool:
        """Whether the run is there."""
        return self._run is not None

    @property
    def run(self) -> Run:
        """The run; UsageError where it waits for the first batch."""
        if self._run is None and Run.exists(self._path):
            self.open(1)
        if self._run is None:
            raise UsageError(
                "this run does not stand yet: the size of its batches is known with the first one",
                todo="give batch_size, the most samples that a batch holds",
            )
        return self._run

    @property
    def _path(self) -> Path:
        return self._given.path if isinstance(self._given, Run) else Path(self._given)

    def open(self, batch_size: int) -> Run:
        """The run, created where none stands.

        Raises
        ------
        AttemptError
            It watches another data set.
        UsageError
            It has a plan of its own.
        """
        if self._run is not None:
            return self._run
        with self.place.announcing():
            self._run = self._opened(batch_size)
        return self._run

    def _opened(self, batch_size: int) -> Run:
        global_batch = batch_size * self.accumulate * self.place.world_size
        plan = given_plan(num_rows=self._num_rows, global_batch=global_batch, first_label=self._first_label)
        if isinstance(self._given, Run):
            run = self._given
        elif Run.exists(self._path):
            run = Run.open(self._path)
        else:
            run = self._create(plan)
        _require_same(run, plan)
        self._gate = self._gate.over(run.gate)
        return run

    def _create(self, plan: Plan) -> Run:
        # Created without a policy: each attempt says what judges it, and what one of them says the next goes by.
        try:
            return Run.create(self._path, plan)
        except AttemptError:
            return Run.open(self._path)  # another rank was first, with another size of a batch: told when both begin

    def agreed_size(self, known: int | None, batch: Any, rows: Any, naming: Naming) -> int:
        """The most samples of a batch: as known, else the largest first batch of all ranks."""
        if known is not None:
            return known
        if rows is not None:
            own = len(rows)
        else:
            tensors = find_tensors(batch)
            own = num_samples_of(tensors, naming.found(naming.tokens, tensors))
        if self.place.world_size > 1 and self.place.peers is None:
            raise UsageError(
                "nobody says how many samples a batch holds, and ranks without a process group cannot agree on it",
                found=f"a first batch of {own} samples on rank {self.place.rank}",
                todo="give batch_size, the most samples that a batch holds",
            )
        return max(1, own if self.place.peers is None else max(self.place.peers.gather(own)))

    def begin(
        self,
        batch_size: int,
        *,
        state: LoaderState | None,
        start_step: int | None,
        walk: Callable[[Run, AttemptPlan, int], Walk],
    ) -> Walk:
        """Begin the attempt as rank 0, or join it, and open this rank's record."""
        place = self.place
        run = self.open(batch_size)
        geometry = Geometry(world_size=place.world_size, microbatch_size=batch_size)
        if state is not None and state.attempt == 0:
            state, start_step = None, None  # taken before the first batch: a fresh start
        if start_step and state is None:
            with place.announcing():
                _require_recorded(run, start_step)

        def asked(launch_id: str) -> AttemptRequest:
            return AttemptRequest(
                launch_id=launch_id,
                geometry=geometry,
                state=state,
                fork_step=None if state is not None else start_step or 0,
                root_digest=run.plan_document().root.digest,
                global_batch=batch_size * self.accumulate * place.world_size,
                gate=self._gate,
            )

        launch_id = self._launch_id
        if launch_id is None and place.world_size == 1:
            launch_id = f"single {uuid.uuid4().hex}"
        attempt = agree(
            run,
            asked,
            launch_id=launch_id,
            rank=place.rank,
            world_size=place.world_size,
            roots={},
            peers=place.peers,
            join_timeout_seconds=self._join_timeout_seconds,
        )
        return all_or_none(place.peers, lambda: walk(run, attempt, place.rank), what="open its record", undo=Walk.close)


def _require_recorded(run: Run, start_step: int) -> None:
    """Refuse to go on, in a run of which nothing is recorded, from a step that a trainer says it has come to."""
    if not len(run.attempts()):
        raise AttemptError(
            f"the trainer goes on after {start_step:,} steps, and the run at {run.path} has recorded none of them",
            allowed="a run that was recorded from its first step on",
            todo="give guard() the folder of that run; where there is none, leave start_step out: steps of the record "
            "then count from the first batch that is guarded",
        )


def _require_same(run: Run, plan: Plan) -> None:
    """Refuse a run that has a plan of its own, or watches another data set."""
    theirs = run.plan
    if theirs.root.form != "given":
        raise UsageError(
            f"the run at {run.path} has a plan of its own, and a loader that is only watched does not follow it",
            found=f"form {theirs.root.form}, seed {theirs.root.seed}",
            todo="read it with GuardedLoader, or give guard() a folder of its own",
        )
    if theirs.root.digest != plan.root.digest:
        raise AttemptError(
            f"the run at {run.path} watches another data set",
            found=f"this loader has {_shown(plan)}",
            allowed=f"the run has {_shown(theirs)}",
            todo="guard the data set that the run began with, or give guard() another folder",
        )


def _shown(plan: Plan) -> str:
    if row_kind(plan) == "ordinals":
        return "batches without indices"
    return f"{plan.manifests[plan.root.manifest].shards[0].num_rows:,} rows"
