"""How are files of ids without a header read: only by a type that was given, to the last whole id?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dataguard.corpus import Corpus, build_manifest, build_manifest_file
from dataguard.corpus.formats import RawTokens, ScanOptions
from dataguard.errors import ShardDamaged, UsageError
from tests.corpus.formats.framing import gzip_member, zstd_frame
from tests.corpus.formats.support import FileShard, MemoryShard, Seen, look
from tests.corpus.making import jsonl, megatron, npy, put


def seen_of(content: bytes, dtype: str, compression: Any = "none", **options: Any) -> Seen:
    return look(RawTokens(), MemoryShard(content, "x.bin", compression), dtype=dtype, **options)


@pytest.mark.parametrize("code", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_every_integer_type_in_both_byte_orders(code: str, order: str) -> None:
    info = np.iinfo(code)
    greatest = min(int(info.max), (1 << 63) - 1)  # nobody can be given a larger one
    values = [0, 1, greatest, greatest - 1, int(info.min)]
    seen = seen_of(np.array(values, order + code).tobytes(), order + code, block_tokens=2)
    assert (seen.tokens, seen.effect, np.dtype(seen.end.item_type)) == (values, "clean", np.dtype(order + code))
    little = seen_of(np.array(values, "<" + code).tobytes(), "<" + code, block_tokens=2)
    assert [block.digest for block in seen.blocks] == [block.digest for block in little.blocks]


@pytest.mark.parametrize("text", ["float32", "bool", "nonsense", "u2,u2", "S2", "M8[D]", "O", "f2", "", "V4"])
def test_what_is_no_type_of_ids_is_refused(text: str) -> None:
    if text:
        with pytest.raises(UsageError, match="no type of ids"):
            ScanOptions(dtype=text)
    assert ScanOptions(dtype="uint16").dtype == ScanOptions(dtype="<u2").dtype == "<u2"


@pytest.mark.parametrize("dtype", ["<u2", ">u4", "<i8"])
def test_cut_at_every_length(dtype: str) -> None:
    content, width = np.arange(5, dtype=dtype).tobytes(), np.dtype(dtype).itemsize
    for length in range(len(content) + 1):
        seen = seen_of(content[:length], dtype, block_tokens=2)
        assert seen.tokens == list(range(length // width))
        left = length % width
        assert seen.codes == (["trailing-bytes"] if left else [])
        if left:
            assert f"{left} bytes are left over: {length} bytes" in seen.end.findings[0].detail
        assert seen.effect == ("clean" if not left else "flagged" if length > width else "excluded")


@pytest.mark.parametrize("packed", [gzip_member, zstd_frame])
def test_compressed_ids(packed: Any) -> None:
    content = packed(np.arange(5000, dtype="<u2").tobytes())
    assert seen_of(content, "<u2", None, block_tokens=999).tokens == list(range(5000))
    cut = seen_of(content[: len(content) // 2], "<u2", None)
    assert cut.codes[0] == "truncated-stream"
    assert cut.tokens == list(range(len(cut.tokens)))


def test_without_a_type_nothing_is_read() -> None:
    seen = look(RawTokens(), MemoryShard(b"1234", "x.bin", "none"))
    assert (seen.effect, seen.codes) == ("excluded", ["unknown-type"])
    (block,) = seen_of(b"1234", "<u2").blocks
    with pytest.raises(ShardDamaged):
        RawTokens().read(MemoryShard(b"1234", "x.bin", "none"), block.place, ScanOptions())
    with pytest.raises(ShardDamaged):
        RawTokens().read(MemoryShard(b"12", "x.bin", "none"), block.place, ScanOptions(dtype="<u2"))


def test_the_manifest_remembers_the_type(tmp_path: Path) -> None:
    put(tmp_path / "data/a.bin", np.array([1, 2, 258, 65535], ">u2").tobytes())
    put(tmp_path / "data/b.raw", b"")
    put(tmp_path / "data/c.tokens", b"\0\7\0")
    put(tmp_path / "data/d.dat", b"1234")
    result, header = build_manifest_file(
        [str(tmp_path / "data")], tmp_path / "M.parquet", options=ScanOptions(dtype=">u2")
    )
    assert [(shard.path, shard.effect, shard.num_rows, shard.item_type) for shard in result.manifest.shards] == [
        ("a.bin", "clean", 4, ">u2"),
        ("b.raw", "clean", 0, ">u2"),
        ("c.tokens", "flagged", 1, ">u2"),
    ]
    assert [(item.path, item.reason) for item in result.ignored] == [("d.dat", "unknown kind")]
    assert header.scan["dtype"] == ">u2"
    with Corpus.open(tmp_path / "M.parquet").reader() as reader:
        ids, problems = reader.read_windows([0, 0], [0, 1], 2)
    assert (ids.tolist(), problems) == ([[1, 2], [258, 65535]], {})


def test_a_type_says_nothing_of_what_is_known(tmp_path: Path) -> None:
    megatron(tmp_path / "data/pair", [[1, 2], [3]])
    npy(tmp_path / "data/x.npy", [1, 2, 3], "<u4")
    put(tmp_path / "data/y.bin", bytes(8))
    damaged = megatron(tmp_path / "data/z", [[1]])
    damaged.with_suffix(".idx").write_bytes(b"none of that kind")
    found = build_manifest([str(tmp_path / "data")], options=ScanOptions(dtype="int64")).manifest.shards
    assert [(shard.path, shard.format, shard.item_type, shard.effect) for shard in found] == [
        ("pair.bin", "megatron", "<u2", "clean"),
        ("x.npy", "npy", "<u4", "clean"),
        ("y.bin", "raw", "<i8", "clean"),
        ("z.bin", "megatron", "", "excluded"),
    ]


def test_ids_that_begin_as_a_compressed_stream_does(tmp_path: Path) -> None:
    ids = [0x8B1F, 0x0008, 9, 65535]
    put(tmp_path / "data/a.bin", np.array(ids, "<u2").tobytes())
    put(tmp_path / "data/b.bin.gz", gzip_member(np.array(ids, "<u2").tobytes()))
    put(tmp_path / "data/c.bin", zstd_frame(np.array(ids, "<u2").tobytes()))
    found = build_manifest([str(tmp_path / "data")], options=ScanOptions(dtype="uint16")).manifest.shards
    assert [(shard.compression, shard.effect, shard.num_rows) for shard in found] == [
        ("none", "clean", 4),
        ("gzip", "clean", 4),
        ("zstd", "clean", 4),
    ]


def test_the_format_by_name(tmp_path: Path) -> None:
    put(tmp_path / "data/ids.dat", bytes(6))
    with pytest.raises(UsageError, match="of which type"):
        build_manifest([str(tmp_path / "data")], format_name="raw")
    result = build_manifest([str(tmp_path / "data")], format_name="raw", options=ScanOptions(dtype="u1"))
    assert [(shard.path, shard.num_rows) for shard in result.manifest.shards] == [("ids.dat", 6)]


def test_ids_beside_text_are_tokens_as_others_are(tmp_path: Path) -> None:
    put(tmp_path / "data/a.bin", bytes(6))
    jsonl(tmp_path / "data/b.jsonl", ["one"])
    options = ScanOptions(dtype="u2")
    with pytest.raises(UsageError, match="mixes text and tokens"):
        build_manifest([f"x={tmp_path / 'data'}"], options=options)
    sources = build_manifest([str(tmp_path / "data")], options=options).manifest.sources
    assert sorted(source.kind for source in sources) == ["text", "tokens"]


def test_a_real_file_is_what_numpy_reads(shared: Path) -> None:
    path = shared / "data/formats/raw_u16/nanogpt_shakespeare_char_val.bin"
    seen = look(RawTokens(), FileShard(path, "none"), dtype="uint16")
    assert seen.tokens == np.fromfile(path, "<u2").tolist()
    assert len(seen.tokens) == 111_540
