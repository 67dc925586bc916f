"""What each text signal is, by texts whose values are exact; the kernels and their naive twin must both say so."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from dataguard.errors import UsageError
from dataguard.score.text import score_text
from tests.twins.text_signals import text_signals

PROSE = (
    "The keeper of the lighthouse wrote one line a day. On some days it said no more than fog; on others a gull, a "
    "broken lamp or the name of a ship. Nobody read the book before the winter in which the lamp was taken away."
)

CASES: list[tuple[bytes | str, str, float]] = [
    # lengths: a character is a code point, an invalid byte counts as one
    ("naïve café", "length_bytes", 12),
    ("naïve café", "length_chars", 10),
    (b"a\xff\xe2\x82b", "length_chars", 5),
    ("😀e\u0301", "length_chars", 3),
    # words: white space parts them, and each character of a script without spaces is one
    ("one\ttwo\u00a0three\u3000four\u2028five\x85six", "length_words", 6),
    ("one\u200btwo\ufeff\x1cthree", "length_words", 1),
    ("中文 abc", "length_words", 3),
    ("abc中文def", "length_words", 4),
    ("ひらカナ", "length_words", 4),
    ("ไทย ລາວ ខ្មែរ မြန်မာ", "length_words", 3 + 3 + 5 + 6),
    ("한국어 नमस्ते", "length_words", 2),
    ("中。文", "length_words", 3),
    (b"\xff \xfe", "length_words", 2),
    ("a bc d 中文字", "longest_word_chars", 2),
    # lines end at LF alone; blank ones are not counted
    ("a\n\n \t\nb\r\nc", "length_lines", 3),
    ("a\u2028b\u2029c\x85d\x0be\x0cf\rg", "length_lines", 1),
    ("\n\r\n\x0b\n\u3000\n\u2028", "length_lines", 0),
    ("ab\r\n abc \r\nabcd\n", "longest_line_chars", 5),
    ("ab\r\r\n", "longest_line_chars", 3),
    ("ab\r", "longest_line_chars", 3),
    # entropies
    ("aabb", "byte_entropy", 1.0),
    ("abcd", "byte_entropy", 2.0),
    ("aaab", "byte_entropy", 0.8112781244591328),
    ("€", "byte_entropy", 1.584962500721156),
    (bytes(range(256)), "byte_entropy", 8.0),
    ("a" * 1_000, "byte_entropy", 0.0),
    ("x y x y", "word_entropy", 1.0),
    ("aa aa aa ab", "word_entropy", 0.8112781244591328),
    ("中文中文", "word_entropy", 1.0),
    (b"a a\x00 a\x00\x00 \x00a", "word_entropy", 2.0),
    # what is no UTF-8, and what is no text
    (b"abc\xff", "invalid_utf8_fraction", 1 / 4),
    (b"\xe2\x82a", "invalid_utf8_fraction", 2 / 3),
    (b"\xc0\xafa", "invalid_utf8_fraction", 2 / 3),
    (b"\xed\xa0\x80a", "invalid_utf8_fraction", 3 / 4),
    (b"\xf4\x90\x80\x80", "invalid_utf8_fraction", 1.0),
    (b"\xf4\x8f\xbf\xbf\xee\x80\x80\xed\x9f\xbf", "invalid_utf8_fraction", 0.0),
    (b"\x80\xe2\x82\xac\x80", "invalid_utf8_fraction", 2 / 5),
    (b"a\tb\nc\rd\x0ce", "nontext_fraction", 0.0),
    (b"a\x00\x0b\x1b\x7f", "nontext_fraction", 4 / 5),
    (b"ab\xff\xfe", "nontext_fraction", 2 / 4),
    ("ab\x85", "nontext_fraction", 2 / 4),
    ("\ufeffabc", "nontext_fraction", 0.0),
    ("abc\ufeff", "nontext_fraction", 3 / 6),
    ("a\ufffd\ufdd0\uffff\ue000", "nontext_fraction", 12 / 13),
    ("a\U0001fffe\U000f0000\U0010fffd", "nontext_fraction", 12 / 13),
    ("é\u200b\u202e中😀", "nontext_fraction", 0.0),
    ("a\ufffdb", "replacement_fraction", 1 / 3),
    (b"a\xffb", "replacement_fraction", 0.0),
    # periodic bytes: at least 256 of them
    ("g4OD" * 500, "byte_periodic_repeats", 500),
    ("g4OD" * 500, "byte_periodic_fraction", 1.0),
    ("x" + "ab" * 127, "byte_periodic_repeats", 0),
    ("x" + "ab" * 128, "byte_periodic_repeats", 128),
    ("x" + "ab" * 128, "byte_periodic_fraction", 256 / 257),
    ("x" + "ab" * 127 + "a", "byte_periodic_repeats", 0),
    ("a" * 255, "byte_periodic_repeats", 0),
    ("a" * 256, "byte_periodic_repeats", 256),
    (bytes(range(64)) * 4, "byte_periodic_repeats", 4),
    (bytes(range(64)) * 4, "byte_periodic_fraction", 1.0),
    (bytes(range(65)) * 8, "byte_periodic_repeats", 0),
    (bytes(range(60)) * 5 + bytes(range(30)), "byte_periodic_repeats", 5),
    ("-" * 300 + PROSE + "=" * 300, "byte_periodic_fraction", 600 / (600 + len(PROSE))),
    (PROSE, "byte_periodic_repeats", 0),
    # lines and paragraphs that repeat
    ("a\na\na", "dup_line_fraction", 2 / 3),
    ("a\n\n\nb\n\n\n", "dup_line_fraction", 0.0),
    ("a\r\na\n", "dup_line_fraction", 1 / 2),
    (b"a\na\x00\na\x00\x00", "dup_line_fraction", 0.0),
    ("a\n a\na ", "dup_line_fraction", 0.0),
    ("\n".join(f"line {number % 10}" for number in range(40)), "dup_line_fraction", 30 / 40),
    ("\n".join(["ab"] * 14 + ["xyz"]), "dup_line_char_fraction", 26 / 31),
    ("\r\n".join(["abcde"] * 13), "dup_line_char_fraction", 60 / 65),
    ("a\n\na\n\nb", "dup_paragraph_fraction", 1 / 3),
    ("a\nb\n\n\n \na\r\nb\r\n", "dup_paragraph_fraction", 1 / 2),
    ("a\nb\n\na\n\nb", "dup_paragraph_fraction", 0.0),
    ("\n\n".join(["one\ntwo"] * 4 + ["three"]), "dup_paragraph_fraction", 3 / 5),
    ("\n\n".join(["one\ntwo"] * 4 + ["three"]), "dup_paragraph_char_fraction", 18 / 29),
    ("\n\n".join(["abcde"] * 13), "dup_paragraph_char_fraction", 60 / 65),
    # n-grams: a fraction of the characters of words, whatever overlaps
    ("This is a test.", "top_4gram_char_fraction", 0.0),
    ("buy now " * 40, "top_2gram_char_fraction", 1.0),
    ("buy now " * 40, "top_3gram_char_fraction", 237 / 240),
    ("buy now " * 40, "dup_10gram_char_fraction", 1.0),
    ("a b c a b d", "top_2gram_char_fraction", 4 / 6),
    ("a a a b", "top_2gram_char_fraction", 3 / 4),
    ("aaaa b aaaa b c", "top_2gram_char_fraction", 10 / 11),
    ("a b a b a b longer words longer words", "top_2gram_char_fraction", 22 / 28),
    ("a b c x a b c", "top_3gram_char_fraction", 6 / 7),
    ("a b\nc x\n\na b\nc", "top_3gram_char_fraction", 6 / 7),
    ("中文字中文字。", "top_3gram_char_fraction", 6 / 7),
    ("ab c a bc", "top_2gram_char_fraction", 0.0),
    *(
        (" ".join([*map(str, range(n)), *map(str, range(n)), "x"]), f"dup_{n}gram_char_fraction", 2 * n / (2 * n + 1))
        for n in (5, 6, 7, 8, 9, 10)
    ),
    *((" ".join([*map(str, range(n - 1))] * 2), f"dup_{n}gram_char_fraction", 0.0) for n in (5, 6, 7, 8, 9, 10)),
    ("1 2 3 4 5 6 x 1 2 3 4 5 y 2 3 4 5 6", "dup_5gram_char_fraction", 16 / 18),
    # characters and words of a kind
    ("ab12", "digit_fraction", 2 / 4),
    ("٣a²Ⅳ", "digit_fraction", 1 / 4),
    ("a123b45", "longest_digit_run", 3),
    ("12٣๓ 5", "longest_digit_run", 4),
    ("1,000", "longest_digit_run", 3),
    ("<b>x</b>y", "markup_fraction", 7 / 9),
    ("1 < 2 > 1 <3>", "markup_fraction", 0.0),
    ("<b", "markup_fraction", 0.0),
    ("<!-- é -->z", "markup_fraction", 10 / 11),
    ("<a<b>c>", "markup_fraction", 5 / 7),
    ("<a" + "é" * 1_022 + ">", "markup_fraction", 1.0),
    ("<a" + "é" * 1_023 + ">", "markup_fraction", 0.0),
    ("<a" + "x" * 1_023 + "<b>", "markup_fraction", 3 / 1_028),
    ("aB" * 32, "encoded_fraction", 1.0),
    ("aB" * 31 + "a", "encoded_fraction", 0.0),
    ("a" * 64, "encoded_fraction", 0.0),
    ("0f" * 32 + " ok", "encoded_fraction", 64 / 67),
    ("A" * 62 + "1=", "encoded_fraction", 1.0),
    ("aB" * 31 + "-" + "aB" * 31, "encoded_fraction", 0.0),
    ("aB" * 32 + "é" + "aB+/" * 16, "encoded_fraction", 128 / 129),
    ("a b 1", "alpha_word_fraction", 2 / 3),
    ("中 1é ² ...", "alpha_word_fraction", 2 / 4),
    ("# a", "symbol_word_ratio", 1 / 2),
    ("#hashtag wait... x…", "symbol_word_ratio", 1.0),
    ("..... a", "symbol_word_ratio", 1 / 2),
    ("...... ##", "symbol_word_ratio", 2.0),
    ("- a\n* b\n  • c\nd -", "bullet_line_fraction", 3 / 4),
    ("a...\nb.. \n\nc…\t\n…d", "ellipsis_line_fraction", 2 / 4),
    ("a...\r\nb . . .\r\n", "ellipsis_line_fraction", 1 / 2),
    ("a bc def", "mean_word_chars", 2.0),
    ("中文 abcd", "mean_word_chars", 2.0),
    (b"\xff\xfe a", "mean_word_chars", 3 / 2),
]


def _kernels(document: bytes) -> dict[str, float]:
    return score_text(pa.array([document], pa.binary())).to_pylist()[0]


@pytest.mark.parametrize("score", [text_signals, _kernels], ids=["twin", "kernels"])
def test_each_signal_is_exactly_this(score: Callable[[bytes], dict[str, float]]) -> None:
    told = []
    for text, signal, value in CASES:
        document = text if isinstance(text, bytes) else text.encode()
        found = score(document)[signal]
        if found != (pytest.approx(value, abs=1e-12) if "entropy" in signal else value):
            told.append((document[:60], signal, found, value))
    assert told == []


def test_every_signal_is_told_something_of() -> None:
    assert {signal for _, signal, _ in CASES} == set(text_signals(b""))


@pytest.mark.parametrize("texts", [["a"], "a", np.array(["a"]), pa.scalar("a"), pa.table({"a": ["a"]})])
def test_what_is_no_arrow_array_is_refused(texts) -> None:
    with pytest.raises(UsageError, match="pyarrow array"):
        score_text(texts, ["length_bytes"])


@pytest.mark.parametrize("signals", ["byte_entropy", [None], [3]])
def test_names_are_a_list_of_names(signals) -> None:
    with pytest.raises(UsageError):
        score_text(pa.array(["a"]), signals)


def test_no_signals_are_no_columns_and_as_many_rows() -> None:
    table = score_text(pa.array(["a", None]), [])
    assert (table.num_rows, table.num_columns) == (2, 0)
