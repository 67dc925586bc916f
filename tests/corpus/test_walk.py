"""Blocks in order: the same as one by one, from one decoding, and every trouble told in its block's place."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dataguard.corpus.blocks import DecodedBlock
from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.formats.protocol import ScanOptions
from dataguard.corpus.problems import Retry
from dataguard.corpus.shard_file import ByteCounter
from dataguard.corpus.shards import BlockProblem, Shards
from dataguard.corpus.storage import LocalRoot
from tests.corpus.making import flip, jsonl, npy, parquet

TEXTS = [f"text {i} " + "x" * (i * 37 % 200) for i in range(100)]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    jsonl(tmp_path / "web/a.jsonl", [*TEXTS, None])
    jsonl(tmp_path / "web/b.jsonl.gz", TEXTS)
    parquet(tmp_path / "web/c.parquet", TEXTS, group=20)
    npy(tmp_path / "ids/d.npy", list(range(1000)))
    sources = [str(tmp_path / "web"), str(tmp_path / "ids")]
    build_manifest_file(sources, tmp_path / "M", options=ScanOptions(block_bytes=1000, block_tokens=64))
    return Corpus.open(tmp_path / "M")


def shards_of(corpus: Corpus, *, sleep: Callable[[float], None] = lambda _: None) -> Shards:
    return Shards([corpus], cache=None, retry=Retry(attempts=3), counter=ByteCounter(), sleep=sleep)


def said(found: DecodedBlock | BlockProblem) -> Any:
    if isinstance(found, BlockProblem):
        return found.kind
    return found.digest if found.tokens is None else (found.digest, found.tokens.tolist())


def shard_named(corpus: Corpus, name: str) -> int:
    return corpus.manifest.find_shard(name)


@pytest.mark.parametrize("name", ["a.jsonl", "b.jsonl.gz", "c.parquet", "d.npy"])
def test_a_walk_gives_the_blocks_that_are_loaded_one_by_one(corpus: Corpus, name: str) -> None:
    shards = shards_of(corpus)
    blocks = shards.blocks_of_shard(shard_named(corpus, name))
    assert len(blocks) >= 5
    for chosen in (blocks, blocks[2:], blocks[1::2], blocks[3:4]):
        walked = list(shards.walk(chosen))
        assert [said(found) for found in walked] == [said(shards.load(block)) for block in chosen]
        assert not any(isinstance(found, BlockProblem) for found in walked)


def test_a_stream_is_decoded_once(corpus: Corpus) -> None:
    shards = shards_of(corpus)
    shard = shard_named(corpus, "b.jsonl.gz")
    list(shards.walk(shards.blocks_of_shard(shard)))
    assert shards.counter.total <= corpus.manifest.shards[shard].size_bytes + 8192


def test_changed_bytes_cost_their_block_and_no_other(corpus: Corpus, tmp_path: Path) -> None:
    shards = shards_of(corpus)
    blocks = shards.blocks_of_shard(shard_named(corpus, "a.jsonl"))
    path = tmp_path / "web/a.jsonl"
    flip(path, path.read_bytes().index(b"text 50 ") + 6)
    walked = list(shards.walk(blocks))
    wrong = [i for i, found in enumerate(walked) if isinstance(found, BlockProblem)]
    assert [said(walked[i]) for i in wrong] == ["changed"]
    assert said(walked[-1]) == said(shards.load(blocks[-1]))


def test_a_stream_that_breaks_off_costs_what_lies_behind_and_is_not_tried_block_by_block(
    corpus: Corpus, tmp_path: Path
) -> None:
    shards = shards_of(corpus)
    shard = shard_named(corpus, "b.jsonl.gz")
    blocks = shards.blocks_of_shard(shard)
    path = tmp_path / "web/b.jsonl.gz"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    walked = [said(found) for found in shards.walk(blocks)]
    assert walked[0] == said(shards_of(corpus).load(blocks[0]))
    first = walked.index("changed")
    assert first < len(blocks) - 2
    assert walked[first:] == ["changed"] * (len(blocks) - first)
    assert shards.counter.total <= 3 * len(content)


def test_storage_that_fails_once_is_asked_again_from_there(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    real, slept, reads = LocalRoot.open, [], []

    class FailsOnce(io.FileIO):
        def readinto(self, buffer: Any) -> int | None:
            reads.append(self.tell())
            if len(reads) == 3:
                raise OSError(5, "Input/output error")
            return super().readinto(memoryview(buffer)[:3000])

    def fails_once(self: LocalRoot, path: str) -> Any:
        real(self, path).close()
        return FailsOnce(self.local_path(path) or "")

    monkeypatch.setattr(LocalRoot, "open", fails_once)
    shards = shards_of(corpus, sleep=slept.append)
    blocks = shards.blocks_of_shard(shard_named(corpus, "a.jsonl"))
    walked = list(shards.walk(blocks))
    assert not any(isinstance(found, BlockProblem) for found in walked)
    assert [found.first_row for found in walked if isinstance(found, DecodedBlock)] == [
        shards.place(block).first_row for block in blocks
    ]
    assert len(reads) > 3
    assert slept == [0.1]


def test_storage_that_keeps_failing_is_told_for_every_block_behind(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(io.BytesIO):
        def readinto(self, buffer: Any) -> int:
            raise OSError(5, "Input/output error")

    slept: list[float] = []
    monkeypatch.setattr(LocalRoot, "open", lambda self, path: Broken())
    shards = shards_of(corpus, sleep=slept.append)
    blocks = shards.blocks_of_shard(shard_named(corpus, "b.jsonl.gz"))
    assert [said(found) for found in shards.walk(blocks)] == ["unreadable"] * len(blocks)
    assert len(slept) == 2, "as often as the retry says, and not for each block"
