"""Runs made through the loader, and what was handed over in them, kept outside the run directory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dataguard.core.address import Geometry
from dataguard.core.microbatch import Microbatch
from dataguard.corpus.corpus import Corpus
from dataguard.loader.loader import Loader
from dataguard.plan.plan import Plan
from dataguard.plan.state import LoaderState
from dataguard.run.run import Run

Slot = bytes | tuple[int, ...] | None
"""What a slot delivered: a record, the ids of a window, or nothing."""

_LAUNCHES = itertools.count(1)


def make_run(path: Path, corpus: Corpus, **plan: Any) -> Run:
    """A run of seed 7 and global batch 8 unless told otherwise."""
    return Run.create(path, Plan(corpus, **{"seed": 7, "global_batch": 8, **plan}), by="ada@host")


def open_loaders(run: Run, *, world_size: int = 1, microbatch_size: int = 1, **settings: Any) -> list[Loader]:
    """A loader for each rank of one launch."""
    state: LoaderState | Mapping[str, Any] | None = settings.pop("state", None)
    settings = {"num_threads": 0, "launch_id": f"launch {next(_LAUNCHES)}", **settings}
    geometry = Geometry(world_size=world_size, microbatch_size=microbatch_size)
    loaders = [Loader(run, geometry=geometry, rank=rank, **settings) for rank in range(world_size)]
    if state is not None:
        for loader in loaders:
            loader.load(state)
    return loaders


def slots_of(microbatch: Microbatch) -> list[Slot]:
    """What each slot of a microbatch delivers."""
    if microbatch.records is not None:
        assert all(mask or not record for record, mask in zip(microbatch.records, microbatch.mask, strict=True))
        return [record if mask else None for record, mask in zip(microbatch.records, microbatch.mask, strict=True)]
    assert microbatch.ids is not None
    return [
        tuple(ids) if mask.all() else None for ids, mask in zip(microbatch.ids.tolist(), microbatch.mask, strict=True)
    ]


def in_turns(loaders: list[Loader]) -> Iterator[list[Microbatch]]:
    """All microbatches of one step after the other, in order of rank, as a trainer's barrier would have it."""
    while True:
        taken = [loader.take_step() for loader in loaders]
        if not any(taken):
            return
        yield [microbatch for each in taken for microbatch in each]


def deliver(run: Run, **settings: Any) -> dict[int, list[Slot]]:
    """Walk all ranks of a new attempt to its end: what each step's global batch held, slot by slot."""
    batches: dict[int, list[Slot]] = {}
    with ExitStack() as stack:
        loaders = [stack.enter_context(loader) for loader in open_loaders(run, **settings)]
        for taken in in_turns(loaders):
            (step,) = {microbatch.step for microbatch in taken}
            assert step not in batches
            batches[step] = []
            for microbatch in taken:
                assert microbatch.slots.start == len(batches[step])
                batches[step] += slots_of(microbatch)
    return batches


def state_after(run: Run, **settings: Any) -> LoaderState:
    """Walk all ranks of a new attempt to its end: the state there, which is the same on every rank."""
    with ExitStack() as stack:
        loaders = [stack.enter_context(loader) for loader in open_loaders(run, **settings)]
        for _ in in_turns(loaders):
            pass
        states = [loader.state() for loader in loaders]
    assert len(set(map(repr, states))) == 1
    return states[0]
