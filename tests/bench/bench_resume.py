"""Does a resume cost more the later it comes?

    pytest tests/bench/bench_resume.py --benchmark-enable

A run is made to have come as far as step S (a record of one microbatch at S - 1 says so). Then a fresh `Run` and
`Loader`, or `GuardedLoader` without workers, are made from nothing, the state of step S is loaded and the first
microbatch is taken: journal, plan, stream, beginning of the attempt, reading, recording; under `GuardedLoader` also the
transform and its tensors. Beside it, in turns, the same from step 0. Both begin an attempt of their own every time, and
their runs have as many; the pages of the shards are warm, and the imports were paid before. Time is the process's own:
what both wait for the disk (fsync of the journal and of headers) is the same and would drown it.
"""

from __future__ import annotations

import itertools
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dataguard.core.address import Geometry
from dataguard.core.digests import sample_digest
from dataguard.corpus.corpus import Corpus
from dataguard.loader.loader import Loader
from dataguard.plan.plan import Plan
from dataguard.plan.state import LoaderState
from dataguard.run.records import INDEX_RECORD
from dataguard.run.run import Run
from tests.bench.conftest import Claims, Interleaved
from tests.bench.corpora import parquet_corpus

SIZE = 8
KINDS = ["Loader", "GuardedLoader"]
SEQ_LEN = 1_024
_LAUNCHES = itertools.count()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return parquet_corpus(tmp_path_factory.mktemp("resume"), num_shards=4, groups_of_shard=32, rows_of_group=50)


def open_loader(kind: str, run: Run, **settings: Any) -> Any:
    """A loader of the whole batch, one microbatch a step, which reads at hand-over."""
    geometry = Geometry(world_size=1, microbatch_size=run.plan.global_batch)
    if kind == "Loader":
        return Loader(run, geometry=geometry, num_threads=0, **settings)
    pytest.importorskip("torch", reason="torch is not installed: pip install 'dataguard[torch]'")
    from dataguard.torch import ByteTransform, GuardedLoader

    return GuardedLoader(run, geometry=geometry, transform=ByteTransform(SEQ_LEN), **settings)


def run_that_reached(path: Path, plan: Plan, step: int, kind: str = "Loader") -> LoaderState:
    """A run whose first attempt has recorded its steps up to `step`, as far as anybody who resumes looks."""
    run = Run.create(path, plan)
    with open_loader(kind, run, steps=1, launch_id="first") as loader:
        next(iter(loader))
        under = loader if kind == "Loader" else loader.loader
        state = under.state()
        if step > 1:  # the first is there
            under._walking.writer.append(last_microbatch(step - 1, plan.global_batch))
    return LoaderState(root_digest=state.root_digest, attempt=1, next_step=step, journal_head=state.journal_head)


def last_microbatch(step: int, size: int) -> Any:
    records = np.zeros(size, INDEX_RECORD)
    records["step"] = records["batch"] = step
    records["slot"] = np.arange(size)
    records["position"] = step * size + np.arange(size)
    records["delivered_shard"] = records["delivered_row"] = -1
    records["digest"] = np.void(sample_digest(b"made up")[:8])
    records["microbatch_digest"][0] = np.void(sample_digest(b"made up"))
    return records


def first_microbatch(path: Path, state: LoaderState, kind: str = "Loader") -> Any:
    """From nothing to the first microbatch of a new attempt; the loader is to be closed."""
    loader = open_loader(kind, Run.open(path), launch_id=f"launch {next(_LAUNCHES)}")
    if kind == "Loader":
        loader.load(state)
    else:
        loader.load_state_dict(state.to_dict())
    assert next(iter(loader)).step == state.next_step
    return loader


def close(made: object) -> None:
    if hasattr(made, "close"):
        made.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [1_000, 10_000, 100_000, 1_000_000], ids="step {:,}".format)
def test_first_microbatch(
    corpus: Corpus, tmp_path: Path, claims: Claims, interleaved: Interleaved, kind: str, step: int
) -> None:
    plan = Plan(corpus, seed=17, global_batch=SIZE, lanes=1)
    early, late = tmp_path / "early", tmp_path / "late"
    states = {early: run_that_reached(early, plan, 0, kind), late: run_that_reached(late, plan, step, kind)}
    turns = interleaved(
        {
            "early": lambda: first_microbatch(early, states[early], kind),
            "late": lambda: first_microbatch(late, states[late], kind),
        },
        rounds=25,
        clock=time.process_time,
        after=close,
    )
    claims(
        f"{kind}: first microbatch after a resume at step {step:,} / step 0", turns.ratio("late", "early"), target=1.1,
        detail=f"{turns.seconds_of('late') * 1e3:.1f} ms",
    )  # fmt: skip


def test_behind_many_attempts(
    corpus: Corpus, tmp_path: Path, claims: Claims, interleaved: Interleaved, measured: bool
) -> None:
    """Runs that were resumed 1, 10, 30 and 90 times before; each measurement adds an attempt to its run."""
    plan = Plan(corpus, seed=17, global_batch=SIZE, lanes=1)
    resumed = [1, 10, 30, 90] if measured else [1, 2]
    states = {str(number): run_that_reached(tmp_path / str(number), plan, 1_000) for number in resumed}
    for name, state in states.items():
        for _ in range(int(name) - 1):
            first_microbatch(tmp_path / name, state).close()
    turns = interleaved(
        {name: partial(first_microbatch, tmp_path / name, state) for name, state in states.items()},
        rounds=7,
        clock=time.process_time,
        after=close,
    )
    for name in states:
        claims(
            f"first microbatch of a run resumed {name} times before / once", turns.ratio(name, str(resumed[0])),
            detail=f"{turns.seconds_of(name) * 1e3:.1f} ms",
        )  # fmt: skip
