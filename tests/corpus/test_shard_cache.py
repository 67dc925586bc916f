"""Decoded shards on the local disk: decoded once, bounded, and never an answer for a shard that changed."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from dataguard.corpus import shard_cache
from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.environment import cache_dir, cache_limit_bytes
from dataguard.corpus.formats.protocol import ScanOptions
from dataguard.corpus.problems import RowProblem
from dataguard.corpus.shard_cache import ShardCache
from dataguard.errors import UsageError
from tests.corpus.making import jsonl

TEXTS = [f"record {i} {'y' * (i % 90)}" for i in range(400)]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    jsonl(tmp_path / "web/a.jsonl.gz", TEXTS)
    jsonl(tmp_path / "web/b.jsonl.zst", TEXTS[::-1])
    build_manifest_file([f"{tmp_path}/web"], tmp_path / "M.parquet", options=ScanOptions(block_bytes=2000))
    return Corpus.open(tmp_path / "M.parquet")


def read_all(corpus: Corpus, folder: Path, **settings: Any) -> tuple[list[bytes | RowProblem], int]:
    """(all rows, bytes read from storage) by a reader that keeps nothing in memory."""
    blocks, rows = [], []
    for number, entry in enumerate(corpus.manifest.blocks):
        blocks += [number] * int(entry["num_rows"])
        rows += range(int(entry["first_row"]), int(entry["first_row"] + entry["num_rows"]))
    with corpus.reader(cache_bytes=0, cache_folder=str(folder), **settings) as reader:
        return reader.read(blocks, rows), reader.counts.storage_bytes


def good() -> list[bytes]:
    return [text.encode() for text in TEXTS + TEXTS[::-1]]


def age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the shards be old enough for their stamps to be kept."""
    monkeypatch.setattr(shard_cache, "_SETTLED_NS", 0)


def test_a_shard_is_decoded_once_for_all_readers(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    age(tmp_path, monkeypatch)
    stored = sum(shard.size_bytes for shard in corpus.manifest.shards)
    answers, first = read_all(corpus, tmp_path / "cache")
    assert answers == good()
    assert first <= 1.2 * stored
    answers, second = read_all(corpus, tmp_path / "cache")
    assert answers == good()
    assert second <= 64  # whether the zstd shard has frames within reach


def test_a_young_shard_is_hashed_again_by_another_reader(corpus: Corpus, tmp_path: Path) -> None:
    stored = sum(shard.size_bytes for shard in corpus.manifest.shards)
    read_all(corpus, tmp_path / "cache")
    answers, second = read_all(corpus, tmp_path / "cache")
    assert answers == good()
    assert stored <= second <= stored + 64  # and whether the zstd shard has frames within reach


def test_without_a_folder_the_same_rows_are_read(corpus: Corpus, tmp_path: Path) -> None:
    with corpus.reader(cache_folder="") as reader:
        assert (
            reader.read([3], corpus.manifest.blocks["first_row"][3:4])[0]
            == read_all(corpus, tmp_path / "c")[0][int(corpus.manifest.blocks["first_row"][3])]
        )


@pytest.mark.parametrize("same_reader", [True, False])
def test_a_changed_shard_is_never_answered_from_the_cache(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_reader: bool
) -> None:
    age(tmp_path, monkeypatch)
    read_all(corpus, tmp_path / "cache")
    path = tmp_path / "web/a.jsonl.gz"
    status = path.stat()
    with corpus.reader(cache_bytes=0, cache_folder=str(tmp_path / "cache")) as reader:
        if same_reader:
            assert reader.read([0], [0]) == [TEXTS[0].encode()]
        jsonl(path, ["record X ", *TEXTS[1:]])
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        (problem,) = reader.read([0], [0])
        assert isinstance(problem, RowProblem)
        assert problem.kind == "changed"
        first = int(corpus.manifest.blocks["first_row"][5])
        assert reader.read([5], [first]) == [TEXTS[first].encode()]  # this block is what it was


def test_a_shard_that_changed_before_it_was_decoded_fills_nothing(corpus: Corpus, tmp_path: Path) -> None:
    jsonl(tmp_path / "web/a.jsonl.gz", [*TEXTS[:-1], "other"])
    answers, _ = read_all(corpus, tmp_path / "cache")
    assert [type(answer) for answer in answers[:100]] == [bytes] * 100
    assert isinstance(answers[399], RowProblem)
    assert len(list((tmp_path / "cache").glob("*.arrow"))) == 1


def test_a_damaged_file_of_the_cache_is_made_anew(corpus: Corpus, tmp_path: Path) -> None:
    read_all(corpus, tmp_path / "cache")
    files = sorted((tmp_path / "cache").glob("*.arrow"))
    for number, path in enumerate(files):
        content = bytearray(path.read_bytes())
        if number:
            del content[len(content) // 2 :]
        else:
            content[len(content) // 2] ^= 1
        path.write_bytes(bytes(content))
    assert read_all(corpus, tmp_path / "cache")[0] == good()
    assert sorted((tmp_path / "cache").glob("*.arrow")) == files


def test_the_least_recently_used_go_first(corpus: Corpus, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    read_all(corpus, folder)
    sizes = {path.name: path.stat().st_size for path in folder.glob("*.arrow")}
    for path in folder.iterdir():
        path.unlink()
    answers, _ = read_all(corpus, folder, cache_folder_bytes=max(sizes.values()) + 10)
    assert answers == good()
    assert len(list(folder.glob("*.arrow"))) == 1
    assert not list(folder.glob("*.tmp"))


def test_a_shard_larger_than_the_cache_is_read_without_it(
    corpus: Corpus, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        answers, _ = read_all(corpus, tmp_path / "cache", cache_folder_bytes=1000)
    assert answers == good()
    assert "alone is larger than the cache" in caplog.text
    assert not list((tmp_path / "cache").glob("*.arrow"))


def test_a_folder_that_cannot_be_written_is_told_once(
    corpus: Corpus, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        answers, _ = read_all(corpus, tmp_path / "file" / "cache")
    assert answers == good()
    assert caplog.text.count("cannot be kept in") == 1


def test_stale_temporaries_are_swept(corpus: Corpus, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / "old.1.tmp").write_bytes(b"x")
    os.utime(folder / "old.1.tmp", (0, 0))
    (folder / "young.2.tmp").write_bytes(b"x")
    read_all(corpus, folder)
    assert [path.name for path in folder.glob("*.tmp")] == ["young.2.tmp"]


def _read_in_child(arguments: tuple[Corpus, Path]) -> bool:
    return read_all(*arguments)[0] == good()


def test_several_processes_share_one_folder(corpus: Corpus, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(3) as pool:
        assert pool.map(_read_in_child, [(corpus, tmp_path / "cache")] * 6) == [True] * 6
    assert len(list((tmp_path / "cache").glob("*.arrow"))) == 2
    assert not list((tmp_path / "cache").glob("*.tmp"))


def test_a_cache_can_be_pickled(tmp_path: Path) -> None:
    again = pickle.loads(pickle.dumps(ShardCache(str(tmp_path), limit_bytes=7)))
    assert (again.folder, again.limit_bytes) == (tmp_path, 7)


def test_the_environment_moves_and_bounds_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATAGUARD_CACHE_DIR", raising=False)
    monkeypatch.delenv("DATAGUARD_CACHE_BYTES", raising=False)
    assert cache_dir().endswith("shards")
    assert cache_limit_bytes() == 32 << 30
    monkeypatch.setenv("DATAGUARD_CACHE_DIR", "/elsewhere")
    monkeypatch.setenv("DATAGUARD_CACHE_BYTES", "123")
    assert (cache_dir(), cache_limit_bytes()) == ("/elsewhere", 123)
    monkeypatch.setenv("DATAGUARD_CACHE_BYTES", "12 GB")
    with pytest.raises(UsageError, match="no number of bytes"):
        cache_limit_bytes()


@pytest.mark.parametrize("is_filled", [False, True])
def test_a_cache_folder_that_may_not_be_entered_blames_no_row(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_filled: bool
) -> None:
    if is_filled:
        read_all(corpus, tmp_path / "cache")

    def refuse(path: Path, **_: Any) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refuse)
    with caplog.at_level(logging.WARNING):
        answers, _ = read_all(corpus, tmp_path / "cache")
    assert answers == good()
    assert "cannot be kept in" in caplog.text


def test_a_file_of_another_user_is_read_and_left_alone(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_all(corpus, tmp_path / "cache")
    kept = sorted(path.name for path in (tmp_path / "cache").glob("*.arrow"))

    def refuse(path: Any, *_: Any, **__: Any) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    answers, _ = read_all(corpus, tmp_path / "cache")
    assert answers == good()
    assert sorted(path.name for path in (tmp_path / "cache").glob("*.arrow")) == kept
