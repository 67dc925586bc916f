"""Which machine each rank ran on is known afterwards, whatever was sealed or compacted since."""

from __future__ import annotations

import platform
from pathlib import Path

from dataguard.run.places import hosts_of
from dataguard.run.tidy import compact_run
from tests.support.corpora import make_corpus
from tests.support.runs import make_run, open_loaders


def test_every_rank_that_recorded_has_its_machine(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", make_corpus(tmp_path, {"web": {"a.parquet": 64}}), global_batch=4)
    assert hosts_of(run.layout, 1) == {}
    loaders = open_loaders(run, world_size=2, microbatch_size=2)
    for loader in loaders:
        loader.take_step()
    here = dict.fromkeys(range(2), platform.node())
    assert hosts_of(run.layout, 1) == here
    for loader in loaders:
        loader.close()
    assert list(compact_run(run))
    assert hosts_of(run.layout, 1) == here
