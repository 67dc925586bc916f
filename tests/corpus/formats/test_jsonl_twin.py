"""Does the reader agree with its naive twin, whatever the lines, the framing and the place where a file is cut?"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dataguard.corpus.formats import plain_lines, streams
from dataguard.corpus.formats.jsonl import JsonLines
from dataguard.corpus.formats.records import RecordDecoder
from tests.corpus.formats.framing import gzip_member, gzip_members, pieces, skippable, zstd_frame, zstd_frames
from tests.corpus.formats.support import MemoryShard, look, scan_only
from tests.twins import jsonl as twin

FORMAT = JsonLines()

_TEXTS = st.text(max_size=12) | st.sampled_from(
    ["", "a\u2028b", "\x85\x1c\x0b", '"}\n{"', "\\u0074", "\U0001f600", "x" * 300, '"text"', "[[{{"]
)
_VALUES = st.none() | st.integers() | st.booleans() | _TEXTS | st.sampled_from([[], {}, {"text": "inner"}, ["text"]])


@st.composite
def _good(draw: Any) -> bytes:
    extra = draw(st.dictionaries(st.sampled_from(["id", "meta", "Text", "te\\xt", ""]), _VALUES, max_size=3))
    record = dict(draw(st.permutations([*extra.items(), ("text", draw(_TEXTS))])))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    return json.dumps(record, ensure_ascii=draw(st.booleans()), separators=separators).encode()


_ODD = st.sampled_from(
    [
        b"", b" ", b"\t \r", b"null", b"7", b"[1]", b'"text"', b"{}", b'{"text":null}', b'{"text":7}',
        b'{"text":"a","text":"b"}', b'{"te\\u0078t":"escaped"}', b'{"text":"a","\\u0074ext":"b"}',
        b'{"text":"a","x":{"text":"b"}}', b'{"x":"text","text":"a"}', b'{"text":{"text":"a"}}', b'{"text":["a"]}',
        b'{"text":["a","\\u00e9",""]}', b'{"text":[]}', b'{"text":["a",7]}', b'{"text":[null,7]}', b'{"text":[["a"]]}',
        b'{"text":"\\ud800"}', b'{"text":"a","x":"\\udc00"}', b'{"text":"\\\\ud800"}', b'{"text":"\\ud83d\\ude00"}',
        b'{"text":"\xff"}', b'{"text":"a","x":"\xed\xa0\x80"}', b"\xc0\xaf", b'{"text":"a"', b'{"text":"a"}}',
        b'{"text":"a"} {"text":"b"}', b'{"text":"a"}{"text":"b"}', b'{"text":', b'"a"}', b'{"text":"a",}', b"{",
        b"}", b"[", b"]", b'{"text":"a","x":NaN}', b'{"text":"a","x":-Infinity}', b'{"text":"a","x":01}',
        b'{"text":"a","x":1e999}', b'{"text":"a\tb"}', b'{"text":"a\x00"}', b"\x00\x00", b'\xef\xbb\xbf{"text":"a"}',
        b' {"text":"a"} ', b'{"text":"a"}\r', b'{"text":"a"}\r\r', b'{"text":"\\q"}', b"{'text':'a'}",
    ]
)  # fmt: skip
_LINES = st.lists(st.one_of(_good(), _good(), _ODD), max_size=12)
_ENDINGS = st.sampled_from([b"\n", b"\r\n"])
_CUTS = st.lists(st.integers(0, 2000), max_size=5)
_BLOCKS = st.sampled_from([1, 7, 40, 150, 1 << 20])


def _content(lines: list[bytes], ending: bytes, *, is_ended: bool) -> bytes:
    return ending.join(lines) + (ending if is_ended and lines else b"")


def _wrap(framing: str, content: bytes, cuts: list[int]) -> bytes:
    parts = pieces(content, cuts)
    if framing == "gzip":
        return gzip_members(parts)
    if framing == "gzip padded":
        return gzip_members([b"", *parts]) + bytes(700)
    if framing == "zstd":
        return zstd_frames(parts)
    if framing == "zstd odd":
        return skippable(b"ab") + b"".join(zstd_frame(part) + zstd_frame(b"") + skippable(b"", 15) for part in parts)
    return content


@settings(max_examples=150)
@given(
    lines=_LINES,
    ending=_ENDINGS,
    is_ended=st.booleans(),
    bom=st.booleans(),
    cuts=_CUTS,
    framing=st.sampled_from(["plain", "gzip", "gzip padded", "zstd", "zstd odd"]),
    block_bytes=_BLOCKS,
    least_bytes=st.sampled_from([0, 2000]),
)
@example([b'{"text":', b'"a"}', b'{"text":"b"}{"text":"c"}'], b"\n", True, False, [], "plain", 1 << 20, 0)
@example([b'{"text":"a","x":{}', b"}", b'{"text":"b"} {"text":"c"}'], b"\n", True, False, [], "plain", 1 << 20, 0)
@example(
    [b'{"x":{"text":"ab"},"text":"ab"}', b'{"x":{"text":"a"},"text":"long","text":"b"}'],
    b"\n",
    True,
    False,
    [],
    "plain",
    99,
    0,
)
@example(
    [b'{"x":"\\"text\\":","text":"a"}', b'{"text":"\\"text\\":","te\\u0078t":"b"}'],
    b"\n",
    False,
    False,
    [],
    "plain",
    1,
    0,
)
@example(
    [b'{"text":"text","x":"text"}', b'{"text": "\\\\", "x": {"text": 1}}'], b"\r\n", True, True, [], "plain", 1 << 20, 0
)
def test_rows_are_those_of_the_twin(
    lines: list[bytes],
    ending: bytes,
    is_ended: bool,
    bom: bool,
    cuts: list[int],
    framing: str,
    block_bytes: int,
    least_bytes: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_lines, "_LEAST_LINE_BYTES", least_bytes)
        _compare(lines, ending, is_ended, bom, cuts, framing, block_bytes)


def _compare(
    lines: list[bytes], ending: bytes, is_ended: bool, bom: bool, cuts: list[int], framing: str, block_bytes: int
) -> None:
    content = (b"\xef\xbb\xbf" if bom else b"") + _content(lines, ending, is_ended=is_ended)
    expected, num_blank = twin.records(content)
    shard = MemoryShard(_wrap(framing, content, cuts))
    if framing == "plain" and shard.compression != "none":
        return
    seen = scan_only(FORMAT, shard, block_bytes=block_bytes)
    assert seen.end.ignored_lines == num_blank
    assert [finding.code for finding in seen.rejected] == [entry for entry in expected if isinstance(entry, str)]
    assert [finding.row for finding in seen.rejected] == [
        i for i, entry in enumerate(expected) if isinstance(entry, str)
    ]
    physical = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    for finding in seen.rejected:  # line and offset point at the record
        assert finding.line is not None
        assert finding.offset_bytes is not None
        line = physical[finding.line - 1]
        assert content[finding.offset_bytes : finding.offset_bytes + len(line)] == line
    if seen.codes:
        assert seen.codes == ["not-json-lines"]
        assert seen.effect == "excluded"
    else:
        rows = look(FORMAT, shard, block_bytes=block_bytes).rows
        assert rows == [None if isinstance(entry, str) else entry for entry in expected]


_INNER = st.sampled_from(
    [
        b'"x"',
        b'""',
        b'"\\n\\u0062"',
        b"null",
        b"7",
        b'["a","b"]',
        b"[]",
        b'["a",null]',
        b'["a",7]',
        b'[["a"]]',
        b'{"c":"deep"}',
    ]
)
_MEMBERS = st.sampled_from([b'"b"', b'"\\u0062"', b'"c"', b'"a"'])


@st.composite
def _object(draw: Any, names: Any, values: Any) -> bytes:
    pairs = draw(st.lists(st.tuples(names, values), max_size=3))
    return b"{" + b",".join(name + b":" + value for name, value in pairs) + b"}"


_OUTER = _object(st.sampled_from([b'"a"', b'"\\u0061"', b'"a.b"', b'"b"', b'"id"']), _INNER | _object(_MEMBERS, _INNER))


@settings(max_examples=250)
@given(
    lines=st.lists(
        _OUTER | st.sampled_from([b'{"a":{"b":"plain"}}', b'{"a": {"b" : "x", "c": 1}, "id": 2}']), max_size=6
    )
)
@example([b'{"a":{"b":"one"}}', b'{"a":{"b":"two","c":{"b":1}}}', b'{"a.b":"literal"}', b'{"a.b":null,"a":{"b":"x"}}'])
@example(
    [b'{"a":{"b":"one"},"a":{"b":"two"}}', b'{"a":{"b":"one","b":"two"}}', b'{"a":null}', b'{"a":"b"}', b'{"b":"a"}']
)
def test_a_path_means_what_it_means_to_the_twin(lines: list[bytes]) -> None:
    content = _content(lines, b"\n", is_ended=True)
    expected, _ = twin.records(content, "a.b")
    seen = look(FORMAT, MemoryShard(content), text_field="a.b")
    assert [finding.code for finding in seen.rejected] == [entry for entry in expected if isinstance(entry, str)]
    assert seen.rows == [None if isinstance(entry, str) else entry for entry in expected]


def test_a_plain_block_of_paths_is_decoded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dataguard.corpus.formats.records.RecordDecoder._decode_one_by_one", None)
    content = b"".join(b'{"id": %d, "a": {"b": "text %d", "c": [{"d": null}]}}\n' % (i, i) for i in range(50))
    assert look(FORMAT, MemoryShard(content), text_field="a.b").rows == [b"text %d" % i for i in range(50)]


@settings(max_examples=150)
@given(lines=st.lists(_good(), max_size=8), ending=_ENDINGS, is_ended=st.booleans(), odd=_ODD | st.none())
def test_an_ordinary_block_is_what_it_is_line_by_line(
    lines: list[bytes], ending: bytes, is_ended: bool, odd: bytes | None
) -> None:
    content = _content(lines if odd is None else [*lines, odd], ending, is_ended=is_ended)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_lines, "_LEAST_LINE_BYTES", 0)
        block = plain_lines.PlainLines("text", 1 << 20, 512).decode(content)
    if block is not None:
        rows, num_blank = twin.records(content)
        assert block.text.to_pylist() == rows
        assert not num_blank
        records = content.replace(b"\r\n", b"\n").removesuffix(b"\n").split(b"\n")
        assert [content[a:b] for a, b in zip(block.starts, block.stops, strict=True)] == records
    elif lines and odd is None:  # for want of the plain spelling, nothing else
        assert any(b'"text":' not in line or line.count(b"text") > 1 or b"\\u00" in line for line in lines)


def test_long_lines_go_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dataguard.corpus.formats.records.RecordDecoder._decode_one_by_one", None)
    monkeypatch.setattr("dataguard.corpus.formats.records.RecordDecoder._decode_at_once", None)
    texts = ["\n\u20ac" * 900, "plain " * 500, '"\\' * 1200, "x" * 3000]
    for ascii_only in (True, False):
        content = b"".join(
            json.dumps({"id": 7, "text": text}, ensure_ascii=ascii_only).encode() + b"\n" for text in texts
        )
        assert look(FORMAT, MemoryShard(content)).rows == [text.encode() for text in texts]


@settings(max_examples=60)
@given(lines=st.lists(_good(), min_size=1, max_size=8), cuts=_CUTS, block_bytes=_BLOCKS, data=st.data())
@pytest.mark.parametrize("framing", ["gzip", "zstd", "zstd odd"])
def test_a_cut_stream_gives_whole_records_only(
    framing: str, lines: list[bytes], cuts: list[int], block_bytes: int, data: Any
) -> None:
    content = _content(lines, b"\n", is_ended=True)
    packed = _wrap(framing, content, cuts)
    cut = data.draw(st.integers(0, len(packed) - 1))
    seen = look(
        FORMAT,
        MemoryShard(packed[:cut], compression=framing.partition(" ")[0]),
        block_bytes=block_bytes,
    )
    whole, _ = twin.records(content)
    assert seen.documents == whole[: len(seen.documents)]
    num_bytes = sum(block.place.size_bytes for block in seen.blocks)
    if not _is_boundary(framing, packed, cut):
        assert seen.codes == ["truncated-stream"]
        assert not seen.rejected
        assert content[:num_bytes].endswith(b"\n") or not num_bytes
    else:  # a cut between members or frames leaves a whole, shorter stream, whose last line may be half a record
        assert seen.codes in ([], ["not-json-lines"])
        expected = twin.records(content[:num_bytes])[0]
        assert [finding.code for finding in seen.rejected] == [code for code in expected if isinstance(code, str)]


def _is_boundary(framing: str, packed: bytes, cut: int) -> bool:
    rest = packed[cut:]
    magic = b"\x1f\x8b\x08" if framing == "gzip" else b"\x28\xb5\x2f\xfd"
    return cut > 0 and (rest.startswith(magic) or rest[1:4] == b"\x2a\x4d\x18")


@settings(max_examples=40)
@given(lines=_LINES, ending=_ENDINGS, cuts=_CUTS, block_bytes=st.integers(1, 60), chunk=st.integers(1, 64))
@pytest.mark.parametrize("framing", ["plain", "gzip", "zstd"])
def test_blocks_depend_on_lines_and_not_on_chunks(
    framing: str, lines: list[bytes], ending: bytes, cuts: list[int], block_bytes: int, chunk: int
) -> None:
    shard = MemoryShard(_wrap(framing, _content(lines, ending, is_ended=True), cuts))
    limit = {"block_bytes": block_bytes, "max_record_bytes": 50}
    usual = scan_only(FORMAT, shard, **limit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "CHUNK_BYTES", chunk)
        assert scan_only(FORMAT, shard, **limit) == usual
    assert all(block.place.size_bytes < 2 * block_bytes + 50 or block.place.num_rows == 1 for block in usual.blocks)


@given(lines=_LINES, cuts=_CUTS)
def test_framing_does_not_change_blocks(lines: list[bytes], cuts: list[int]) -> None:
    content = _content(lines, b"\n", is_ended=True)
    plain = scan_only(FORMAT, MemoryShard(content, compression="none"), block_bytes=64)
    for framing in ("gzip", "zstd", "zstd odd"):
        assert scan_only(FORMAT, MemoryShard(_wrap(framing, content, cuts)), block_bytes=64) == plain


@given(content=st.binary(max_size=60), tail=st.binary(min_size=1, max_size=9))
def test_what_follows_the_last_member_is_told_and_takes_nothing_away(content: bytes, tail: bytes) -> None:
    good = b'{"text":"kept"}\n'
    for packed, padding in ((gzip_member(good), b"\0"), (zstd_frame(good), b"")):
        seen = look(FORMAT, MemoryShard(packed + tail + content))
        rest = (tail + content).strip(padding) if padding else tail + content
        if not rest:
            assert seen.codes == []
        elif seen.codes == ["trailing-bytes"]:
            assert f"{len(tail + content):,} bytes" in seen.end.findings[0].detail
        else:  # it happens to begin as a member does
            assert seen.codes[0] in ("truncated-stream", "corrupt-stream")
        if seen.effect != "excluded":
            assert seen.documents == [b"kept"]


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\x01b", 'a"b.c', 'a.b"c', "tab\t"])
def test_a_text_field_may_have_any_name(name: str) -> None:
    key = json.dumps(name)
    lines = [json.dumps({name: "hello", "x": 1}), "{}", f'{{{key}: "1", {key}: "2"}}', "[1]", json.dumps({name: None})]
    decoded = RecordDecoder(name, 1 << 20).decode("\n".join(lines).encode())
    assert decoded.text.to_pylist() == [b"hello", None, None, None, None]
    assert [entry.code for entry in decoded.rejected] == [
        "missing-text",
        "duplicate-text",
        "not-an-object",
        "null-text",
    ]
    if "." in name:
        outer, inner = name.split(".")
        nested = RecordDecoder(name, 1 << 20).decode(json.dumps({outer: {inner: "deep"}}).encode())
        assert nested.text.to_pylist() == [b"deep"]
