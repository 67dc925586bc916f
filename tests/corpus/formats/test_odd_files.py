"""Files that are odd in ways nobody thinks of: no crash, no failed reader, no clean pass with less than they hold."""

from __future__ import annotations

import importlib
import io
import json
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataguard.corpus.build import build_manifest
from dataguard.corpus.formats import FORMATS, JsonLines, Parquet, WebDataset, by_name
from dataguard.corpus.formats.bulk_lines import BulkLines, LineKernel
from dataguard.corpus.formats.protocol import ScanOptions
from dataguard.corpus.scan import ScanJob, scan_shard
from tests.corpus.formats.archives import webdataset
from tests.corpus.formats.framing import gzip_member, zstd_frame
from tests.corpus.formats.samples import SAMPLES, Sample
from tests.corpus.formats.support import MemoryShard, look
from tests.corpus.making import lines, mds_entry, mds_index, mds_shard, mds_texts, put

CASES = [
    pytest.param(name, sample, id=f"{name}-{number}")
    for name, samples in SAMPLES.items()
    for number, sample in enumerate(samples)
]
DEEP = b'{"x":' + b"[" * 5_000 + b"]" * 5_000 + b","
"""The beginning of an object that nests deeper than any decoder likes."""


def _codes(folder: Path, name: str, sample: Sample, content: bytes) -> list[str]:
    """Codes of a shard as it lies on a disk, read through the storage's own files."""
    path = put(folder / sample.path, content)
    main, options = sample.path, ScanOptions(**sample.options)
    if sample.companion is not None:
        put(folder / sample.companion[0], sample.companion[1])
        main = sample.companion[0] if sample.is_companion else sample.path
    scan = scan_shard(
        ScanJob(
            source="x",
            root=str(folder),
            path=main,
            size_bytes=path.stat().st_size,
            format=name,
            compression="none",
            trouble="",
            options=options,
        )
    )
    return [finding.code for finding in scan.findings]


@pytest.mark.parametrize(("name", "sample"), CASES)
def test_a_file_cut_in_its_head_is_no_failure_of_its_reader(tmp_path: Path, name: str, sample: Sample) -> None:
    for size in range(min(len(sample.content), 72)):
        codes = _codes(tmp_path, name, sample, sample.content[:size])
        assert "reader-failed" not in codes, (size, codes)
        assert codes or sample.is_legal_end(sample.content[:size]) or name in ("jsonl", "text", "raw"), size


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, -1])
@pytest.mark.parametrize("number", [0, 1])
def test_metadata_smaller_than_what_was_read_of_it(tmp_path: Path, number: int, size: int) -> None:
    """The size of a message's metadata, before format version 0.15: without a mark in front of it."""
    sample = SAMPLES["arrow"][number]
    first = sample.content.index(b"\xff\xff\xff\xff", 16)  # of the first batch
    content = sample.content[:first] + struct.pack("<i", size) + sample.content[first + 8 :]
    codes = _codes(tmp_path, "arrow", sample, content)
    assert codes
    assert "reader-failed" not in codes


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_rows_that_are_lost_are_listed_within_bounds(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch says that it has many rows and holds none of them: a small file may not become a list of millions."""
    module = importlib.import_module(f"dataguard.corpus.formats.{form}")
    sink, table = io.BytesIO(), pa.table({"text": [f"row {number}" for number in range(40)]})
    if form == "parquet":
        pq.write_table(
            table, sink, row_group_size=4, compression="none", use_dictionary=False, write_page_checksum=True
        )
        content = sink.getvalue().replace(b"row 1", b"RoW 1")  # rows 1 and 10:20 lie in row groups 0, 2, 3 and 4
    else:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=4)
        offsets = struct.pack("<4i", 0, 6, 12, 18)
        content = sink.getvalue().replace(offsets, struct.pack("<4i", 0, 60, 12, 18))
    shard = MemoryShard(content, f"x.{form}")
    seen = look(by_name(form), shard)
    lost = len(seen.rejected)
    assert seen.effect == "flagged"
    assert lost >= 16
    monkeypatch.setattr(module, "_MOST_LOST_ROWS", lost)
    assert look(by_name(form), shard).effect == "flagged"
    monkeypatch.setattr(module, "_MOST_LOST_ROWS", lost - 1)
    seen = look(by_name(form), shard)
    assert seen.effect == "excluded"
    assert len(seen.rejected) < lost
    assert seen.codes == [{"arrow": "unreadable-batches", "parquet": "unreadable-groups"}[form]]


@pytest.mark.parametrize(("name", "sample"), CASES)
def test_two_files_put_together_are_never_a_clean_pass_with_one(name: str, sample: Sample) -> None:
    whole = look(by_name(name), sample.shard(sample.content, "none"), **sample.options)
    both = look(by_name(name), sample.shard(sample.content * 2, "none"), **sample.options)
    if both.effect == "clean":  # lines, ids and texts without an end of their own
        assert (both.documents, both.tokens) != (whole.documents, whole.tokens)
        assert not sample.has_end or name in ("jsonl", "text")


@pytest.mark.parametrize("other", [1, 3, 40])
@pytest.mark.parametrize("form", ["file", "parquet"])
def test_files_of_several_sizes_put_together(form: str, other: int) -> None:
    def made(num_rows: int) -> bytes:
        table, sink = pa.table({"text": [f"row {i} of {num_rows}" for i in range(num_rows)]}), io.BytesIO()
        if form == "parquet":
            pq.write_table(table, sink, row_group_size=2)
        else:
            with pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=2)
        return sink.getvalue()

    kind = by_name("parquet" if form == "parquet" else "arrow")
    for content in (made(5) + made(other), made(other) + made(5), made(5) + made(0)):
        seen = look(kind, MemoryShard(content, f"x.{form}"))
        assert seen.effect != "clean"
        assert seen.codes


def test_a_text_that_looks_like_a_seam_is_a_text() -> None:
    """Page indexes hold the smallest and the largest text, which may be anything."""
    sink = io.BytesIO()
    texts = ["\x05\0\0\0PAR1PAR1", "\x01\0\0\0PAR1PAR1PAR1PAR1"]
    pq.write_table(pa.table({"text": texts}), sink, write_page_index=True, compression="none")
    assert sink.getvalue().count(b"PAR1PAR1") > 4
    assert look(Parquet(), MemoryShard(sink.getvalue(), "x.parquet")).documents == [text.encode() for text in texts]


@pytest.mark.parametrize("at", [0, 3, 9])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("form", ["npy", "raw"])
@pytest.mark.parametrize("pack", [bytes, gzip_member, zstd_frame])
def test_an_id_that_nobody_can_be_given_is_told_by_the_scan(
    form: str, order: str, at: int, pack: Callable[[bytes], bytes]
) -> None:
    ids = np.arange(10, dtype=f"{order}u8")
    sink = io.BytesIO()
    options = {"dtype": f"{order}u8"} if form == "raw" else {}

    def content() -> bytes:
        sink.seek(0)
        np.save(sink, ids)
        return sink.getvalue() if form == "npy" else ids.tobytes()

    ids[at] = (1 << 63) - 1
    seen = look(by_name(form), MemoryShard(pack(content())), block_tokens=4, **options)
    assert (seen.effect, seen.tokens) == ("clean", ids.tolist())
    ids[at] = 1 << 63
    seen = look(by_name(form), MemoryShard(pack(content())), block_tokens=4, **options)
    assert (seen.effect, seen.codes) == ("excluded", ["id-too-large"])
    assert f"token {at} is 9,223,372,036,854,775,808" in seen.end.findings[0].detail


def test_words_beside_the_data_that_nest_deep_are_told(tmp_path: Path) -> None:
    content = mds_texts(["one", "two"])
    put(tmp_path / "mds/shard.00000.mds", content)
    good = mds_index(mds_entry("shard.00000.mds", content))
    for words in (DEEP + good[1:], good.replace(b'"samples": 2', b'"samples": 2, ' + DEEP[1:-1])):
        put(tmp_path / "mds/index.json", words)
        result = build_manifest([str(tmp_path / "mds")])
        assert [finding.code for found in result.details.shard_findings.values() for finding in found] == [
            "not-in-index"
        ]
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, pa.schema([("text", pa.string())])) as writer:
        writer.write_table(pa.table({"text": ["one"]}))
    put(tmp_path / "hf/data-0.arrow", sink.getvalue())
    put(tmp_path / "hf/dataset_info.json", b"{}")
    put(tmp_path / "hf/state.json", DEEP + b'"_data_files":[{"filename":"data-0.arrow"}]}')
    result = build_manifest([str(tmp_path / "hf")])
    assert [(item.path, item.is_serious) for item in result.unreachable] == [("state.json", True)]
    put(tmp_path / "splits/a.jsonl", lines(["one"]))
    put(tmp_path / "splits/dataset_dict.json", DEEP + b'"splits":[]}')
    result = build_manifest([str(tmp_path / "splits")])
    assert [item.path for item in result.unreachable] == ["dataset_dict.json"]


def test_columns_of_an_mds_shard_that_nest_deep_cost_the_shard() -> None:
    whole = mds_shard({"text": ("str", None)}, [{"text": b"a"}])
    document = DEEP + b'"column_names":["text"],"column_encodings":["str"],"column_sizes":[null]}'
    start = 12 + len(document)
    content = struct.pack("<III", 1, start, start + 5) + document + whole[-5:]
    seen = look(by_name("mds"), MemoryShard(content, "x.mds"))
    assert (seen.effect, seen.codes) == ("excluded", ["bad-mds"])


@pytest.mark.parametrize("how", ["records", "kernel"])
def test_a_path_through_a_list_of_objects_says_what_is_allowed(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataguard.corpus.formats import bulk_lines

    monkeypatch.setattr(bulk_lines.SHORTCUT, "loaded", LineKernel() if how == "kernel" else None)
    monkeypatch.setattr(bulk_lines.SHORTCUT, "_make", None)
    content = b'{"a":{"m":[ {"c":"x"}]}}\n{"a":{"m":{"c":"kept"}}}\n{"a":{"m":[]}}\n{"a":{"m":["s"]}}\n'
    content += b'{"a":[{"m":{"c":"y"}}]}\n'
    decoded = BulkLines("a.m.c", 1 << 20, 512).decode(content)
    assert decoded.text.to_pylist() == [None, b"kept", None, None, None]
    assert [entry.code for entry in decoded.rejected] == ["missing-text"] * 4
    first, empty, strings, outer = [entry.detail for entry in decoded.rejected]
    assert first.startswith(
        "no field 'a.m.c': 'a.m' is a list of objects, so the record has many texts; a path may lead"
    )
    assert "joined by line feeds" in first
    assert outer.startswith("no field 'a.m.c': 'a' is a list of objects")
    assert "list of objects" not in empty + strings


def test_lines_and_columns_say_the_same_of_a_chat(tmp_path: Path) -> None:
    chat = [{"messages": [{"role": "user", "content": "hi"}]}] * 3
    put(tmp_path / "lines/a.jsonl", b"".join(json.dumps(record).encode() + b"\n" for record in chat))
    put(tmp_path / "columns/a.parquet", b"")
    pq.write_table(pa.Table.from_pylist(chat), tmp_path / "columns/a.parquet")
    hints = []
    for name in ("lines", "columns"):
        result = build_manifest([str(tmp_path / name)], options=ScanOptions(text_field="messages.content"))
        hints.append(result.hints[name])
    allowed = "to a string, or to a list of strings, which are joined by line feeds"
    assert all(allowed in hint and "'messages' is a list of" in hint for hint in hints)


def _with_holes(form: str) -> bytes:
    """A record ``s`` whose text is a file with holes, as GNU tar writes them, before an ordinary one."""
    ordinary = webdataset({"t": {"txt": b"ordinary"}})
    header = tarfile.TarInfo("s.txt")
    header.size = 512
    if form == "old":
        header.type = tarfile.GNUTYPE_SPARSE
        return header.tobuf(tarfile.GNU_FORMAT) + bytes(512) + ordinary
    header.name = "GNUSparseFile.0/s.txt"
    header.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "s.txt",
                          "GNU.sparse.realsize": "9999"}  # fmt: skip
    return header.tobuf(tarfile.PAX_FORMAT) + b"1\n0\n3\n".ljust(512, b"\0") + ordinary


@pytest.mark.parametrize("form", ["old", "pax"])
def test_a_text_with_holes_is_a_record_that_cannot_be_read(form: str) -> None:
    content = _with_holes(form)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert archive.getnames() == ["s.txt", "t.txt"]
        assert archive.getmembers()[0].isreg()
    seen = look(WebDataset(), MemoryShard(content, "x.tar"))
    assert seen.rows == [None, b"ordinary"]
    assert [(finding.code, finding.row) for finding in seen.rejected] == [("member-with-holes", 0)]


def test_a_window_beyond_what_zstd_itself_knows_is_told_as_one() -> None:
    frame = bytearray(zstd_frame(b'{"text":"a"}\n' * 9, size=False))
    frame[5] = 0xB0  # 4 GiB
    seen = look(JsonLines(), MemoryShard(bytes(frame)))
    assert (seen.effect, seen.codes) == ("excluded", ["window-too-large"])


NINES = "9" * 4_000


@pytest.mark.parametrize("shape", [f"({NINES},)", f"({NINES}, {NINES})", f"(0, {NINES})", "(2**70,)"])
def test_a_shape_that_no_file_can_have_is_a_header_without_sense(shape: str) -> None:
    header = f"{{'descr': '<u2', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(20)
    seen = look(by_name("npy"), MemoryShard(content, "x.npy"))
    assert (seen.effect, seen.codes) == ("excluded", ["bad-npy-header"])
    assert len(seen.end.findings[0].detail) < 400


def test_every_format_was_tried() -> None:
    assert set(SAMPLES) == {entry.name for entry in FORMATS}
