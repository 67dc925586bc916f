"""Which counts is a text signal made of, and which kernel gives each count?

Each signal is a count, or a quotient of two. Each count stands in a column of one kernel's facts, and may ask that
kernel for more work than it does anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntFlag
from types import MappingProxyType

from dataguard.score.kernels import text_classes, text_lines, text_ngrams, text_runs, text_words

__all__ = ["CLASS_FACTS", "LENGTHS", "LINE_FACTS", "RECIPES", "RUN_FACTS", "WORD_FACTS", "WORK", "Work"]


class Work(IntFlag):
    """What kernels are asked for."""

    BYTE_ENTROPY = 1
    PERIODS = 2
    CLASSES = 4
    DIGITS = 8
    SYMBOLS = 1 << 14
    MARKUP = 16
    ENCODED = 32
    LINES = 64
    EDGES = 128
    DUP_LINES = 256
    PARAGRAPHS = 512
    WORDS = 1024
    WORD_ENTROPY = 8192
    NGRAMS = 1 << 20
    """Times 2^n for sequences of n words."""


LENGTHS = range(text_ngrams.FIRST_TOP, text_ngrams.LONGEST + 1)
"""Words of the sequences that are looked for."""

CLASS_FACTS: Mapping[str, tuple[int, Work]] = MappingProxyType(
    {
        "chars": (text_classes.CHARS, Work.CLASSES),
        "invalid": (text_classes.INVALID, Work.CLASSES),
        "nontext": (text_classes.NONTEXT, Work.CLASSES),
        "replacements": (text_classes.REPLACEMENTS, Work.CLASSES),
        "ellipses_alone": (text_classes.ELLIPSES, Work.CLASSES),
        "alpha_words": (text_classes.ALPHA_WORDS, Work.CLASSES),
        "words": (text_classes.WORDS, Work.CLASSES),
        "word_chars": (text_classes.WORD_CHARS, Work.CLASSES),
    }
)
RUN_FACTS: Mapping[str, tuple[int, Work]] = MappingProxyType(
    {
        "digits": (text_runs.DIGITS, Work.DIGITS),
        "longest_digits": (text_runs.LONGEST_DIGITS, Work.DIGITS),
        "symbols": (text_runs.SYMBOLS, Work.SYMBOLS),
        "markup": (text_runs.MARKUP, Work.MARKUP),
        "encoded": (text_runs.ENCODED, Work.ENCODED),
    }
)
LINE_FACTS: Mapping[str, tuple[int, Work]] = MappingProxyType(
    {
        "lines": (text_lines.LINES, Work.LINES),
        "line_chars": (text_lines.LINE_CHARS, Work.LINES),
        "longest_line": (text_lines.LONGEST_LINE, Work.LINES),
        "bullets": (text_lines.BULLETS, Work.EDGES),
        "ellipses": (text_lines.ELLIPSES, Work.EDGES),
        "dup_lines": (text_lines.DUP_LINES, Work.DUP_LINES),
        "dup_line_chars": (text_lines.DUP_CHARS, Work.DUP_LINES),
        "paragraphs": (text_lines.PARAGRAPHS, Work.LINES),
        "dup_paragraphs": (text_lines.DUP_PARAGRAPHS, Work.PARAGRAPHS),
        "dup_paragraph_chars": (text_lines.DUP_PARAGRAPH_CHARS, Work.PARAGRAPHS),
    }
)
WORD_FACTS: Mapping[str, tuple[int, Work]] = MappingProxyType(
    {
        "longest_word": (text_words.LONGEST_WORD, Work.WORDS),
    }
)
_OTHER_WORK: Mapping[str, Work] = MappingProxyType(
    {
        "bytes": Work(0),
        "byte_entropy": Work.BYTE_ENTROPY,
        "period_repeats": Work.PERIODS,
        "period_bytes": Work.PERIODS,
        "word_entropy": Work.WORD_ENTROPY,
        **{f"covered_{n}": Work(Work.NGRAMS << n) for n in LENGTHS},
    }
)

RECIPES: Mapping[str, tuple[str, str | None]] = MappingProxyType(
    {
        "length_bytes": ("bytes", None),
        "length_chars": ("chars", None),
        "length_words": ("words", None),
        "length_lines": ("lines", None),
        "longest_line_chars": ("longest_line", None),
        "longest_word_chars": ("longest_word", None),
        "byte_entropy": ("byte_entropy", None),
        "word_entropy": ("word_entropy", None),
        "invalid_utf8_fraction": ("invalid", "bytes"),
        "nontext_fraction": ("nontext", "bytes"),
        "replacement_fraction": ("replacements", "chars"),
        "byte_periodic_repeats": ("period_repeats", None),
        "byte_periodic_fraction": ("period_bytes", "bytes"),
        "dup_line_fraction": ("dup_lines", "lines"),
        "dup_line_char_fraction": ("dup_line_chars", "line_chars"),
        "dup_paragraph_fraction": ("dup_paragraphs", "paragraphs"),
        "dup_paragraph_char_fraction": ("dup_paragraph_chars", "line_chars"),
        **{
            f"{'top' if n <= text_ngrams.LAST_TOP else 'dup'}_{n}gram_char_fraction": (f"covered_{n}", "word_chars")
            for n in LENGTHS
        },
        "digit_fraction": ("digits", "chars"),
        "longest_digit_run": ("longest_digits", None),
        "markup_fraction": ("markup", "chars"),
        "encoded_fraction": ("encoded", "chars"),
        "alpha_word_fraction": ("alpha_words", "words"),
        "symbol_word_ratio": ("symbols", "words"),
        "bullet_line_fraction": ("bullets", "lines"),
        "ellipsis_line_fraction": ("ellipses", "lines"),
        "mean_word_chars": ("word_chars", "words"),
    }
)
"""Of each signal the count it is, or is a part of, and the count that it is divided by."""

WORK: Mapping[str, Work] = MappingProxyType(
    {
        **_OTHER_WORK,
        **{
            name: work
            for facts in (CLASS_FACTS, RUN_FACTS, LINE_FACTS, WORD_FACTS)
            for name, (_, work) in facts.items()
        },
    }
)
"""Of each count what it asks for."""
