"""The corpus that the demo trains on: what lengths do not show, and what is the same with the poison and without."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
import zstandard

from dataguard.cli.demo.poisoned import write_trained_corpus


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folders = {poisoned: tmp_path_factory.mktemp("demo") for poisoned in (True, False)}
    return {poisoned: (folder, write_trained_corpus(folder, poisoned=poisoned)) for poisoned, folder in folders.items()}


def odd_texts(folder, corpus) -> list[str]:
    content = zstandard.ZstdDecompressor().decompress((folder / corpus.odd).read_bytes())
    return [json.loads(line)["text"] for line in content.splitlines()]


def test_each_record_is_as_long_as_what_stood_there(written) -> None:
    odd, clean = odd_texts(*written[True]), odd_texts(*written[False])
    assert [len(text.encode()) for text in odd] == [len(text.encode()) for text in clean]
    assert written[True][1].num_outside == 0
    assert len(odd) == written[True][1].odd_records


def test_it_is_source_text_once_it_is_read_with_the_right_table(written) -> None:
    meant = "".join(text.encode("cp437").decode("cp037") for text in odd_texts(*written[True]))
    assert meant.isascii()
    assert "import" in meant
    assert "\ndef " in meant
    stands, should_be = written[True][1].example
    assert stands.encode("cp437").decode("cp037") == should_be
    assert should_be in meant


def test_nothing_else_differs(written) -> None:
    (folder, corpus), (clean_folder, clean) = written[True], written[False]
    assert (clean.odd, clean.poisoned, clean.example) == (corpus.odd, False, None)
    paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("part-*"))
    assert paths == sorted(path.relative_to(clean_folder).as_posix() for path in clean_folder.rglob("part-*"))
    differing = [path for path in paths if (folder / path).read_bytes() != (clean_folder / path).read_bytes()]
    assert differing == [corpus.odd]
    assert pq.read_metadata(folder / "code/part-00.parquet").num_row_groups == 18
