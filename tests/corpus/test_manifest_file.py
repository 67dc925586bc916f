"""The manifest on disk: what was written is read, and what was not is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from dataguard.core.manifest import BLOCK_DTYPE, REJECTED_DTYPE, Manifest, Shard, Source
from dataguard.corpus import manifest_write
from dataguard.corpus.formats.protocol import Finding, ScanOptions
from dataguard.corpus.manifest_format import CHECK_KEY, KEY, ManifestDetails, schema
from dataguard.corpus.manifest_read import read_findings, read_header, read_manifest
from dataguard.corpus.manifest_write import write_manifest
from dataguard.errors import EnvironmentFailed, ManifestDamaged, UsageError, WriteFailed

GOLDEN = Path(__file__).parents[1] / "golden" / "manifest-v1" / "M.parquet"
GOLDEN_DIGEST = "df4dc0021d9bc58aea7a1983ee104f027fef56d382f293a9389a0f95d28c5e50"

Row = tuple[int, int]


def manifest_of(shape: list[list[tuple[int, list[int]]]], *, sources: int = 1) -> tuple[Manifest, ManifestDetails]:
    """Shards of blocks of (rows, rejected places)."""
    codes = ("invalid-json", "null-text")
    blocks, rejected, shards = [], [], []
    for number, parts in enumerate(shape):
        first = 0
        for rows, bad in parts or [(0, [])]:
            bad = sorted({place % rows for place in bad}) if rows else []
            rejected += [(len(blocks), first + place, (first + place) % 2) for place in bad]
            digest = xxhash.xxh3_128_digest(f"{number} {first}".encode())
            blocks.append((number, first, rows, len(bad), first * 9, rows * 9, -1, rows, digest))
            first += rows
        shards.append(
            Shard(
                source=number * sources // len(shape), path=f"d\u00e9/{number:03d} x.jsonl", format="jsonl",
                compression="gzip", item_type="", size_bytes=first * 9, digest=f"{number:032x}", num_rows=first,
                effect="flagged" if number % 3 == 1 else "clean",
            )
        )  # fmt: skip
    names = [f"s{i}" for i in range(sources)]
    table = np.array(rejected, REJECTED_DTYPE)
    used = sorted({codes[code] for code in table["code"]})
    table["code"] = [used.index(codes[code]) for code in table["code"]]
    manifest = Manifest(
        sources=tuple(Source(name=name, kind="text", text_field="text") for name in names),
        shards=tuple(shards), blocks=np.array(blocks, BLOCK_DTYPE), rejected=table, codes=tuple(used),
    )  # fmt: skip
    finding = Finding(code="trailing-bytes", detail="7 bytes", offset_bytes=9)
    details = ManifestDetails(
        lines=np.where(np.arange(len(table)) % 2, -1, np.arange(len(table))),
        offsets_bytes=np.arange(len(table)) * 9 - 1,
        details=tuple(f"detail {i}" for i in range(len(table))),
        shard_findings={i: (finding,) for i, shard in enumerate(manifest.shards) if shard.effect == "flagged"},
        ignored_lines=np.arange(len(shards)),
    )
    return manifest, details


def written(path: Path, manifest: Manifest, details: ManifestDetails) -> Path:
    roots = {source.name: f"/data/{source.name}" for source in manifest.sources}
    write_manifest(
        path, manifest, details, roots=roots, options=ScanOptions(text_field="text"), ignored_files={"hidden": 2}
    )
    return path


SMALL = [[(3, [1]), (2, [])], [], [(4, [0, 3])], [(1, [0])]]


@settings(max_examples=30)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(0, 9), max_size=3)), max_size=4), min_size=1),
    st.integers(1, 3),
)
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, shape: list[list[tuple[int, list[int]]]], sources: int
) -> None:
    manifest, details = manifest_of(shape, sources=min(sources, len(shape)))
    path = written(tmp_path_factory.mktemp("m") / "M.parquet", manifest, details)
    read = read_manifest(path)
    assert read.manifest == manifest
    assert read.manifest.blocks.tobytes() == manifest.blocks.tobytes()
    assert read.manifest.rejected.tobytes() == manifest.rejected.tobytes()
    assert read.manifest.shards == manifest.shards
    assert read.manifest.sources == manifest.sources
    assert read.header.digest == manifest.digest
    assert read.header.ignored_lines == details.ignored_lines.sum()
    named = list(read_findings(path))
    records = [entry for entry in named if entry.finding.row is not None]
    assert [entry.finding.row for entry in records] == manifest.rejected["row"].tolist()
    assert [entry.finding.detail for entry in records] == list(details.details)
    assert [entry.finding.line for entry in records] == [int(n) if n >= 0 else None for n in details.lines]
    assert [entry.finding.offset_bytes for entry in records] == [
        int(n) if n >= 0 else None for n in details.offsets_bytes
    ]
    whole = list(read_findings(path, rejected=False))
    assert [(entry.shard, entry.finding) for entry in whole] == [
        (manifest.shard_name(shard), finding)
        for shard in details.shard_findings
        for finding in details.shard_findings[shard]
    ]


def test_many_row_groups_read_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_write, "_BLOCKS_A_ROW_GROUP", 2)
    manifest, details = manifest_of(SMALL * 3, sources=2)
    path = written(tmp_path / "M.parquet", manifest, details)
    assert pq.ParquetFile(path).metadata.num_row_groups > 4
    assert read_manifest(path).manifest == manifest
    assert len(list(read_findings(path))) == len(manifest.rejected) + len(details.shard_findings)


def test_roots_and_options_are_remembered_outside_the_digest(tmp_path: Path) -> None:
    manifest, details = manifest_of(SMALL)
    path = written(tmp_path / "M.parquet", manifest, details)
    header = read_header(path)
    assert [source.root for source in header.sources] == ["/data/s0"]
    assert header.options_of("s0") == ScanOptions(text_field="text")
    assert header.ignored_files == {"hidden": 2}
    write_manifest(
        tmp_path / "N.parquet", manifest, details, roots={"s0": "/elsewhere"},
        options=ScanOptions(max_record_bytes=5), ignored_files={},
    )  # fmt: skip
    assert read_header(tmp_path / "N.parquet").digest == header.digest


def test_any_tool_can_query_the_file(tmp_path: Path) -> None:
    manifest, details = manifest_of(SMALL)
    path = written(tmp_path / "M.parquet", manifest, details)
    table = pq.read_table(path)
    assert table.schema.remove_metadata().equals(schema())
    assert pa.compute.sum(table["num_rejected"]).as_py() == len(manifest.rejected)
    metadata = pq.ParquetFile(path).metadata
    assert metadata.row_group(0).column(0).compression == "ZSTD"


@pytest.mark.parametrize("stop", [0, 4, 100, -1, -8, -200])
def test_a_cut_file_is_refused(tmp_path: Path, stop: int) -> None:
    path = written(tmp_path / "M.parquet", *manifest_of(SMALL))
    path.write_bytes(path.read_bytes()[:stop])
    with pytest.raises(ManifestDamaged, match=r"M\.parquet"):
        read_manifest(path)


def test_no_flipped_byte_is_read_as_good(tmp_path: Path) -> None:
    """Whatever is read from a file with a flipped byte is the whole truth; else it is refused."""
    manifest, details = manifest_of(SMALL, sources=2)
    path = written(tmp_path / "M.parquet", manifest, details)
    good = path.read_bytes()
    truth = (read_header(path), list(read_findings(path)))
    refused = 0
    for offset in range(0, len(good), 29):
        path.write_bytes(good[:offset] + bytes([good[offset] ^ 0x10]) + good[offset + 1 :])
        try:
            read = read_manifest(path)
            assert (read.header, list(read_findings(path))) == truth, offset
            assert read.manifest == manifest, offset
        except ManifestDamaged:
            refused += 1
    assert refused > len(good) // 29 * 0.5


def test_values_that_give_another_digest_are_refused_with_both(tmp_path: Path) -> None:
    manifest, details = manifest_of(SMALL)
    path = written(tmp_path / "M.parquet", manifest, details)
    table = pq.read_table(path)
    place = table.schema.get_field_index("content_bytes")
    field = table.schema.field(place)
    changed = table.set_column(place, field, pa.array(np.asarray(table["content_bytes"]) + 1))
    pq.write_table(changed, path)
    with pytest.raises(ManifestDamaged, match="does not hold the manifest it names") as caught:
        read_manifest(path)
    assert manifest.digest in str(caught.value)
    assert str(caught.value.found).startswith("digest ")
    assert caught.value.found != f"digest {manifest.digest}"


def rewritten(path: Path, change: dict[bytes, bytes]) -> None:
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({**(table.schema.metadata or {}), **change}), path)


def test_a_newer_version_is_refused_by_its_number(tmp_path: Path) -> None:
    path = written(tmp_path / "M.parquet", *manifest_of(SMALL))
    document = msgspec.json.decode(pq.read_schema(path).metadata[KEY])
    newer = msgspec.json.encode({**document, "version": 2, "surprise": True})
    rewritten(path, {KEY: newer, CHECK_KEY: xxhash.xxh3_128_hexdigest(newer).encode()})
    with pytest.raises(ManifestDamaged, match="format 2") as caught:
        read_manifest(path)
    assert "newer dataguard" in str(caught.value)


def test_a_header_that_was_edited_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "M.parquet", *manifest_of(SMALL))
    rewritten(path, {KEY: pq.read_schema(path).metadata[KEY].replace(b"/data/s0", b"/data/s1")})
    with pytest.raises(ManifestDamaged, match="header"):
        read_header(path)


def test_what_is_no_manifest_is_told_apart(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "data.parquet")
    with pytest.raises(ManifestDamaged, match="a Parquet file, but no manifest"):
        read_manifest(tmp_path / "data.parquet")
    (tmp_path / "text").write_text("no Parquet at all")
    with pytest.raises(ManifestDamaged, match="no manifest, or a damaged one"):
        read_manifest(tmp_path / "text")
    with pytest.raises(UsageError, match="no manifest at"):
        read_manifest(tmp_path / "gone.parquet")
    with pytest.raises(UsageError, match="no manifest at"):
        read_manifest(tmp_path)


def test_a_failed_write_leaves_the_older_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "M.parquet", *manifest_of(SMALL))
    older = path.read_bytes()
    write_table = pq.write_table

    def failing(table: pa.Table, file: Any, **options: Any) -> None:
        write_table(table.slice(0, 1), file, **options)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", failing)
    with pytest.raises(WriteFailed, match=r"could not be written") as caught:
        written(path, *manifest_of(SMALL * 2))
    assert isinstance(caught.value, EnvironmentFailed)
    assert "No space left" in str(caught.value)
    assert path.read_bytes() == older
    assert list(tmp_path.iterdir()) == [path]


def test_the_bytes_are_synced_before_they_get_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        events.append("folder" if Path(f"/proc/self/fd/{descriptor}").is_dir() else "file")
        fsync(descriptor)

    def renamed(self: Path, target: Path) -> Path:
        events.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    written(tmp_path / "M.parquet", *manifest_of(SMALL))
    assert events == ["file", "rename", "folder"]


def test_the_golden_of_version_1_stays_readable() -> None:
    read = read_manifest(GOLDEN)
    assert read.header.version == 1
    assert read.manifest.digest == GOLDEN_DIGEST
    assert [read.manifest.shard_name(i) for i in range(len(read.manifest.shards))] == [
        "ids/t.npy", "web/bad.jsonl.gz", "web/empty.parquet", "web/plain.jsonl", "web/sub/packed.jsonl.zst",
    ]  # fmt: skip
    assert [shard.effect for shard in read.manifest.shards] == ["clean", "excluded", "clean", "clean", "clean"]
    assert read.manifest.shards[0].item_type == ">u2"
    assert read.manifest.codes == ("invalid-json", "null-text")
    assert [(entry.shard, entry.finding.code, entry.finding.row) for entry in read_findings(GOLDEN)] == [
        ("web/bad.jsonl.gz", "bad-stream-header", None),
        ("web/plain.jsonl", "null-text", 1),
        ("web/plain.jsonl", "invalid-json", 3),
    ]


@pytest.mark.parametrize("skipped", [0, 1, 2])
def test_rejected_rows_are_the_same_read_by_arrow_or_in_python(monkeypatch: pytest.MonkeyPatch, skipped: int) -> None:
    from dataguard.corpus import manifest_read

    entry = pa.struct([("row", pa.int64()), ("code", pa.string())])
    rows = [[(1, "b")], [], [(5, "a"), (6, "b")], [(9, "c")]]
    lists = [[{"row": row, "code": code} for row, code in each] for each in rows]
    column = pa.chunked_array([pa.array(lists[:3], pa.list_(entry)), pa.array(lists[3:], pa.list_(entry))])
    expected = [(block, row, code) for block, each in enumerate(rows[skipped:]) for row, code in each]
    for few in (0, 100):
        monkeypatch.setattr(manifest_read, "_FEW_ROWS", few)
        rejected, codes = manifest_read._rejected(pa.table({"rejected": column}).slice(skipped))
        found = [(int(each["block"]), int(each["row"]), codes[each["code"]]) for each in rejected]
        assert found == expected
        assert list(codes) == sorted({code for _, _, code in expected})
