"""Where the run directory is far, hot files lie on a local disk, and sealed ones are shipped."""

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
from dataguard.run.tidy import seal_run
from tests.support.corpora import manifest_of, put_shard


@pytest.fixture
def spooled(tmp_path: Path) -> Run:
    put_shard(tmp_path, "web", "a.jsonl", 40)
    corpus = Corpus.open(manifest_of(tmp_path, ["web"]))
    return Run.create(tmp_path / "RUN", Plan(corpus, seed=7, global_batch=4), spool=tmp_path / "local")


def _frames(folder: Path) -> list[Path]:
    return sorted(folder.rglob("hot/**/*.frames"))


def test_frames_lie_in_the_spool_and_sealed_files_in_the_run(spooled: Run, tmp_path: Path) -> None:
    with Loader(spooled, geometry=Geometry(world_size=1, microbatch_size=2), num_threads=0, steps=5) as loader:
        loader.take_step()
        assert len(_frames(tmp_path / "local" / spooled.run_id)) == 1
        assert not _frames(tmp_path / "RUN")
        assert len(Lookup(Run.open(tmp_path / "RUN")).index.step(1, 0, num_ranks=1).records) == 4
    assert not _frames(tmp_path / "local")
    assert list((tmp_path / "RUN" / "index").rglob("*.parquet"))
    assert not list((tmp_path / "local").rglob("tmp/*"))
    assert verify_run(Lookup(Run.open(tmp_path / "RUN"))).ok


def test_what_a_killed_rank_left_in_the_spool_is_shipped_by_seal(spooled: Run, tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        run = Run.open(tmp_path / "RUN")
        loader = Loader(run, geometry=Geometry(world_size=1, microbatch_size=2), num_threads=0)
        for _ in range(3):
            loader.take_step()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    run = Run.open(tmp_path / "RUN")
    assert Lookup(run).complete == {1: 3}
    [tidied] = seal_run(run)
    assert (tidied.num_records, tidied.problems) == (12, ())
    # On a machine without the spool the sealed record answers alone.
    (tmp_path / "local").rename(tmp_path / "gone")
    lookup = Lookup(Run.open(tmp_path / "RUN"))
    assert lookup.complete == {1: 3}
    assert verify_run(lookup).ok
