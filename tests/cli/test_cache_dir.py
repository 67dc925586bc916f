"""``--cache-dir``: decoded shards of one command lie where it says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dataguard.cli.main import main
from dataguard.corpus.environment import cache_dir
from tests.corpus.making import jsonl


def test_decoded_shards_lie_where_the_command_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATAGUARD_CACHE_DIR", str(tmp_path / "usual"))
    jsonl(tmp_path / "web/a.jsonl.gz", [f"{i} {'word ' * 2_000}" for i in range(300)])
    assert main(["manifest", "build", "web", "-o", "M.parquet"]) == 0
    made_of = ["--seed", "1", "--global-batch", "4", "--world-size", "1", "--microbatch-size", "4", "--steps", "2"]
    assert main(["rehearse", "M.parquet", "--run", "RUN", *made_of, "--cache-dir", "mine"]) == 0
    assert len(list((tmp_path / "mine").glob("*.arrow"))) == 1
    assert not (tmp_path / "usual").exists()
    assert cache_dir() == str(tmp_path / "usual")
    assert main(["replay", "RUN", "--step", "1", "-o", "OUT", "--cache-dir", str(tmp_path / "other")]) == 0
    assert len(list((tmp_path / "other").glob("*.arrow"))) == 1
    record = ["--manifest", "M.parquet", "--shard", "web/a.jsonl.gz", "--row", "7"]
    assert main(["policy", "explain", "default", *record, "--cache-dir", "third"]) == 0
    assert len(list((tmp_path / "third").glob("*.arrow"))) == 1
    assert not (tmp_path / "usual").exists()
    assert main(["verify", "RUN"]) == 0
    assert len(list((tmp_path / "usual").glob("*.arrow"))) == 1


def test_where_the_environment_said_nothing_it_says_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DATAGUARD_CACHE_DIR", raising=False)
    assert main(["verify", str(tmp_path / "RUN"), "--cache-dir", str(tmp_path)]) != 0
    assert "DATAGUARD_CACHE_DIR" not in os.environ
