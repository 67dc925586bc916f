"""What is each text signal of a document? The slow, obvious twin of the kernels, written from the definitions alone.

Everything is a list of Python objects, every question is asked of all of them, nothing is clever and nothing is hashed.
The bytes are read once into characters; words, lines and paragraphs are ranges of characters.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeVar

from dataguard.score.unicode_ranges import ALPHABETIC, BULLETS, DECIMAL_DIGIT

__all__ = ["Document", "text_signals"]

Item = TypeVar("Item", bound=Hashable)
Range = tuple[int, int]

WHITE_SPACE = frozenset(
    [*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]
)

# First and last code point of each run of a script written without spaces.
HAN = (
    (0x2E80, 0x2E99), (0x2E9B, 0x2EF3), (0x2F00, 0x2FD5), (0x3005, 0x3005), (0x3007, 0x3007), (0x3021, 0x3029),
    (0x3038, 0x303B), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFA6D), (0xFA70, 0xFAD9), (0x16FE2, 0x16FE3),
    (0x16FF0, 0x16FF6), (0x20000, 0x2A6DF), (0x2A700, 0x2B81E), (0x2B820, 0x2CEAD), (0x2CEB0, 0x2EBE0),
    (0x2EBF0, 0x2EE5D), (0x2F800, 0x2FA1D), (0x30000, 0x3134A), (0x31350, 0x33479),
)  # fmt: skip
HIRAGANA = (
    (0x3041, 0x3096), (0x309D, 0x309F), (0x1B001, 0x1B11F), (0x1B123, 0x1B123), (0x1B132, 0x1B132),
    (0x1B150, 0x1B152), (0x1F200, 0x1F200),
)  # fmt: skip
KATAKANA = (
    (0x30A1, 0x30FA), (0x30FD, 0x30FF), (0x31F0, 0x31FF), (0x32D0, 0x32FE), (0x3300, 0x3357), (0xFF66, 0xFF6F),
    (0xFF71, 0xFF9D), (0x1AFF0, 0x1AFF3), (0x1AFF5, 0x1AFFB), (0x1AFFD, 0x1AFFE), (0x1B000, 0x1B000),
    (0x1B120, 0x1B122), (0x1B124, 0x1B128), (0x1B155, 0x1B155), (0x1B164, 0x1B168),
)  # fmt: skip
THAI = ((0x0E01, 0x0E3A), (0x0E40, 0x0E5B))
LAO = (
    (0x0E81, 0x0E82), (0x0E84, 0x0E84), (0x0E86, 0x0E8A), (0x0E8C, 0x0EA3), (0x0EA5, 0x0EA5), (0x0EA7, 0x0EBD),
    (0x0EC0, 0x0EC4), (0x0EC6, 0x0EC6), (0x0EC8, 0x0ECE), (0x0ED0, 0x0ED9), (0x0EDC, 0x0EDF),
)  # fmt: skip
KHMER = ((0x1780, 0x17DD), (0x17E0, 0x17E9), (0x17F0, 0x17F9), (0x19E0, 0x19FF))
MYANMAR = ((0x1000, 0x109F), (0xA9E0, 0xA9FE), (0xAA60, 0xAA7F), (0x116D0, 0x116E3))
UNSPACED = (*HAN, *HIRAGANA, *KATAKANA, *THAI, *LAO, *KHMER, *MYANMAR)

BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
INVALID = -1


def text_signals(document: bytes) -> dict[str, float]:
    """Every text signal that needs no profile, by name."""
    doc = Document(document)
    signals: dict[str, float] = {
        "length_bytes": len(document),
        "length_chars": len(doc.codes),
        "length_words": len(doc.words),
        "length_lines": len(doc.lines),
        "longest_line_chars": max(map(_length, doc.lines), default=0),
        "longest_word_chars": max(map(_length, doc.words), default=0),
        "byte_entropy": _entropy(list(document)),
        "word_entropy": _entropy(doc.word_bytes),
        "invalid_utf8_fraction": _ratio(doc.codes.count(INVALID), len(document)),
        "nontext_fraction": _ratio(doc.num_nontext_bytes, len(document)),
        "replacement_fraction": _ratio(doc.codes.count(0xFFFD), len(doc.codes)),
        "byte_periodic_repeats": doc.most_repeats,
        "byte_periodic_fraction": _ratio(len(doc.periodic_bytes), len(document)),
        "digit_fraction": _ratio(sum(map(_is_digit, doc.codes)), len(doc.codes)),
        "longest_digit_run": _longest_run([_is_digit(code) for code in doc.codes]),
        "markup_fraction": _ratio(sum(map(_length, doc.tags)), len(doc.codes)),
        "encoded_fraction": _ratio(sum(map(_length, doc.encoded)), len(doc.codes)),
        "alpha_word_fraction": _ratio(
            sum(any(_is_in(code, ALPHABETIC) for code in doc.codes[start:stop]) for start, stop in doc.words),
            len(doc.words),
        ),
        "symbol_word_ratio": _ratio(doc.num_symbols, len(doc.words)),
        "bullet_line_fraction": _ratio(sum(map(doc.begins_with_bullet, doc.lines)), len(doc.lines)),
        "ellipsis_line_fraction": _ratio(sum(map(doc.ends_with_ellipsis, doc.lines)), len(doc.lines)),
        "mean_word_chars": _ratio(doc.num_word_chars, len(doc.words)),
    }
    signals |= _duplicates("line", [(doc.text(line),) for line in doc.lines], [[line] for line in doc.lines])
    signals |= _duplicates(
        "paragraph", [tuple(doc.text(line) for line in lines) for lines in doc.paragraphs], doc.paragraphs
    )
    for n in (2, 3, 4):
        signals[f"top_{n}gram_char_fraction"] = _ratio(doc.top_gram_chars(n), doc.num_word_chars)
    for n in (5, 6, 7, 8, 9, 10):
        signals[f"dup_{n}gram_char_fraction"] = _ratio(doc.dup_gram_chars(n), doc.num_word_chars)
    return signals


@dataclass(frozen=True)
class Document:
    """A document read into characters, and what is made of them."""

    content: bytes

    @cached_property
    def chars(self) -> list[tuple[int, int, int]]:
        """(first byte, one past the last, code point) of each character; an invalid byte has code `INVALID`."""
        out = []
        start = 0
        while start < len(self.content):
            for num_bytes in (1, 2, 3, 4):
                try:
                    (char,) = self.content[start : start + num_bytes].decode("utf-8", "strict")
                except ValueError:
                    continue
                out.append((start, start + num_bytes, ord(char)))
                break
            else:
                num_bytes = 1
                out.append((start, start + 1, INVALID))
            start += num_bytes
        return out

    @cached_property
    def codes(self) -> list[int]:
        """The code point of each character."""
        return [code for _, _, code in self.chars]

    def text(self, chars: Range) -> bytes:
        """The bytes of a range of characters."""
        start, stop = chars
        return b"".join(self.content[first:last] for first, last, _ in self.chars[start:stop])

    @cached_property
    def words(self) -> list[Range]:
        """Ranges of characters."""
        out = []
        start = None
        for index, code in enumerate(self.codes):
            alone = _is_unspaced(code)
            if (alone or _is_white(code)) and start is not None:
                out.append((start, index))
                start = None
            if alone:
                out.append((index, index + 1))
            elif not _is_white(code) and start is None:
                start = index
        if start is not None:
            out.append((start, len(self.codes)))
        return out

    @cached_property
    def word_bytes(self) -> list[bytes]:
        """The bytes of each word."""
        return [self.text(word) for word in self.words]

    @cached_property
    def num_word_chars(self) -> int:
        """Characters of words."""
        return sum(map(_length, self.words))

    @cached_property
    def all_lines(self) -> list[Range]:
        """Every line without its ending, blank ones too."""
        out = []
        start = 0
        for index, code in enumerate(self.codes):
            if code == 0x0A:
                ends_with_cr = index > start and self.codes[index - 1] == 0x0D
                out.append((start, index - 1 if ends_with_cr else index))
                start = index + 1
        out.append((start, len(self.codes)))
        return out

    def is_blank(self, line: Range) -> bool:
        """Whether a line is of white space alone, or empty."""
        return all(map(_is_white, self.codes[slice(*line)]))

    @cached_property
    def lines(self) -> list[Range]:
        """The lines that count."""
        return [line for line in self.all_lines if not self.is_blank(line)]

    @cached_property
    def paragraphs(self) -> list[list[Range]]:
        """The lines of each paragraph."""
        out: list[list[Range]] = []
        open_ = False
        for line in self.all_lines:
            if self.is_blank(line):
                open_ = False
            elif open_:
                out[-1].append(line)
            else:
                out.append([line])
                open_ = True
        return out

    @cached_property
    def num_nontext_bytes(self) -> int:
        """Bytes of what is no text."""
        return sum(stop - start for start, stop, code in self.chars if _is_nontext(code, first=start == 0))

    @cached_property
    def periodic_runs(self) -> list[tuple[int, int, int]]:
        """(period, start, stop) of every maximal run of at least 256 bytes that repeats its first `period` bytes."""
        out = []
        for period in range(1, 65):
            start = 0
            for index in range(period, len(self.content) + 1):
                if index < len(self.content) and self.content[index] == self.content[index - period]:
                    continue
                if index - start >= 256 and index - start > period:
                    out.append((period, start, index))
                start = index - period + 1
        return out

    @cached_property
    def most_repeats(self) -> int:
        """Most repeats of one unit."""
        return max(((stop - start) // period for period, start, stop in self.periodic_runs), default=0)

    @cached_property
    def periodic_bytes(self) -> set[int]:
        """The bytes in runs of at least four repeats."""
        covered: set[int] = set()
        for period, start, stop in self.periodic_runs:
            if (stop - start) // period >= 4:
                covered.update(range(start, stop))
        return covered

    def grams(self, n: int) -> dict[tuple[bytes, ...], list[int]]:
        """Where (first word) each n-gram occurs, of those that occur more than once."""
        places: dict[tuple[bytes, ...], list[int]] = {}
        for first in range(len(self.words) - n + 1):
            places.setdefault(tuple(self.word_bytes[first : first + n]), []).append(first)
        return {gram: firsts for gram, firsts in places.items() if len(firsts) > 1}

    def covered_words(self, n: int, firsts: Sequence[int]) -> set[int]:
        """The words of n-grams that begin at these words."""
        return {first + offset for first in firsts for offset in range(n)}

    def num_chars_of(self, words: set[int]) -> int:
        """Characters of these words."""
        return sum(_length(self.words[word]) for word in words)

    def top_gram_chars(self, n: int) -> int:
        """Characters of the words covered by the repeated n-gram that covers most."""
        return max(
            (self.num_chars_of(self.covered_words(n, firsts)) for firsts in self.grams(n).values()),
            default=0,
        )

    def dup_gram_chars(self, n: int) -> int:
        """Characters of the words covered by any repeated n-gram."""
        return self.num_chars_of({word for firsts in self.grams(n).values() for word in self.covered_words(n, firsts)})

    @cached_property
    def tags(self) -> list[Range]:
        """Ranges of characters from ``<`` to ``>``, both included."""
        out = []
        index = 0
        while index < len(self.codes):
            close = None
            if self.codes[index] == ord("<") and _opens_tag(self.codes[index + 1 : index + 2]):
                within = self.codes[index : index + 1_024 + 1]
                close = index + within.index(ord(">")) if ord(">") in within else None
            if close is None:
                index += 1
            else:
                out.append((index, close + 1))
                index = close + 1
        return out

    @cached_property
    def encoded(self) -> list[Range]:
        """Long runs of an alphabet of encodings."""
        out = []
        for start, stop in _runs([code in BASE64 for code in self.codes]):
            run = [chr(code) for code in self.codes[start:stop]]
            kinds = any(c.isupper() for c in run) + any(c.islower() for c in run) + any(c.isdigit() for c in run)
            if stop - start >= 64 and kinds >= 2:
                out.append((start, stop))
        return out

    @cached_property
    def num_symbols(self) -> int:
        """Hash signs and ellipses."""
        return self.content.count(b"#") + self.content.count(b"...") + self.codes.count(0x2026)

    def begins_with_bullet(self, line: Range) -> bool:
        """Whether the first character that is not white space is a bullet."""
        first = next(code for code in self.codes[slice(*line)] if not _is_white(code))
        return _is_in(first, BULLETS)

    def ends_with_ellipsis(self, line: Range) -> bool:
        """Whether what stands before trailing white space ends with an ellipsis."""
        codes = self.codes[slice(*line)]
        while _is_white(codes[-1]):
            codes = codes[:-1]
        return codes[-1] == 0x2026 or codes[-3:] == [0x2E, 0x2E, 0x2E]


def _duplicates(what: str, texts: list[tuple[bytes, ...]], lines: list[list[Range]]) -> dict[str, float]:
    sizes = [sum(map(_length, each)) for each in lines]
    repeats = [index for index, text in enumerate(texts) if text in texts[:index]]
    return {
        f"dup_{what}_fraction": _ratio(len(repeats), len(texts)),
        f"dup_{what}_char_fraction": _ratio(sum(sizes[index] for index in repeats), sum(sizes)),
    }


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _entropy(items: Sequence[Item]) -> float:
    counts = Counter(items).values()
    return math.fsum(count / len(items) * math.log2(len(items) / count) for count in counts)


def _length(chars: Range) -> int:
    return chars[1] - chars[0]


def _runs(flags: Sequence[bool]) -> list[Range]:
    out = []
    start = None
    for index, flag in enumerate([*flags, False]):
        if flag and start is None:
            start = index
        elif not flag and start is not None:
            out.append((start, index))
            start = None
    return out


def _longest_run(flags: Sequence[bool]) -> int:
    return max(map(_length, _runs(flags)), default=0)


@cache
def _is_in(code: int, ranges: tuple[Range, ...]) -> bool:
    return any(start <= code < stop for start, stop in ranges)


def _is_white(code: int) -> bool:
    return code in WHITE_SPACE


@cache
def _is_unspaced(code: int) -> bool:
    return any(first <= code <= last for first, last in UNSPACED)


def _is_digit(code: int) -> bool:
    return _is_in(code, DECIMAL_DIGIT)


def _opens_tag(after: Sequence[int]) -> bool:
    return bool(after) and after[0] >= 0 and chr(after[0]) in "/!abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _is_nontext(code: int, *, first: bool) -> bool:
    if code == 0xFEFF:
        return not first
    return (
        code in {INVALID, 0x7F, 0xFFFD}
        or (0 <= code < 0x20 and chr(code) not in "\t\n\r\f")
        or 0x80 <= code <= 0x9F
        or 0xFDD0 <= code <= 0xFDEF
        or (code >= 0 and code & 0xFFFE == 0xFFFE)
        or 0xE000 <= code <= 0xF8FF
        or 0xF0000 <= code <= 0xFFFFD
        or 0x100000 <= code <= 0x10FFFD
    )
