"""Does a resume cost more the later it comes?

    pytest tests/bench/bench_resume.py --benchmark-enable

A run is made to have come as far as step S (a record of one microbatch at S - 1 says so). Then a fresh `Run` and
`Loader` are made from nothing, the state of step S is loaded and the first microbatch is taken: journal, plan, stream,
beginning of the attempt, reading, recording. Beside it, in turns, the same from step 0. Both begin an attempt of their
own every time, and their runs have as many; the pages of the shards are warm, and the imports were paid before. Time is
the process's own: what both wait for the disk (fsync of the journal and of headers) is the same and would drown it.
"""

from __future__ import annotations

import itertools
import time
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
GEOMETRY = Geometry(world_size=1, microbatch_size=SIZE)
_LAUNCHES = itertools.count()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return parquet_corpus(tmp_path_factory.mktemp("resume"), num_shards=4, groups_of_shard=32, rows_of_group=50)


def run_that_reached(path: Path, plan: Plan, step: int) -> LoaderState:
    """A run whose first attempt has recorded its steps up to `step`, as far as anybody who resumes looks."""
    run = Run.create(path, plan)
    with Loader(run, geometry=GEOMETRY, num_threads=0, steps=1, launch_id="first") as loader:
        next(loader)
        state = loader.state()
        if step:
            loader._walking.writer.append(last_microbatch(step - 1))  # type: ignore[union-attr]
    return LoaderState(root_digest=state.root_digest, attempt=1, next_step=step, journal_head=state.journal_head)


def last_microbatch(step: int) -> Any:
    records = np.zeros(SIZE, INDEX_RECORD)
    records["step"] = records["batch"] = step
    records["slot"] = np.arange(SIZE)
    records["position"] = step * SIZE + np.arange(SIZE)
    records["delivered_shard"] = records["delivered_row"] = -1
    records["digest"] = np.void(sample_digest(b"made up")[:8])
    records["microbatch_digest"][0] = np.void(sample_digest(b"made up"))
    return records


def first_microbatch(path: Path, state: LoaderState) -> Loader:
    """From nothing to the first microbatch of a new attempt; the loader is to be closed."""
    run = Run.open(path)
    loader = Loader(run, geometry=GEOMETRY, num_threads=0, launch_id=f"launch {next(_LAUNCHES)}")
    loader.load(state)
    assert next(loader).step == state.next_step
    return loader


def close(made: object) -> None:
    if isinstance(made, Loader):
        made.close()


@pytest.mark.parametrize("step", [1_000, 10_000, 100_000, 1_000_000], ids="step {:,}".format)
def test_first_microbatch(
    corpus: Corpus, tmp_path: Path, claims: Claims, interleaved: Interleaved, measured: bool, step: int
) -> None:
    plan = Plan(corpus, seed=17, global_batch=SIZE, lanes=1)
    early, late = tmp_path / "early", tmp_path / "late"
    states = {early: run_that_reached(early, plan, 0), late: run_that_reached(late, plan, step)}
    turns = interleaved(
        {
            "early": lambda: first_microbatch(early, states[early]),
            "late": lambda: first_microbatch(late, states[late]),
        },
        rounds=25,
        clock=time.process_time,
        after=close,
    )
    claims(
        f"first microbatch after a resume at step {step:,} / step 0", turns.ratio("late", "early"), target=1.1,
        detail=f"{turns.seconds_of('late') * 1e3:.1f} ms",
    )  # fmt: skip
