"""What an audit writes is what the rest takes, as it would be typed; and the real files, all of them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dataguard.audit.engines.local import LocalEngine
from dataguard.cli.main import main
from dataguard.errors import InputError
from dataguard.run.run import Run
from dataguard.run.withhold import read_withhold_file
from tests.audit.making import PERIODIC, PROSE, audit, corpus
from tests.corpus.making import jsonl, npy
from tests.support.commands import dataguard


def test_a_rehearsal_withholds_what_an_audit_says(tmp_path: Path) -> None:
    jsonl(tmp_path / "web/a.jsonl", [*PROSE[:30], PERIODIC, *PROSE[30:40]])
    dataguard("manifest", "build", "web", "-o", "M.parquet", cwd=tmp_path)
    dataguard("audit", "M.parquet", "-o", "AUDIT", cwd=tmp_path, code=1)
    words = ["rehearse", "M.parquet", "--run", "RUN", "--seed", "7", "--global-batch", "8", "--world-size", "1"]
    words += ["--microbatch-size", "4", "--steps", "5", "--withhold", "AUDIT/withhold.parquet", "--json"]
    dataguard(*words, cwd=tmp_path)
    where = dataguard("where", "RUN", "web/a.jsonl:30", "--json", cwd=tmp_path, code=None)
    assert "quarantined" in where.stdout
    dataguard("audit", "web", "-o", "CLEAN", "--policy", "olmo", cwd=tmp_path, code=3)
    assert read_withhold_file(tmp_path / "CLEAN/withhold.parquet", may_be_empty=True) == []
    with pytest.raises(InputError, match="names no shard"):
        read_withhold_file(tmp_path / "CLEAN/withhold.parquet")
    words[words.index("RUN")] = "RUN2"
    words[words.index("AUDIT/withhold.parquet")] = "CLEAN/withhold.parquet"
    dataguard(*words, cwd=tmp_path)
    assert Run.exists(tmp_path / "RUN2")


def test_an_interruption_ends_with_130_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    jsonl(tmp_path / "web/a.jsonl", PROSE)
    words = ["audit", str(tmp_path / "web"), "-o", str(tmp_path / "A"), "--policy", "gopher", "--json"]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LocalEngine, "run", interrupted)
        assert main(words) == 130
    told = capfd.readouterr()
    assert told.out == ""
    assert "interrupted" in told.err
    assert "the same command with --resume goes on from there" in told.err
    assert main([*words, "--resume"]) == 0
    first = capfd.readouterr().out
    assert json.loads(first)["account"]["scored"] == len(PROSE)
    assert main([*words, "--resume"]) == 0
    assert capfd.readouterr().out == first, "a complete audit gives its answer again"
    assert main(words) == 2
    assert "complete audit" in capfd.readouterr().err


def test_windows_of_another_length_are_not_withheld_by_mistake(tmp_path: Path) -> None:
    npy(tmp_path / "in/ids/a.npy", [5] * 1000)
    audit(tmp_path / "out", tmp_path / "in/ids", policy="olmo", seq_len=64)
    listed = tmp_path / "out/withhold.parquet"
    assert len(read_withhold_file(listed, seq_len=64)) == 1000 // 64
    with pytest.raises(InputError, match="windows of another length"):
        read_withhold_file(listed, seq_len=128)


def test_a_list_of_text_and_windows_is_taken_by_a_run_of_either(tmp_path: Path) -> None:
    """Rows of the source that a run leaves out by its weight are in the list, and in nobody's way."""
    jsonl(tmp_path / "web/a.jsonl", [*PROSE[:30], PERIODIC, *PROSE[30:40]])
    npy(tmp_path / "ids/a.npy", [*range(640), *([7] * 64), *range(64 * 9)])
    dataguard("manifest", "build", "web", "ids", "-o", "M.parquet", cwd=tmp_path)
    dataguard("audit", "M.parquet", "-o", "AUDIT", "--seq-len", "64", cwd=tmp_path, code=1)
    assert read_withhold_file(tmp_path / "AUDIT/withhold.parquet") == [("ids/a.npy", 10), ("web/a.jsonl", 30)]
    words = ["rehearse", "M.parquet", "--seed", "7", "--global-batch", "4", "--world-size", "1", "--microbatch-size"]
    words += ["4", "--steps", "6", "--withhold", "AUDIT/withhold.parquet", "--run"]
    windows = ["--form", "window", "--seq-len", "64", "--weight", "web=0", "--weight", "ids=1"]
    dataguard(*words, "W", *windows, cwd=tmp_path)
    assert "quarantined" in dataguard("where", "W", "ids/a.npy:10", "--json", cwd=tmp_path, code=None).stdout
    dataguard(*words, "D", "--weight", "web=1", "--weight", "ids=0", cwd=tmp_path)
    assert "quarantined" in dataguard("where", "D", "web/a.jsonl:30", "--json", cwd=tmp_path, code=None).stdout


def test_sources_of_a_manifest_may_lie_elsewhere_now(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "in")
    dataguard("manifest", "build", folder / "web", "-o", tmp_path / "M.parquet")
    (tmp_path / "moved").mkdir()
    (folder / "web").rename(tmp_path / "moved/web")
    done = dataguard("audit", tmp_path / "M.parquet", "-o", tmp_path / "gone", "--json", code=3)
    told = json.loads(done.stdout)
    assert told["account"]["unreadable"] > 300
    assert {code for shard in told["shards"]["damaged"] for code in shard["codes"]} == {"missing"}
    root = f"web={tmp_path / 'moved/web'}"
    done = dataguard("audit", tmp_path / "M.parquet", "-o", tmp_path / "found", "--root", root, "--json", code=1)
    assert json.loads(done.stdout)["account"]["unreadable"] == 0


def test_the_audit_of_real_corpora_balances(shared: Path, tmp_path: Path) -> None:
    done = dataguard("audit", shared / "data/corpora", "-o", tmp_path / "A", "--json", code=0)
    told = json.loads(done.stdout)
    account = told["account"]
    assert account["balanced"]
    assert account["records"] == account["scored"] + account["rejected"] + account["unreadable"]
    assert account["scored"] > 1000
    assert told["shards"]["damaged"] == []
    for rule in told["rules"]:
        if rule["scope"] == "sample":
            assert rule["evaluated"] + rule["skipped"] == account["scored"]
    assert pq.read_table(tmp_path / "A/signals").num_rows == account["scored"]


def test_the_audit_of_broken_files_names_every_one_of_them(shared: Path, tmp_path: Path) -> None:
    done = dataguard("audit", shared / "data/broken", "-o", tmp_path / "A", "--json", code=3)
    told = json.loads(done.stdout)
    account = told["account"]
    assert account["balanced"]
    assert account["records"] == account["scored"] + account["rejected"] + account["unreadable"]
    listed = dataguard("manifest", "show", tmp_path / "A/manifest.parquet", "--shards", "--json").stdout.splitlines()
    wrong = {entry["shard"] for entry in map(json.loads, listed) if entry["effect"] != "clean"}
    assert len(wrong) > 100
    assert {shard["shard"] for shard in told["shards"]["damaged"]} == wrong
    assert all(shard["reason"] and shard["codes"] for shard in told["shards"]["damaged"])
    files = sum(path.is_file() for path in (shared / "data/broken").rglob("*"))
    assert told["shards"]["total"] + sum(told["shards"]["ignored_files"].values()) == files
