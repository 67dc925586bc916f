"""Does the kernel find the very rows that are not UTF-8? Python's decoder is the twin, and so is Arrow's check."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dataguard.corpus.formats import arrow, by_name, parquet, valid_text
from dataguard.corpus.formats.bulk import Shortcut
from dataguard.corpus.formats.columns import text_of_column
from dataguard.corpus.formats.valid_text import Utf8Kernel, rows_not_utf8
from tests.corpus.formats.support import MemoryShard, scan_only


def by_python(rows: list[bytes | None]) -> list[int]:
    bad = []
    for number, row in enumerate(rows):
        try:
            (row or b"").decode()
        except UnicodeDecodeError:
            bad.append(number)
    return bad


def check(rows: list[bytes | None]) -> list[int]:
    text = pa.array(rows, pa.large_binary())
    expected = by_python(rows)
    assert Utf8Kernel().rows_not_utf8(text) == expected
    assert valid_text._by_halves(text, 0) == expected
    return expected


_PIECES = st.sampled_from(
    [b"", b"a" * 31, b"b" * 33, "\u00e9".encode(), "\u20ac".encode() * 11, "\U0001f600".encode(), b"\xed\x9f\xbf",
     b"\xee\x80\x80", b"\xed\xa0\x80", b"\xc0\x80", b"\xe0\x80\x80", b"\xf0\x8f\xbf\xbf", b"\xf4\x8f\xbf\xbf",
     b"\xf4\x90\x80\x80", b"\xf5", b"\xff", b"\x80", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\x82\xac", b"\0\x7f"]
)  # fmt: skip
_PIECES |= st.text(max_size=20).map(str.encode) | st.binary(max_size=4)
_ROWS = st.lists(st.none() | st.lists(_PIECES, max_size=6).map(b"".join), max_size=8)


@settings(max_examples=400)
@given(_ROWS, st.integers(0, 3))
@example([b"\xe2\x82", b"\xac"], 0)
@example(["\u20ac".encode() * 40, b"\x80", None, "\u20ac".encode() * 40 + b"\xe2"], 1)
def test_rows_are_those_that_python_cannot_decode(rows: list[bytes | None], first: int) -> None:
    check(rows)
    part = pa.array(rows, pa.large_binary())[first:]
    assert Utf8Kernel().rows_not_utf8(part) == by_python(rows[first:])


def test_every_second_byte_of_every_lead_at_every_place_of_a_vector() -> None:
    """In a row of itself and behind others, where it is judged by what stands before it."""
    tails = [b"", b"\x80", b"\x80\x80", b"\xbf\xbf", b"\x80\x80\x80"]
    seconds = (0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0)
    heads = [bytes([lead, second]) for lead in range(0xBE, 0x100) for second in seconds]
    cases = [head + tail for head in heads for tail in tails] + [b"\x80", b"\xbf", b"\xc3", b"\xf4"]
    for before in (0, 1, 2, 3, 29, 30, 31, 32, 33, 62, 63):
        bad = check([b"x" * before + case + b"y" * behind for case in cases for behind in (0, 70)])
        assert 0 < len(bad) < 2 * len(cases)
        bad = check(["\u00e9".encode() * before + case + "\u20ac".encode() * 30 for case in cases])
        assert 0 < len(bad) < len(cases)


def test_a_character_that_is_cut_between_rows_is_in_neither() -> None:
    text = "\u20ac\U0001f600\u00e9 plain ".encode() * 20
    for cut in range(len(text)):
        check([text[:cut], text[cut:]])
        check([b"a" * 50, text[:cut], b"", None, text[cut:], b"b" * 50])


def test_what_lies_behind_and_before_the_rows_is_not_looked_at() -> None:
    values = b"\xff\xff\xffab\xc3\xa9cd" + b"\xff" * 40
    offsets = np.array([3, 5, 7, 9], np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    text = pa.Array.from_buffers(pa.large_binary(), 3, buffers)
    assert Utf8Kernel().rows_not_utf8(text) == []
    assert Utf8Kernel().rows_not_utf8(pa.array([], pa.large_binary())) == []
    assert Utf8Kernel().rows_not_utf8(pa.array([None, b""], pa.large_binary())) == []


def test_bytes_under_a_null_are_no_rows() -> None:
    buffers = [pa.py_buffer(b"\x05"), pa.py_buffer(np.array([0, 1, 2, 3], np.int64)), pa.py_buffer(b"a\xff\xfe")]
    text = pa.Array.from_buffers(pa.large_binary(), 3, buffers)
    assert Utf8Kernel().rows_not_utf8(text) == valid_text._by_halves(text, 0) == [2]


def test_a_column_has_the_same_outcome_with_and_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    column = pa.chunked_array(
        [pa.array([b"a", b"\xe2\x82", None, "\u20ac".encode()]), pa.array([b"\xac", b"long" * 9])]
    )
    outcomes = []
    for kernel in (None, Utf8Kernel()):
        monkeypatch.setattr(valid_text.SHORTCUT, "loaded", kernel)
        found = text_of_column(column, ["text"], 30)
        outcomes.append((found.text.to_pylist(), found.rejected))
    assert outcomes[0] == outcomes[1]
    assert [code for _, code, _ in outcomes[0][1]] == ["invalid-utf8", "null-text", "invalid-utf8", "record-too-large"]


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_only_much_work_of_scans_loads_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shortcut = Shortcut(Utf8Kernel, after_bytes=1000)
    monkeypatch.setattr(valid_text.SHORTCUT, "loaded", None)
    for module in (arrow, parquet):
        monkeypatch.setattr(module, "utf8", shortcut)
    table, sink = pa.table({"text": ["a" * 300, "b" * 300]}), pa.BufferOutputStream()
    if kind == "arrow":
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    else:
        pq.write_table(table, sink)
    shard = MemoryShard(sink.getvalue().to_pybytes())
    seen = scan_only(by_name(kind), shard)
    assert shortcut.loaded is None
    assert scan_only(by_name(kind), shard) == seen
    assert shortcut.loaded is not None


def test_rows_of_real_files(shared: Path) -> None:
    files = sorted(path for path in (shared / "data" / "broken").rglob("*") if path.is_file())
    rows = [None if number % 7 == 0 else path.read_bytes()[: 1 << 16] for number, path in enumerate(files)]
    assert len(check(rows)) > 10
    assert rows_not_utf8(pa.array(rows, pa.large_binary())) == by_python(rows)
