"""Which bytes of a text are white space, line ends, ends of words, and how many characters of which kind are there?

One pass over the bytes of each document, in blocks of 64, that leaves bit masks behind for the kernels of lines and
words and counts what can be counted on the way:

1. A block is compared with all classes of ASCII at once, in vector registers; each class is a mask of 64 bits.
2. Bytes with the high bit set, where there are any, are decoded one character after the other, and add their bits: a
   class table says what a code point is. A character that reaches into the next block leaves its bits for it.
3. Words begin and end where the masks change.

`values` is read up to its end and never beyond: a block that would reach past it is copied first.

A document of n bytes has n // 64 + 1 rows of masks, so that there is a bit for the place after its last byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dataguard.core.compiled import kernel, part

__all__ = [
    "ALPHA_WORDS",
    "BLANK",
    "CHARS",
    "CHAR_START",
    "DIGIT",
    "ELLIPSES",
    "FIRST_BLOCK",
    "FIRST_WORD",
    "INVALID",
    "IS_ALPHABETIC",
    "IS_DIGIT",
    "IS_ELLIPSIS",
    "IS_NONTEXT",
    "IS_REPLACEMENT",
    "IS_UNSPACED",
    "IS_WHITE",
    "NEWLINE",
    "NEWLINES",
    "NONTEXT",
    "NUM_FACTS",
    "NUM_MASKS",
    "REPLACEMENTS",
    "WORDS",
    "WORD_CHARS",
    "WORD_END",
    "WORD_START",
    "classify",
]

ir = cgutils.ir

# Bits of the class table, one byte a code point.
IS_WHITE, IS_DIGIT, IS_ALPHABETIC, IS_UNSPACED, IS_NONTEXT, IS_REPLACEMENT, IS_ELLIPSIS = 1, 2, 4, 8, 16, 32, 64

# Columns of the masks, eight to a block: one cache line.
CHAR_START, BLANK, NEWLINE, WORD_START, WORD_END, DIGIT, NUM_MASKS = 0, 1, 2, 3, 4, 5, 8

# Columns of the facts, one row a document. Ellipses are U+2026.
CHARS, INVALID, NONTEXT, REPLACEMENTS, ELLIPSES, WORDS, WORD_CHARS, NEWLINES = 0, 1, 2, 3, 4, 5, 6, 7
ALPHA_WORDS, FIRST_BLOCK, FIRST_WORD, NUM_FACTS = 8, 9, 10, 11

ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
ZERO, ONE, TWO, TOP = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(63)


@intrinsic
def _ascii_masks(typing: Any, values: Any, at: Any, spare: Any, use_spare: Any) -> Any:  # noqa: ARG001
    """Six masks of the 64 bytes at `values[at:]`, or of those at `spare`."""
    signature = types.UniTuple(types.uint64, 6)(values, types.int64, spare, types.boolean)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector, word = ir.VectorType(ir.IntType(8), 64), ir.IntType(64)
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        other = context.make_array(signature.args[2])(context, builder, arguments[2]).data
        place = builder.select(arguments[3], other, builder.gep(data, [arguments[1]]))
        block = builder.load(builder.bitcast(place, vector.as_pointer()))
        block.align = 1

        def every(value: int) -> Any:
            return ir.Constant(vector, [value] * 64)

        def equal(value: int) -> Any:
            return builder.icmp_unsigned("==", block, every(value))

        def between(low: int, high: int) -> Any:
            return builder.icmp_unsigned("<=", builder.sub(block, every(low)), every(high - low))

        def either(first: Any, *others: Any) -> Any:
            for other in others:
                first = builder.or_(first, other)
            return first

        found = [
            builder.icmp_unsigned(">=", block, every(0x80)),
            either(between(0x09, 0x0D), equal(0x20)),
            equal(0x0A),
            between(0x30, 0x39),
            either(between(0x41, 0x5A), between(0x61, 0x7A)),
            either(between(0x00, 0x08), equal(0x0B), between(0x0E, 0x1F), equal(0x7F)),
        ]
        masks = [builder.bitcast(one, word) for one in found]
        return context.make_tuple(builder, signature.return_type, masks)

    return signature, generate


@intrinsic
def _trailing_zeros(typing: Any, word: Any) -> Any:  # noqa: ARG001
    """How many bits from bit 0 up are 0; 64 where none is 1."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@intrinsic
def _ones(typing: Any, word: Any) -> Any:  # noqa: ARG001
    """How many bits are 1."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


@part()
def _below(bit):  # type: ignore[no-untyped-def]
    """A mask of the bits below this one; `bit` is 0..64."""
    return ALL if bit >= 64 else (ONE << np.uint64(bit)) - ONE


@part()
def _decode(values, at, stop):  # type: ignore[no-untyped-def]
    """Bytes and code point of the character that begins here; 0 bytes where none does (Unicode, table 3-7)."""
    lead, left = np.int64(values[at]), stop - at
    if lead < 0xC2 or lead > 0xF4 or left < 2:
        return 0, 0
    second = np.int64(values[at + 1])
    if second & 0xC0 != 0x80:
        return 0, 0
    if lead < 0xE0:
        return 2, (lead & 0x1F) << 6 | (second & 0x3F)
    if left < 3:
        return 0, 0
    third = np.int64(values[at + 2])
    if third & 0xC0 != 0x80:
        return 0, 0
    if lead < 0xF0:
        point = (lead & 0x0F) << 12 | (second & 0x3F) << 6 | (third & 0x3F)
        return (0, 0) if point < 0x800 or 0xD800 <= point < 0xE000 else (3, point)
    if left < 4:
        return 0, 0
    fourth = np.int64(values[at + 3])
    if fourth & 0xC0 != 0x80:
        return 0, 0
    point = (lead & 0x07) << 18 | (second & 0x3F) << 12 | (third & 0x3F) << 6 | (fourth & 0x3F)
    return (4, point) if 0x10000 <= point < 0x110000 else (0, 0)


@part()
def _alpha_words(word, alphabetic, touching, ends, alpha_over, touching_over):  # type: ignore[no-untyped-def]
    """Words with an alphabetic character that end in this block, and what is carried into the next one.

    An addition finds them all at once: a 1 added anywhere within a stretch of ones is carried to the zero behind it,
    and further ones only fill what the first left. Words that touch the one before give up their first byte, so that
    a zero stands between; where that byte is the alphabetic one, the next byte speaks for it.
    """
    stretch = word & ~touching
    moved = (alphabetic & touching) << ONE | touching_over
    seeds = (alphabetic | moved | alpha_over) & stretch
    carried = stretch + seeds
    found = (carried | moved | alpha_over) & ~stretch & ends
    return _ones(found), np.uint64(carried < stretch), (alphabetic & touching) >> TOP


@kernel(seconds=2)
def classify(values, offsets, first, stop, index, classes, masks, facts, spare):  # type: ignore[no-untyped-def]
    """Masks and facts of the documents first:stop; gives how many words they have, and one more each.

    FIRST_BLOCK and FIRST_WORD are where a document's masks and words begin, counted from those of document `first`.

    Parameters
    ----------
    values
        uint8, the bytes of all documents.
    offsets
        int64, where each document begins and the last one ends.
    index, classes
        The class table: `classes[index[p >> 7] << 7 | p & 127]` says what code point p is.
    masks
        uint64, shape (blocks, NUM_MASKS), written from row 0 on, document after document.
    facts
        int64, shape (documents, NUM_FACTS): rows first:stop are written.
    spare
        uint8[64], scratch.
    """
    row = first_word = 0
    end_of_values = len(values)
    for document in range(first, stop):
        begin, end = offsets[document], offsets[document + 1]
        length = end - begin
        chars = invalid = nontext = replacements = ellipses = 0
        words = alpha_words = word_chars = newlines = 0
        alpha_over = touching_over = ZERO
        # What the block before leaves: bits of a character that reaches into this one, and whether its last byte was
        # of a word, and of a script without spaces.
        over_rest = over_white = over_digit = over_unspaced = ZERO
        in_word = in_unspaced = ZERO
        facts[document, FIRST_BLOCK] = row
        for block in range(length // 64 + 1):
            at = begin + 64 * block
            left = end - at
            beyond = at + 64 > end_of_values
            if beyond:
                for i in range(64):
                    spare[i] = values[at + i] if i < left else 0
            high, white, newline, digit, letter, control = _ascii_masks(values, at, spare, beyond)
            valid = _below(left)
            start = valid & ~over_rest
            white = (white & valid) | over_white
            digit = (digit & valid) | over_digit
            alphabetic = letter & valid
            unspaced = over_unspaced
            nontext += _ones(control & valid)
            pending = high & start
            over_rest = over_white = over_digit = over_unspaced = ZERO
            while pending:
                bit = _trailing_zeros(pending)
                num_bytes, point = _decode(values, at + bit, end)
                if num_bytes == 0:
                    invalid += 1
                    nontext += 1
                    pending &= pending - ONE
                    continue
                kind = np.int64(classes[np.int64(index[point >> 7]) << 7 | point & 127])
                here = _below(bit + num_bytes) & ~_below(bit)
                over = _below(bit + num_bytes - 64) if bit + num_bytes > 64 else ZERO
                pending &= ~here
                start &= ~(here & (here - (ONE << np.uint64(bit))))
                over_rest = over
                if kind & IS_ALPHABETIC:
                    alphabetic |= ONE << np.uint64(bit)
                if kind & IS_UNSPACED:
                    unspaced |= here
                    over_unspaced = over
                if kind & (IS_WHITE | IS_DIGIT | IS_NONTEXT | IS_REPLACEMENT | IS_ELLIPSIS):
                    if kind & IS_WHITE:
                        white |= here
                        over_white = over
                    if kind & IS_DIGIT:
                        digit |= here
                        over_digit = over
                    if kind & IS_NONTEXT and not (point == 0xFEFF and at + bit == begin):
                        nontext += num_bytes
                    if kind & IS_REPLACEMENT:
                        replacements += 1
                    if kind & IS_ELLIPSIS:
                        ellipses += 1
            word = valid & ~white
            unspaced &= word
            after_word, after_unspaced = word << ONE | in_word, unspaced << ONE | in_unspaced
            in_word, in_unspaced = word >> TOP, unspaced >> TOP
            begins = start & word & (~after_word | unspaced | after_unspaced)
            masks[row, CHAR_START] = start
            masks[row, BLANK] = white
            newline &= valid
            newlines += _ones(newline)
            masks[row, NEWLINE] = newline
            masks[row, WORD_START] = begins
            masks[row, WORD_END] = after_word & (~word | begins)
            seen, alpha_over, touching_over = _alpha_words(
                word, alphabetic, begins & after_word, after_word & (~word | begins), alpha_over, touching_over
            )
            alpha_words += seen
            masks[row, DIGIT] = digit
            words += _ones(begins)
            word_chars += _ones(start & word)
            chars += _ones(start)
            row += 1
        facts[document, CHARS] = chars
        facts[document, INVALID] = invalid
        facts[document, NONTEXT] = nontext
        facts[document, REPLACEMENTS] = replacements
        facts[document, ELLIPSES] = ellipses
        facts[document, WORDS] = words
        facts[document, WORD_CHARS] = word_chars
        facts[document, ALPHA_WORDS] = alpha_words
        facts[document, NEWLINES] = newlines
        facts[document, FIRST_WORD] = first_word
        first_word += words + 1
    return first_word
