"""Which words are the same, how often does each occur, how long are they?

Word ends are taken from the masks that `text_classes` left, a few hundred words at a time: first their places, then one
hash and one look-up a word. What stays are dense numbers of the words, in order of their first occurrence, and running
sums of their characters: all that `text_ngrams` needs.

A word of up to 8 bytes is its own key, so that such words never collide; a longer one has a 64-bit hash. Key and length
must agree. Two different longer words of one length are taken for equal with a chance of about 2^-64 for each pair
(1e-8 for a document of half a million different long words), unless somebody makes them so by intent.

The table is open addressing with key and value side by side; an entry whose generation is not the document's counts as
free, so that nothing is cleared between documents. Where it is too small for the distinct words of a document, the
kernel stops and is called again with a larger one.
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
    "DISTINCT",
    "LONGEST_WORD",
    "NUM_FACTS",
    "NUM_LOGS",
    "PLACES",
    "WANT_ALPHA",
    "WANT_ENTROPY",
    "WANT_NUMBERS",
    "number_words",
]

ir = cgutils.ir

# Columns of the facts, one row a document.
LONGEST_WORD, ALPHA_WORDS, DISTINCT, NUM_FACTS = 0, 1, 2, 3

# What is wanted beyond the longest word. Entropy needs numbers.
WANT_ALPHA, WANT_NUMBERS, WANT_ENTROPY = 1, 2, 4

NUM_LOGS = 4096
"""Length of the table of c * log2(c)."""
PLACES = 1024
"""Length of each list of places."""
MOST_IN_BLOCK = 64

# Columns of the masks, as in text_classes (held equal by test).
CHAR_START, WORD_START, WORD_END, WORD_ALPHA = 0, 3, 4, 5

ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
ZERO, ONE = np.uint64(0), np.uint64(1)
SECRET_1 = np.uint64(0xA0761D6478BD642F)
SECRET_2 = np.uint64(0xE7037ED1A0B428DB)
SECRET_3 = np.uint64(0x8EBC6AF09C88C6E3)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
LOW_32 = np.uint64(0xFFFFFFFF)
HIGH_32 = np.uint64(32)


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
def _has_alpha(masks, row, start, stop):  # type: ignore[no-untyped-def]
    """Whether an alphabetic character begins in the document's bytes start:stop, which are not empty."""
    first, last = start >> 6, (stop - 1) >> 6
    head, tail = ~_below(start & 63), _below(((stop - 1) & 63) + 1)
    if first == last:
        return masks[row + first, WORD_ALPHA] & head & tail != ZERO
    if masks[row + first, WORD_ALPHA] & head or masks[row + last, WORD_ALPHA] & tail:
        return True
    for block in range(first + 1, last):  # noqa: SIM110 - a kernel knows no any()
        if masks[row + block, WORD_ALPHA]:
            return True
    return False


@part()
def _key(values, start, stop):  # type: ignore[no-untyped-def]
    """Of up to 8 bytes the bytes themselves, of more a 64-bit hash."""
    length = stop - start
    if length <= 8:
        if start + 8 <= len(values):
            return _load(values, start) & (ALL >> np.uint64(64 - 8 * length))
        word = ZERO
        for i in range(length):
            word |= np.uint64(values[start + i]) << np.uint64(8 * i)
        return word
    state = SECRET_1 ^ np.uint64(length)
    place = start
    while stop - place > 16:
        state = _fold(_load(values, place) ^ SECRET_2, _load(values, place + 8) ^ state)
        place += 16
    # The last 9 to 16 bytes, as two words that may share bytes.
    first = _load(values, place) if stop - place >= 8 else ZERO
    return _fold(first ^ SECRET_2 ^ state, _load(values, stop - 8) ^ SECRET_3)


@kernel(seconds=5)
def number_words(  # type: ignore[no-untyped-def]
    values,
    offsets,
    first,
    stop,
    wanted,
    masks,
    rows,
    words,
    chars,
    places,
    table,
    sizes,
    counts,
    generation,
    logs,
    numbers,
    sums,
    heads,
    facts,
    entropy,
):
    """Numbers of the words of the documents first:stop, and facts about them; gives the first document not done.

    That is `stop` where all are done; a document is not done where the table is too small for it.

    Parameters
    ----------
    values, offsets
        uint8 and int64: the bytes of all documents, where each begins and the last ends.
    wanted
        Sum of WANT_... flags.
    masks, rows, words, chars
        As `classify` wrote them; of each document the row of its first block, its words and its characters.
    places
        int64 (2, PLACES), scratch.
    table, sizes
        uint64 (2 * slots,) and uint32 (slots,); slots is a power of two.
    generation
        Greater than any this table has seen, below 2^32; document i takes generation + i - first.
    logs
        float64[NUM_LOGS], c * log2(c), 0 at 0.
    counts, numbers, sums, heads
        uint32: how often each number occurs, the words' numbers, and the characters of the words before; those of a
        document from `heads[document]` on, one place more than it has words. Its last sum is the whole.
    facts, entropy
        int64 (documents, NUM_FACTS) and float64 (documents,): rows first:stop are written as wanted.
    """
    slots = len(sizes)
    starts, ends = places[0], places[1]
    for document in range(first, stop):
        begin = offsets[document]
        length = offsets[document + 1] - begin
        row = rows[document]
        plain = chars[document] == length
        room, shift = 2, np.uint64(63)
        while room < 2 * words[document] and room < slots:
            room *= 2
            shift -= ONE
        most = room // 2
        ring = np.uint64(room - 1)
        stamp = (np.uint64(generation) + np.uint64(document - first)) << HIGH_32
        longest = alpha = distinct = 0
        total = np.uint32(0)
        at = heads[document]
        place = at
        num_starts = num_ends = 0
        num_blocks = (length >> 6) + 1
        for block in range(num_blocks):
            left = masks[row + block, WORD_START]
            while left:
                starts[num_starts] = 64 * block + _trailing_zeros(left)
                num_starts += 1
                left &= left - ONE
            left = masks[row + block, WORD_END]
            while left:
                ends[num_ends] = 64 * block + _trailing_zeros(left)
                num_ends += 1
                left &= left - ONE
            if num_starts < PLACES - MOST_IN_BLOCK and block + 1 < num_blocks:
                continue
            for i in range(num_ends):
                start, end = starts[i], ends[i]
                size = end - start
                num_chars = size if plain else _chars(masks, row, start, end)
                longest = max(longest, num_chars)
                if wanted & WANT_ALPHA:
                    alpha += _has_alpha(masks, row, start, end)
                if wanted & WANT_NUMBERS:
                    key = _key(values, begin + start, begin + end)
                    slot = np.int64((key * GOLDEN) >> shift)
                    while True:
                        value = table[2 * slot + 1]
                        if value & ~LOW_32 != stamp:
                            if distinct >= most:
                                return document
                            number = np.int64(distinct)
                            table[2 * slot] = key
                            table[2 * slot + 1] = stamp | np.uint64(number)
                            sizes[number] = size
                            counts[at + number] = 1
                            distinct += 1
                            break
                        number = np.int64(value & LOW_32)
                        if table[2 * slot] == key and sizes[number] == size:
                            counts[at + number] += 1
                            break
                        slot = np.int64((np.uint64(slot) + ONE) & ring)
                    numbers[place] = number
                    sums[place] = total
                    total += np.uint32(num_chars)
                    place += 1
            if num_starts > num_ends:
                starts[0] = starts[num_ends]
            num_starts -= num_ends
            num_ends = 0
        facts[document, LONGEST_WORD] = longest
        facts[document, ALPHA_WORDS] = alpha
        facts[document, DISTINCT] = distinct
        if wanted & WANT_NUMBERS:
            sums[place] = total
        if wanted & WANT_ENTROPY:
            entropy[document] = 0.0
            if distinct > 1:
                repeated = 0.0
                for each in range(distinct):
                    count = np.int64(counts[at + each])
                    repeated += logs[count] if count < NUM_LOGS else count * np.log2(np.float64(count))
                num_words = np.float64(words[document])
                entropy[document] = max(0.0, np.log2(num_words) - repeated / num_words)
    return stop
