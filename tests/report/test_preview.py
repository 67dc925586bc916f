"""A preview shows what a record holds and lets nothing of it act: not on a terminal, not in a page."""

from __future__ import annotations

import unicodedata
from html.parser import HTMLParser
from io import StringIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dataguard.report.preview import MARKS, Note, Preview, as_html, as_plain, as_terminal, preview
from dataguard.score.registry import TEXT_SIGNALS
from dataguard.score.text_spans import text_spans

ACTS = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0)])) + (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u180e\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e"
    "\u2060\u2061\u2064\u2066\u2067\u2068\u2069\u206a\u206f\u2800\u3164\ufe00\ufe0f\ufeff\uffa0\ufff9\ufffb\uffff"
    "\ufdd0\ue000\U000e0001\U000e0041\U000e007f\U000e0100\U000e01ef\U000f0000\U0010ffff\U0001d173\u2003\u205f"
)
HARMLESS = "abc xyz <>&\"'\\#\u00e9\u4e2d\u6587\u0e01\u0e34\u05d0\u0627\u0301\U0001f600\u2400\ufffd\u3000"
BROKEN = [b"\xff", b"\x80", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xf0\x9f\x98", b"\xfe"]

texts = st.text(st.one_of(st.sampled_from(ACTS), st.sampled_from(HARMLESS), st.characters()), max_size=80)
records = st.one_of(
    texts,
    st.binary(max_size=120),
    st.lists(
        st.one_of(texts.map(lambda text: text.encode("utf-8", "surrogatepass")), st.sampled_from(BROKEN)), max_size=8
    ).map(b"".join),
)
spans = st.lists(st.tuples(st.integers(-5, 200), st.integers(-5, 200)), max_size=5)


class _Page(HTMLParser):
    """What a browser would make of it: the text, and every tag with its attributes."""

    def __init__(self, content: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.tags: set[tuple[str, tuple[tuple[str, str | None], ...]]] = set()
        self.marked: list[str] = []
        self._depth = 0
        self.feed(content)
        self.close()

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.add((tag, tuple(attrs)))
        if tag == "mark":
            self.marked.append("")
            self._depth += 1

    def handle_endtag(self, tag) -> None:
        self._depth -= tag == "mark"

    def handle_data(self, data) -> None:
        self.text += data
        if self._depth:
            self.marked[-1] += data


def _is_plainly_visible(char: str) -> bool:
    return unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} and char not in ACTS


def _marked(shown: Preview) -> str:
    return "".join(piece.text for piece in shown.pieces if piece.marked)


@given(record=records, spans=spans, max_chars=st.integers(16, 60))
def test_nothing_that_acts_comes_out(record, spans, max_chars: int) -> None:
    shown = preview(record, spans, max_chars=max_chars)
    plain = as_plain(shown)
    assert [char for char in plain if not _is_plainly_visible(char)] == []
    assert len(plain) <= max_chars
    assert as_terminal(shown).plain == plain
    page = _Page(as_html(shown))
    assert page.text == plain
    assert page.tags <= {
        ("mark", ()),
        ("span", (("class", "escape"),)),
        ("span", (("class", "cut"),)),
    }
    assert "".join(page.marked) == _marked(shown)


@given(record=records, spans=spans, color=st.booleans())
def test_the_only_escapes_on_a_terminal_are_those_of_the_marks(record, spans, color: bool) -> None:
    out = StringIO()
    console = Console(
        file=out, force_terminal=color, no_color=not color, color_system="standard" if color else None, width=1_000
    )
    console.print(as_terminal(preview(record, spans)), end="", soft_wrap=True)
    written = out.getvalue()
    for style in ("\x1b[2m", "\x1b[7m", "\x1b[2;7m", "\x1b[0m"):
        written = written.replace(style, "")
    assert written == as_plain(preview(record, spans))


@given(record=records, spans=spans)
def test_a_short_record_is_shown_whole_and_its_marks_lie_where_the_spans_do(record, spans) -> None:
    shown = preview(record, spans, max_chars=5_000)
    assert (shown.start, shown.stop, shown.size) == (0, len(record), len(record))
    wanted = {unit for start, stop in spans for unit in range(max(start, 0), min(stop, len(record)))}
    if isinstance(record, str):
        kept = "".join(char for index, char in enumerate(record) if index in wanted)
        letters = "".join(char for char in kept if char.isascii() and char.isalnum())
        marked = "".join(piece.text for piece in shown.pieces if piece.marked and piece.kind == "text")
        assert "".join(char for char in marked if char.isascii() and char.isalnum()) == letters
    assert bool(_marked(shown)) == bool(wanted)


@given(record=records, at=st.integers(0, 119))
def test_the_first_mark_is_always_shown(record, at: int) -> None:
    shown = preview(record, [(at, at + 1)], max_chars=16)
    assert bool(_marked(shown)) == (at < len(record))


def test_every_way_not_to_be_seen_becomes_visible() -> None:
    for char in ACTS:
        for record in (f"a{char}b", f"a{char}b".encode()):
            shown = as_plain(preview(record))
            assert shown[0] + shown[-1] == "ab"
            assert shown[1:-1] in (chr(0x2400 + ord(char) % 0x80), "␡", f"\\u{ord(char):04x}", f"\\U{ord(char):08x}")


def test_invalid_bytes_and_controls_of_the_same_number_are_told_apart() -> None:
    assert as_plain(preview(b"\x85\xc2\x85\x1b\n")) == "\\x85\\u0085␛␊"
    assert as_plain(preview("\ud800")) == "\\ud800"
    assert as_plain(preview(b"\xed\xa0\x80")) == "\\xed\\xa0\\x80"


def test_a_picture_in_the_text_does_not_pass_for_a_control() -> None:
    shown = preview("\u241b\x1b")
    assert as_plain(shown) == "\\u241b\u241b"


def test_a_span_that_cuts_a_character_marks_it_whole() -> None:
    record = "a€b".encode()
    assert as_plain(preview(record, [(2, 3)]), marks=("[", "]")) == "a[€]b"


def test_marks_may_come_as_an_array_overlap_and_lie_outside() -> None:
    marks = np.array([[6, 9], [2, 4], [3, 7], [11, 11], [20, 30], [-4, 1]])
    assert as_plain(preview("0123456789ab", marks), marks=("[", "]")) == "[0]1[2345678]9ab"


def test_marks_piled_on_a_letter_are_shown_one_by_one() -> None:
    assert as_plain(preview("a" + "\u0301" * 7)) == "a" + "\u0301" * 4 + "\\u0301" * 3
    assert as_plain(preview("\u0301a")) == "\\u0301a"
    assert as_plain(preview("\x00\u0301a")) == "␀\\u0301a"


def test_a_long_record_is_cut_around_its_first_mark() -> None:
    record = b"x" * 1_000 + b"HERE" + b"y" * 1_000
    shown = preview(record, [(1_000, 1_004), (1_900, 1_901)], max_chars=62)
    assert as_plain(shown, marks=("[", "]")) == "…" + "x" * 20 + "[HERE]" + "y" * 36 + "…"
    assert (shown.start, shown.stop) == (980, 1_040)
    assert as_plain(preview(record, max_chars=20)) == "x" * 18 + "…"
    assert as_plain(preview(record, [(2_000, 2_004)], max_chars=20), marks=("[", "]")) == "…" + "y" * 14 + "[yyyy]"


def test_a_window_that_begins_within_a_character_shows_whole_characters() -> None:
    record = ("€" * 3_000).encode()
    for at in (4_500, 4_501, 4_502):
        assert as_plain(preview(record, [(at, at + 1)], max_chars=32)) == "…" + "€" * 30 + "…"


def test_html_of_a_script_is_text() -> None:
    assert as_html(preview(b'<script>alert("x\'")</script>', [(0, 8)])) == (
        "<mark>&lt;script&gt;</mark>alert(&quot;x&#x27;&quot;)&lt;/script&gt;"
    )


def test_spans_that_overlap_mark_what_any_of_them_holds() -> None:
    spans = [(0, 4), (1, 2), (3, 10), (3, 3), (12, 14), (11, 20)]
    assert as_plain(preview("0123456789abcdefgh", spans), marks=("[", "]")) == "[0123456789]a[bcdefgh]"


@given(record=st.binary(max_size=300), signal=st.sampled_from([spec.name for spec in TEXT_SIGNALS]))
def test_the_places_behind_a_signal_are_marked(record: bytes, signal: str) -> None:
    spans = text_spans(record * 3, signal)
    shown = preview(record * 3, spans, max_chars=10_000)
    assert bool(_marked(shown)) == bool(len(spans))
    assert (shown.start, shown.stop) == (0, 3 * len(record))


def test_nothing_is_shown_of_nothing() -> None:
    for empty in (b"", ""):
        assert preview(empty, [(0, 1)]) == Preview(pieces=(), start=0, stop=0, size=0)
    with pytest.raises(ValueError, match="16 and more"):
        preview(b"x", max_chars=15)


def test_notes_stand_for_units_or_before_them_and_no_record_writes_one() -> None:
    notes = [Note(start=0, stop=0, text="begin"), Note(start=2, stop=4, text="two"), Note(start=5, stop=6, text="\x1b")]
    shown = preview("abcdefgh", [(3, 5)], notes=notes)
    assert as_plain(shown, marks=("[", "]")) == "⟦begin⟧ab[⟦two⟧e]⟦␛⟧gh"
    assert [piece.kind for piece in shown.pieces] == ["note", "text", "note", "text", "note", "text"]
    assert as_plain(preview("⟦begin⟧ ⟪⟫")) == "\\u27e6begin\\u27e7 \\u27ea\\u27eb"
    assert as_html(preview("a", notes=[Note(start=0, stop=0, text="<b>")])) == '<span class="note">⟦&lt;b&gt;⟧</span>a'


def test_marks_can_be_seen_without_color() -> None:
    shown = preview("buy now buy now", [(8, 15)])
    assert as_terminal(shown, marks=MARKS).plain == "buy now ⟪buy now⟫"


@given(
    record=records, spans=spans, notes=st.lists(st.tuples(st.integers(0, 100), st.integers(0, 9), texts), max_size=4)
)
def test_nothing_that_acts_comes_out_of_notes(record, spans, notes) -> None:
    made, at = [], 0
    for start, size, text in sorted(notes):
        start = max(start, at)
        made.append(Note(start=start, stop=start + size, text=text))
        at = start + size
    shown = preview(record, spans, notes=made, max_chars=60)
    plain = as_plain(shown)
    assert [char for char in plain if not _is_plainly_visible(char)] == []
    assert len(plain) <= 60
    assert _Page(as_html(shown)).text == plain
