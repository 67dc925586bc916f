"""Compressed shards of ids: decoded once for all blocks and processes, mapped, bounded, and never an old answer."""

from __future__ import annotations

import gzip
import io
import multiprocessing
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import zstandard

from dataguard.corpus import shard_cache
from dataguard.corpus.blocks import DecodedBlock
from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.formats import MdsTokens, ScanOptions
from dataguard.corpus.formats.tokens import Boundaries
from dataguard.corpus.problems import RowProblem
from tests.corpus.formats.support import MemoryShard
from tests.corpus.making import mds_array, mds_shard, put

IDS = np.random.default_rng(7).integers(0, 50_000, 40_000)
LENGTHS = [0, 700, 0, 3, 4_000, 1, *[250] * 141, 46]


def _npy(kind: str = "<u2") -> bytes:
    sink = io.BytesIO()
    np.save(sink, IDS.astype(kind))
    return sink.getvalue()


def _mds() -> bytes:
    starts = np.cumsum([0, *LENGTHS])
    assert starts[-1] == len(IDS)
    samples = [IDS[start:stop].tolist() for start, stop in pairwise(starts)]
    return mds_shard({"tokens": ("ndarray:uint16", None)}, [{"tokens": mds_array(ids)} for ids in samples])


def zstd(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(content)


SHARDS: dict[str, Callable[[], bytes]] = {
    "a.npy.gz": lambda: gzip.compress(_npy(), mtime=0),
    "a.npy.zst": lambda: zstd(_npy(">u2")),
    "a.bin.zst": lambda: zstd(IDS.astype("<u2").tobytes()),
    "shard.00000.mds.zstd": lambda: zstd(_mds()),
    "shard.00000.mds.gz": lambda: gzip.compress(_mds(), mtime=0),
}


def corpus_of(tmp_path: Path, name: str) -> Corpus:
    put(tmp_path / "t" / name, SHARDS[name]())
    options = ScanOptions(block_tokens=1_000, dtype="uint16" if ".bin" in name else "")
    build_manifest_file([f"{tmp_path}/t"], tmp_path / "M.parquet", options=options)
    return Corpus.open(tmp_path / "M.parquet")


def every_window(corpus: Corpus, folder: Path, *, cache_bytes: int = 0, limit: int | None = None) -> tuple[bool, int]:
    """(whether all windows, last first, are right, bytes read from storage)."""
    windows = np.arange(len(IDS) // 500)[::-1]
    with corpus.reader(cache_bytes=cache_bytes, cache_folder=str(folder), cache_folder_bytes=limit) as reader:
        found = [reader.read_windows([0], [window], 500) for window in windows]
        rows = np.concatenate([ids for ids, problems in found if not problems])
        return np.array_equal(rows, IDS.reshape(-1, 500)[::-1]), reader.counts.storage_bytes


@pytest.mark.parametrize("name", list(SHARDS))
def test_windows_are_read_from_one_decoding(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_cache, "_SETTLED_NS", 0)
    corpus = corpus_of(tmp_path, name)
    assert len(corpus.manifest.blocks) > 30
    stored = corpus.manifest.shards[0].size_bytes
    assert every_window(corpus, tmp_path / "cache") == (True, pytest.approx(stored, abs=100))
    assert len(list((tmp_path / "cache").glob("*.arrow"))) == 1
    is_right, again = every_window(corpus, tmp_path / "cache")
    assert is_right
    assert again < 100


def test_blocks_are_views_of_the_mapped_file(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, "a.npy.gz")
    with corpus.reader(cache_folder=str(tmp_path / "cache")) as reader:
        block = reader._shards.load(20)
        (path,) = (tmp_path / "cache").glob("*.arrow")
        assert str(path) in Path("/proc/self/maps").read_text()
        path.unlink()  # as an eviction does
        assert isinstance(block, DecodedBlock)
        assert block.tokens is not None
        assert np.array_equal(block.tokens, IDS[20_000:21_000])


def test_a_damaged_file_is_made_anew(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, "a.npy.gz")
    for how in ("flip", "cut", "empty"):
        assert every_window(corpus, tmp_path / "cache")[0]
        (path,) = (tmp_path / "cache").glob("*.arrow")
        content = bytearray(path.read_bytes())
        path.unlink()
        content[len(content) // 2] ^= 1
        path.write_bytes({"flip": content, "cut": content[: len(content) // 2], "empty": b""}[how])
        assert every_window(corpus, tmp_path / "cache")[0], how


def test_a_changed_shard_is_told(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, "a.npy.gz")
    assert every_window(corpus, tmp_path / "cache")[0]
    sink = io.BytesIO()
    np.save(sink, (IDS + (np.arange(len(IDS)) == 5)).astype("<u2"))
    put(tmp_path / "t/a.npy.gz", gzip.compress(sink.getvalue()))
    with corpus.reader(cache_folder=str(tmp_path / "cache")) as reader:
        _, problems = reader.read_windows([0, 0], [0, 70], 500)
    assert list(problems) == [0]
    assert problems[0].kind == "changed"


def test_a_shard_larger_than_the_cache_is_read_without_it(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, "a.npy.gz")
    assert every_window(corpus, tmp_path / "cache", limit=1_000)[0]
    assert not list((tmp_path / "cache").glob("*.arrow"))


def _in_child(arguments: tuple[Corpus, Path]) -> bool:
    return every_window(*arguments)[0]


def test_several_processes_share_one_file(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, "shard.00000.mds.gz")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(_in_child, [(corpus, tmp_path / "cache")] * 4) == [True] * 4
    assert len(list((tmp_path / "cache").glob("*.arrow"))) == 1


@pytest.mark.parametrize("name", ["shard.00000.mds.zstd", "shard.00000.mds.gz", "shard.00000.mds"])
def test_boundaries_go_through_a_shard_once(tmp_path: Path, name: str) -> None:
    content = {"zstd": zstd, "gz": gzip.compress, "mds": bytes}[name.rpartition(".")[2]](_mds())
    SHARDS.setdefault(name, lambda: content)
    corpus = corpus_of(tmp_path, name)
    starts = np.cumsum([0, *LENGTHS])
    with corpus.reader(cache_folder=str(tmp_path / "cache")) as reader:
        first = reader.boundaries(0, 39_000, 39_400)
        read = reader.counts.storage_bytes
        for start in range(0, 40_000, 400):
            found = reader.boundaries(0, start, start + 400)
            assert isinstance(found, Boundaries)
            spans = [
                (a, b)
                for a, b in pairwise(starts.tolist())
                if (a < start + 400 and b > start) or (a == b and start <= a < start + 400)
            ]
            assert [tuple(span) for span in found.documents.tolist()] == spans
        assert reader.counts.storage_bytes == read
        assert isinstance(first, Boundaries)
        put(tmp_path / "t" / name, content[: len(content) // 2])
        problem = reader.boundaries(0, 0, 400)
        assert isinstance(problem, RowProblem)
        assert problem.kind == "changed"


def test_boundaries_of_two_columns_are_not_mixed_up() -> None:
    columns: dict[str, tuple[str, int | None]] = {"a": ("ndarray:uint16", None), "b": ("ndarray:uint16", None)}
    samples = [{"a": mds_array(range(3)), "b": mds_array(range(5))}] * 4
    shard = MemoryShard(mds_shard(columns, samples), "x.mds")
    for column, length in (("a", 3), ("b", 5), ("a", 3)):
        found = MdsTokens().boundaries(shard, 0, 12, ScanOptions(token_field=column, text_field=""))
        assert found.documents[1].tolist() == [length, 2 * length]
