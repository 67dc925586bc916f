"""Data that was added since the manifest was built: told by ``manifest verify``, and no failure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dataguard.cli.main import main
from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.formats import ScanOptions
from dataguard.corpus.newcomers import files_beside
from tests.corpus.making import jsonl, mds_entry, mds_index, mds_texts, megatron, npy, parquet, put

Capture = pytest.CaptureFixture[str]


def built(tmp_path: Path, *sources: str, **options: Any) -> Corpus:
    build_manifest_file([*sources], tmp_path / "M.parquet", options=ScanOptions(**options))
    return Corpus.open(tmp_path / "M.parquet")


def beside(tmp_path: Path, corpus: Corpus) -> tuple[str, ...]:
    return files_beside(corpus, manifest_path=tmp_path / "M.parquet")


def test_new_files_are_told_and_the_exit_code_is_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    jsonl(tmp_path / "web/a/1.jsonl", ["one"])
    build_manifest_file(["web"], "web/a/M.parquet")
    capfd.readouterr()
    assert main(["manifest", "verify", "web/a/M.parquet", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["new_files"] == []
    jsonl(tmp_path / "web/a/2.jsonl.gz", ["two"])
    parquet(tmp_path / "web/a/3.parquet", ["three"])
    put(tmp_path / "web/a/README.md", b"ignored")
    put(tmp_path / "web/a/.part.jsonl", b"{}")
    put(tmp_path / "web/a/page.html", b"<html>")
    jsonl(tmp_path / "web/b/far.jsonl", ["in another folder"])
    assert main(["manifest", "verify", "web/a/M.parquet", "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["new_files"] == ["web/a/2.jsonl.gz", "web/a/3.parquet"]
    assert (told["num_shards"], told["num_same"], told["findings"]) == (1, 1, [])
    assert main(["manifest", "verify", "web/a/M.parquet"]) == 0
    out = capfd.readouterr().out
    assert "web/a/2.jsonl.gz is not in the manifest\nweb/a/3.parquet is not in the manifest\n" in out
    jsonl(tmp_path / "web/a/1.jsonl", ["changed"])
    assert main(["manifest", "verify", "web/a/M.parquet"]) == 1


def test_many_new_files_are_counted(tmp_path: Path, capfd: Capture) -> None:
    jsonl(tmp_path / "web/a.jsonl", ["one"])
    built(tmp_path, f"{tmp_path}/web")
    for i in range(30):
        jsonl(tmp_path / f"web/new-{i:02}.jsonl", ["new"])
    assert main(["manifest", "verify", str(tmp_path / "M.parquet")]) == 0
    out = capfd.readouterr().out
    assert "new-19.jsonl is not" in out
    assert "new-20.jsonl" not in out
    assert "10 more files beside the shards" in out


def test_sources_of_one_folder_know_of_each_other(tmp_path: Path) -> None:
    jsonl(tmp_path / "mix/a.jsonl", ["one"])
    npy(tmp_path / "mix/t.npy", range(9))
    megatron(tmp_path / "mix/p_document", [[1, 2]])
    corpus = built(tmp_path, f"{tmp_path}/mix")
    assert beside(tmp_path, corpus) == ()
    npy(tmp_path / "mix/u.npy", range(9))
    megatron(tmp_path / "mix/q_document", [[1, 2]])
    jsonl(tmp_path / "mix/b.jsonl", ["two"])
    assert beside(tmp_path, corpus) == ("mix-tokens/q_document.bin", "mix-tokens/u.npy", "mix/b.jsonl")


def test_files_left_out_by_a_pattern_are_told_too(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        jsonl(tmp_path / "web" / name, [name])
    assert beside(tmp_path, built(tmp_path, f"{tmp_path}/web/a*.jsonl")) == ("web/b.jsonl",)


def test_ids_without_a_header_are_known_by_the_type_that_was_given(tmp_path: Path) -> None:
    put(tmp_path / "ids/a.bin", bytes(8))
    corpus = built(tmp_path, f"{tmp_path}/ids", dtype="uint16")
    put(tmp_path / "ids/b.bin", bytes(8))
    assert beside(tmp_path, corpus) == ("ids/b.bin",)


def test_compressed_copies_and_markers_are_none(tmp_path: Path) -> None:
    content = mds_texts(["one", "two"])
    put(tmp_path / "m/shard.00000.mds", content)
    put(tmp_path / "m/index.json", mds_index(mds_entry("shard.00000.mds", content)))
    corpus = built(tmp_path, f"{tmp_path}/m")
    assert beside(tmp_path, corpus) == ()


def test_a_root_that_is_gone_has_nothing_beside_it(tmp_path: Path) -> None:
    jsonl(tmp_path / "web/a.jsonl", ["one"])
    corpus = built(tmp_path, f"{tmp_path}/web")
    (tmp_path / "web/a.jsonl").unlink()
    assert beside(tmp_path, corpus) == ()
    (tmp_path / "web").rmdir()
    assert beside(tmp_path, corpus) == ()
