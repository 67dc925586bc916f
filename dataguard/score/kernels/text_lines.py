"""How many lines and paragraphs are there, which came before, and how do the lines begin and end?

A walk over the masks of line ends that `text_classes` left. Lines are compared by a 64-bit hash of their bytes plus
their length, paragraphs by a hash of their lines' hashes plus the number of lines: two different lines of one length
are taken for equal with a chance of about 2^-64 for each pair, unless somebody makes them so by intent.

The table is open addressing with key and value side by side; an entry whose generation is not the document's counts
as free, so that nothing is cleared between documents. Each document uses as much of the table as its line ends call
for, up to the whole; where that is too small for its distinct lines, the kernel stops and is called again with a
larger one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dataguard.core.compiled import kernel, part

__all__ = [
    "BULLETS",
    "DUP_CHARS",
    "DUP_LINES",
    "DUP_PARAGRAPHS",
    "DUP_PARAGRAPH_CHARS",
    "ELLIPSES",
    "LINES",
    "LINE_CHARS",
    "LONGEST_LINE",
    "NUM_FACTS",
    "PARAGRAPHS",
    "WANT_EDGES",
    "WANT_LINES",
    "WANT_PARAGRAPHS",
    "cut_lines",
]

ir = cgutils.ir

# Columns of the facts, one row a document.
LINES, LINE_CHARS, LONGEST_LINE, BULLETS, ELLIPSES, DUP_LINES, DUP_CHARS = 0, 1, 2, 3, 4, 5, 6
PARAGRAPHS, DUP_PARAGRAPHS, DUP_PARAGRAPH_CHARS, NUM_FACTS = 7, 8, 9, 10

# What is wanted beyond counts and lengths: bullets and ellipses, duplicates of lines, of paragraphs.
WANT_EDGES, WANT_LINES, WANT_PARAGRAPHS = 1, 2, 4

# Columns of the masks, as in text_classes (held equal by test).
CHAR_START, BLANK, NEWLINE = 0, 1, 2

ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
ZERO, ONE = np.uint64(0), np.uint64(1)
SECRET_1 = np.uint64(0xA0761D6478BD642F)
SECRET_2 = np.uint64(0xE7037ED1A0B428DB)
SECRET_3 = np.uint64(0x8EBC6AF09C88C6E3)
LOW_32 = np.uint64(0xFFFFFFFF)
HIGH_32 = np.uint64(32)


@intrinsic
def _trailing_zeros(typing: Any, word: Any) -> Any:  # noqa: ARG001
    """How many bits from bit 0 up are 0; 64 where none is 1."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@intrinsic
def _leading_zeros(typing: Any, word: Any) -> Any:  # noqa: ARG001
    """How many bits from bit 63 down are 0; 64 where none is 1."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@intrinsic
def _ones(typing: Any, word: Any) -> Any:  # noqa: ARG001
    """How many bits are 1."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


@intrinsic
def _fold(typing: Any, first: Any, second: Any) -> Any:  # noqa: ARG001
    """The two halves of the 128-bit product, one xor the other."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        wide, word = ir.IntType(128), ir.IntType(64)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        high = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), word)
        return builder.xor(builder.trunc(product, word), high)

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def _load(typing: Any, values: Any, at: Any) -> Any:  # noqa: ARG001
    """The eight bytes at `values[at:]`, least significant first, all of which must be there."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(64).as_pointer())
        word = builder.load(place)
        word.align = 1
        return word

    return types.uint64(values, types.int64), generate


@part()
def _below(bit):  # type: ignore[no-untyped-def]
    """A mask of the bits below this one; `bit` is 0..64."""
    return ALL if bit >= 64 else (ONE << np.uint64(bit)) - ONE


@part()
def _chars(masks, row, start, stop):  # type: ignore[no-untyped-def]
    """Characters that begin in the document's bytes start:stop, which are not empty."""
    first, last = start >> 6, (stop - 1) >> 6
    head, tail = ~_below(start & 63), _below(((stop - 1) & 63) + 1)
    if first == last:
        return _ones(masks[row + first, CHAR_START] & head & tail)
    num = _ones(masks[row + first, CHAR_START] & head) + _ones(masks[row + last, CHAR_START] & tail)
    for block in range(first + 1, last):
        num += _ones(masks[row + block, CHAR_START])
    return num


@part()
def _first_text(masks, row, start, stop):  # type: ignore[no-untyped-def]
    """The first byte of start:stop that is not white space; `stop` where all are."""
    place = start
    while place < stop:
        text = ~masks[row + (place >> 6), BLANK] & ~_below(place & 63)
        if text:
            return min(stop, (place & ~63) + _trailing_zeros(text))
        place = (place & ~63) + 64
    return stop


@part()
def _end_of_text(masks, row, stop):  # type: ignore[no-untyped-def]
    """One past the last byte before `stop` that is not white space; there is one."""
    place = stop
    while True:
        text = ~masks[row + ((place - 1) >> 6), BLANK] & _below(((place - 1) & 63) + 1)
        if text:
            return ((place - 1) & ~63) + 64 - _leading_zeros(text)
        place = (place - 1) & ~63


@part()
def _hash(values, start, stop):  # type: ignore[no-untyped-def]
    """A 64-bit hash of the bytes start:stop of `values`, of which there is one at least."""
    size = stop - start
    state = SECRET_1 ^ np.uint64(size)
    if size >= 16:
        place = start
        while stop - place > 16:
            state = _fold(_load(values, place) ^ SECRET_2, _load(values, place + 8) ^ state)
            place += 16
        # The last 1 to 16 bytes, as two words that may share bytes with those before.
        return _fold(_load(values, stop - 16) ^ SECRET_2 ^ state, _load(values, stop - 8) ^ SECRET_3)
    if size >= 8:
        return _fold(_load(values, start) ^ SECRET_2 ^ state, _load(values, stop - 8) ^ SECRET_3)
    word = ZERO
    for i in range(size):
        word |= np.uint64(values[start + i]) << np.uint64(8 * i)
    return _fold(word ^ SECRET_2 ^ state, SECRET_3)


@part()
def _is_new(table, ring, stamp, key, size, sizes, num):  # type: ignore[no-untyped-def]
    """Whether no entry of this generation has this key and size; it is entered as number `num` then."""
    slot = _fold(key, SECRET_2) & ring
    while True:
        value = table[slot << ONE | ONE]
        if value & ~LOW_32 != stamp:
            table[slot << ONE] = key
            table[slot << ONE | ONE] = stamp | np.uint64(num)
            sizes[np.uint64(num)] = size
            return True
        if table[slot << ONE] == key and sizes[value & LOW_32] == size:
            return False
        slot = (slot + ONE) & ring


@part()
def _is_bullet(values, at, stop, bullets):  # type: ignore[no-untyped-def]
    lead = np.int64(values[at])
    if lead < 0x80:
        return lead == 0x2A or lead == 0x2D
    if lead != 0xE2 or stop - at < 3:
        return False
    point = 0x2000 | (np.int64(values[at + 1]) & 0x3F) << 6 | (np.int64(values[at + 2]) & 0x3F)
    if values[at + 1] & 0xC0 != 0x80 or values[at + 2] & 0xC0 != 0x80:
        return False
    for bullet in bullets:  # noqa: SIM110 - a kernel knows no any()
        if bullet == point:
            return True
    return False


@part()
def _is_ellipsis(values, start, end):  # type: ignore[no-untyped-def]
    """Whether start:end, whose last byte is no white space, ends with three dots or U+2026."""
    if end - start < 3:
        return False
    first, second, third = values[end - 3], values[end - 2], values[end - 1]
    return (first == 0x2E and second == 0x2E and third == 0x2E) or (first == 0xE2 and second == 0x80 and third == 0xA6)


@kernel(seconds=3)
def cut_lines(  # type: ignore[no-untyped-def]
    values, offsets, first, stop, wanted, masks, rows, newlines, bullets, tables, sizes, generation, facts
):
    """Facts about the lines and paragraphs of the documents first:stop; gives the first document not done.

    That is `stop` where all are done; a document is not done where a table is too small for it.

    Parameters
    ----------
    values, offsets
        uint8 and int64: the bytes of all documents, where each begins and the last ends.
    wanted
        Sum of WANT_... flags.
    masks, rows, newlines
        As `classify` wrote them; the row of each document's first block and its number of line ends, one a document.
    bullets
        int64: code points in 0x2000:0x3000 that begin an item of a list.
    tables, sizes
        uint64 (2, 2 * slots) and uint32 (2, slots / 2): of lines and of paragraphs; slots is a power of two.
    generation
        Greater than any this table has seen, below 2^32; document i takes generation + i - first.
    facts
        int64, shape (documents, NUM_FACTS): rows first:stop are written.
    """
    lines_seen, paragraphs_seen = tables[0], tables[1]
    line_sizes, paragraph_sizes = sizes[0], sizes[1]
    slots = len(lines_seen) // 2
    for document in range(first, stop):
        begin = offsets[document]
        length = offsets[document + 1] - begin
        row = rows[document]
        fit = 64 - _leading_zeros(np.uint64(2 * newlines[document] + 1))
        ring = np.uint64(min(slots, 1 << fit) - 1)
        most = np.int64(ring >> ONE)
        stamp = (np.uint64(generation) + np.uint64(document - first)) << HIGH_32
        lines = line_chars = longest = bulleted = ellipses = dup_lines = dup_chars = 0
        paragraphs = dup_paragraphs = dup_paragraph_chars = 0
        open_lines = open_chars = 0
        state = SECRET_3
        start = 0
        block = 0
        ends = masks[row, NEWLINE]
        last_block = length >> 6
        while start < length:
            while ends == ZERO and block < last_block:
                block += 1
                ends = masks[row + block, NEWLINE]
            after = length
            end = length
            if ends:
                end = 64 * block + _trailing_zeros(ends)
                after = end + 1
                ends &= ends - ONE
                if end > start and values[begin + end - 1] == 0x0D:
                    end -= 1
            text = _first_text(masks, row, start, end)
            if lines - dup_lines > most or paragraphs - dup_paragraphs > most:
                return document
            if text < end:
                chars = _chars(masks, row, start, end)
                lines += 1
                line_chars += chars
                longest = max(longest, chars)
                if wanted & WANT_EDGES:
                    bulleted += _is_bullet(values, begin + text, begin + length, bullets)
                    last = _end_of_text(masks, row, end)
                    ellipses += _is_ellipsis(values, begin + text, begin + last)
                if wanted & (WANT_LINES | WANT_PARAGRAPHS):
                    key = _hash(values, begin + start, begin + end)
                    if wanted & WANT_LINES and not _is_new(
                        lines_seen, ring, stamp, key, np.uint32(end - start), line_sizes, lines - dup_lines - 1
                    ):
                        dup_lines += 1
                        dup_chars += chars
                    state = _fold(state ^ key, SECRET_1 ^ np.uint64(end - start))
                open_lines += 1
                open_chars += chars
            if open_lines and (text >= end or after >= length):
                paragraphs += 1
                if wanted & WANT_PARAGRAPHS and not _is_new(
                    paragraphs_seen,
                    ring,
                    stamp,
                    _fold(state ^ SECRET_2, SECRET_1),
                    np.uint32(open_lines),
                    paragraph_sizes,
                    paragraphs - dup_paragraphs - 1,
                ):
                    dup_paragraphs += 1
                    dup_paragraph_chars += open_chars
                open_lines = open_chars = 0
                state = SECRET_3
            start = after
        facts[document, LINES] = lines
        facts[document, LINE_CHARS] = line_chars
        facts[document, LONGEST_LINE] = longest
        facts[document, BULLETS] = bulleted
        facts[document, ELLIPSES] = ellipses
        facts[document, DUP_LINES] = dup_lines
        facts[document, DUP_CHARS] = dup_chars
        facts[document, PARAGRAPHS] = paragraphs
        facts[document, DUP_PARAGRAPHS] = dup_paragraphs
        facts[document, DUP_PARAGRAPH_CHARS] = dup_paragraph_chars
    return stop
