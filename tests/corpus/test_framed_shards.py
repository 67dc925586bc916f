"""Rows of indexed zstd: only the frames that hold them are read, and what a table says is never taken on trust."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from dataguard.corpus.blocks import DecodedBlock
from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.formats import ScanOptions
from dataguard.corpus.formats.zstd_frames import frames_of
from dataguard.corpus.problems import RowProblem
from tests.corpus.formats.archives import webdataset
from tests.corpus.formats.framing import pieces, seek_table, seekable, zstd_frame
from tests.corpus.making import lines, put

RANDOM = random.Random(3)
TEXTS = [f"{i} {RANDOM.randbytes(40 + i % 90).hex()}" for i in range(800)]


def cut(content: bytes, num_bytes: int) -> list[bytes]:
    return pieces(content, range(0, len(content), num_bytes))


def build(tmp_path: Path, name: str, content: bytes, **options: Any) -> Corpus:
    put(tmp_path / "web" / name, content)
    build_manifest_file([f"{tmp_path}/web"], tmp_path / "M.parquet", options=ScanOptions(**options))
    return Corpus.open(tmp_path / "M.parquet")


def by_frames(parts: list[bytes]) -> bytes:
    return b"".join(map(zstd_frame, parts))


@pytest.mark.parametrize("pack", [seekable, by_frames])
@pytest.mark.parametrize("how", ["jsonl", "tar"])
def test_a_row_costs_its_frames_and_no_cache(tmp_path: Path, pack: Callable[[list[bytes]], bytes], how: str) -> None:
    if how == "jsonl":
        content = lines(TEXTS)
    else:
        content = webdataset({f"{i:04}": {"txt": text.encode()} for i, text in enumerate(TEXTS)})
    packed = pack(cut(content, 4_000))
    corpus = build(tmp_path, f"a.{how}.zst", packed, block_bytes=4_000)
    blocks = corpus.manifest.blocks
    assert len(blocks) > 20
    with corpus.reader(cache_bytes=0, cache_folder=str(tmp_path / "cache")) as reader:
        middle = len(blocks) // 2
        row = int(blocks["first_row"][middle]) + 1
        assert reader.read([middle], [row]) == [TEXTS[row].encode()]
        assert reader.counts.storage_bytes < len(packed) / 5
        rows = [int(row) for row in blocks["first_row"]]
        assert reader.read(range(len(blocks)), rows) == [TEXTS[row].encode() for row in rows]
        fields = reader.read_fields(middle, row)
        assert not isinstance(fields, RowProblem)
    assert not (tmp_path / "cache").exists()


def _table(sizes: list[tuple[int, int]], how: str) -> bytes:
    stored, decoded = [size[0] for size in sizes], [size[1] for size in sizes]
    if how == "swapped":
        decoded[3], decoded[4] = decoded[4] + 1, decoded[3] - 1
    elif how == "shifted":
        decoded = decoded[-1:] + decoded[:-1]
    elif how == "places":
        stored[2], stored[3] = stored[2] + 4, stored[3] - 4
    return seek_table(list(zip(stored, decoded, strict=True)))


@pytest.mark.parametrize("how", ["swapped", "shifted", "places"])
@pytest.mark.parametrize("folder", ["cache", ""])
def test_a_table_that_lies_costs_time_and_no_row(tmp_path: Path, how: str, folder: str) -> None:
    parts = cut(lines(TEXTS), 3_500)
    frames = [zstd_frame(part) for part in parts]
    sizes = [(len(frame), len(part)) for frame, part in zip(frames, parts, strict=True)]
    packed = b"".join(frames) + _table(sizes, how)
    corpus = build(tmp_path, "a.jsonl.zst", packed, block_bytes=4_000)
    assert corpus.manifest.shards[0].effect == "clean"
    assert corpus.manifest.shards[0].num_rows == len(TEXTS)
    blocks = corpus.manifest.blocks
    every = [int(row) for row in blocks["first_row"]]
    with corpus.reader(cache_bytes=0, cache_folder=folder and str(tmp_path / folder)) as reader:
        assert reader.read(range(len(blocks)), every) == [TEXTS[row].encode() for row in every]
        assert frames_of(reader._shards.opened(0).stored) is None


def test_a_walk_over_a_shard_with_a_lying_table_gives_every_block(tmp_path: Path) -> None:
    parts = cut(lines(TEXTS), 4_000)
    frames = [zstd_frame(part) for part in parts]
    sizes = [(len(frame), len(part)) for frame, part in zip(frames, parts, strict=True)]
    corpus = build(tmp_path, "a.jsonl.zst", b"".join(frames) + _table(sizes, "places"), block_bytes=4_000)
    with corpus.reader(cache_folder="") as reader:
        found = list(reader._shards.walk(range(len(corpus.manifest.blocks))))
    blocks = [block for block in found if isinstance(block, DecodedBlock)]
    assert len(blocks) == len(corpus.manifest.blocks)
    texts = [text for block in blocks for text in block.texts(range(block.first_row, block.first_row + 400)) if text]
    assert [text.decode() for text in texts] == TEXTS


def test_a_changed_shard_is_told_and_its_unchanged_blocks_are_delivered(tmp_path: Path) -> None:
    parts = cut(lines(TEXTS), 4_000)
    corpus = build(tmp_path, "a.jsonl.zst", seekable(parts), block_bytes=4_000)
    with corpus.reader(cache_bytes=0, cache_folder=str(tmp_path / "cache")) as reader:
        assert reader.read([0], [0]) == [TEXTS[0].encode()]
        put(tmp_path / "web/a.jsonl.zst", zstd_frame(lines(["changed text", *TEXTS[1:]])))
        (problem,) = reader.read([0], [0])
        assert isinstance(problem, RowProblem)
        assert problem.kind == "changed"
    put(tmp_path / "web/a.jsonl.zst", zstd_frame(lines(TEXTS)))  # another file, and the blocks are right
    with corpus.reader(cache_folder="") as reader:
        assert reader.read([0], [0]) == [TEXTS[0].encode()]


def test_large_frames_fill_the_cache_instead(tmp_path: Path) -> None:
    packed = seekable(cut(lines(TEXTS), 50_000))
    corpus = build(tmp_path, "a.jsonl.zst", packed, block_bytes=2_000)
    with corpus.reader(cache_bytes=0, cache_folder=str(tmp_path / "cache")) as reader:
        assert reader.read([3], [int(corpus.manifest.blocks["first_row"][3])])
        assert len(list((tmp_path / "cache").glob("*.arrow"))) == 1
    with corpus.reader(cache_bytes=0, cache_folder="") as reader:  # without one they are still better than everything
        assert reader.read([3], [int(corpus.manifest.blocks["first_row"][3])])
        assert reader.counts.storage_bytes < len(packed) * 0.8


def _ids(name: str) -> bytes:
    ids = np.random.default_rng(0).integers(0, 60_000, 50_000).astype("<u2")
    if name.startswith("a.bin"):
        return ids.tobytes()
    sink = io.BytesIO()
    np.save(sink, ids)
    return sink.getvalue()


@pytest.mark.parametrize("name", ["a.npy.zst", "a.bin.zst"])
def test_windows_of_framed_ids_are_read_by_their_frames(tmp_path: Path, name: str) -> None:
    content = _ids(name)
    packed = seekable(cut(content, 2_000))
    corpus = build(tmp_path, name, packed, block_tokens=1_000, dtype="uint16" if ".bin" in name else "")
    ids = np.random.default_rng(0).integers(0, 60_000, 50_000)
    with corpus.reader(cache_bytes=0, cache_folder=str(tmp_path / "cache")) as reader:
        (windows, problems) = reader.read_windows([0, 0], [37, 2], 512)
        assert not problems
        assert np.array_equal(windows, [ids[37 * 512 : 38 * 512], ids[2 * 512 : 3 * 512]])
        assert reader.counts.storage_bytes < len(packed) / 3
    assert not (tmp_path / "cache").exists()


def test_a_stream_of_one_large_frame_is_not_walked(tmp_path: Path) -> None:
    """Its header alone says that it is of no help."""
    content = zstandard.ZstdCompressor().compress(bytes(20 << 20))
    corpus = build(tmp_path, "x.npy.zst", content, block_tokens=1 << 20)
    assert corpus.manifest.shards[0].effect == "excluded"
    packed = zstandard.ZstdCompressor().compress(lines(["x" * (20 << 20)]))
    put(tmp_path / "web/x.npy.zst", b"")
    corpus = build(tmp_path, "a.jsonl.zst", packed)
    with corpus.reader(cache_folder="") as reader:
        shard = reader._shards.opened(corpus.manifest.find_shard("a.jsonl.zst")).stored
        assert frames_of(shard) is None
        assert reader.counts.storage_bytes < 64
