"""The Python surface, as the README and the design show it."""

from __future__ import annotations

import json

import pytest

from dataguard import Corpus, Geometry, Loader, Plan, Run
from dataguard.corpus.build import build_manifest_file
from dataguard.errors import UsageError


@pytest.fixture
def corpus(tmp_path) -> Corpus:
    folder = tmp_path / "data" / "web"
    folder.mkdir(parents=True)
    for shard in range(2):
        lines = [json.dumps({"text": f"record {row} of shard {shard}"}) + "\n" for row in range(100)]
        (folder / f"part-{shard}.jsonl").write_text("".join(lines))
    build_manifest_file([f"web={folder}"], tmp_path / "M.parquet")
    return Corpus.open(tmp_path / "M.parquet")


def test_a_run_knows_where_the_corpus_of_its_plan_lies(corpus, tmp_path, monkeypatch) -> None:
    """Also from another folder, in another process: nothing is looked for where a command happens to stand."""
    Run.open(tmp_path / "run", plan=Plan(corpus, seed=1, global_batch=4))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with Loader(Run.open(tmp_path / "run"), geometry=Geometry(world_size=1, microbatch_size=4), steps=5) as loader:
        for microbatch in loader:
            assert microbatch.mask.all()
            for name, row, record in zip(microbatch.names, microbatch.row, microbatch.records, strict=True):
                assert record.decode() == f"record {row} of shard {name[len('web/part-')]}"


def test_a_run_of_a_manifest_alone_asks_where_its_sources_lie(corpus, tmp_path) -> None:
    """An unknown place is an error before the first microbatch, never a stream of unreadable rows."""
    run = Run.open(tmp_path / "run", plan=Plan(corpus.manifest, seed=1, global_batch=4))
    geometry = Geometry(world_size=1, microbatch_size=4)
    with (
        pytest.raises(UsageError, match="where does source 'web' lie") as caught,
        Loader(run, geometry=geometry) as loader,
    ):
        next(loader)
    assert "--root web=PATH" in str(caught.value)
    with Loader(run, geometry=geometry, roots=corpus.roots, from_step=0) as loader:
        assert next(loader).mask.all()
