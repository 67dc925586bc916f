"""The baked ranges of code points agree with what this Python knows of Unicode, which is another version of it."""

from __future__ import annotations

import sys
import unicodedata
from itertools import pairwise

import pytest

from dataguard.score.unicode_ranges import ALPHABETIC, BULLETS, DECIMAL_DIGIT, UNSPACED, WHITE_SPACE, Ranges
from tests.twins import text_signals as twin

NAMES_OF_UNSPACED = (
    *("CJK UNIFIED IDEOGRAPH", "CJK COMPATIBILITY IDEOGRAPH", "CJK RADICAL", "KANGXI RADICAL", "HANGZHOU NUMERAL"),
    *("HIRAGANA LETTER", "KATAKANA LETTER", "HALFWIDTH KATAKANA LETTER", "THAI CHARACTER", "THAI DIGIT"),
    *("LAO LETTER", "LAO VOWEL", "LAO DIGIT", "KHMER LETTER", "KHMER VOWEL", "KHMER DIGIT", "MYANMAR LETTER"),
    *("MYANMAR VOWEL", "MYANMAR DIGIT", "MYANMAR SIGN"),
)
COMMON = {0x30FC, 0xFF70, 0x0E3F}  # the marks of long vowels and the baht are of no single script


def _codes(ranges: Ranges) -> set[int]:
    return {code for start, stop in ranges for code in range(start, stop)}


ASSIGNED = [code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) != "Cn"]


@pytest.mark.parametrize("ranges", [ALPHABETIC, BULLETS, DECIMAL_DIGIT, UNSPACED, WHITE_SPACE])
def test_ranges_are_in_order_and_apart(ranges: Ranges) -> None:
    edges = [edge for each in ranges for edge in each]
    assert all(first < second for first, second in pairwise(edges))
    assert edges[0] >= 0
    assert edges[-1] <= sys.maxunicode + 1


def test_digits_are_the_decimal_ones() -> None:
    digits = _codes(DECIMAL_DIGIT)
    assert [code for code in ASSIGNED if (code in digits) != (unicodedata.category(chr(code)) == "Nd")] == []


def test_white_space_is_what_python_strips_less_four_separators() -> None:
    white = _codes(WHITE_SPACE)
    assert {code for code in ASSIGNED if chr(code).isspace()} - white == {0x1C, 0x1D, 0x1E, 0x1F}
    assert all(chr(code).isspace() for code in white)
    assert white == twin.WHITE_SPACE


def test_every_letter_and_letter_number_is_alphabetic_and_little_else() -> None:
    alphabetic = _codes(ALPHABETIC)
    letters = {code for code in ASSIGNED if unicodedata.category(chr(code)) in {"Lu", "Ll", "Lt", "Lm", "Lo", "Nl"}}
    assert letters - alphabetic == set()
    others = {unicodedata.category(chr(code)) for code in (alphabetic - letters).intersection(ASSIGNED)}
    assert others == {"Mn", "Mc", "So"}, "vowel signs and circled letters"
    assert not alphabetic & (_codes(DECIMAL_DIGIT) | _codes(WHITE_SPACE))


def test_scripts_without_spaces_are_those_that_names_say() -> None:
    unspaced = _codes(UNSPACED)
    named = {code for code in ASSIGNED if unicodedata.name(chr(code), "").startswith(NAMES_OF_UNSPACED)}
    assert named - unspaced - COMMON == set()
    assert not unspaced & (_codes(WHITE_SPACE) | COMMON)
    assert unspaced == {code for first, last in twin.UNSPACED for code in range(first, last + 1)}
