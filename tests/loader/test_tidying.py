"""Every attempt compacts what the attempts before it left behind, without holding up its own delivery."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from dataguard.core.address import Geometry
from dataguard.corpus.corpus import Corpus
from dataguard.loader.loader import Loader
from dataguard.plan.plan import Plan
from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.run.run import Run
from tests.support.corpora import manifest_of, put_shard

GEOMETRY = Geometry(world_size=1, microbatch_size=2)


@pytest.fixture
def killed(tmp_path: Path) -> Run:
    """A run whose first attempt was killed after three steps."""
    put_shard(tmp_path, "web", "a.jsonl", 40)
    corpus = Corpus.open(manifest_of(tmp_path, ["web"]))
    run = Run.create(tmp_path / "RUN", Plan(corpus, seed=7, global_batch=4))
    pid = os.fork()
    if pid == 0:
        loader = Loader(run, geometry=GEOMETRY, num_threads=0)
        for _ in range(3):
            loader.take_step()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert list((tmp_path / "RUN" / "hot").rglob("*.frames"))
    return run


@pytest.mark.parametrize("num_threads", [0, 2])
def test_the_next_attempt_compacts_the_dead_one(killed: Run, num_threads: int) -> None:
    with Loader(killed, geometry=GEOMETRY, from_step=2, steps=2, num_threads=num_threads) as loader:
        assert [microbatch.step for microbatch in loader] == [2, 2, 3, 3]
    assert loader.notes == ()
    assert [path.parent.name for path in (killed.path / "index").rglob("*.parquet")].count("attempt=0001") == 1
    assert not list((killed.path / "hot" / "attempt=0001").rglob("*.frames"))
    lookup = Lookup(Run.open(killed.path))
    assert lookup.complete == {1: 3, 2: 4}
    assert verify_run(lookup).ok


def test_a_damaged_record_is_left_alone_and_told(killed: Run) -> None:
    [frames] = (killed.path / "hot").rglob("*.frames")
    content = bytearray(frames.read_bytes())
    content[4096 + 10] ^= 1
    frames.write_bytes(content)
    with Loader(killed, geometry=GEOMETRY, from_step=2, steps=1, num_threads=2) as loader:
        assert len(loader.take_step()) == 2
    [note] = loader.notes
    assert "attempt 1 could not be compacted" in note
    assert frames.read_bytes() == content


def test_a_trainer_that_ends_without_closing_ends_the_thread_first(killed: Run) -> None:
    """Python must not go down around a thread at work in a library."""
    loader = Loader(killed, geometry=GEOMETRY, from_step=2, steps=2, num_threads=2)
    assert loader.take_step()
    tidying = loader._walking._tidying
    tidying._let_go()
    assert not tidying._thread.is_alive()
    assert loader.notes == ()
    loader.close()
