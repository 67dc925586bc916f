"""The corpus of the demo without training: real text, laid out as data is, with one shard cut short."""

from __future__ import annotations

import abc
import calendar
import inspect
import json
import sysconfig
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import zstandard

from dataguard.cli.demo.damaged import write_damaged_corpus
from dataguard.errors import InputError


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return folder, write_damaged_corpus(folder)


def test_code_is_one_record_a_source_file(written) -> None:
    folder, corpus = written
    library = Path(sysconfig.get_path("stdlib"))
    num_records = 0
    for shard in range(3):
        content = (folder / "code" / f"part-{shard}.jsonl.zst").read_bytes()
        records = [json.loads(line) for line in zstandard.ZstdDecompressor().decompress(content).splitlines()]
        num_records += len(records)
        for record in records:
            assert record["path"].endswith(".py")
            assert record["text"] == (library / record["path"]).read_text(encoding="utf-8")
    assert 0 < num_records < corpus.num_files <= 400


def test_docs_are_what_the_modules_say_of_themselves(written) -> None:
    folder, corpus = written
    tables = [
        pq.read_table(folder / "docs" / f"part-{shard}.parquet", page_checksum_verification=True) for shard in range(4)
    ]
    assert sum(table.num_rows for table in tables) == corpus.num_strings
    told = {row["name"]: row["text"] for table in tables for row in table.to_pylist()}
    assert told["calendar.Calendar"] == inspect.getdoc(calendar.Calendar)
    assert told["abc.abstractmethod"] == inspect.getdoc(abc.abstractmethod)
    assert pq.ParquetFile(folder / "docs" / "part-0.parquet").num_row_groups > 1


def test_one_shard_is_damaged_and_no_other(written) -> None:
    folder, corpus = written
    before, after = corpus.damaged_bytes
    assert (folder / corpus.damaged).stat().st_size == after < before
    with pytest.raises(zstandard.ZstdError):
        zstandard.ZstdDecompressor().decompress((folder / corpus.damaged).read_bytes())


def test_the_same_python_writes_the_same_bytes(written, tmp_path) -> None:
    folder, corpus = written
    assert write_damaged_corpus(tmp_path) == corpus
    for path in folder.rglob("part-*"):
        assert (tmp_path / path.relative_to(folder)).read_bytes() == path.read_bytes()


def test_a_python_without_sources_is_told(tmp_path) -> None:
    with pytest.raises(InputError, match="standard library"):
        write_damaged_corpus(tmp_path, library=tmp_path)


def test_what_is_no_text_is_left_out(tmp_path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    for number in range(50):
        (library / f"m{number:02}.py").write_text(f'"""{"What module number " * 3}{number} is for."""\n')
    (library / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\nx = '\xe9'\n")
    (library / "empty.py").touch()
    corpus = write_damaged_corpus(tmp_path, library=library)
    assert (corpus.num_files, corpus.num_strings) == (50, 50)
