"""What are the characters, words, lines and paragraphs of one record, as arrays?

For looking at one record at a time, without compiled code; whole batches are scored by the kernels.

1. The bytes become an array of code points, an invalid byte a lone surrogate, and an array of where each begins.
2. Words, lines and runs are ranges of characters, found by comparing each character's class with its neighbours'.
3. Equal words get equal numbers; bytes are compared, not hash values.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dataguard.score.unicode_ranges import UNSPACED, WHITE_SPACE, Ranges

__all__ = ["Flags", "Spans", "TextParts", "in_ranges", "pairs_of", "runs_of"]

Spans: TypeAlias = NDArray[np.int64]
"""Half-open (start, stop) pairs, shape (k, 2)."""

Flags: TypeAlias = NDArray[np.bool_]
"""One flag an element."""

_LEAST_PERIODIC_BYTES = 256
_MOST_PERIOD_BYTES = 64


class TextParts:
    """A record read into characters; ranges of characters, unless a name says bytes."""

    def __init__(self, document: bytes) -> None:
        self.document = document
        characters = document.decode("utf-8", "surrogateescape")  # gives exactly one surrogate an invalid byte
        self.codes = np.frombuffer(characters.encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.int32)
        """The code point of each character, int32; what stands for an invalid byte is a surrogate."""
        self.is_invalid: Flags = (self.codes >= 0xD800) & (self.codes < 0xE000)
        wide = ~self.is_invalid
        sizes = 1 + (wide & (self.codes >= 0x80)) + (wide & (self.codes >= 0x800)) + (wide & (self.codes >= 0x10000))
        self.offsets: NDArray[np.int64] = np.concatenate([[0], np.cumsum(sizes)])
        """Where each character begins, and where the last one ends: bytes, shape (characters + 1,)."""

    def to_bytes(self, chars: Spans) -> Spans:
        """The byte ranges of ranges of characters."""
        return self.offsets[chars]

    def pieces(self, chars: Spans) -> list[bytes]:
        """The bytes of each range of characters."""
        return [self.document[start:stop] for start, stop in self.to_bytes(chars).tolist()]

    @cached_property
    def is_white(self) -> Flags:
        """Of each character."""
        return in_ranges(self.codes, WHITE_SPACE)

    @cached_property
    def words(self) -> Spans:
        """Ranges of characters."""
        alone = in_ranges(self.codes, UNSPACED)
        inside = ~self.is_white
        begins = inside & (alone | _shifted(alone | self.is_white, first=True))
        ends = inside & (alone | _shifted((alone | self.is_white)[::-1], first=True)[::-1])
        return pairs_of(np.flatnonzero(begins), np.flatnonzero(ends) + 1)

    @cached_property
    def all_lines(self) -> Spans:
        """Every line without its ending."""
        feeds = np.flatnonzero(self.codes == 0x0A)
        starts = np.concatenate([[0], feeds + 1])
        stops = np.concatenate([feeds, [len(self.codes)]])
        has_return = np.zeros(len(starts), dtype=np.bool_)
        has_return[:-1] = (feeds > starts[:-1]) & (self.codes[feeds - 1] == 0x0D)
        return pairs_of(starts, stops - has_return)

    @cached_property
    def is_blank(self) -> Flags:
        """Of each of all lines."""
        before = np.concatenate([[0], np.cumsum(~self.is_white)])
        blank: Flags = before[self.all_lines[:, 1]] == before[self.all_lines[:, 0]]
        return blank

    @cached_property
    def lines(self) -> Spans:
        """The lines that are not blank."""
        return self.all_lines[~self.is_blank]

    @cached_property
    def paragraphs(self) -> Spans:
        """Ranges of `lines`."""
        full = ~self.is_blank
        is_first = full & _shifted(self.is_blank, first=True)
        firsts = (np.cumsum(full) - 1)[is_first]
        return pairs_of(firsts, np.concatenate([firsts[1:], [len(self.lines)]])[: len(firsts)])

    @cached_property
    def word_numbers(self) -> NDArray[np.int64]:
        """Equal words have equal numbers."""
        return _numbers(self.pieces(self.words))

    @cached_property
    def periodic_runs(self) -> list[tuple[int, int, int]]:
        """(repeats, start, stop) in bytes of each maximal run of a period that is long enough."""
        values = np.frombuffer(self.document, dtype=np.uint8)
        found = []
        for period in range(1, min(_MOST_PERIOD_BYTES, len(values) - 1) + 1):
            for start, stop in runs_of(values[period:] == values[:-period]).tolist():
                length = stop - start + period
                if length >= _LEAST_PERIODIC_BYTES:
                    found.append((length // period, start, start + length))
        return found


def in_ranges(codes: NDArray[np.int32], ranges: Ranges) -> Flags:
    """Which code points lie in half-open ranges, in order and apart."""
    edges = np.array(ranges, dtype=np.int32).ravel()
    inside: Flags = np.searchsorted(edges, codes, side="right") % 2 == 1
    return inside


def _shifted(flags: Flags, *, first: bool) -> Flags:
    """The flag of the one before each."""
    return np.concatenate([[first], flags[:-1]])


def pairs_of(starts: NDArray[np.int64], stops: NDArray[np.int64]) -> Spans:
    """Ranges from where each starts and stops."""
    return np.stack([starts, stops], axis=1).astype(np.int64)


def runs_of(flags: Flags) -> Spans:
    """Maximal ranges of true flags."""
    edges = np.zeros(len(flags) + 1, dtype=np.bool_)
    edges[:-1] = flags
    edges[1:] ^= flags
    return np.flatnonzero(edges).reshape(-1, 2)


def _numbers(items: Sequence[bytes]) -> NDArray[np.int64]:
    """Equal items have equal numbers, counted from 0 in order of first appearance."""
    seen: dict[bytes, int] = {}
    return np.array([seen.setdefault(item, len(seen)) for item in items], dtype=np.int64)
