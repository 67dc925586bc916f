"""How much of a text is digits, symbols, tags or encoded data?

A second pass over the bytes of each document, in blocks of 64, beside the masks that `text_classes` left: each class of
ASCII is a mask of 64 bits, made in vector registers. Runs and tags are followed over the masks, and only the blocks
that hold any are looked at more closely.

`values` is read up to its end and never beyond: a block that would reach past it is copied first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dataguard.core.compiled import kernel, part

__all__ = [
    "DIGITS",
    "ENCODED",
    "LONGEST_DIGITS",
    "MARKUP",
    "NUM_FACTS",
    "QUEUE",
    "SYMBOLS",
    "WANT_DIGITS",
    "WANT_ENCODED",
    "WANT_MARKUP",
    "WANT_SYMBOLS",
    "follow_runs",
]

ir = cgutils.ir

# Columns of the facts, one row a document. Symbols are number signs and ellipses of dots.
DIGITS, LONGEST_DIGITS, SYMBOLS, MARKUP, ENCODED, NUM_FACTS = 0, 1, 2, 3, 4, 5

WANT_DIGITS, WANT_SYMBOLS, WANT_MARKUP, WANT_ENCODED = 1, 2, 4, 8

QUEUE = 1024
"""Places of `<` that can wait for their `>`: a new one is at least two characters behind the one before."""
LONGEST_TAG = 1024
SHORTEST_ENCODED = 64

# Columns of the masks, as in text_classes (held equal by test).
CHAR_START, DIGIT = 0, 5

ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
ZERO, ONE, TWO, TOP = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(63)


@intrinsic
def _ascii_masks(typing: Any, values: Any, at: Any, spare: Any, use_spare: Any) -> Any:  # noqa: ARG001
    """Five masks of the 64 bytes at `values[at:]`, or of those at `spare`: base64, `<`, `>`, `#`, dot."""
    signature = types.UniTuple(types.uint64, 5)(values, types.int64, spare, types.boolean)

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

        folded = builder.or_(block, every(0x20))
        letter = builder.icmp_unsigned("<=", builder.sub(folded, every(0x61)), every(25))
        found = [
            either(letter, between(0x2F, 0x39), equal(0x2B), equal(0x3D)),
            equal(0x3C),
            equal(0x3E),
            equal(0x23),
            equal(0x2E),
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


@part()
def _below(bit):  # type: ignore[no-untyped-def]
    """A mask of the bits below this one; `bit` is 0..64."""
    return ALL if bit >= 64 else (ONE << np.uint64(bit)) - ONE


@part()
def _may_be_longer(digit, run, longest):  # type: ignore[no-untyped-def]
    """Whether this block may hold a run longer than the longest so far, or have a part in one."""
    if longest >= 3:
        twos = digit & digit >> ONE
        fours = twos & twos >> TWO
        return fours != ZERO or digit >> TOP != ZERO or run > 0
    return digit != ZERO or run > 0


@part()
def _follow_digits(digit, start, run, longest):  # type: ignore[no-untyped-def]
    """The run that reaches the end of this block, and the longest so far; both in characters."""
    left, last = digit, ZERO
    while left:
        low = _trailing_zeros(left)
        high = low + _trailing_zeros(~(left >> np.uint64(low)))
        last = _below(high) & ~_below(low)
        num = _ones(start & last)
        if low == 0:
            num += run
        longest = max(longest, num)
        if high == 64:
            return num, longest
        left &= ~last
    return 0, longest


@part()
def _follow_dots(dot, run, num):  # type: ignore[no-untyped-def]
    """The run of dots that reaches the end of this block, and the ellipses in runs that ended."""
    if dot & ONE == ZERO:
        num += run // 3
        run = 0
    left = dot
    while left:
        low = _trailing_zeros(left)
        high = low + _trailing_zeros(~(left >> np.uint64(low)))
        length = high - low
        if low == 0:
            length += run
        if high == 64:
            return length, num
        num += length // 3
        left &= ~_below(high)
    return 0, num


@part()
def _follow_tags(values, base, stop, less, greater, start, chars, queue, head, waiting):  # type: ignore[no-untyped-def]
    """Characters of the tags that end in this block; and which `<` wait for their `>` (a ring of character numbers)."""
    num = 0
    left = less | greater
    while left:
        bit = _trailing_zeros(left)
        here = chars + _ones(start & _below(bit))
        if less >> np.uint64(bit) & ONE:
            at = base + bit + 1
            if at < stop:
                follower = values[at]
                folded = follower | 0x20
                if (97 <= folded <= 122) or follower == 0x2F or follower == 0x21:
                    if waiting == QUEUE:  # the oldest is farther away than a tag is long
                        head = (head + 1) % QUEUE
                        waiting -= 1
                    queue[(head + waiting) % QUEUE] = here
                    waiting += 1
        else:
            while waiting and here - queue[head] > LONGEST_TAG:
                head = (head + 1) % QUEUE
                waiting -= 1
            if waiting:
                num += here - queue[head] + 1
                waiting = 0
        left &= left - ONE
    return num, head, waiting


@part()
def _is_mixed(values, start, stop):  # type: ignore[no-untyped-def]
    """1 where there are two of upper case, lower case and digits, else 0."""
    upper = lower = digit = 0
    for i in range(start, stop):
        value = values[i]
        upper |= 65 <= value <= 90
        lower |= 97 <= value <= 122
        digit |= 48 <= value <= 57
        if upper + lower + digit >= 2:
            return 1
    return 0


@kernel(seconds=2)
def follow_runs(values, offsets, first, stop, wanted, masks, rows, facts, spare, queue):  # type: ignore[no-untyped-def]
    """Facts about runs and tags in the documents first:stop.

    Parameters
    ----------
    values, offsets
        uint8 and int64: the bytes of all documents, where each begins and the last ends.
    wanted
        Sum of WANT_... flags.
    masks, rows
        As `classify` wrote them, and the row of each document's first block.
    facts
        int64, shape (documents, NUM_FACTS): rows first:stop are written.
    spare, queue
        uint8[64] and int64[QUEUE], scratch.
    """
    end_of_values = len(values)
    for document in range(first, stop):
        begin, end = offsets[document], offsets[document + 1]
        length = end - begin
        row = rows[document]
        chars = digits = longest_digits = symbols = markup = encoded = 0
        digit_run = dot_run = encoded_run = head = waiting = 0
        # The last block has a place for the byte after the text, so that every run of the text's bytes ends in it.
        for block in range(length // 64 + 1):
            at = begin + 64 * block
            left = end - at
            beyond = at + 64 > end_of_values
            if beyond:
                for i in range(64):
                    spare[i] = values[at + i] if i < left else 0
            base64, less, greater, number_sign, dot = _ascii_masks(values, at, spare, beyond)
            valid = _below(left)
            start = masks[row + block, CHAR_START]
            if wanted & WANT_DIGITS:
                digit = masks[row + block, DIGIT]
                digits += _ones(digit & start)
                if _may_be_longer(digit, digit_run, longest_digits):
                    digit_run, longest_digits = _follow_digits(digit, start, digit_run, longest_digits)
                else:
                    digit_run = 0
            if wanted & WANT_SYMBOLS:
                symbols += _ones(number_sign & valid)
                dot &= valid
                if dot & dot >> ONE & dot >> TWO or dot >> TOP or dot_run:
                    dot_run, symbols = _follow_dots(dot, dot_run, symbols)
            if wanted & WANT_MARKUP:
                less &= valid
                greater &= valid
                if less | greater:
                    num, head, waiting = _follow_tags(
                        values, at, end, less, greater, start, chars, queue, head, waiting
                    )
                    markup += num
                chars += _ones(start)
            if wanted & WANT_ENCODED:
                # A run of 64 or more ends a block or begins one, so that what lies within a block need not be seen.
                blank = ~(base64 & valid)
                if blank == ZERO:
                    encoded_run += 64
                else:
                    encoded_run += _trailing_zeros(blank)
                    if encoded_run >= SHORTEST_ENCODED:
                        run_end = at + _trailing_zeros(blank)
                        encoded += encoded_run * _is_mixed(values, run_end - encoded_run, run_end)
                    encoded_run = _leading_zeros(blank)
        facts[document, DIGITS] = digits
        facts[document, LONGEST_DIGITS] = longest_digits
        facts[document, SYMBOLS] = symbols
        facts[document, MARKUP] = markup
        facts[document, ENCODED] = encoded
