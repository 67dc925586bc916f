"""Folders that Hugging Face ``save_to_disk`` wrote: the order of their state, strays, missing files, splits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dataguard.corpus import Corpus, build_manifest, build_manifest_file
from dataguard.corpus.discovery import Discovery, discover
from dataguard.errors import InputError, UsageError
from tests.corpus.making import jsonl, put


def arrow(path: Path, texts: Sequence[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    batch = pa.record_batch({"text": list(texts)})
    with path.open("wb") as file, pa.ipc.new_stream(file, batch.schema) as writer:
        writer.write_batch(batch)
    return path


def saved(folder: Path, files: dict[str, Sequence[str]], *, listed: Sequence[str] | None = None, **state: Any) -> Path:
    """A saved dataset; `listed` is what its state says, in its order."""
    for name, texts in files.items():
        arrow(folder / name, texts)
    names = list(files) if listed is None else listed
    put(folder / "state.json", json.dumps({"_data_files": [{"filename": name} for name in names], **state}).encode())
    put(folder / "dataset_info.json", b'{"features": {}}')
    return folder


def paths(found: Discovery) -> list[str]:
    return [shard.path for source in found.sources for shard in source.shards]


def told(found: Discovery) -> dict[str, str]:
    return {item.path: item.reason for item in found.ignored}


def test_shards_come_in_the_order_of_the_state(tmp_path: Path) -> None:
    saved(tmp_path / "w/ds", {"data-10.arrow": ["c"], "data-9.arrow": ["b"], "first.arrow": ["a"]},
          listed=["first.arrow", "data-9.arrow", "data-10.arrow"])  # fmt: skip
    jsonl(tmp_path / "w/b.jsonl", ["before"])
    jsonl(tmp_path / "w/z.jsonl", ["after"])
    jsonl(tmp_path / "w/ds/data-x/inner.jsonl", ["below"])
    found = discover([f"{tmp_path}/w"])
    assert paths(found) == [
        "b.jsonl", "ds/first.arrow", "ds/data-9.arrow", "ds/data-x/inner.jsonl", "ds/data-10.arrow", "z.jsonl",
    ]  # fmt: skip
    assert told(found) == {"ds/state.json": "marker", "ds/dataset_info.json": "marker"}
    result, _ = build_manifest_file([f"{tmp_path}/w"], tmp_path / "M.parquet")
    with Corpus.open(tmp_path / "M.parquet").reader() as reader:
        assert reader.read(range(6), [0] * 6) == [b"before", b"a", b"b", b"below", b"c", b"after"]
    assert result.manifest == Corpus.open(tmp_path / "M.parquet").manifest


def test_the_digest_covers_the_order(tmp_path: Path) -> None:
    files = {"a.arrow": ["one"], "b.arrow": ["two"]}
    digests = []
    for number, listed in enumerate((["a.arrow", "b.arrow"], ["b.arrow", "a.arrow"], ["a.arrow", "b.arrow"])):
        saved(tmp_path / str(number) / "web", files, listed=listed)
        digests.append(build_manifest([f"{tmp_path}/{number}/web"]).manifest.digest)
    assert digests[0] == digests[2] != digests[1]


def test_strays_are_ignored_with_the_reason(tmp_path: Path) -> None:
    folder = saved(tmp_path / "w", {"data-0.arrow": ["a"]})
    arrow(folder / "cache-0123456789abcdef.arrow", ["map"])
    arrow(folder / "cache-0123456789abcdef_00000_of_00002.arrow", ["map"])
    arrow(folder / "data-1.arrow", ["older, larger save"])
    jsonl(folder / "notes.jsonl", ["x"])
    found = discover([str(folder)])
    assert paths(found) == ["data-0.arrow"]
    assert {path: reason for path, reason in told(found).items() if reason != "marker"} == {
        "cache-0123456789abcdef.arrow": "cache of a Hugging Face dataset",
        "cache-0123456789abcdef_00000_of_00002.arrow": "cache of a Hugging Face dataset",
        "data-1.arrow": "not in the state.json of its dataset",
        "notes.jsonl": "not in the state.json of its dataset",
    }
    assert not any(item.is_serious for item in found.ignored)
    assert paths(discover([f"{folder}/*.arrow"])) == ["data-0.arrow"]  # a pattern means the dataset as well
    assert paths(discover([f"{folder}/data-1.arrow"])) == ["data-1.arrow"]  # a named file is taken at its word


def test_missing_files_are_told(tmp_path: Path) -> None:
    saved(tmp_path / "w", {"a.arrow": ["a"]}, listed=["a.arrow", "gone.arrow", "../out.arrow"])
    found = discover([f"{tmp_path}/w"])
    assert paths(found) == ["a.arrow"]
    serious = {item.path: item.reason for item in found.ignored if item.is_serious}
    assert serious == {
        "gone.arrow": "listed in the state.json of its dataset, and not there",
        "../out.arrow": "listed in a state.json of another folder",
    }
    assert len(build_manifest([f"{tmp_path}/w"]).unreachable) == 2
    (tmp_path / "w/a.arrow").unlink()
    with pytest.raises(InputError, match="no shard"):
        discover([f"{tmp_path}/w"])
    found = discover([f"{saved(tmp_path / 'v', {'a.arrow': ['a'], 'b.arrow': ['b']})}/a*"])
    assert not any(item.is_serious for item in found.ignored)  # it is there, and was not asked for


def test_splits_are_folders(tmp_path: Path) -> None:
    for split in ("train", "test"):
        saved(tmp_path / "w/en" / split, {"data-1.arrow": [f"{split} 1"], "data-0.arrow": [f"{split} 0"]})
    put(tmp_path / "w/en/dataset_dict.json", b'{"splits": ["train", "test", "validation"]}')
    found = discover([f"{tmp_path}/w"])
    assert paths(found) == [
        "en/test/data-1.arrow",
        "en/test/data-0.arrow",
        "en/train/data-1.arrow",
        "en/train/data-0.arrow",
    ]
    assert [(item.path, item.reason) for item in found.ignored if item.is_serious] == [
        ("en/validation", "listed in dataset_dict.json, and not there")
    ]


def test_what_cannot_be_understood_is_told(tmp_path: Path) -> None:
    for number, state in enumerate((b"", b"[]", b'{"_data_files": [7]}', b"\xff")):
        folder = saved(tmp_path / str(number), {"b.arrow": ["b"], "a.arrow": ["a"]})
        put(folder / "state.json", state)
        found = discover([str(folder)])
        assert paths(found) == ["a.arrow", "b.arrow"]
        assert [item.path for item in found.ignored if item.is_serious] == ["state.json"]
    indices = [{"filename": "indices.arrow"}]
    folder = saved(tmp_path / "selected", {"a.arrow": ["a"]}, _indices_data_files=indices)
    (item,) = [item for item in discover([str(folder)]).ignored if item.is_serious]
    assert "flatten_indices" in item.reason


def test_a_library_cache_without_a_state(tmp_path: Path) -> None:
    arrow(tmp_path / "w/wiki-train.arrow", ["a"])
    arrow(tmp_path / "w/cache-00ff.arrow", ["map"])
    assert paths(discover([f"{tmp_path}/w"])) == ["cache-00ff.arrow", "wiki-train.arrow"]
    put(tmp_path / "w/dataset_info.json", b"{}")
    found = discover([f"{tmp_path}/w"])
    assert paths(found) == ["wiki-train.arrow"]
    assert told(found)["cache-00ff.arrow"] == "cache of a Hugging Face dataset"
    (tmp_path / "w/wiki-train.arrow").unlink()
    with pytest.raises(UsageError, match="1 cache of a Hugging Face dataset"):
        discover([f"{tmp_path}/w"])


def test_what_the_library_saves(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_dict(
        {"text": [f"text {i}" for i in range(10)], "meta": [{"id": i} for i in range(10)]}
    )
    made.save_to_disk(f"{tmp_path}/web", num_shards=3)
    datasets.DatasetDict({"train": made, "test": made.select([7, 3])}).save_to_disk(f"{tmp_path}/split")
    for name, expected in (("web", made), ("split/train", made), ("split/test", made.select([7, 3]))):
        result, _ = build_manifest_file([f"x={tmp_path}/{name}"], tmp_path / "M.parquet")
        assert not result.num_damaged
        assert not result.unreachable
        pairs = [
            (number, row)
            for number, block in enumerate(result.manifest.blocks)
            for row in range(block["first_row"], block["first_row"] + block["num_rows"])
        ]
        with Corpus.open(tmp_path / "M.parquet").reader() as reader:
            answers = reader.read([block for block, _ in pairs], [row for _, row in pairs])
            assert answers == [text.encode() for text in expected["text"]]
            assert reader.read_fields(0, 0) == {"meta": expected[0]["meta"]}


def test_datasets_that_others_saved(shared: Path) -> None:
    root = shared / "data" / "formats" / "hf_save_to_disk"
    found = discover([str(root)])
    assert paths(found) == [
        f"{folder}/data-00000-of-00001.arrow"
        for folder in (
            "ai2_arc/ARC-Easy/validation", "allenai/basic_arithmetic/none/validation", "boolq/none/validation",
            "hails/mmlu_no_train/abstract_algebra/dev", "hails/mmlu_no_train/abstract_algebra/test",
        )
    ]  # fmt: skip
    assert set(told(found).values()) == {"marker"}
