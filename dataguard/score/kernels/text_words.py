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
    "DISTINCT",
    "LONGEST_WORD",
    "NUM_FACTS",
    "NUM_LOGS",
    "PLACES",
    "WANT_ENTROPY",
    "WANT_NUMBERS",
    "number_words",
]

ir = cgutils.ir

# Columns of the facts, one row a document.
LONGEST_WORD, DISTINCT, NUM_FACTS = 0, 1, 2

# What is wanted beyond the longest word. Entropy needs numbers.
WANT_NUMBERS, WANT_ENTROPY = 1, 2

NUM_LOGS = 4096
"""Length of the table of c * log2(c)."""
PLACES = 1024
"""Length of each list of places."""
MOST_IN_BLOCK = 128
"""Places that one block may write: 64, what is left of the block before, and up to three too many."""

# Columns of the masks, as in text_classes (held equal by test).
CHAR_START, WORD_START, WORD_END = 0, 3, 4

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
def _places(beginnings, endings, base, starts, ends):  # type: ignore[no-untyped-def]
    """Where words begin and end in a block, from the places of `starts` and `ends` on.

    They take turns, so that their numbers differ by one at most. Four are taken at a time; what that writes too much
    is written over.
    """
    for i in range(0, max(_ones(beginnings), _ones(endings)), 4):
        for k in range(4):
            starts[i + k] = base + _trailing_zeros(beginnings)
            ends[i + k] = base + _trailing_zeros(endings)
            beginnings &= beginnings - ONE
            endings &= endings - ONE


@part()
def _char_places(beginnings, endings, start, base, first, last):  # type: ignore[no-untyped-def]
    """The same in characters: how many begin before each place, `base` of them before the block."""
    for i in range(0, max(_ones(beginnings), _ones(endings)), 2):
        for k in range(2):
            first[i + k] = base + _ones(start & (beginnings - ONE) & ~beginnings)
            last[i + k] = base + _ones(start & (endings - ONE) & ~endings)
            beginnings &= beginnings - ONE
            endings &= endings - ONE


@part()
def _long_key(values, start, stop):  # type: ignore[no-untyped-def]
    """A 64-bit hash of more than 16 bytes."""
    state = SECRET_1 ^ np.uint64(stop - start)
    place = start
    while stop - place > 16:
        state = _fold(_load(values, place) ^ SECRET_2, _load(values, place + 8) ^ state)
        place += 16
    # The last 1 to 16 bytes, as two words that may share bytes with those before.
    return _fold(_load(values, stop - 16) ^ SECRET_2 ^ state, _load(values, stop - 8) ^ SECRET_3)


@part()
def _short_key(values, start, size):  # type: ignore[no-untyped-def]
    """The bytes, less than 8 of them, taken one by one: `_load` might read past the end."""
    word = ZERO
    for i in range(size):
        word |= np.uint64(values[start + i]) << np.uint64(8 * i)
    return word


@part()
def _make_keys(values, begin, starts, ends, num, keys):  # type: ignore[no-untyped-def]
    """Of words of up to 8 bytes the bytes themselves, of longer ones a 64-bit hash; without a branch up to 16."""
    last_load = len(values) - 8
    for i in range(num):
        start, size = begin + starts[i], ends[i] - starts[i]
        stop = start + size
        if start > last_load:
            keys[i] = _short_key(values, start, size)
        elif size > 16:
            keys[i] = _long_key(values, start, stop)
        else:
            first = _load(values, start)
            last = _load(values, max(start, stop - 8))
            short = first & (ALL >> np.uint64(64 - 8 * min(size, 8)))
            long = _fold(first ^ SECRET_2, last ^ SECRET_3 ^ np.uint64(size))
            # All ones where size > 8.
            keys[i] = short ^ (long & np.uint64((8 - size) >> 63))


@part()
def _enter(keys, starts, ends, num, table, ring, shift, stamp, sizes, counts, numbers, distinct):  # type: ignore[no-untyped-def]
    """Number the words of these keys, count them, and give how many numbers there are then.

    Whether a word is new cannot be foreseen, so that a branch on it would cost more than the rest: what differs is
    masked.
    """
    for i in range(num):
        key, size = keys[i], np.uint32(ends[i] - starts[i])
        slot = (key * GOLDEN) >> shift
        while True:
            value = table[slot << ONE | ONE]
            number = value & LOW_32
            # 1 where the entry is of another generation, else 0.
            new = (((value ^ stamp) >> HIGH_32) + LOW_32) >> HIGH_32
            differs = (table[slot << ONE] ^ key) | np.uint64(sizes[number] ^ size)
            if differs & (new - ONE) == ZERO:
                break
            slot = (slot + ONE) & ring
        known = new - ONE
        number = (number & known) | (distinct & ~known)
        table[slot << ONE] = key
        table[slot << ONE | ONE] = stamp | number
        sizes[number] = size
        counts[number] = (counts[number] & np.uint32(known & LOW_32)) + np.uint32(1)
        distinct += new
        numbers[i] = np.uint32(number)
    return distinct


@kernel(seconds=3)
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
    keys,
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
        int64 (5, PLACES), scratch.
    keys
        uint64[PLACES], scratch.
    table, sizes
        uint64 (2 * slots,) and uint32 (slots / 2,); slots is a power of two.
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
    slots = len(table) // 2
    starts, ends, first_chars, last_chars, lengths = places[0], places[1], places[2], places[3], places[4]
    for document in range(first, stop):
        begin, num_words = offsets[document], words[document]
        row = rows[document]
        head = heads[document]
        counts_here = counts[head : head + num_words + 1]
        numbers_here = numbers[head : head + num_words + 1]
        sums_here = sums[head : head + num_words + 1]
        plain = chars[document] == offsets[document + 1] - begin
        room, shift = 2, np.uint64(63)
        while room < 2 * num_words and room < slots:
            room *= 2
            shift -= ONE
        ring = np.uint64(room - 1)
        stamp = (np.uint64(generation) + np.uint64(document - first)) << HIGH_32
        longest = np.int64(0)
        distinct = ZERO
        total = np.uint32(0)
        done = num_starts = num_ends = chars_before = 0
        num_blocks = ((offsets[document + 1] - begin) >> 6) + 1
        for block in range(num_blocks):
            beginnings, endings = masks[row + block, WORD_START], masks[row + block, WORD_END]
            _places(beginnings, endings, 64 * block, starts[num_starts:], ends[num_ends:])
            if not plain:
                start = masks[row + block, CHAR_START]
                _char_places(beginnings, endings, start, chars_before, first_chars[num_starts:], last_chars[num_ends:])
                chars_before += _ones(start)
            num_starts += _ones(beginnings)
            num_ends += _ones(endings)
            if num_starts < PLACES - MOST_IN_BLOCK and block + 1 < num_blocks:
                continue
            from_, to = (starts, ends) if plain else (first_chars, last_chars)
            for i in range(num_ends):
                num_chars = to[i] - from_[i]
                longest = max(longest, num_chars)
                lengths[i] = num_chars
            if wanted & WANT_NUMBERS:
                if np.int64(distinct) + num_ends > slots // 2 and room < 2 * num_words:
                    return document
                _make_keys(values, begin, starts, ends, num_ends, keys)
                distinct = _enter(
                    keys,
                    starts,
                    ends,
                    num_ends,
                    table,
                    ring,
                    shift,
                    stamp,
                    sizes,
                    counts_here,
                    numbers_here[done:],
                    distinct,
                )
                sums_from = sums_here[done:]
                for i in range(num_ends):
                    sums_from[i] = total
                    total += np.uint32(lengths[i])
            done += num_ends
            starts[0], first_chars[0] = starts[num_ends], first_chars[num_ends]
            num_starts -= num_ends
            num_ends = 0
        facts[document, LONGEST_WORD] = longest
        facts[document, DISTINCT] = distinct
        if wanted & WANT_NUMBERS:
            sums_here[num_words] = total
        if wanted & WANT_ENTROPY:
            entropy[document] = 0.0
            if distinct > ONE:
                repeated = 0.0
                for each in range(np.int64(distinct)):
                    count = np.int64(counts_here[each])
                    repeated += logs[count] if count < NUM_LOGS else count * np.log2(np.float64(count))
                entropy[document] = max(0.0, np.log2(np.float64(num_words)) - repeated / np.float64(num_words))
    return stop
