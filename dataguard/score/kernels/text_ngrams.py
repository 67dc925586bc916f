"""How much of a text is covered by sequences of n words that occur more than once?

By pruning: n words can occur twice only where their first n - 1 and their last n - 1 do. Level n looks only at the
places that survived level n - 1, and gives each sequence there a number, keyed by the exact pair of the numbers of its
two parts; so nothing above the words depends on hashing.

Text that repeats as a whole (`a a a ...`, a phrase over and over) prunes nothing. There, from some level on, every
sequence has only one continuation: as many sequences as beginnings. Then the numbers of one level serve the next one as
they are, and a level is a walk over a list, without any table; and not even that where the list is one stretch.

The table is open addressing with key and value side by side; an entry whose generation is not the level's counts as
free, so that nothing is cleared. Where it is too small for the distinct sequences of a document, the kernel stops and
is called again with a larger one.
"""

from __future__ import annotations

import numpy as np

from dataguard.core.compiled import kernel, part

__all__ = ["FIRST_TOP", "LAST_TOP", "LONGEST", "PIECE", "find_repeats"]

LONGEST = 10
"""The greatest n."""
FIRST_TOP, LAST_TOP = 2, 4
"""For these n it is the one sequence that covers most, for longer ones all that occur more than once."""

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
LOW_32 = np.uint64(0xFFFFFFFF)
HIGH_32 = np.uint64(32)
ZERO, ONE = np.uint64(0), np.uint64(1)
ONE_32, TWO = np.uint32(1), np.uint32(2)

PIECE = 1024
"""Keys that are made at a time."""


@part()
def _repeated_words(numbers, counts, num_words, spots):  # type: ignore[no-untyped-def]
    """Keep the words that occur more than once: their places go to `spots`, their numbers move up."""
    num = ZERO
    for i in range(num_words):
        number = numbers[i]
        spots[num] = i
        numbers[num] = number
        num += np.uint64(counts[number] >= TWO)
    return np.int64(num)


@part()
def _pairs(numbers, spots, num):  # type: ignore[no-untyped-def]
    """Keep the places whose next place was kept too; their numbers move up."""
    kept = ZERO
    for j in range(num - 1):
        spot = spots[j]
        spots[kept] = spot
        numbers[kept] = numbers[j]
        kept += np.uint64(spots[j + 1] == spot + 1)
    return np.int64(kept)


@part()
def _pair_keys(numbers, spots, start, stop, keys, kept):  # type: ignore[no-untyped-def]
    """`_pairs` of the places start:stop, with a key of each place's number and its neighbour's."""
    num = ZERO
    numbers, spots_from = numbers[start:], spots[start:]
    for j in range(stop - start):
        spot = spots_from[j]
        keys[num] = np.uint64(numbers[j]) << HIGH_32 | np.uint64(numbers[j + 1])
        spots[kept + num] = spot
        num += np.uint64(spots_from[j + 1] == spot + 1)
    return np.int64(num)


@part()
def _enter(keys, num, table, ring, shift, stamp, tally, numbers, distinct):  # type: ignore[no-untyped-def]
    """Number these keys, count them, and give how many numbers there are then.

    Whether a key is new cannot be foreseen, so that a branch on it would cost more than the rest: what differs is
    masked.
    """
    for i in range(num):
        key = keys[i]
        slot = (key * GOLDEN) >> shift
        while True:
            value = table[slot << ONE | ONE]
            # 1 where the entry is of another generation, else 0.
            new = (((value ^ stamp) >> HIGH_32) + LOW_32) >> HIGH_32
            if (table[slot << ONE] ^ key) & (new - ONE) == ZERO:
                break
            slot = (slot + ONE) & ring
        known = new - ONE
        number = (value & LOW_32 & known) | (distinct & ~known)
        table[slot << ONE] = key
        table[slot << ONE | ONE] = stamp | number
        tally[number] = (tally[number] & np.uint32(known & LOW_32)) + np.uint32(1)
        distinct += new
        numbers[i] = np.uint32(number)
    return distinct


@part()
def _renumber(numbers, spots, num, keys, table, stamp, slots, tally):  # type: ignore[no-untyped-def]
    """Number the pairs of neighbours; gives how many places and how many numbers there are, -1 where they do not fit.

    `tally[k]` becomes how often number k occurs.
    """
    room, shift = 2, np.uint64(63)
    while room < 2 * num and room < slots:
        room *= 2
        shift -= ONE
    kept, distinct = np.int64(0), ZERO
    for start in range(0, num - 1, PIECE):
        stop = min(start + PIECE, num - 1)
        more = _pair_keys(numbers, spots, start, stop, keys, np.uint64(kept))
        if room < 2 * num and np.int64(distinct) + more > slots // 2:
            return kept, np.int64(-1)
        distinct = _enter(keys, more, table, np.uint64(room - 1), shift, stamp, tally, numbers[kept:], distinct)
        kept += more
    return kept, np.int64(distinct)


@part()
def _recount(numbers, num, distinct, tally):  # type: ignore[no-untyped-def]
    for each in range(distinct):
        tally[each] = 0
    for j in range(num):
        tally[numbers[j]] += np.uint32(1)


@part()
def _beginnings(numbers, spots, num, tally, distinct):  # type: ignore[no-untyped-def]
    """How many different numbers stand before a place that was kept too; `tally` is scratch for `distinct` numbers."""
    for each in range(distinct):
        tally[each] = 0
    different = 0
    for j in range(num - 1):
        number = numbers[j]
        if spots[j + 1] == spots[j] + 1 and tally[number] == 0:
            tally[number] = 1
            different += 1
    return different


@part()
def _survivors(numbers, spots, num, tally):  # type: ignore[no-untyped-def]
    """Keep the places whose number occurs more than once."""
    kept = ZERO
    for j in range(num):
        number = numbers[j]
        spots[kept] = spots[j]
        numbers[kept] = number
        kept += np.uint64(tally[number] >= TWO)
    return np.int64(kept)


@part()
def _covered(spots, num, n, sums):  # type: ignore[no-untyped-def]
    """Characters of the words of all sequences that are kept, each word once."""
    if num and spots[num - 1] - spots[0] == num - 1:
        return np.int64(sums[np.uint64(spots[num - 1]) + np.uint64(n)]) - np.int64(sums[spots[0]])
    total = np.int64(0)
    reach = np.uint64(0)
    for j in range(num):
        spot = np.uint64(spots[j])
        end = spot + np.uint64(n)
        total += np.int64(sums[end]) - np.int64(sums[max(spot, reach)])
        reach = end
    return total


@part()
def _most_covered(numbers, spots, num, n, sums, distinct, reaches, totals):  # type: ignore[no-untyped-def]
    """Characters of the words of the sequence that covers most, each word once."""
    for each in range(distinct):
        reaches[each] = 0
        totals[each] = 0
    most = np.uint32(0)
    for j in range(num):
        number, spot = numbers[j], spots[j]
        end = np.uint32(spot + n)
        total = totals[number] + np.uint32(sums[end] - sums[max(spot, reaches[number])])
        reaches[number] = end
        totals[number] = np.uint32(total)
        most = max(most, np.uint32(total))
    return np.int64(most)


@kernel(seconds=3)
def find_repeats(  # type: ignore[no-untyped-def]
    first, stop, wanted, words, numbers, counts, sums, heads, keys, table, tallies, generation, spots, covered
):
    """Characters covered by repeated sequences in the documents first:stop; gives the first document not done.

    That is `stop` where all are done; a document is not done where the table is too small for it. Its numbers are
    spoilt then, and have to be made again.

    Parameters
    ----------
    wanted
        Bit n for sequences of n words, 2..LONGEST.
    words, numbers, counts, sums, heads
        As `number_words` wrote them. The numbers are worked on in place.
    keys
        uint64[PIECE], scratch.
    table, tallies
        uint64 (2 * slots,) and uint32 (3, slots / 2); slots is a power of two.
    generation
        Greater than any this table has seen; document i takes the LONGEST from generation + LONGEST * (i - first) on.
        Below 2^32.
    spots
        uint32, scratch: as many as a document has words.
    covered
        int64 (documents, LONGEST + 1): column n of rows first:stop is written as wanted, 0 elsewhere.
    """
    tally, reaches, totals = tallies[0], tallies[1], tallies[2]
    slots = len(table) // 2
    deepest = 0
    for n in range(FIRST_TOP, LONGEST + 1):
        if wanted >> n & 1:
            deepest = n
    for document in range(first, stop):
        covered[document, :] = 0
        head, num_words = heads[document], words[document]
        counts_here = counts[head : head + num_words + 1]
        numbers_here = numbers[head : head + num_words + 1]
        sums_here = sums[head : head + num_words + 1]
        num = _repeated_words(numbers_here, counts_here, num_words, spots)
        base = np.uint64(generation) + np.uint64(LONGEST * (document - first))
        distinct = np.int64(0)
        settled = False
        for n in range(2, deepest + 1):
            if num < 2:
                break
            if settled and spots[num - 1] - spots[0] == num - 1:
                # One stretch, of which every level takes the last place away. Most often that is all.
                num -= 1
                last = numbers_here[num]
                tally[last] -= ONE_32
                if tally[last] == ONE_32:
                    num = _survivors(numbers_here, spots, num, tally)
            elif settled:
                num = _pairs(numbers_here, spots, num)
                _recount(numbers_here, num, distinct, tally)
                num = _survivors(numbers_here, spots, num, tally)
            else:
                beginnings = -1
                if n > 2 and 2 * num > num_words:
                    beginnings = _beginnings(numbers_here, spots, num, tally, distinct)
                stamp = (base + np.uint64(n - 1)) << HIGH_32
                num, distinct = _renumber(numbers_here, spots, num, keys, table, stamp, slots, tally)
                if distinct < 0:
                    return document
                settled = distinct == beginnings
                num = _survivors(numbers_here, spots, num, tally)
            if wanted >> n & 1 and num:
                if n <= LAST_TOP:
                    covered[document, n] = _most_covered(
                        numbers_here, spots, num, n, sums_here, distinct, reaches, totals
                    )
                else:
                    covered[document, n] = _covered(spots, num, n, sums_here)
    return stop
