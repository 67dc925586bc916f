"""Is every good file, read through its manifest, what the format's own library reads?

Files are made by the library or by its published layout, and read by both; other people's are read too where they are.
A library that is not installed is stood in for by its layout, spelled out here a second time.
"""

from __future__ import annotations

import gzip
import importlib
import io
import json
import struct
import tarfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from dataguard.corpus import Corpus, build_manifest_file
from dataguard.corpus.formats.protocol import ScanOptions
from tests.corpus.formats.archives import webdataset
from tests.corpus.making import mds_array, mds_entry, mds_index, mds_shard, megatron_files, put

TEXTS = ["one", "two \u20ac \U0001f600", "", "four\nlines\r\n\u2028of\0text", "five " * 400]
SMALL = {"block_bytes": 64, "block_tokens": 5}
"""Blocks small enough that every file has several."""


def rows(where: Path, folder: Path, **options: Any) -> dict[str, list[Any]]:
    """What a build and a reader give of every shard, by its path: texts (None where rejected), or ids."""
    manifest = folder / "M.parquet"
    told = ScanOptions(**{**SMALL, **options})
    result, _ = build_manifest_file([f"x={where}"], manifest, options=told)
    assert not result.num_damaged, result.details.shard_findings
    corpus = Corpus.open(manifest)
    found: dict[str, list[Any]] = {shard.path: [] for shard in corpus.manifest.shards}
    with corpus.reader(cache_folder="") as reader:
        for number, block in enumerate(corpus.manifest.blocks):
            shard = corpus.manifest.shards[block["shard"]]
            first, count = int(block["first_row"]), int(block["num_rows"])
            if not count:
                continue
            if shard.item_type:
                # the shard's ids as windows of one
                ids, problems = reader.read_windows([number] * count, range(first, first + count), 1)
                assert not problems
                found[shard.path] += ids.reshape(-1).tolist()
            else:
                answers = reader.read([number] * count, range(first, first + count))
                found[shard.path] += [answer if isinstance(answer, bytes) else None for answer in answers]
    return found


def documents(where: Path, folder: Path, **options: Any) -> list[list[int]]:
    """The documents of the one token shard there is, empty ones too."""
    ((_, ids),) = rows(where, folder, **options).items()
    corpus = Corpus.open(folder / "M.parquet")
    with corpus.reader(cache_folder="") as reader:
        told = reader.boundaries(0, 0, max(len(ids), 1))
    assert told is not None
    return [ids[start:stop] for start, stop in told.documents.tolist()]


# Ids


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("pack", ["", ".gz", ".zst"])
def test_npy(tmp_path: Path, version: tuple[int, int], pack: str) -> None:
    packers: dict[str, Callable[[bytes], bytes]] = {
        "": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress,
    }  # fmt: skip
    arrays = {}
    for kind in ("u1", "i1", "<u2", ">u2", "<i4", ">i4", "<u4", "<i8", ">i8", "<u8"):
        for shape in ((12,), (3, 4), (1, 12), (0,), (0, 4)):
            array = np.arange(np.prod(shape)).astype(kind).reshape(shape)
            sink = io.BytesIO()
            np.lib.format.write_array(sink, array, version=version)
            name = f"{kind.strip('<>')}{'b' * kind.startswith('>')}_{len(arrays)}.npy{pack}"
            put(tmp_path / "x" / name, packers[pack](sink.getvalue()))
            sink.seek(0)
            arrays[name] = np.load(sink).reshape(-1).tolist()
    assert rows(tmp_path / "x", tmp_path) == arrays


def test_raw(tmp_path: Path) -> None:
    ids = np.arange(300, dtype=">u4") * 1000
    ids.tofile(put(tmp_path / "x/a.bin", b""))
    assert rows(tmp_path / "x", tmp_path, dtype=">u4") == {"a.bin": np.fromfile(tmp_path / "x/a.bin", ">u4").tolist()}


def by_megatron(prefix: Path) -> list[list[int]]:
    """As ``IndexedDataset`` of Megatron reads a pair: sequences by pointer and length, documents by their entries."""
    index = prefix.with_suffix(".idx").read_bytes()
    magic, version, code, num_sequences, num_entries = struct.unpack_from("<9sQBQQ", index)
    assert (magic, version) == (b"MMIDIDX\0\0", 1)
    kind = np.dtype({1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}[code])
    lengths = np.frombuffer(index, "<i4", num_sequences, 34)
    pointers = np.frombuffer(index, "<i8", num_sequences, 34 + 4 * num_sequences)
    entries = np.frombuffer(index, "<i8", num_entries, 34 + 12 * num_sequences)
    content = prefix.with_suffix(".bin").read_bytes()
    sequences = [
        np.frombuffer(content, kind, length, pointer).tolist() if length else []
        for length, pointer in zip(lengths.tolist(), pointers.tolist(), strict=True)
    ]
    return [
        [token for sequence in sequences[start:stop] for token in sequence]
        for start, stop in zip(entries[:-1].tolist(), entries[1:].tolist(), strict=True)
    ]


@pytest.mark.parametrize("code", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("entries", [None, [0, 1, 1, 3, 5], [0, 5]])
def test_megatron(tmp_path: Path, code: int, entries: list[int] | None) -> None:
    content, index = megatron_files([[5, 6, 7], [], [8], [9, 10, 11, 12, 13, 14], [15]], entries, code=code)
    put(tmp_path / "x/a.idx", index)
    prefix = put(tmp_path / "x/a.bin", content)
    expected = by_megatron(prefix)
    assert documents(tmp_path / "x", tmp_path) == expected
    assert rows(tmp_path / "x", tmp_path) == {"a.bin": [token for document in expected for token in document]}


def test_megatron_pairs_of_others(shared: Path, tmp_path: Path) -> None:
    for path in sorted((shared / "data/formats/megatron").glob("*.bin")):
        expected = by_megatron(path)
        assert len(expected) > 1
        where = tmp_path / path.stem
        where.mkdir()
        for part in (path, path.with_suffix(".idx")):
            (where / part.name).symlink_to(part)
        assert documents(where, tmp_path, block_tokens=1 << 14) == expected


def test_arrays_and_ids_of_others(shared: Path, tmp_path: Path) -> None:
    formats = shared / "data/formats"
    for path in sorted((formats / "npy").glob("*.npy")):
        if path.read_bytes()[:6] == b"\x93NUMPY":
            assert rows(path, tmp_path, block_tokens=1 << 14) == {path.name: np.load(path).reshape(-1).tolist()}
    (path,) = (formats / "raw_u16").glob("*.bin")
    assert rows(path, tmp_path, block_tokens=1 << 14, dtype="uint16") == {path.name: np.fromfile(path, "<u2").tolist()}


# MDS


def by_mds(path: Path) -> Iterator[dict[str, bytes]]:
    """The encoded values of every sample, by the published layout."""
    content = path.read_bytes()
    if path.suffix in (".zstd", ".zst"):
        content = zstandard.ZstdDecompressor().decompressobj().decompress(content)
    (count,) = struct.unpack_from("<I", content)
    offsets = struct.unpack_from(f"<{count + 1}I", content, 4)
    told = json.loads(content[4 * (count + 2) : offsets[0]])
    for start, stop in pairwise(offsets):
        at, sample = start, {}
        sizes = list(told["column_sizes"])
        for place, size in enumerate(sizes):
            if size is None:
                (sizes[place],) = struct.unpack_from("<I", content, at)
                at += 4
        for name, size in zip(told["column_names"], sizes, strict=True):
            sample[name] = content[at : at + size]
            at += size
        assert at == stop
        yield sample


@pytest.mark.parametrize("compression", ["", "zstd"])
def test_mds_texts(tmp_path: Path, compression: str) -> None:
    columns: dict[str, tuple[str, int | None]] = {"id": ("int", 8), "text": ("str", None), "tail": ("bytes", None)}
    samples = [
        {"id": struct.pack("<q", number), "text": text.encode(), "tail": bytes(number)}
        for number, text in enumerate(TEXTS)
    ]
    content = mds_shard(columns, samples)
    name = "shard.00000.mds"
    packed = zstandard.ZstdCompressor().compress(content)
    path = put(tmp_path / "x" / (f"{name}.zstd" if compression else name), packed if compression else content)
    entry = mds_entry(name, content, (path.name, packed, "zstd:3") if compression else None)
    put(tmp_path / "x/index.json", mds_index(entry))
    assert [sample["text"].decode() for sample in by_mds(path)] == TEXTS
    assert rows(tmp_path / "x", tmp_path) == {path.name: [sample["text"] for sample in by_mds(path)]}


def test_mds_ids(tmp_path: Path) -> None:
    samples = [{"tokens": mds_array(list(range(start, start + start % 7)))} for start in range(3, 20)]
    content = mds_shard({"tokens": ("ndarray:uint16", None)}, samples)
    path = put(tmp_path / "x/shard.00000.mds", content)
    put(tmp_path / "x/index.json", mds_index(mds_entry(path.name, content)))
    values = [sample["tokens"] for sample in by_mds(path)]
    assert documents(tmp_path / "x", tmp_path) == [np.frombuffer(value[2:], "<u2").tolist() for value in values]


def _text_columns(entry: dict[str, Any]) -> list[str]:
    pairs = zip(entry["column_names"], entry["column_encodings"], strict=True)
    return [name for name, encoding in pairs if encoding == "str"]


def test_mds_datasets_of_others(shared: Path, tmp_path: Path) -> None:
    num_compared = 0
    for index in sorted((shared / "data/formats/mds").rglob("index.json")):
        listed = json.loads(index.read_text())["shards"]
        for field in _text_columns(listed[0]) if listed else ():
            found = rows(index.parent, tmp_path, text_field=field)
            assert found == {name: [sample[field] for sample in by_mds(index.parent / name)] for name in found}
            assert set(found) == {entry["raw_data"]["basename"] for entry in listed}
            num_compared += len(found)
    assert num_compared > 3


@pytest.mark.long  # the library wants torch and its vision package, which nothing else here does
def test_mds_is_what_its_library_reads(shared: Path, tmp_path: Path) -> None:
    reader = pytest.importorskip("streaming.base.format.mds.reader", reason="mosaicml-streaming is not installed")
    for index in sorted((shared / "data/formats/mds").rglob("index.json")):
        for entry in json.loads(index.read_text())["shards"]:
            for field in _text_columns(entry):
                shard = reader.MDSReader.from_json(str(index.parent), None, entry)
                expected = [shard[number][field].encode() for number in range(entry["samples"])]
                assert rows(index.parent, tmp_path, text_field=field)[entry["raw_data"]["basename"]] == expected


# WebDataset


def by_webdataset(path: Path) -> list[dict[str, Any]]:
    """The records of an archive by the library, or by `tarfile` in its way where it is not installed."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    try:
        library = importlib.import_module("webdataset.tariterators")
    except ImportError:
        return _by_tarfile(content)
    found = library.tar_file_expander([{"url": str(path), "stream": io.BytesIO(content)}])
    return [dict(record) for record in library.group_by_keys(found)]


def _by_tarfile(content: bytes) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    with tarfile.open(fileobj=io.BytesIO(content), mode="r|") as archive:
        for member in archive:
            folder, slash, name = member.name.rpartition("/")
            stem, dot, ending = name.partition(".")
            if not member.isreg() or not dot or not stem:
                continue
            key = f"{folder}{slash}{stem}"
            if not records or records[-1]["__key__"] != key:
                records.append({"__key__": key})
            file = archive.extractfile(member)
            assert file is not None
            records[-1][ending.lower()] = file.read()
    return records


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("pack", ["", ".gz"])
def test_webdataset(tmp_path: Path, kind: int, pack: str) -> None:
    folder = "f" * 70 if kind == tarfile.USTAR_FORMAT else "f" * 150
    members = {
        f"{folder}/{number:04}": {"json": json.dumps({"id": number}).encode(), "txt": text.encode(), "cls": b"1"}
        for number, text in enumerate(TEXTS * 5)
    }
    content = webdataset(members, kind=kind)
    path = put(tmp_path / f"x/a.tar{pack}", gzip.compress(content) if pack else content)
    expected = [record["txt"] for record in by_webdataset(path)]
    assert [text.decode() for text in expected] == TEXTS * 5
    assert rows(tmp_path / "x", tmp_path) == {path.name: expected}


def test_webdataset_of_json(tmp_path: Path) -> None:
    members = {
        f"{number:04}": {"json": json.dumps({"meta": {"t": text}}).encode()} for number, text in enumerate(TEXTS)
    }
    path = put(tmp_path / "x/a.tar", webdataset(members))
    expected = [json.loads(record["json"])["meta"]["t"].encode() for record in by_webdataset(path)]
    assert rows(tmp_path / "x", tmp_path, text_field="meta.t") == {path.name: expected}


def test_webdatasets_of_others(shared: Path, tmp_path: Path) -> None:
    for path in sorted((shared / "data/formats/webdataset").glob("*.tar")):
        records = by_webdataset(path)
        endings = sorted({ending for record in records for ending in record if not ending.startswith("__")})
        assert endings
        for ending in endings:
            expected = [_utf8(record.get(ending)) for record in records]
            name, _, packed = ending.partition(".gz")
            if packed or ending.endswith(".gz"):
                expected = [None if value is None else _utf8(gzip.decompress(value)) for value in
                            (record.get(ending) for record in records)]  # fmt: skip
            assert rows(path, tmp_path, text_field=name) == {path.name: expected}, ending


def _utf8(value: bytes | None) -> bytes | None:
    """A value that is text in UTF-8, None for any other."""
    if value is None:
        return None
    try:
        value.decode()
    except UnicodeDecodeError:
        return None
    return value


# Columns


TYPES = [
    pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view(), pa.binary_view(),
    pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.uint32(), pa.large_string()),
]  # fmt: skip


@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize("form", ["stream", "file"])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_arrow(tmp_path: Path, form: str, kind: pa.DataType, compression: str | None) -> None:
    values = [*TEXTS, None]
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    plain = [None if value is None else value.encode() if is_bytes else value for value in values]
    column = (
        pa.array(plain, kind.value_type).dictionary_encode().cast(kind)
        if pa.types.is_dictionary(kind)
        else pa.array(plain, kind)
    )
    table = pa.table({"id": range(len(values)), "text": column})
    path = put(tmp_path / f"x/a.{form}", b"")
    make = pa.ipc.new_stream if form == "stream" else pa.ipc.new_file
    with make(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=2)
    opened = pa.ipc.open_stream(path.read_bytes()) if form == "stream" else pa.ipc.open_file(path)
    read = opened.read_all().column("text").to_pylist()
    expected = [value.encode() if isinstance(value, str) else value for value in read]
    assert [None if value is None else value.decode() for value in expected] == values
    assert rows(tmp_path / "x", tmp_path) == {path.name: expected}


@pytest.mark.parametrize("version", ["1.0", "2.6"])
@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "brotli", "lz4"])
@pytest.mark.parametrize("page", ["1.0", "2.0"])
def test_parquet(tmp_path: Path, version: Any, compression: str, page: Any) -> None:
    table = pa.table({"id": range(6), "text": pa.array([*TEXTS, None]), "m": [{"t": text} for text in [*TEXTS, None]]})
    path = put(tmp_path / "x/a.parquet", b"")
    pq.write_table(
        table, path, version=version, compression=compression, data_page_version=page, row_group_size=2,
        write_page_checksum=True,
    )  # fmt: skip
    read = pq.read_table(path)
    expected = [None if value is None else value.encode() for value in read.column("text").to_pylist()]
    assert rows(path, tmp_path) == {path.name: expected}
    assert rows(path, tmp_path, text_field="m.t") == {path.name: expected}


def test_datasets_that_were_saved_by_others(shared: Path, tmp_path: Path) -> None:
    library = pytest.importorskip("datasets")
    folders = sorted(path.parent for path in (shared / "data/formats/hf_save_to_disk").rglob("state.json"))
    assert len(folders) > 3
    for folder in folders:
        saved = library.load_from_disk(str(folder))
        name = next(name for name, kind in saved.features.items() if getattr(kind, "dtype", "") == "string")
        found = rows(folder, tmp_path, text_field=name)
        assert [text for texts in found.values() for text in texts] == [text.encode() for text in saved[name]]


# Lines and texts


@pytest.mark.parametrize("pack", ["", ".gz", ".zst"])
@pytest.mark.parametrize("is_ascii", [True, False])
def test_json_lines_and_plain_text(tmp_path: Path, pack: str, is_ascii: bool) -> None:
    packers: dict[str, Callable[[bytes], bytes]] = {
        "": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress,
    }  # fmt: skip
    content = b"".join(
        json.dumps({"id": number, "text": text}, ensure_ascii=is_ascii).encode() + b"\n"
        for number, text in enumerate(TEXTS)
    )
    path = put(tmp_path / f"x/a.jsonl{pack}", packers[pack](content))
    expected = [json.loads(line)["text"].encode() for line in content.split(b"\n")[:-1]]
    assert rows(tmp_path / "x", tmp_path) == {path.name: expected}
