"""Is the outcome the same with the compiled kernel as without it, and is the kernel certain of what it should be?

`RecordDecoder` is the twin: it is what decides, and knows nothing of the kernel.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dataguard.corpus.build import build_manifest
from dataguard.corpus.formats import bulk_lines
from dataguard.corpus.formats.bulk import Shortcut
from dataguard.corpus.formats.bulk_lines import BulkLines, LineKernel
from dataguard.corpus.formats.content import text_digest
from dataguard.corpus.formats.jsonl import JsonLines
from dataguard.corpus.formats.lines import LineCutter
from dataguard.corpus.formats.protocol import ScanOptions
from dataguard.corpus.formats.records import DecodedLines, RecordDecoder
from dataguard.corpus.formats.streams import DecodedStream
from tests.corpus.formats.framing import gzip_member, zstd_frames
from tests.corpus.formats.support import FileShard, MemoryShard, look

_FREE = 1 << 30
_FIELDS = ["text", "meta.text", "a.b.c", "", "a.", "te xt", "\u03bb\u03cc\u03b3\u03bf\u03c2", "x" * 40]


@pytest.fixture(autouse=True)
def _from_the_first_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_lines.SHORTCUT, "loaded", LineKernel())


def outcome(decoded: DecodedLines) -> tuple[Any, ...]:
    return (
        decoded.text.to_pylist(),
        text_digest(decoded.text),
        decoded.rejected,
        decoded.starts.tolist(),
        decoded.stops.tolist(),
        decoded.num_lines,
        decoded.num_blank,
    )


def compare(content: bytes, text_field: str = "text", limit: int = _FREE, depth: int = 512) -> None:
    """With and without the kernel, whether or not the answer is kept."""
    expected = outcome(RecordDecoder(text_field, limit, depth).decode(content))
    bulk = BulkLines(text_field, limit, depth)
    assert outcome(bulk.decode(content)) == expected
    assert outcome(bulk.decode(bytearray(content), is_scan=True)) == expected


def certain(content: bytes, text_field: str = "text", limit: int = _FREE, depth: int = 512) -> list[bytes | None]:
    """What the kernel says of each line: its text, None where it is not certain.

    It is asked about the block alone, and about the same block with other bytes behind it: it has to say the same.
    """
    names = LineKernel.names(text_field)
    assert names is not None
    found = LineKernel().extract(content, names, limit, depth)
    if found is None:  # lines too short to hold anything, on average
        return [None] * content.count(b"\n")
    texts = found.text.to_pylist()
    for behind in (b"\0" * 40, b'"}' * 20, b"\n" * 40):
        framed = memoryview(content + behind)[: len(content)]
        again = LineKernel().extract(framed, names, limit, depth)
        assert again is not None
        assert again.text.to_pylist() == texts
        assert again.is_certain.tolist() == found.is_certain.tolist()
    return [text if sure else None for text, sure in zip(texts, found.is_certain.tolist(), strict=True)]


_STRINGS = st.text(max_size=50) | st.text('ab "\\/\n\x00\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U0001f600', max_size=50)
_NAMES = st.sampled_from(["text", "a", "b", "c", "meta", "id", "a.b.c", "meta.text", "", *_FIELDS]) | _STRINGS
_SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _STRINGS
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3), max_leaves=8
)


class _Pairs(dict[str, Any]):
    """An object whose names may stand in it more than once, for `json`."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__({"": None} if pairs else {})
        self._pairs = pairs

    def items(self) -> Any:
        return self._pairs


@st.composite
def _records(draw: Any, text_field: str) -> bytes:
    """A line that has its text most of the time, once most of the time."""
    value: Any = draw(_STRINGS if draw(st.integers(0, 9)) else _VALUES)
    for depth, name in enumerate(reversed(text_field.split("."))):
        pairs = draw(st.lists(st.tuples(_NAMES, _VALUES), max_size=3 if depth < 2 else 1))
        pairs.insert(draw(st.integers(0, len(pairs))), (name, value))
        value = _Pairs(pairs)
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" \t, ", "\r: ")]))
    return json.dumps(value, ensure_ascii=draw(st.booleans()), separators=separators).encode("utf-8", "surrogatepass")


_SPLICES = st.sampled_from(
    [b"", b"\n", b"\r", b" ", b"\t", b"\0", b"\x7f", b'"', b"\\", b"\\u", b"\\ud83d", b"\\udc00", b"\\uD83D\\uDE00",
     b"{", b"}", b"[", b"]", b",", b":", b"0", b"-", b".", b"1e", b"E+", b"00", b"true", b"nul", b"NaN",
     b"\xef\xbb\xbf",
     b"\xc3", b"\xe2\x82\xac", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\x80", b"\xff",
     b'"text":', b'"text":"again"', b'"te\\u0078t":"b"', b"x" * 33, b"// ", b'{"text":"whole"}']
)  # fmt: skip
_EDITS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3), _SPLICES | st.binary(max_size=3)), max_size=3)


@st.composite
def _blocks(draw: Any) -> tuple[str, bytes]:
    text_field = draw(st.sampled_from(_FIELDS))
    lines = draw(st.lists(_records(text_field), max_size=6))
    ending = draw(st.sampled_from([b"\n", b"\n", b"\r\n", b" \n", b"\n\n"]))
    content = ending.join(lines) + draw(st.sampled_from([b"", ending]))
    for at, taken, put in draw(_EDITS):
        content = content[:at] + put + content[at + taken :]
    return text_field, content


@settings(max_examples=120)
@given(block=_blocks(), limit=st.sampled_from([_FREE, 1, 40, 100]), depth=st.sampled_from([512, 900, 1, 2, 3]))
@example(block=("text", b'{"text":"a"}\r'), limit=_FREE, depth=512)
@example(block=("text", b'{"text":"a"}\r\r\n\r\n\r'), limit=_FREE, depth=512)
@example(
    block=("a.b", b'{"a.b":"x","a":{"b":"y"}}\n{"a":{"b":"y"},"a.b":null}\n{"a":{"b":"z"}}'), limit=_FREE, depth=512
)
@example(block=("a.b", b'{"a":{"b":"y"},"a":1}\n{"a":{"a":{"b":"y"}}}\n{"a":{"c":{"b":1},"b":"z"}}'), limit=99, depth=3)
@example(block=("a.a", b'{"a":{"a":"y"}}\n{"a":[{"a":"y"}]}\n{"b":{"a":"z"},"a":{"a":""}}\n'), limit=99, depth=2)
def test_the_outcome_is_the_same(block: tuple[str, bytes], limit: int, depth: int) -> None:
    text_field, content = block
    compare(content, text_field, limit, depth)
    expected = RecordDecoder(text_field, limit, depth).decode(content)
    by_start = dict(zip(expected.starts.tolist(), expected.text.to_pylist(), strict=True))
    start = 0
    for line, text in zip(content.split(b"\n"), certain(content, text_field, limit, depth), strict=False):
        assert text is None or text == by_start[start]
        start += len(line) + 1


@settings(max_examples=60)
@given(
    st.lists(st.tuples(_STRINGS, st.dictionaries(st.sampled_from(["id", "m"]), _VALUES, max_size=3)), max_size=5),
    st.booleans(),
    st.booleans(),
)
def test_ordinary_lines_are_certain(records: list[tuple[str, dict[str, Any]]], is_ascii: bool, is_first: bool) -> None:
    lines = [
        json.dumps({"text": text, **rest} if is_first else {**rest, "text": text}, ensure_ascii=is_ascii)
        for text, rest in records
    ]
    assert certain("".join(line + "\n" for line in lines).encode()) == [text.encode() for text, _ in records]


def test_every_place_of_what_is_special() -> None:
    """Before, at and behind the ends of the 32 bytes that are looked at together, and of the block."""
    for special in ('\\"', "\\n", "\u00e9", "\u20ac", "\U0001f600", "\\u00e9", "\\ud83d\\ude00"):
        for before in range(70):
            for behind in (0, 1, 31, 32, 33):
                line = f'{{"text":"{"a" * before}{special}{"b" * behind}"}}'.encode()
                assert certain(line) == [json.loads(line)["text"].encode()]


def test_utf8_is_what_python_says_it_is() -> None:
    leads = [0x41, 0x7F, 0x80, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4,
             0xF5, 0xFF]  # fmt: skip
    nexts = [0x20, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF]
    cases = [bytes([a, b]) for a in range(0x80, 0x100) for b in range(0x23, 0x100) if b != 0x5C]
    cases += [bytes([a, b, c]) for a in leads for b in nexts for c in nexts]
    cases += [bytes([a, b, c, d]) for a in leads if a >= 0xE0 for b in nexts for c in nexts for d in nexts]
    expected = []
    for case in cases:
        try:
            case.decode()
        except UnicodeDecodeError:
            expected.append(None)
        else:
            expected.append(case)
    for before in (b"", b"x" * 30):
        said = certain(b"".join(b'{"text":"%b%b"}\n' % (before, case) for case in cases))
        assert said == [None if case is None else before + case for case in expected]
    assert any(expected)
    assert not all(expected)


def test_every_escape() -> None:
    units = [f"\\u{unit:04x}" for unit in (*range(0x1000), *range(0xD7F0, 0xE010), 0xFFFF)]
    units += ["\\ud83d" + unit for unit in ("\\udbff", "\\uDC00", "\\uDFFF", "\\ue000", "x", "\\n", "\\u12", "\\x0000")]
    units += ["\\" + chr(code) for code in range(0x20, 0x7F)] + ["\\u00g0", "\\u+123", "\\u 123", "\\u", "\\U0041"]
    lines = [f'{{"text":"{unit}"}}' for unit in units]
    expected: list[bytes | None] = []
    for line in lines:
        try:
            expected.append(json.loads(line)["text"].encode())
        except (ValueError, UnicodeEncodeError):
            expected.append(None)
    assert certain("\n".join(lines).encode()) == expected
    compare("\n".join(lines).encode())


@pytest.mark.parametrize(
    ("value", "is_number"),
    [("0", True), ("-0", True), ("10", True), ("-1.5e+10", True), ("1E5", True), ("0.0", True), ("1e999", True),
     ("9" * 300, True), ("9" * 301, False), ("01", False), ("-", False), ("1.", False), (".5", False), ("1e", False),
     ("1e+", False), ("+1", False), ("--1", False), ("1_0", False), ("0x1", False), ("true", True), ("false", True),
     ("null", True), ("tru", False), ("True", False), ("falsey", False), ("nulll", False), ("NaN", False),
     ("Infinity", False), ("1 2", False), ("", False)],
)  # fmt: skip
def test_other_values(value: str, is_number: bool) -> None:
    for line in (f'{{"x":{value},"text":"a"}}', f'{{"text":"a","x":{value}}}', f'{{"text":"a","x":[{value} ]}}'):
        assert certain(line.encode()) == [b"a" if is_number else None] or (value == "" and "[" in line)
        compare(line.encode())


def test_what_is_deep_is_not_certain() -> None:
    for depth in (1, 2, 61, 62, 63, 64, 65, 512, 513, 3000):
        line = b'{"text":"a","x":%b%b}' % (b"[" * (depth - 1), b"]" * (depth - 1)) if depth > 1 else b'{"text":"a"}'
        assert certain(line) == [b"a" if depth <= 62 else None]
        assert certain(line, depth=5) == [b"a" if depth <= 5 else None]
        compare(line)
        compare(line, depth=5)


def test_a_long_path_is_left_alone() -> None:
    text_field = ".".join("abc"[i % 3] for i in range(70))
    assert LineKernel().extract(b"{}\n", LineKernel.names(text_field) or (), _FREE, 512) is None
    compare(b'{"text":"a"}\n', text_field)


def test_few_odd_lines_come_back_into_their_places() -> None:
    odd = [b"", b" ", b"7", b'{"text":["a","b"]}', b'{"text":null}', b'{"te\\u0078t":"c"}', b'{"text":"\xff"}', b"{",
           b'{"text":"\\ud800"}', b'{"text":"a","text":"b"}', b"\r"]  # fmt: skip
    good = [b'{"text":"%d"}' % i for i in range(200)]
    for ending in (b"\n", b"\r\n"):
        lines = list(good)
        for i, line in enumerate(odd):
            lines.insert(13 * i, line)
        compare(ending.join(lines))
        compare(ending.join(lines) + ending)
        compare(ending.join([*lines, *odd]))


def test_cut_at_every_length() -> None:
    block = (
        '{"text":"é\\n\\ud83d\\ude00 plain","id":-1.5e3,"x":[true,{"text":null}]}\r\n{"text":["a"]}\n \n{"text":"z"}\n'
    )
    content = block.encode()
    for stop in range(len(content) + 1):
        compare(content[:stop])


@pytest.mark.parametrize("framing", ["plain", "gzip", "zstd"])
def test_shards_cut_at_every_length(framing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = b"".join(b'{"id":%d,"text":"row %d \\n"}\n' % (i, i) for i in range(9)) + b'{"text":7}\n{"text":"last"}'
    whole = {"plain": lines, "gzip": gzip_member(lines), "zstd": zstd_frames([lines[:200], lines[200:]])}[framing]
    for stop in range(len(whole) + 1):
        for block_bytes in (64, 1 << 20):
            shard = MemoryShard(whole[:stop], "a.jsonl")
            with_it = look(JsonLines(), shard, block_bytes=block_bytes)
            with monkeypatch.context() as patch:
                patch.setattr(bulk_lines.SHORTCUT, "loaded", None)
                without = look(JsonLines(), shard, block_bytes=block_bytes)
            assert with_it == without


def test_real_files_give_the_same_answer(shared: Path) -> None:
    num_certain = num_lines = 0
    folders = ("formats/jsonl", "formats/gz", "formats/zst", "broken/json", "broken/gz", "broken/zst",
               "broken/encoding", "broken/longline", "corpora")  # fmt: skip
    names = LineKernel.names("text")
    assert names is not None
    for folder in folders:
        for path in sorted(path for path in (shared / "data" / folder).rglob("*") if path.is_file()):
            shard = FileShard(path)
            options = ScanOptions(free_expansion_bytes=1 << 26)
            with shard.open() as file:
                stream = DecodedStream.of(shard, file, options)
                for block in LineCutter(stream, block_bytes=1 << 18, max_record_bytes=1 << 24):
                    if block.content is None or len(block.content) > 1 << 22 or b"\n" not in block.content:
                        continue
                    compare(bytes(block.content), limit=1 << 24)
                    said = LineKernel().extract(block.content, names, 1 << 24, 512)
                    if said is None:
                        continue
                    num_certain += int(np.count_nonzero(said.is_certain))
                    num_lines += len(said.is_certain)
    assert num_certain > 1000
    assert num_lines > num_certain


def test_nothing_is_written_past_the_block() -> None:
    """32 bytes are stored at once: never behind the last that is there for them, nor where a text has ended."""
    from dataguard.corpus.kernels import json_lines

    names, bounds = np.frombuffer(b"text", np.uint8), np.array([0, 4, 4])
    for size in range(120):
        for begin, end in ((b'{"text":"', b'"}'), (b'{"text":"\\n', b""), (b'{"x":"', b'","text":""}')):
            content = begin + b"a" * size + end
            data = np.frombuffer(content, np.uint8)
            memory = np.full(len(content) + 80, 0xEE, np.uint8)
            arrays = [np.zeros(1, np.int64) for _ in range(3)]
            out = memory[40:-40]
            assert json_lines.extract_lines(data, names, bounds, _FREE, 62, out, *arrays, np.zeros(1, np.bool_)) == 1
            assert (memory[:40] == 0xEE).all()
            assert (memory[-40:] == 0xEE).all()


def test_one_variant_serves_all() -> None:
    """So that what `warmup` compiles is what is used."""
    from dataguard.corpus.kernels import json_lines, utf8

    for field in ("text", "a.b"):
        compare(b'{"text":"\xe2\x82\xac"}\n' * 9, field)
    assert len(json_lines.extract_lines.signatures) == len(utf8.mark_not_utf8.signatures) == 1


def test_only_much_work_loads_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_lines, "SHORTCUT", Shortcut(LineKernel, after_bytes=100))
    decoder = BulkLines("text", _FREE, 512)
    for number in range(1, 11):
        decoder.decode(b'{"text":"a"}\n', is_scan=True)
        assert (bulk_lines.SHORTCUT.loaded is not None) == (13 * number >= 100)


def test_reading_rows_never_imports_numba() -> None:
    script = """
import sys
from dataguard.corpus.formats import bulk_lines
from dataguard.corpus.formats.bulk import Shortcut
bulk_lines.SHORTCUT = Shortcut(bulk_lines.LineKernel, after_bytes=1)
decoder = bulk_lines.BulkLines("text", 1 << 30, 512)
for _ in range(3):
    decoder.decode(b'{"text":"a"}\\n')
assert "numba" not in sys.modules
decoder.decode(b'{"text":"a"}\\n', is_scan=True)
assert "numba" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_a_kernel_that_cannot_be_loaded_is_told_once_and_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> LineKernel:
        raise ImportError("no numba here")

    monkeypatch.setattr(bulk_lines, "SHORTCUT", Shortcut(broken, after_bytes=1))
    decoder = BulkLines("text", _FREE, 512)
    with pytest.warns(UserWarning, match="ImportError: no numba here"):
        assert decoder.decode(b'{"text":"a"}\n', is_scan=True).text.to_pylist() == [b"a"]
    assert decoder.decode(b'{"text":"b"}\n', is_scan=True).text.to_pylist() == [b"b"]


def test_without_compilation_shards_are_read_as_with_it(tmp_path: Path) -> None:
    """Nothing that the environment switches off may become a finding about a shard."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text":"%b"}\n' % ("\u20ac" * 400).encode() * 20)
    script = """
import sys
from dataguard.corpus.build import build_manifest
from dataguard.corpus.formats import bulk_lines, valid_text
from dataguard.corpus.formats.bulk import Shortcut
for module, kernel in ((bulk_lines, bulk_lines.LineKernel), (valid_text, valid_text.Utf8Kernel)):
    module.SHORTCUT = Shortcut(kernel, after_bytes=1)
    if module is valid_text:
        module.SHORTCUT.worth(1, is_scan=True)
result = build_manifest([sys.argv[1]])
assert bulk_lines.SHORTCUT.loaded is None and valid_text.SHORTCUT.loaded is None
print(result.account.total("num_delivered"), result.num_damaged, result.manifest.digest)
"""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True, timeout=120,
        env=environment,
    )  # fmt: skip
    assert done.stdout.split() == ["20", "0", build_manifest([str(path)]).manifest.digest]
    assert "without a compiled kernel" in done.stderr
    assert "NUMBA_DISABLE_JIT" in done.stderr


@pytest.mark.long
def test_no_index_is_out_of_bounds(tmp_path: Path) -> None:
    """The tests above once more, compiled with checks of every index."""
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        __file__,
        "-k",
        "not bounds and not numba",
    ]
    subprocess.run(command, check=True, timeout=900, env=environment)
