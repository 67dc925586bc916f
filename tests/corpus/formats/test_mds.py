"""How are shards of MosaicML Streaming read: texts, ids of every encoding, what an index says, and every damage?"""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from dataguard.corpus import Corpus, build_manifest, build_manifest_file
from dataguard.corpus.formats import MdsText, MdsTokens, ScanOptions
from dataguard.errors import ShardDamaged, UsageError
from tests.corpus.formats.framing import gzip_member, zstd_frame
from tests.corpus.formats.support import FileShard, MemoryShard, Seen, look
from tests.corpus.making import mds_array, mds_entry, mds_index, mds_shard, mds_texts, put

TEXTS = ["one", "two €", "", "four " * 30, "five"]
PACK = {"zstd": zstd_frame, "gz": gzip_member}


def texts_of(content: bytes, **options: Any) -> Seen:
    return look(MdsText(), MemoryShard(content, "x.mds"), **options)


def ids_of(content: bytes, **options: Any) -> Seen:
    return look(MdsTokens(), MemoryShard(content, "x.mds"), **options)


def ids_shard(encoding: str, values: list[bytes], size: int | None = None, name: str = "tokens") -> bytes:
    return mds_shard({name: (encoding, size)}, [{name: value} for value in values])


def codes_of(result: Any) -> list[tuple[str, str, int, list[str]]]:
    found = result.details.shard_findings
    return [
        (shard.path, shard.effect, shard.num_rows, [finding.code for finding in found.get(i, ())])
        for i, shard in enumerate(result.manifest.shards)
    ]


# Text


@pytest.mark.parametrize("block_bytes", [1, 40, 1 << 20])
def test_texts(block_bytes: int) -> None:
    seen = texts_of(mds_texts(TEXTS), block_bytes=block_bytes)
    assert (seen.documents, seen.effect) == ([text.encode() for text in TEXTS], "clean")
    assert [block.place.num_rows for block in seen.blocks] == {1: [1] * 5, 40: [2, 1, 1, 1], 1 << 20: [5]}[block_bytes]


@pytest.mark.parametrize("packed", [gzip_member, zstd_frame])
def test_compressed_texts(packed: Any) -> None:
    seen = texts_of(packed(mds_texts(TEXTS)), block_bytes=40)
    assert (seen.documents, seen.effect) == ([text.encode() for text in TEXTS], "clean")


def test_bytes_and_json_columns() -> None:
    values = [b'"a"', b'"\\u20ac"', b"1", b"null", b"{", b'"\\ud800"', b'"' + b"[" * 9 + b'"']
    content = mds_shard({"text": ("json", None)}, [{"text": value} for value in values])
    seen = texts_of(content)
    assert seen.rows == [b"a", "€".encode(), None, None, None, None, b"[" * 9]
    assert [(finding.row, finding.code) for finding in seen.rejected] == [
        (2, "not-a-string"),
        (3, "null-text"),
        (4, "invalid-json"),
        (5, "invalid-json"),
    ]
    seen = texts_of(mds_shard({"text": ("bytes", None)}, [{"text": b"ok"}, {"text": b"\xff"}]))
    assert (seen.rows, [finding.code for finding in seen.rejected]) == ([b"ok", None], ["invalid-utf8"])


def test_records_over_the_limit_are_passed_over() -> None:
    seen = texts_of(mds_texts(["a", "b" * 500, "c"]), max_record_bytes=100, block_bytes=30)
    assert seen.rows == [b"a", None, b"c"]
    assert [(finding.row, finding.code) for finding in seen.rejected] == [(1, "record-too-large")]


def test_columns_that_hold_no_text() -> None:
    content = mds_texts(TEXTS)
    assert texts_of(content, text_field="body").codes == ["missing-column"]
    assert "text (str)" in texts_of(content, text_field="body").end.findings[0].detail
    assert texts_of(content, text_field="score").codes == ["not-a-text-column"]


def test_other_columns_are_there_to_be_shown() -> None:
    columns = {
        "text": ("str", None),
        "n": ("int", 8),
        "a": ("ndarray:int32", None),
        "j": ("json", None),
        "x": ("jpeg", None),
    }
    sample = {
        "text": b"t", "n": struct.pack("<q", -3), "a": mds_array([1, 2], "<i4"), "j": b"{}", "x": b"\xff",
    }  # fmt: skip
    shard = MemoryShard(mds_shard(columns, [sample, sample]), "x.mds")
    block = next(iter(MdsText().scan(shard, ScanOptions())))
    read = MdsText().read(shard, block.place, ScanOptions(), fields=True)  # type: ignore[union-attr]
    assert read.fields is not None
    assert read.fields.to_pylist() == [{"n": -3, "a": [1, 2], "j": "{}", "x": b"\xff"}] * 2


# Ids


@pytest.mark.parametrize("kind", ["|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8"])
def test_ids_of_every_type(kind: str) -> None:
    name, info = np.dtype(kind).name, np.iinfo(kind)
    samples = [[0, 1, min(info.max, 2**63 - 1)], [info.min], [5] * 100]
    flat = [token for sample in samples for token in sample]
    told_by_column = ids_of(ids_shard(f"ndarray:{name}", [mds_array(s, kind) for s in samples]), block_tokens=2)
    assert (told_by_column.tokens, told_by_column.effect, told_by_column.end.item_type) == (flat, "clean", kind)
    told_by_value = ids_of(ids_shard("ndarray", [mds_array(s, kind, told=True) for s in samples]))
    assert (told_by_value.tokens, told_by_value.end.item_type) == (flat, "<i8")
    plain = [np.array(sample, kind).tobytes() for sample in samples]
    assert ids_of(ids_shard("bytes", plain), dtype=name).tokens == flat
    assert ids_of(ids_shard(name, plain)).tokens == flat  # a scalar of varying size: a run of them
    fixed = [np.arange(4, dtype=kind).tobytes()] * 3
    assert ids_of(ids_shard(f"ndarray:{name}:4", fixed, len(fixed[0]))).tokens == [0, 1, 2, 3] * 3
    assert ids_of(ids_shard(f"ndarray:{name}:2,2", fixed, len(fixed[0]))).tokens == [0, 1, 2, 3] * 3


def test_samples_are_documents() -> None:
    shard = MemoryShard(ids_shard("bytes", [b"\1\2\3", b"", b"\4\5", b"", b"\6"]), "x.mds")
    seen = look(MdsTokens(), shard, dtype="u1", block_tokens=4)
    assert seen.tokens == [1, 2, 3, 4, 5, 6]
    assert (seen.end.num_documents, sum(block.place.group for block in seen.blocks)) == (5, 5)
    options = ScanOptions(dtype="u1", block_tokens=4)
    every = [[0, 3], [3, 3], [3, 5], [5, 5], [5, 6]]
    for first in range(6):
        for stop in range(first + 1, 7):
            found = MdsTokens().boundaries(shard, first, stop, options)
            mine = [(a, b) for a, b in every if (a < stop and b > first) or (a == b and first <= a < stop)]
            assert [tuple(span) for span in found.documents.tolist()] == mine
            assert every[found.first_document] == list(mine[0])


def test_a_column_of_ids_is_chosen_by_name_or_because_it_is_the_only_one() -> None:
    array = mds_array([7, 8])
    kinds = {"domain": ("str", None), "indices": ("ndarray:uint16", None), "input_ids": ("ndarray:uint16", None)}
    sample = {"domain": b"web", "indices": mds_array([1]), "input_ids": array}
    content = mds_shard(kinds, [sample])
    assert ids_of(content).tokens == [7, 8]
    assert ids_of(content, token_field="indices").tokens == [1]
    assert ids_of(content, token_field="domain").codes == ["missing-column"]
    one = mds_shard({"id": ("str", None), "x": ("ndarray:uint16", None)}, [{"id": b"a", "x": array}])
    assert ids_of(one).tokens == [7, 8]
    two = mds_shard({"a": ("ndarray:uint16", None), "b": ("ndarray:uint16", None)}, [{"a": array, "b": array}])
    assert ids_of(two).codes == ["missing-column"]


@pytest.mark.parametrize(
    ("encoding", "value"),
    [
        ("ndarray:uint16", b""),
        ("ndarray:uint16", b"\x04"),
        ("ndarray:uint16", b"\x04\x02\1\0"),
        ("ndarray:uint16", b"\x04\x01\1\0\2"),
        ("ndarray:uint16", b"\x07\xff\xff\xff\xff\xff\xff\xff\xff\1\0"),
        ("ndarray", b""),
        ("ndarray", b"\x42\x04\x01" + bytes(8)),
        ("ndarray", b"\x63\x04\x01\1"),
        ("ndarray", b"\x40\x04\x01" + b"\xff" * 8),
        ("ndarray:uint16:3", b"\1\0"),
        ("uint32", b"\1\0\0"),
    ],
)
def test_ids_that_make_no_sense_cost_the_shard(encoding: str, value: bytes) -> None:
    seen = ids_of(ids_shard(encoding, [value]))
    assert (seen.effect, seen.codes) == ("excluded", ["bad-mds"])
    assert "sample 0" in seen.end.findings[0].detail


# Damage


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_cut_at_every_length(compression: str) -> None:
    pack = {"none": bytes, "gzip": gzip_member, "zstd": zstd_frame}[compression]
    for look_at, content in (
        (texts_of, mds_texts(TEXTS)),
        (ids_of, ids_shard("ndarray:uint16", [mds_array([1, 2])] * 3)),
    ):
        packed = pack(content)
        for length in range(1 if compression != "none" else 0, len(packed)):
            seen = look_at(packed[:length], block_bytes=40)
            # a compressed stream may be cut behind its last sample
            assert seen.effect == "excluded" or (seen.codes == ["truncated-stream"] and compression != "none"), length
            if compression == "none":
                assert seen.codes == ["too-short"], length
                assert f"found {length:,}" in seen.end.findings[0].detail


def test_bytes_after_the_last_sample() -> None:
    seen = texts_of(mds_texts(TEXTS) + b"junk")
    assert (len(seen.documents), seen.effect, seen.codes) == (5, "flagged", ["trailing-bytes"])
    assert "4 bytes" in seen.end.findings[0].detail


def test_offsets_that_make_no_sense() -> None:
    content = mds_texts(TEXTS)
    for at in range(4, 28):
        changed = bytearray(content)
        changed[at] ^= 0x81
        seen = texts_of(bytes(changed))
        assert seen.effect == "excluded" or seen.rejected or "trailing-bytes" in seen.codes, at
    falling = bytearray(content)
    falling[8:12], falling[12:16] = content[12:16], content[8:12]
    assert texts_of(bytes(falling)).codes == ["bad-mds"]
    assert texts_of(b"\xff\xff\xff\xff" + content[4:]).codes == ["too-short"]
    assert texts_of(gzip_member(b"\xff\xff\xff\xff" + content[4:])).codes == ["bad-mds"]


def test_sizes_that_do_not_add_up_cost_their_record() -> None:
    content = bytearray(mds_texts(TEXTS))
    start = int.from_bytes(content[8:12], "little")  # of the second sample: the size of its text
    content[start] ^= 1
    seen = texts_of(bytes(content))
    assert [(finding.row, finding.code) for finding in seen.rejected] == [(1, "bad-sample")]
    assert seen.documents == [text.encode() for text in (TEXTS[0], *TEXTS[2:])]
    content[start : start + 4] = b"\xff\xff\xff\xff"
    assert [finding.row for finding in texts_of(bytes(content)).rejected] == [1]
    tokens = bytearray(ids_shard("bytes", [b"\1\2", b"\3"]))
    tokens[int.from_bytes(tokens[4:8], "little")] ^= 1
    assert ids_of(bytes(tokens), dtype="u1").codes == ["bad-mds"]


@pytest.mark.parametrize(
    "document",
    [
        b"{}",
        b"[1]",
        b"\xff\xff",
        b'{"column_names":["text"],"column_encodings":[],"column_sizes":[null]}',
        b'{"column_names":["text"],"column_encodings":["str"],"column_sizes":[-1]}',
        b'{"column_names":"text","column_encodings":["str"],"column_sizes":[null]}',
    ],
)
def test_columns_that_make_no_sense(document: bytes) -> None:
    content = struct.pack("<II", 0, 8 + len(document)) + document
    seen = texts_of(content)
    assert (seen.effect, seen.codes) == ("excluded", ["bad-mds"])


def test_a_changed_shard_is_no_answer() -> None:
    (block,) = texts_of(mds_texts(TEXTS)).blocks
    (run,) = ids_of(ids_shard("ndarray:uint16", [mds_array([1, 2])])).blocks
    for changed in (b"", mds_texts(["a"]), mds_texts([*TEXTS[:4], "six"])):
        with pytest.raises(ShardDamaged):
            MdsText().read(MemoryShard(changed, "x.mds"), block.place, ScanOptions())
    for changed in (b"", ids_shard("ndarray:uint16", [mds_array([1, 2, 3])])):
        with pytest.raises(ShardDamaged):
            MdsTokens().read(MemoryShard(changed, "x.mds"), run.place, ScanOptions())


# Datasets


def dataset(folder: Path, shards: dict[str, bytes], pack: str = "", **other: Any) -> None:
    entries = []
    for name, content in shards.items():
        packed = (f"{name}.{pack}", PACK[pack](content), pack) if pack else None
        entries.append(mds_entry(name, content, packed, **other))
        put(folder / (packed[0] if packed else name), packed[1] if packed else content)
    put(folder / "index.json", mds_index(*entries))


TWO = {"shard.00000.mds": mds_texts(TEXTS), "shard.00001.mds": mds_texts(["six"])}


@pytest.mark.parametrize("pack", ["", "zstd", "gz"])
def test_a_dataset_of_texts(tmp_path: Path, pack: str) -> None:
    dataset(tmp_path / "data", TWO, pack)
    result, _ = build_manifest_file([str(tmp_path / "data")], tmp_path / "M.parquet")
    assert [entry[1:] for entry in codes_of(result)] == [("clean", 5, []), ("clean", 1, [])]
    assert result.ignored_files == {"marker": 1}
    with Corpus.open(tmp_path / "M.parquet").reader(cache_folder=str(tmp_path / "cache")) as reader:
        assert reader.read([0, 1, 0], [1, 0, 4]) == ["two €".encode(), b"six", b"five"]


def test_a_dataset_of_ids(tmp_path: Path) -> None:
    content = mds_shard(
        {"id": ("str", None), "input_ids": ("ndarray:uint16", None)},
        [{"id": b"a", "input_ids": mds_array([1, 2, 3])}, {"id": b"b", "input_ids": mds_array([4, 65535])}],
    )
    dataset(tmp_path / "data", {"shard.00000.mds": content}, "zstd")
    result, _ = build_manifest_file([str(tmp_path / "data")], tmp_path / "M.parquet")
    (shard,) = result.manifest.shards
    assert (shard.format, shard.item_type, shard.num_rows, shard.effect) == ("mds-tokens", "<u2", 5, "clean")
    with Corpus.open(tmp_path / "M.parquet").reader() as reader:
        ids, problems = reader.read_windows([0, 0], [1, 0], 2)
    assert (ids.tolist(), problems) == ([[3, 4], [1, 2]], {})
    result = build_manifest([str(tmp_path / "data")], options=ScanOptions(text_field="id"))
    assert result.manifest.shards[0].format == "mds"
    assert result.account.total("num_delivered") == 2


def test_raw_and_compressed_together_are_one_shard(tmp_path: Path) -> None:
    dataset(tmp_path / "data", TWO, "zstd")
    for name, content in TWO.items():
        put(tmp_path / "data" / name, content)
    result = build_manifest([str(tmp_path / "data")])
    assert [entry[:3] for entry in codes_of(result)] == [
        ("shard.00000.mds", "clean", 5),
        ("shard.00001.mds", "clean", 1),
    ]
    assert [item.reason for item in result.ignored] == [
        "marker", "compressed copy of shard.00000.mds", "compressed copy of shard.00001.mds",
    ]  # fmt: skip


def test_a_shard_that_is_listed_and_not_there(tmp_path: Path) -> None:
    dataset(tmp_path / "data", TWO)
    (tmp_path / "data/shard.00000.mds").unlink()
    result = build_manifest([str(tmp_path / "data")])
    assert codes_of(result) == [
        ("shard.00000.mds", "excluded", 0, ["unreadable"]),
        ("shard.00001.mds", "clean", 1, []),
    ]
    assert "index.json lists it" in result.details.shard_findings[0][0].detail
    alone = build_manifest([str(tmp_path / "data/shard.00001.mds")])
    assert codes_of(alone) == [("shard.00001.mds", "clean", 1, [])]


def test_a_shard_that_no_index_lists(tmp_path: Path) -> None:
    dataset(tmp_path / "data", TWO)
    put(tmp_path / "data/shard.00002.mds", mds_texts(["left over"]))
    result = build_manifest([str(tmp_path / "data")])
    assert codes_of(result)[2] == ("shard.00002.mds", "flagged", 1, ["not-in-index"])
    (tmp_path / "data/index.json").unlink()
    found = codes_of(build_manifest([str(tmp_path / "data")]))
    assert [entry[1:] for entry in found] == [("flagged", rows, ["not-in-index"]) for rows in (5, 1, 1)]


def test_an_index_cut_at_every_length(tmp_path: Path) -> None:
    dataset(tmp_path / "data", {"shard.00000.mds": TWO["shard.00000.mds"]})
    whole = (tmp_path / "data/index.json").read_bytes()
    for length in range(0, len(whole), 7):
        put(tmp_path / "data/index.json", whole[:length])
        result = build_manifest([str(tmp_path / "data")])
        assert codes_of(result) == [("shard.00000.mds", "flagged", 5, ["not-in-index"])], length
        assert "cannot be read" in result.details.shard_findings[0][0].detail


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"samples": 6}, "samples 6, found 5"),
        ({"column_names": ["id", "body", "score"]}, "column_names"),
        ({"column_encodings": ["int", "bytes", "float32"]}, "column_encodings"),
        ({"column_sizes": [8, None, 8]}, "column_sizes"),
        ({"raw_data": {"basename": "shard.00000.mds", "bytes": 7, "hashes": {}}}, "raw_data.bytes 7"),
    ],
)
def test_an_index_that_disagrees(tmp_path: Path, other: dict[str, Any], what: str) -> None:
    dataset(tmp_path / "data", {"shard.00000.mds": TWO["shard.00000.mds"]}, **other)
    result = build_manifest([str(tmp_path / "data")])
    assert codes_of(result) == [("shard.00000.mds", "flagged", 5, ["index-disagrees"])]
    assert what in result.details.shard_findings[0][0].detail


@pytest.mark.parametrize("name", ["sha1", "xxh64", "md5", "sha256", "xxh3_128"])
@pytest.mark.parametrize("pack", ["", "zstd"])
def test_hashes_are_compared(tmp_path: Path, name: str, pack: str) -> None:
    content = TWO["shard.00000.mds"]
    maker = getattr(xxhash, name) if name.startswith("xxh") else getattr(hashlib, name)
    dataset(tmp_path / "data", {"shard.00000.mds": content}, pack)
    index = json.loads((tmp_path / "data/index.json").read_text())
    entry = index["shards"][0]
    form = entry["zip_data" if pack else "raw_data"]
    stored = (tmp_path / "data" / form["basename"]).read_bytes()
    for hashed, effect in ((stored, "clean"), (stored + b"!", "excluded")):
        form["hashes"] = {name: maker(hashed).hexdigest(), "unheard_of": "00"}
        put(tmp_path / "data/index.json", json.dumps(index).encode())
        ((_, found, _, codes),) = codes_of(build_manifest([str(tmp_path / "data")]))
        assert (found, codes) == (effect, [] if effect == "clean" else ["bad-checksum"])


def test_a_compression_that_is_not_read(tmp_path: Path) -> None:
    content = TWO["shard.00000.mds"]
    put(tmp_path / "data/shard.00000.mds.br", b"\x1b\x00\x00whatever")
    entry = mds_entry("shard.00000.mds", content, ("shard.00000.mds.br", b"", "br:11"))
    put(tmp_path / "data/index.json", mds_index(entry))
    result = build_manifest([str(tmp_path / "data")])
    assert codes_of(result) == [("shard.00000.mds.br", "excluded", 0, ["unreadable"])]
    assert "compressed by br" in result.details.shard_findings[0][0].detail


def test_merged_indexes_and_datasets_without_shards(tmp_path: Path) -> None:
    entries = []
    for name, texts in (("a", ["one"]), ("b", ["two", "three"])):
        dataset(tmp_path / "data" / name, {"shard.00000.mds": mds_texts(texts)})
        entries.append(mds_entry(f"{name}/shard.00000.mds", mds_texts(texts)))
    put(tmp_path / "data/c/index.json", mds_index())
    put(tmp_path / "data/index.json", mds_index(*entries))
    result = build_manifest([str(tmp_path / "data")])
    assert codes_of(result) == [("a/shard.00000.mds", "clean", 1, []), ("b/shard.00000.mds", "clean", 2, [])]
    assert result.ignored_files == {"marker": 4}
    for name in "ab":
        (tmp_path / "data" / name / "index.json").unlink()
    assert codes_of(build_manifest([str(tmp_path / "data")])) == codes_of(result)


def test_an_index_that_is_none_is_data_like_any_other(tmp_path: Path) -> None:
    put(tmp_path / "data/index.json", b'{"text": "a record"}\n')
    assert build_manifest([str(tmp_path / "data")]).account.total("num_delivered") == 1
    put(tmp_path / "empty/index.json", mds_index())
    with pytest.raises(UsageError, match="holds no shard"):
        build_manifest([str(tmp_path / "empty")])


def test_shards_of_many_samples_are_told_though_their_columns_lie_far_behind(tmp_path: Path) -> None:
    content = ids_shard("ndarray:uint16", [mds_array([n % 9]) for n in range(20_000)])
    dataset(tmp_path / "data", {"shard.bin": content})  # not even called .mds
    (shard,) = build_manifest([str(tmp_path / "data")]).manifest.shards
    assert (shard.format, shard.num_rows, shard.effect) == ("mds-tokens", 20_000, "clean")


def test_real_datasets(shared: Path) -> None:
    folder = shared / "data/formats/mds"
    for name, field, known in (("color", "color", None), ("pet", "pet", {"cat", "dog", "fish"})):
        seen = look(MdsText(), FileShard(folder / f"joining/{name}/shard.00000.mds"), text_field=field)
        assert len(seen.documents) == 100
        assert known is None or {text.decode() for text in seen.documents} <= known | {"bird", "lizard"}
    seen = look(MdsText(), FileShard(folder / "naive/25/shard.00000.mds"), text_field="dept")
    assert seen.documents == [b"Marketing", b"Sales"]
    result = build_manifest([f"x={folder / 'naive'}"], options=ScanOptions(text_field="id"))
    assert [entry[1:3] for entry in codes_of(result)] == [("clean", 2), ("clean", 3)]
