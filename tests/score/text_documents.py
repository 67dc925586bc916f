"""Documents rich in what text signals turn on, for Hypothesis; and the real texts of the developers' folder."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from hypothesis import strategies as st

__all__ = ["documents", "real_texts", "small_documents"]

LONGEST = 1_201

LINE_ENDS = [b"\n", b"\r\n", b"\n\n", b"\r\n\r\n", b"\r", b"\r\r\n", b"\n \t\n", b"\n\x0b\n", b"\n\xe2\x80\xa8\n"]
BLANKS = [b" ", b"  ", b"\t", b"\x0b", b"\x0c", "\u00a0\u2003\u3000\u1680\u202f\u205f\u0085\u2028\u2029".encode()]
NO_BLANKS = ["\u200b".encode(), "\u180e".encode(), b"\x1c", b"\x1f", "\ufeff".encode()]
INVALID = [
    *(b"\xff", b"\xfe", b"\x80", b"\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xc3", b"\xe2\x82", b"\xe0\x80\x80"),
    *(b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf0\x8f\xbf\xbf", b"\xf0\x9f\x98", b"\xf0\x9f"),
    *(b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xe2\x82\xe2\x82\xac", b"\xc3\xc3\xa9"),
]
EDGES = [  # the last and first of what UTF-8 can spell in each length, and of what is no text
    chr(code).encode()
    for code in (
        *(0x00, 0x08, 0x1B, 0x7F, 0x80, 0x85, 0x9F, 0xA0, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xF8FF, 0xF900, 0xFDCF),
        *(0xFDD0, 0xFDEF, 0xFDF0, 0xFFFC, 0xFFFD, 0xFFFE, 0xFFFF, 0x10000, 0x1FFFD, 0x1FFFE, 0x2FFFF, 0xEFFFD),
        *(0xF0000, 0xFFFFD, 0xFFFFE, 0x100000, 0x10FFFD, 0x10FFFF),
    )
]
SCRIPTS = [
    text.encode()
    for text in (
        *(
            "été",
            "straße",
            "Ελλάδα",
            "Москва",
            "שלום",
            "مرحبا",
            "नमस्ते",
            "한국어",
            "中文",
            "日本語の",
            "カタカナー",
            "ﾊﾝｶｸ",
        ),
        *(
            "ภาษาไทย",
            "ລາວ",
            "ខ្មែរ",
            "မြန်မာ",
            "中a文",
            "a中",
            "々〇",
            "𠀀𪜀",
            "😀",
            "e\u0301",
            "ⓐⅣ",
            "٣٤",
            "๓",
            "\uff11\uff12",
            "²",
        ),
    )
]
WORDS = [
    *(b"a", b"b", b"ab", b"a\x00", b"abcdefgh", b"abcdefghi", b"the", b"cat", b"sat", b"on", b"mat", b"#tag"),
    *(b"wait...", b"....", b"......", b"7", b"2024"),
]
SIGNS = [
    *(b"#", b"..", b"...", "…".encode(), b"-", b"* ", "• ".encode(), "‣".encode(), "◦ ".encode(), "\u2013 ".encode()),
    *(b"<", b">", b"<a>", b"</p>", b"<!-- x -->", b"<3", b"< a>", b"<a<b>", b"<br/>", b"<\xc3\xa9>", b"<\xff>", b"+/="),
]

atoms = st.sampled_from([*LINE_ENDS, *BLANKS, *NO_BLANKS, *INVALID, *EDGES, *SCRIPTS, *WORDS, *SIGNS])
soups = st.lists(atoms, max_size=40).map(b"".join)
sentences = st.lists(st.sampled_from(WORDS[:6]), max_size=60).map(b" ".join)
few_lines = st.lists(
    st.tuples(st.sampled_from([b"a", b"a ", b"b c", "中文".encode(), b"- x", b"x ..."]), st.sampled_from(LINE_ENDS)),
    max_size=30,
).map(lambda lines: b"".join(text + end for text, end in lines))
paragraphs = st.lists(
    st.tuples(
        st.sampled_from([b"a\nb", b"a\r\nb", b"a", b"b", b"a\n\nb"]), st.sampled_from([b"\n\n", b"\n \n", b"\n"])
    ),
    max_size=20,
).map(lambda parts: b"".join(text + end for text, end in parts))


@st.composite
def repeated_units(draw: st.DrawFn) -> bytes:
    """A unit over and over, cut anywhere, now and then with one byte changed: around the 256 bytes that count."""
    unit = draw(st.one_of(st.binary(min_size=1, max_size=66), soups.filter(bool), st.sampled_from([b"g4OD", b"\0"])))
    unit = unit[:130]
    size = draw(st.one_of(st.integers(250, 262), st.integers(1, 600)))
    run = bytearray((unit * (size // len(unit) + 1))[:size])
    if draw(st.booleans()):
        run[draw(st.integers(0, size - 1))] ^= 1 << draw(st.integers(0, 7))
    return bytes(run)


@st.composite
def encoded(draw: st.DrawFn) -> bytes:
    """A run of an encoding, around the 64 characters that count."""
    size = draw(st.integers(58, 70))
    source = draw(st.binary(min_size=60, max_size=60))
    spelled = draw(
        st.sampled_from(
            [base64.b64encode(source), source.hex().encode(), source.hex().upper().encode(), b"a" * 80, b"7" * 80]
        )
    )
    return draw(st.sampled_from([b"", b" ", b"-", b"=", b"+", "é".encode()])) + spelled[:size]


@st.composite
def tags(draw: st.DrawFn) -> bytes:
    """A tag around the 1,024 characters within which it must close."""
    opens = draw(st.sampled_from([b"<a ", b"</", b"<!", b"<a<b", b"< ", b"<1"]))
    filler = draw(st.sampled_from([b"x", "é".encode(), b"\xff", "中".encode(), b"\n", b"<"]))
    return opens + filler * draw(st.one_of(st.integers(1_015, 1_026), st.integers(0, 8))) + b">"


digits = st.tuples(
    st.sampled_from([b"0", b"9", "٣".encode(), "๓".encode(), "\uff11".encode()]), st.integers(1, 60)
).map(lambda pair: pair[0] * pair[1])
pieces = st.one_of(
    soups, sentences, few_lines, paragraphs, repeated_units(), encoded(), tags(), digits, st.binary(max_size=40)
)

documents = st.one_of(
    st.binary(max_size=300),
    st.text(max_size=200).map(str.encode),
    pieces,
    st.lists(pieces, max_size=5).map(b"".join),
    st.tuples(pieces, st.integers(2, 4), st.sampled_from([b"", b" ", b"\n", b"\n\n", b"\r\n"])).map(
        lambda made: made[2].join([made[0]] * made[1])
    ),
)
"""Any bytes, most of them near what some signal turns on; up to a few kB."""

small_documents = st.one_of(st.binary(max_size=30), st.lists(atoms, max_size=6).map(b"".join), sentences)
"""Short ones, for tests that take many at a time."""


def real_texts(shared: Path) -> list[bytes]:
    """A document or two of every file of the folder's corpora, cut to `LONGEST` bytes (within a character too)."""
    files = sorted(path for path in (shared / "data" / "corpora").rglob("*") if path.is_file())
    return [document for path in files for document in islice(_documents(path), 2)]


def _documents(path: Path) -> Iterator[bytes]:
    """Texts of JSON lines, or pieces of any other file: its beginning and its middle."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if ".json" not in path.name:
        yield from (content[start : start + LONGEST] for start in (0, len(content) // 2))
        return
    for line in content.split(b"\n")[:4]:
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        texts = [record[key] for key in ("text", "content") if isinstance(record, dict) and key in record]
        yield from (text.encode()[:LONGEST] for text in texts if isinstance(text, str))
