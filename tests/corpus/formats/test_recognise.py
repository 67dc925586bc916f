"""Of which format is a file, by its first bytes and by its name?"""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataguard.corpus.formats import FORMATS, ScanOptions, by_name, recognise
from dataguard.corpus.recognition import format_named
from dataguard.errors import ManifestDamaged, UsageError


def _npy() -> bytes:
    sink = io.BytesIO()
    np.save(sink, np.arange(3))
    return sink.getvalue()


def _parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": ["a"]}), sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("head", "path", "expected"),
    [
        (b'{"text": "a"}\n', "anything.parquet", "jsonl"),
        (b"\xef\xbb\xbf\n\n {}\n", "x", "jsonl"),
        (b'{"text": "' + b"x" * 60_000, "x", "jsonl"),
        (b'not json\n{"text": "a"}\n', "x", "jsonl"),
        (b"", "x.jsonl", "jsonl"),
        (b"", "x.NDJSON", "jsonl"),
        (b"plain text", "x.jsonl.gz", "jsonl"),
        (b"plain text", "x.json", "jsonl"),
        (b'{\n  "indent": 2\n}\n', "state.json", None),
        (b'[{"text": "a"}]', "x.json", None),
        (b'[\n{"text": "a"},\n{"text": "b"}\n]', "x.json", None),
        (b'[{"text": "a"}]', "x.jsonl", "jsonl"),
        (b"plain text", "x.txt", None),
        (b"a,b\n1,2\n", "x.csv", None),
        (b"", "x", None),
        (_npy(), "x.jsonl", "npy"),
        (b"", "x.npy", "npy"),
        (_parquet()[:100], "x.npy", "parquet"),
        (_parquet()[:4] + b'\n{"text": "inside a page"}\n', "x.jsonl", "parquet"),
        (b"", "x.parquet", "parquet"),
        (b"PARE", "x", "parquet"),
    ],
)
def test_content_before_name(head: bytes, path: str, expected: str | None) -> None:
    found = recognise(head, path)
    assert (found and found.name) == expected


def test_formats_are_in_order_of_their_names_and_found_by_them() -> None:
    names = [entry.name for entry in FORMATS]
    assert names == sorted(set(names))
    assert [by_name(name) for name in names] == list(FORMATS)
    with pytest.raises(KeyError):
        by_name("csv")


def test_a_format_of_a_shard_is_found_without_the_others() -> None:
    for entry in FORMATS:
        assert type(format_named(entry.name)) is type(entry)
    with pytest.raises(ManifestDamaged, match="no format is called 'csv'"):
        format_named("csv")


def test_limits_below_one_are_refused() -> None:
    for name in (field.name for field in dataclasses.fields(ScanOptions) if field.type == "int"):
        with pytest.raises(UsageError, match=name):
            ScanOptions(**{name: 0})
    with pytest.raises(UsageError, match="max_depth"):
        ScanOptions(max_depth=901)
