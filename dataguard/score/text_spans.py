"""Which bytes of a record made a text signal what it is?

`text_spans` gives the places behind a signal as half-open byte ranges, merged and in order, so that a preview can mark
them: repeated lines, repeated n-grams, periodic bytes, invalid bytes, tags and so on. The ranges are exact: what they
cover over what the signal divides by is the signal. It looks at one record at a time and needs no compiled code:

1. The bytes are read into characters, words, lines and paragraphs (`text_parts`).
2. What repeats is found by giving equal things equal numbers, n-grams as pairs of the numbers of the (n-1)-gram and of
   the word behind it.
3. Whatever was found is turned into ranges of bytes, sorted and merged.

Signals without a place (lengths, entropies, means) have no ranges, nor do they need any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from dataguard.errors import UnknownSignal
from dataguard.score.registry import spec_of
from dataguard.score.text_parts import Flags, Spans, TextParts, in_ranges, pairs_of, runs_of
from dataguard.score.unicode_ranges import ALPHABETIC, BULLETS, DECIMAL_DIGIT

__all__ = ["text_spans"]

_MOST_TAG_CHARS = 1_024
_LEAST_PERIODIC_REPEATS = 4
_LEAST_ENCODED_CHARS = 64


def text_spans(document: bytes, signal: str) -> Spans:
    r"""The byte ranges of a record that made a text signal what it is.

    Parameters
    ----------
    document
        The bytes of the record as stored; any bytes.
    signal
        The name of a text signal.

    Returns
    -------
    spans
        int64, shape (k, 2): half-open, merged, in order; empty where the signal has no place. For
        ``byte_periodic_repeats`` the runs that hold the most repeats, for the ``longest_*`` signals the first that is
        longest, for ``alpha_word_fraction`` the words without an alphabetic character, since they make it low.

    Raises
    ------
    UnknownSignal
        There is no such signal, or it is none of texts.

    Examples
    --------
    >>> text_spans(b"buy now, buy now, sell", "top_2gram_char_fraction").tolist()
    [[0, 3], [4, 8], [9, 12], [13, 17]]
    >>> text_spans(b"a\xffb", "invalid_utf8_fraction").tolist(), text_spans(b"aab", "byte_entropy").tolist()
    ([[1, 2]], [])
    """
    if spec_of(signal).kind != "text":
        raise UnknownSignal(f"{signal} is no signal of a text", todo="ask token_spans for its places")
    find = _FINDERS.get(signal)
    if find is None or not document:
        return np.zeros((0, 2), dtype=np.int64)
    return _merged(find(TextParts(document)))


def _invalid(text: TextParts) -> Spans:
    return text.to_bytes(runs_of(text.is_invalid))


def _nontext(text: TextParts) -> Spans:
    codes = text.codes
    is_mark = codes == 0xFEFF
    is_mark[:1] = False  # the first character of a record may be a byte-order mark
    control = ((codes < 0x20) & ~np.isin(codes, [0x09, 0x0A, 0x0C, 0x0D])) | ((codes >= 0x7F) & (codes < 0xA0))
    noncharacter = ((codes >= 0xFDD0) & (codes < 0xFDF0)) | (codes & 0xFFFE == 0xFFFE)
    private = ((codes >= 0xE000) & (codes < 0xF900)) | (codes >= 0xF0000)
    return text.to_bytes(runs_of(text.is_invalid | is_mark | control | noncharacter | private | (codes == 0xFFFD)))


def _replacement(text: TextParts) -> Spans:
    return text.to_bytes(runs_of(text.codes == 0xFFFD))


def _most_repeats(text: TextParts) -> Spans:
    most = max((repeats for repeats, _, _ in text.periodic_runs), default=0)
    return _stacked((start, stop) for repeats, start, stop in text.periodic_runs if repeats == most)


def _periodic(text: TextParts) -> Spans:
    return _stacked((start, stop) for repeats, start, stop in text.periodic_runs if repeats >= _LEAST_PERIODIC_REPEATS)


def _dup_lines(text: TextParts) -> Spans:
    return text.to_bytes(text.lines[_is_repeat(text.pieces(text.lines))])


def _dup_paragraphs(text: TextParts) -> Spans:
    lines = text.pieces(text.lines)
    paragraphs = text.paragraphs.tolist()
    repeats = _is_repeat([tuple(lines[start:stop]) for start, stop in paragraphs])
    chosen = [text.lines[start:stop] for (start, stop), repeat in zip(paragraphs, repeats, strict=True) if repeat]
    return text.to_bytes(np.concatenate([np.zeros((0, 2), dtype=np.int64), *chosen]))


def _grams(text: TextParts, n: int) -> NDArray[np.int64]:
    """The number of each n-gram of words, by its first word; equal n-grams have equal numbers."""
    numbers = text.word_numbers
    words = text.word_numbers
    for size in range(2, n + 1):
        if len(words) < size:
            return np.zeros(0, dtype=np.int64)
        pairs = numbers[: len(words) - size + 1] * (len(words) + 1) + words[size - 1 :]
        numbers = np.unique(pairs, return_inverse=True)[1].astype(np.int64)
    return numbers


def _covered(num_words: int, firsts: NDArray[np.int64], n: int) -> Flags:
    """Which words lie in n-grams that begin at these words."""
    edges = np.bincount(firsts, minlength=num_words + 1) - np.bincount(firsts + n, minlength=num_words + 1)
    covered: Flags = np.cumsum(edges[:-1]) > 0
    return covered


def _dup_grams(n: int) -> Callable[[TextParts], Spans]:
    def find(text: TextParts) -> Spans:
        grams = _grams(text, n)
        firsts = np.flatnonzero(np.bincount(grams)[grams] > 1) if len(grams) else grams
        return text.to_bytes(text.words[_covered(len(text.words), firsts, n)])

    return find


def _top_gram(n: int) -> Callable[[TextParts], Spans]:
    def find(text: TextParts) -> Spans:
        grams = _grams(text, n)
        if not len(grams):
            return text.words[:0]
        # Occurrences side by side, in the order of the text: each one covers its words up to the next one's first.
        order = np.argsort(grams, kind="stable")
        is_last = np.append(np.diff(grams[order]) > 0, [True])
        stops = np.where(is_last, order + n, np.minimum(order + n, np.append(order[1:], 0)))
        before = np.concatenate([[0], np.cumsum(text.words[:, 1] - text.words[:, 0])])
        num_chars = np.zeros(int(grams.max()) + 1, dtype=np.int64)
        np.add.at(num_chars, grams[order], before[stops] - before[order])
        num_chars[np.bincount(grams) == 1] = 0
        best = int(np.argmax(num_chars))
        firsts = np.flatnonzero(grams == best) if num_chars[best] else grams[:0]
        return text.to_bytes(text.words[_covered(len(text.words), firsts, n)])

    return find


def _digits(text: TextParts) -> Spans:
    return text.to_bytes(runs_of(in_ranges(text.codes, DECIMAL_DIGIT)))


def _longest_digits(text: TextParts) -> Spans:
    return text.to_bytes(_longest(runs_of(in_ranges(text.codes, DECIMAL_DIGIT))))


def _longest_line(text: TextParts) -> Spans:
    return text.to_bytes(_longest(text.lines))


def _longest_word(text: TextParts) -> Spans:
    return text.to_bytes(_longest(text.words))


def _tags(text: TextParts) -> Spans:
    codes = text.codes
    lower = codes[1:] | 0x20
    opens = (codes[:-1] == ord("<")) & (
        ((lower >= ord("a")) & (lower <= ord("z"))) | (codes[1:] == ord("/")) | (codes[1:] == ord("!"))
    )
    closes = np.flatnonzero(codes == ord(">"))
    starts = np.flatnonzero(opens)
    next_close = np.searchsorted(closes, starts)
    tags: list[tuple[int, int]] = []
    at = 0
    for start, index in zip(starts.tolist(), next_close.tolist(), strict=True):
        if start >= at and index < len(closes) and closes[index] - start <= _MOST_TAG_CHARS:
            at = int(closes[index]) + 1
            tags.append((start, at))
    return text.to_bytes(_stacked(tags))


def _encoded(text: TextParts) -> Spans:
    codes = text.codes
    upper = (codes >= ord("A")) & (codes <= ord("Z"))
    lower = (codes >= ord("a")) & (codes <= ord("z"))
    digit = (codes >= ord("0")) & (codes <= ord("9"))
    runs = runs_of(upper | lower | digit | np.isin(codes, [ord("+"), ord("/"), ord("=")]))
    kinds = np.zeros(len(runs), dtype=np.int64)
    for flags in (upper, lower, digit):
        before = np.concatenate([[0], np.cumsum(flags)])
        kinds += before[runs[:, 1]] > before[runs[:, 0]]
    return text.to_bytes(runs[(runs[:, 1] - runs[:, 0] >= _LEAST_ENCODED_CHARS) & (kinds >= 2)])


def _words_without_letters(text: TextParts) -> Spans:
    before = np.concatenate([[0], np.cumsum(in_ranges(text.codes, ALPHABETIC))])
    words = text.words
    return text.to_bytes(words[before[words[:, 1]] == before[words[:, 0]]])


def _symbols(text: TextParts) -> Spans:
    dots = runs_of(text.codes == ord("."))
    dots[:, 1] -= (dots[:, 1] - dots[:, 0]) % 3  # three make one, the first three first
    signs = runs_of((text.codes == ord("#")) | (text.codes == 0x2026))
    return text.to_bytes(np.concatenate([dots, signs]))


def _bullet_lines(text: TextParts) -> Spans:
    lines = text.lines
    inside = np.flatnonzero(~text.is_white)
    firsts = text.codes[inside[np.searchsorted(inside, lines[:, 0])]]
    return text.to_bytes(lines[in_ranges(firsts, BULLETS)])


def _ellipsis_lines(text: TextParts) -> Spans:
    lines = text.lines
    inside = np.flatnonzero(~text.is_white)
    lasts = inside[np.searchsorted(inside, lines[:, 1]) - 1]
    is_dot = text.codes == ord(".")
    dots = np.concatenate([[0], np.cumsum(is_dot)])
    three = (lasts - 2 >= lines[:, 0]) & (dots[lasts + 1] - dots[np.maximum(lasts - 2, 0)] == 3)
    return text.to_bytes(lines[three | (text.codes[lasts] == 0x2026)])


_FINDERS: MappingProxyType[str, Callable[[TextParts], Spans]] = MappingProxyType(
    {
        "longest_line_chars": _longest_line,
        "longest_word_chars": _longest_word,
        "invalid_utf8_fraction": _invalid,
        "nontext_fraction": _nontext,
        "replacement_fraction": _replacement,
        "byte_periodic_repeats": _most_repeats,
        "byte_periodic_fraction": _periodic,
        "dup_line_fraction": _dup_lines,
        "dup_line_char_fraction": _dup_lines,
        "dup_paragraph_fraction": _dup_paragraphs,
        "dup_paragraph_char_fraction": _dup_paragraphs,
        **{f"top_{n}gram_char_fraction": _top_gram(n) for n in (2, 3, 4)},
        **{f"dup_{n}gram_char_fraction": _dup_grams(n) for n in range(5, 11)},
        "digit_fraction": _digits,
        "longest_digit_run": _longest_digits,
        "markup_fraction": _tags,
        "encoded_fraction": _encoded,
        "alpha_word_fraction": _words_without_letters,
        "symbol_word_ratio": _symbols,
        "bullet_line_fraction": _bullet_lines,
        "ellipsis_line_fraction": _ellipsis_lines,
    }
)


def _stacked(pairs: Iterable[tuple[int, int]]) -> Spans:
    return np.array(list(pairs), dtype=np.int64).reshape(-1, 2)


def _longest(spans: Spans) -> Spans:
    """The first of the longest, alone."""
    if not len(spans):
        return spans
    best = int(np.argmax(spans[:, 1] - spans[:, 0]))
    return spans[best : best + 1]


def _is_repeat(items: Sequence[bytes | tuple[bytes, ...]]) -> Flags:
    """Which items equal an earlier one."""
    seen: set[bytes | tuple[bytes, ...]] = set()
    repeats = np.zeros(len(items), dtype=np.bool_)
    for index, item in enumerate(items):
        repeats[index] = item in seen
        seen.add(item)
    return repeats


def _merged(spans: Spans) -> Spans:
    """Sorted, empty ones left out, those that touch or overlap made one."""
    spans = spans[spans[:, 1] > spans[:, 0]]
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reach = np.maximum.accumulate(spans[:, 1]) if len(spans) else spans[:, 1]
    begins = np.ones(len(spans), dtype=np.bool_)
    begins[1:] = spans[1:, 0] > reach[:-1]
    ends = np.ones(len(spans), dtype=np.bool_)
    ends[:-1] = begins[1:]
    return pairs_of(spans[begins, 0], reach[ends])
