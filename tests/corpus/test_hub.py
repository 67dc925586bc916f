"""Datasets of the hub, against a stand-in on loopback: names, revisions, configurations, splits, and no network."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataguard.corpus.build import build_manifest
from dataguard.corpus.hub import HubRoot, find_dataset, is_hub
from dataguard.errors import UsageError
from tests.corpus.fake_hub import COMMIT, fake_hub
from tests.corpus.making import lines, put

CARD = b"""---
configs:
- config_name: en
  default: true
  data_files:
  - split: train
    path: data/en/train-*
  - split: test
    path: data/en/test.jsonl
- config_name: de
  data_files: data/de/*.jsonl
---
# A dataset
"""


def _parquet(*texts: str) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": list(texts)}), sink)
    return sink.getvalue()


FILES: Mapping[str, bytes] = {
    "README.md": CARD,
    "data/en/train-0.jsonl": lines(["a", "b"]),
    "data/en/train-1.jsonl": lines(["c"]),
    "data/en/test.jsonl": lines(["t"]),
    "data/de/x.jsonl": lines(["d"]),
    "other/extra.parquet": _parquet("e", "f"),
}
BASE = "hf://datasets/org/web"
ASKED = {
    "train": [f"web={BASE}@main#en/train"],
    "pinned": [f"web={BASE}@{COMMIT}#en/train"],
    "only split": [f"{BASE}#de"],
    "folder": [f"{BASE}@v1/other"],
    "file": [f"{BASE}/data/en/test.jsonl"],
    "pattern": [f"{BASE}@main/data/*/t*.jsonl"],
    "two splits": [f"x={BASE}#en/train", f"x={BASE}#en/test"],
    "two sources": [f"{BASE}#en/train", f"{BASE}#en/test"],
    "no config": [BASE],
    "no split": [f"{BASE}#en"],
    "wrong config": [f"{BASE}#fr"],
    "wrong split": [f"{BASE}#en/dev"],
    "wrong name": ["hf://datasets/org/none#en/train"],
    "wrong revision": [f"{BASE}@gone#en/train"],
    "nothing there": [f"{BASE}/data/fr"],
}


def ask(asked: list[list[str]], hub: str, home: Path) -> list[dict[str, Any]]:
    environment = {**os.environ, "HF_ENDPOINT": hub, "HF_HOME": str(home), "PYTHONWARNINGS": "default"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.corpus.hub_asker"],
        input=json.dumps(asked), text=True, capture_output=True, env=environment, check=False, timeout=300,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    with fake_hub(FILES) as hub:
        found = ask(list(ASKED.values()), hub, tmp_path_factory.mktemp("home"))
    return dict(zip(ASKED, found, strict=True))


def test_a_dataset_by_name_is_its_data_files(answers: dict[str, dict[str, Any]]) -> None:
    train = answers["train"]
    assert train["shards"] == ["web/data/en/train-0.jsonl", "web/data/en/train-1.jsonl"]
    assert train["texts"] == ["a", "b", "c"]
    assert train["sources"] == {"web": [f"{BASE}@{COMMIT}", COMMIT]}
    assert answers["only split"]["shards"] == ["web/data/de/x.jsonl"]
    assert answers["only split"]["texts"] == ["d"]


def test_a_branch_is_resolved_once_and_the_hash_kept(answers: dict[str, dict[str, Any]]) -> None:
    assert answers["pinned"] == answers["train"]


def test_paths_in_the_repository_are_pinned_too(answers: dict[str, dict[str, Any]]) -> None:
    assert answers["folder"]["sources"] == {"web": [f"{BASE}@{COMMIT}/other", COMMIT]}
    assert answers["folder"]["shards"] == ["web/extra.parquet"]
    assert answers["folder"]["texts"] == ["e", "f"]
    assert answers["file"]["sources"] == {"test": [f"{BASE}@{COMMIT}/data/en", COMMIT]}
    assert answers["pattern"]["shards"] == ["web/en/test.jsonl", "web/en/train-0.jsonl", "web/en/train-1.jsonl"]


def test_splits_make_one_source_or_two(answers: dict[str, dict[str, Any]]) -> None:
    assert answers["two splits"]["shards"] == [
        "x/data/en/test.jsonl", "x/data/en/train-0.jsonl", "x/data/en/train-1.jsonl",
    ]  # fmt: skip
    assert set(answers["two sources"]["sources"]) == {"web", "web-2"}


def test_a_local_copy_has_the_same_digest(answers: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    for name, content in FILES.items():
        if "train" in name:
            put(tmp_path / name, content)
    assert build_manifest([f"web={tmp_path}"]).manifest.digest == answers["train"]["digest"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("no config", ["has 2 configurations", "de, en", "#CONFIG"]),
        ("no split", ["has 2 splits", "test, train", "#en/SPLIT"]),
        ("wrong config", ["no configuration 'fr'", "de, en"]),
        ("wrong split", ["no split 'dev'", "test, train"]),
        ("wrong name", ["cannot be had", "HF_TOKEN"]),
        ("wrong revision", ["cannot be had"]),
        ("nothing there", ["no shard"]),
    ],
)
def test_what_cannot_be_is_refused_with_what_there_is(
    answers: dict[str, dict[str, Any]], asked: str, words: list[str]
) -> None:
    assert answers[asked]["exit"] == 2
    assert all(word in answers[asked]["error"] for word in words), answers[asked]["error"]


def test_no_network_is_the_environments_failure(tmp_path: Path) -> None:
    (by_name, by_path) = ask([[f"{BASE}#en/train"], [f"{BASE}@main/data"]], "http://127.0.0.1:9", tmp_path)
    for answer in (by_name, by_path):
        assert answer["exit"] == 4
        assert "the hub cannot be asked" in answer["error"]
        assert "copy the dataset to a folder" in answer["error"]


def test_spellings() -> None:
    for where in ("hf://datasets/", "hf://datasets/a@/b", "hf://datasets/a//b", "hf://datasets/a/b@"):
        with pytest.raises(UsageError, match="cannot be understood"):
            find_dataset(where)
    assert not is_hub("hf://buckets/org/web")


def test_a_client_that_fails_is_storage_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            def fail(*_args: Any, **_options: Any) -> None:
                raise RuntimeError(f"connection lost in {name}")

            return fail

    root = HubRoot(f"{BASE}@{COMMIT}")
    monkeypatch.setattr(root, "_system", Broken)
    for ask_it in (root.is_file, lambda: list(root.walk()), lambda: root.open("x"), lambda: root.size_bytes("x")):
        with pytest.raises(OSError, match="the hub cannot be read"):
            ask_it()
