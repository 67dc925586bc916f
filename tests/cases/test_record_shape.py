"""K3, record shape and size: what is no document, what is long, what is deep. Cases G05, G06."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dataguard.corpus.formats import JsonLines, ScannedBlock, ScanOptions
from dataguard.corpus.formats.records import MAX_DEPTH
from tests.corpus.formats.framing import gzip_member, zstd_frame
from tests.corpus.formats.support import MemoryShard, Seen, look


def _look(content: bytes, **options: int) -> Seen:
    return look(JsonLines(), MemoryShard(content, "x.jsonl"), **options)


def test_g05_records_that_hold_no_document() -> None:
    lines = [
        b'{"text":"one"}', b"", b"  \t", b'"context"', b'["text"]', b"42", b"null", b'{"text":null}', b'{"text":7}',
        b'{"id":1}', b'{"text":"two"}', b'{"text":""}', b'{"text":"three"}',
    ]  # fmt: skip
    seen = _look(b"\n".join(lines))
    assert seen.documents == [b"one", b"two", b"", b"three"]
    assert [finding.line for finding in seen.rejected] == [4, 5, 6, 7, 8, 9, 10]
    assert [finding.row for finding in seen.rejected] == [1, 2, 3, 4, 5, 6, 7]
    assert [finding.code for finding in seen.rejected] == [
        *["not-an-object"] * 4, "null-text", "not-a-string", "missing-text",
    ]  # fmt: skip
    assert seen.end.ignored_lines == 2
    assert seen.effect == "clean"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'{"text":true}', "not-a-string"),
        (b'{"text":["a",7]}', "not-a-string"),
        (b'{"text":["a",null]}', "null-text"),
        (b'{"text":{"text":"a"}}', "not-a-string"),
        (b'{"Text":"a"}', "missing-text"),
        (b'{"meta":{"text":"a"}}', "missing-text"),
        (b"{}", "missing-text"),
        (b'{"text":"a","text":"b"}', "duplicate-text"),
        (b'{"text":"a","te\\u0078t":"b"}', "duplicate-text"),
        (b'{"text":null,"text":"b"}', "duplicate-text"),
        (b"{'text': 'a'}", "invalid-json"),
        (b'{"text":"a"} {"text":"b"}', "invalid-json"),
        (b'{"text":"a"}garbage', "invalid-json"),
        (b'{"text":"a","x":NaN}', "invalid-json"),
        (b"\x00" * 40, "invalid-json"),
        (b"[" * 1_000_000, "too-deep"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "too-deep"),
        (b'{"text":"a","x":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}", "too-deep"),
    ],
)
def test_what_is_no_document_is_rejected_alone(line: bytes, code: str) -> None:
    seen = _look(b'{"text":"before"}\n' + line + b'\n{"text":"after"}\n')
    assert seen.rows == [b"before", None, b"after"]
    assert [(finding.row, finding.line, finding.code) for finding in seen.rejected] == [(1, 2, code)]
    assert not seen.codes


@pytest.mark.parametrize(
    "line",
    [
        b'{"text":"kept","x":' + b"9" * 5000 + b"}",
        b'{"text":"kept","x":1e999}',
        b'{"text":"kept","x":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}",
        b'{"text":"kept","x":"' + b"[{" * 3000 + b'"}',
        b'{"x":{"text":"inner"},"text":"kept"}',
        b'{"x":"text","text":"kept"}',
        b'{"te\\u0078t":"kept"}',
        b' \t{"text" : "kept"}\t ',
    ],
)
def test_oddities_that_are_legal_are_clean(line: bytes) -> None:
    seen = _look(line + b"\n")
    assert (seen.documents, seen.effect) == ([b"kept"], "clean")


def test_depth_is_told_however_deep_the_callers_own_stack_is() -> None:
    line = b'{"text":"kept","x":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}"

    def deeper(calls: int) -> list[bytes]:
        return deeper(calls - 1) if calls else _look(line).documents

    assert deeper(sys.getrecursionlimit() // 2) == [b"kept"]


@pytest.mark.parametrize("packed", [bytes, gzip_member, zstd_frame], ids=["plain", "gzip", "zstd"])
def test_g06_records_longer_than_any_buffer(packed: type) -> None:
    sizes = [size + by for size in (1 << 16, 1 << 20, 1 << 23) for by in (-1, 0, 1)]
    empty = len(b'{"id":0,"text":"Z"}\n')
    lengths = [size - empty + 1 for size in sizes]
    lines = [b'{"id":%d,"text":"%bZ"}\n' % (i, b"x" * (length - 1)) for i, length in enumerate(lengths)]
    assert [len(line) for line in lines] == sizes
    seen = _look(packed(b"".join(lines)))
    assert [len(row) for row in seen.documents] == lengths
    assert all(row.endswith(b"Z") for row in seen.documents)
    assert seen.effect == "clean"


def test_a_record_over_the_limit_is_rejected_unread_and_later_rows_go_on() -> None:
    long = b'{"text":"%b"}\n' % (b"x" * 5_000_000)
    good = b'{"text":"short"}\n'
    for content in (good + long + good + long, gzip_member(good + long + good + long), good + long + good + long[:-1]):
        seen = _look(content, max_record_bytes=1_000_000, block_bytes=4096)
        assert seen.rows == [b"short", None, b"short", None]
        assert [finding.code for finding in seen.rejected] == ["record-too-large"] * 2
        assert [finding.line for finding in seen.rejected] == [2, 4]
    small = _look(good + long + good, max_record_bytes=len(good))
    assert small.rows == [b"short", None, b"short"]


def test_blank_lines_are_counted_and_no_records() -> None:
    content = b"\n" * 70_000 + b'{"text":"a"}\n' + b" \n" * 70_000
    for block_bytes in (1 << 10, 1 << 20):
        seen = _look(content, block_bytes=block_bytes)
        assert seen.documents == [b"a"]
        assert seen.end.ignored_lines == 140_000
    assert _look(b"\n\n").rows == []


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (json.dumps([{"text": "a"}, {"text": "b"}]).encode(), "one JSON array"),
        (json.dumps([{"text": "a"}, {"text": "b"}], indent=1).encode(), "one JSON array"),
        (b'[\n{"text": "a"},\n{"text": "b"}\n]\n', "one JSON array"),
        (json.dumps({"text": "a", "meta": {}}, indent=2).encode(), "printed over several lines"),
        (b'{\n"text": "a",\n"meta":\n{"x": 1}\n}\n{\n"text": "b"\n}\n', "printed over several lines"),
        (b"a,b\n1,2\n", "no line that is a JSON object"),
        (b"1\n2\nnull\n", "no line that is a JSON object"),
    ],
)
def test_a_file_that_is_no_json_lines_is_told_as_a_whole(content: bytes, what: str) -> None:
    seen = _look(content)
    assert (seen.effect, seen.codes) == ("excluded", ["not-json-lines"])
    assert what in seen.end.findings[0].detail
    assert JsonLines().recognise(content, "x.jsonl") == 1
    assert JsonLines().recognise(content, "x.data") == 0


def test_other_fields_become_columns() -> None:
    lines = [
        b'{"text":"a","id":1,"meta":{"x":[1,2]},"mixed":1,"when":null}',
        b"7",
        b'{"id":2,"text":"b","mixed":"one","big":1' + b"0" * 400 + b"}",
        b'{"text":"c","deep":' + b"[" * 20 + b"]" * 20 + b"}",
    ]
    shard = MemoryShard(b"\n".join(lines))
    block, _ = JsonLines().scan(shard, ScanOptions())
    assert isinstance(block, ScannedBlock)
    fields = JsonLines().read(shard, block.place, ScanOptions(), fields=True).fields
    assert fields is not None
    assert fields.num_rows == 4
    assert fields.column_names == ["id", "meta", "mixed", "when", "big", "deep"]
    assert fields["id"].to_pylist() == [1, None, 2, None]
    assert fields["meta"].to_pylist()[0] == {"x": [1, 2]}
    assert fields["mixed"].to_pylist() == ["1", None, '"one"', None]
    assert fields["big"].to_pylist()[2] == "1" + "0" * 400
    assert fields["deep"].to_pylist()[3] == "[" * 20 + "]" * 20


_MEMORY = """
import sys
from pathlib import Path
from tests.corpus.formats.support import FileShard
from dataguard.corpus.formats import JsonLines, ScanOptions
import dataguard.corpus.formats
from tests.support.memory import peak_bytes
before = peak_bytes()
shard = FileShard(Path(sys.argv[1]))
block, small, end = JsonLines().scan(shard, ScanOptions())
scanned = peak_bytes()
length = len(JsonLines().read(shard, block.place, ScanOptions()).text[0].as_buffer())
read = peak_bytes()
print(block.content_bytes, length, small.content_bytes, scanned - before, read - before)
"""


@pytest.mark.parametrize(
    "text", ["x", "[x\\n", "\\u20ac", "\U0001f600xxxxxxxxxxxx\\\\"], ids=["plain", "lf", "euro", "wide"]
)
def test_memory_for_one_long_record(tmp_path: Path, text: str) -> None:
    unit = text.encode()
    count = (48 << 20) // len(unit)
    path = tmp_path / "long.jsonl.zst"
    path.write_bytes(zstd_frame(b'{"text":"' + unit * count + b'"}\n{"text":"short"}\n'))
    answer = subprocess.run(
        [sys.executable, "-c", _MEMORY, str(path)],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    content_bytes, length, small, scanned, read = map(int, answer.stdout.split())
    expected = len(json.loads(f'"{text}"').encode()) * count
    assert (content_bytes, length, small) == (expected, expected, 5)
    record_bytes = len(unit) * count
    assert max(scanned, read) < 4 * record_bytes + (32 << 20), (scanned / record_bytes, read / record_bytes)
