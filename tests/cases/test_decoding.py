"""K2, text decoding and line splitting: line ends, encodings, surrogates, byte order marks. Cases G03, G04."""

from __future__ import annotations

import json

import pytest

from dataguard.corpus.formats import JsonLines
from tests.corpus.formats.support import MemoryShard, Seen, look


def _look(content: bytes) -> Seen:
    return look(JsonLines(), MemoryShard(content, "x.jsonl", compression="none"))


def _line(text: str, *, raw: bool = True) -> bytes:
    return json.dumps({"text": text}, ensure_ascii=not raw).encode() + b"\n"


def test_g03_only_lf_ends_a_line() -> None:
    texts = ["a\u2028b", "c\u2029d", "e\x85f", "g\x0bh\x0ci\x1cj\x1dk\x1el", "plain", "x\ry"]
    seen = _look(b"".join(_line(text) for text in texts))
    assert [row.decode() for row in seen.documents] == texts
    assert [len(row) for row in seen.documents] == [5, 5, 4, 11, 5, 3]
    assert seen.effect == "clean"


@pytest.mark.parametrize(
    "char", ["\u2028", "\u2029", "\x85", "\x7f", "\ufeff", "\u200b", "\U0001f600", "\ufffd", "\x00"]
)
def test_any_character_inside_a_text_stays(char: str) -> None:
    seen = _look(_line(f"a{char}b") + _line(f"{char}", raw=False))
    assert [row.decode() for row in seen.documents] == [f"a{char}b", char]


def test_g04_a_lone_surrogate_loses_its_record_and_no_other() -> None:
    lines = [b'{"text": "a\\ud800b"}', b'{"text": "\\ude00 x"}', b'{"text": "\\ud83d\\ude00"}', b'{"text": "ok"}']
    seen = _look(b"\n".join(lines) + b"\n")
    assert seen.rows == [None, None, b"\xf0\x9f\x98\x80", b"ok"]
    assert [(finding.row, finding.code) for finding in seen.rejected] == [(0, "lone-surrogate"), (1, "lone-surrogate")]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'{"text": "\\ud83d\\ud83d\\ude00"}', "lone-surrogate"),
        (b'{"text": "a", "other": "\\udfff"}', "lone-surrogate"),
        (b'{"text": "a", "\\ud800": 1}', "lone-surrogate"),
        (b'{"text": "\\ud800", }', "invalid-json"),
        (b'{"text": "\\ud8"}', "invalid-json"),
        (b'{"text": "\xed\xa0\x80"}', "invalid-utf8"),
        (b'{"text": "a\xff"}', "invalid-utf8"),
        (b'{"text": "a", "other": "\xc3"}', "invalid-utf8"),
        (b'{"text": "\xc0\xaf"}', "invalid-utf8"),
        (b'{"text": "\xf4\x90\x80\x80"}', "invalid-utf8"),
        (b'{"text": "na\xefve"}', "invalid-utf8"),
    ],
)
def test_what_no_utf8_can_spell_is_rejected_alone(line: bytes, code: str) -> None:
    seen = _look(_line("before") + line + b"\n" + _line("after"))
    assert seen.rows == [b"before", None, b"after"]
    assert [(finding.row, finding.line, finding.code) for finding in seen.rejected] == [(1, 2, code)]
    assert seen.rejected[0].offset_bytes == len(_line("before"))
    assert seen.effect == "clean"


def test_an_escaped_backslash_before_u_is_no_surrogate() -> None:
    assert _look(b'{"text": "\\\\ud800"}\n').documents == [b"\\ud800"]


def test_a_byte_order_mark_at_the_beginning_is_no_content() -> None:
    seen = _look(b"\xef\xbb\xbf" + _line("a") + b"\xef\xbb\xbf" + _line("b") + _line("c"))
    assert seen.rows == [b"a", None, b"c"]
    assert seen.blocks[0].place.offset_bytes == 3
    assert [(finding.row, finding.code) for finding in seen.rejected] == [(1, "invalid-json")]
    assert _look(b"\xef\xbb\xbf").rows == _look(b"\xef\xbb").documents == []


def test_cr_lf_and_cr() -> None:
    assert _look(b'{"text": "a"}\r\n\r\n{"text": "b"}\r\n').documents == [b"a", b"b"]
    mixed = _look(b'{"text": "a"}\n{"text": "b"}\r\n{"text": "c"}')
    assert (mixed.documents, mixed.end.ignored_lines) == ([b"a", b"b", b"c"], 0)
    old_mac = _look(b'{"text": "a"}\r{"text": "b"}\r')
    assert (old_mac.effect, [finding.code for finding in old_mac.rejected]) == ("excluded", ["invalid-json"])


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_text_in_another_encoding_is_told(encoding: str) -> None:
    seen = _look('{"text": "a"}\n{"text": "b"}\n'.encode(encoding))
    assert (seen.effect, seen.codes) == ("excluded", ["not-json-lines"])
    assert "another encoding than UTF-8" in seen.end.findings[0].detail


def test_a_last_line_without_its_line_end_is_a_record() -> None:
    assert _look(b'{"text": "a"}\n{"text": "b"}').documents == [b"a", b"b"]
    half = _look(b'{"text": "a"}\n{"text": "b')
    assert half.rows == [b"a", None]
