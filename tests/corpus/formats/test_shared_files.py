"""Do other people's files, good and broken, give one answer from scan and reading? Skipped where they are absent."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dataguard.corpus.formats import FORMATS, JsonLines, decode_head, recognise
from dataguard.corpus.formats.registry import WITHOUT_SIGN
from tests.corpus.formats.support import FileShard, MemoryShard, look

_FOLDERS = [
    *(f"data/formats/{kind}" for kind in ("jsonl", "gz", "zst", "parquet", "npy")),
    *(f"data/broken/{kind}" for kind in ("json/duckdb", "gz", "zst", "encoding", "longline", "bomb", "parquet")),
    "data/corpora/web",
]


def _files(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    assert found, f"no files in {folder}"
    return found


@pytest.mark.parametrize("folder", _FOLDERS)
def test_every_file_gives_one_answer(shared: Path, folder: str) -> None:
    for path in _files(shared / folder):
        with path.open("rb") as file:
            head = decode_head(file.read(1 << 16), 1 << 16)
        kind = recognise(head, path.name)
        signed = [entry for entry in FORMATS if entry.name not in WITHOUT_SIGN]
        for entry in [kind] if kind else signed:  # what no format knows must still be survived by each
            seen = look(entry, FileShard(path))
            num_rows = sum(block.place.num_rows for block in seen.blocks)
            if seen.effect != "excluded":
                num_delivered = len(seen.documents) if entry.kind == "text" else len(seen.tokens)
                assert num_rows == num_delivered + len(seen.rejected), path
            assert all(finding.detail for finding in (*seen.rejected, *seen.end.findings)), path
            if not kind:
                assert seen.effect == "excluded" or not num_rows, path


def test_good_json_lines_are_what_json_reads(shared: Path) -> None:
    for path in _files(shared / "data/corpora/web"):
        seen = look(JsonLines(), FileShard(path))
        with path.open("rb") as file:
            lines = decode_head(file.read(), 1 << 30).splitlines()
        texts = [json.loads(line).get("text") for line in lines]
        assert seen.rows == [None if text is None else text.encode() for text in texts], path


def test_text_columns_of_good_parquet_files_are_what_pyarrow_reads(shared: Path) -> None:
    num_compared = 0
    (parquet,) = [entry for entry in FORMATS if entry.name == "parquet"]
    for path in _files(shared / "data/formats/parquet"):
        table = pq.read_table(path)
        for name in table.column_names:
            if str(table.schema.field(name).type) != "string":
                continue
            seen = look(parquet, FileShard(path), text_field=name)
            expected = [None if value is None else value.encode() for value in table[name].to_pylist()]
            assert seen.rows == expected, (path, name)
            num_compared += 1
    assert num_compared > 40


def test_json_test_suite(shared: Path) -> None:
    suite = shared / "data/broken/json"
    files = [path for path in suite.rglob("*.json") if path.name[:2] in ("y_", "n_", "i_")]
    assert len(files) > 250
    for path in files:
        content = path.read_bytes()
        # as the value of a field, so that what is no object is judged as well
        for line in (content, b'{"value":' + content + b',"text":"kept"}'):
            if b"\n" in line.strip(b"\n") or not line.strip(b"\xef\xbb\xbf \t\r\n"):
                continue
            seen = look(JsonLines(), MemoryShard(b'{"text":"first"}\n' + line.strip(b"\n"), compression="none"))
            (code,) = [finding.code for finding in seen.rejected] or ["clean"]
            is_json = code in ("clean", "not-an-object", "missing-text")
            if path.name.startswith("y_"):
                assert is_json, (path.name, code)
            elif path.name.startswith("n_") and line is content:
                assert not is_json, (path.name, code)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("apache_rle-dict-uncompressed-corrupt-checksum.parquet", "unreadable-groups"),
        ("apache_bad_data/PARQUET-1481.parquet", "bad-footer"),
        ("duckdb_broken/internal_6129.parquet", "unreadable-groups"),
    ],
)
def test_broken_parquet_files_are_told(shared: Path, name: str, code: str) -> None:
    path = shared / "data/broken/parquet" / name
    field = {"apache_rle": "binary_field", "duckdb_bro": "j"}.get(name[:10], "text")
    seen = look(next(entry for entry in FORMATS if entry.name == "parquet"), FileShard(path), text_field=field)
    assert code in seen.codes
    assert seen.effect == "excluded"
