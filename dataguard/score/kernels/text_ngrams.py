"""How much of a text is covered by sequences of n words that occur more than once?

By pruning: n words can occur twice only where their first n - 1 and their last n - 1 do. Level n looks only at the
places that survived level n - 1, and gives each sequence there a number, keyed by the exact pair of the numbers of its
two parts; so nothing above the words depends on hashing.

Text that repeats as a whole (`a a a ...`, a phrase over and over) prunes nothing. There, from some level on, every
sequence has only one continuation: as many sequences as beginnings. Then the numbers of one level serve the next one as
they are, and a level is a walk over a list, without any table.

The table is open addressing with key and value side by side; an entry whose generation is not the level's counts as
free, so that nothing is cleared. Where it is too small for the distinct sequences of a document, the kernel stops and
is called again with a larger one.
"""

from __future__ import annotations

import numpy as np

from dataguard.core.compiled import kernel, part

__all__ = ["FIRST_TOP", "LAST_TOP", "LONGEST", "find_repeats"]

LONGEST = 10
"""The greatest n."""
FIRST_TOP, LAST_TOP = 2, 4
"""For these n it is the one sequence that covers most, for longer ones all that occur more than once."""

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
LOW_32 = np.uint64(0xFFFFFFFF)
HIGH_32 = np.uint64(32)
ONE = np.uint64(1)


@part()
def _repeated_words(numbers, counts, head, num_words, spots):  # type: ignore[no-untyped-def]
    """Keep the words that occur more than once: their places go to `spots`, their numbers move up."""
    num = 0
    for i in range(num_words):
        number = numbers[head + i]
        spots[num] = i
        numbers[head + num] = number
        num += counts[head + np.int64(number)] >= 2
    return num


@part()
def _pairs(numbers, head, spots, num):  # type: ignore[no-untyped-def]
    """Keep the places whose next place was kept too; their numbers move up."""
    kept = 0
    for j in range(num - 1):
        spot = spots[j]
        number = numbers[head + j]
        spots[kept] = spot
        numbers[head + kept] = number
        kept += spots[j + 1] == spot + 1
    return kept


@part()
def _renumber(numbers, head, spots, num, table, stamp, ring, shift, most, tally):  # type: ignore[no-untyped-def]
    """Number the pairs of neighbours; gives how many places and how many numbers there are, -1 where they do not fit.

    `tally[k]` becomes how often number k occurs.
    """
    kept = distinct = 0
    for j in range(num - 1):
        spot = spots[j]
        if spots[j + 1] != spot + 1:
            continue
        key = np.uint64(numbers[head + j]) << HIGH_32 | np.uint64(numbers[head + j + 1])
        slot = np.int64((key * GOLDEN) >> shift)
        while True:
            value = table[2 * slot + 1]
            fresh = value & ~LOW_32 != stamp
            if fresh or table[2 * slot] == key:
                break
            slot = np.int64((np.uint64(slot) + ONE) & ring)
        if fresh:
            if distinct >= most:
                return kept, np.int64(-1)
            number = np.int64(distinct)
            table[2 * slot] = key
            table[2 * slot + 1] = stamp | np.uint64(number)
            tally[number] = 1
            distinct += 1
        else:
            number = np.int64(value & LOW_32)
            tally[number] += 1
        spots[kept] = spot
        numbers[head + kept] = number
        kept += 1
    return kept, distinct


@part()
def _recount(numbers, head, num, distinct, tally):  # type: ignore[no-untyped-def]
    for each in range(distinct):
        tally[each] = 0
    for j in range(num):
        tally[np.int64(numbers[head + j])] += 1


@part()
def _beginnings(numbers, head, spots, num, tally, distinct):  # type: ignore[no-untyped-def]
    """How many different numbers stand before a place that was kept too; `tally` is scratch for `distinct` numbers."""
    for each in range(distinct):
        tally[each] = 0
    different = 0
    for j in range(num - 1):
        number = np.int64(numbers[head + j])
        if spots[j + 1] == spots[j] + 1 and tally[number] == 0:
            tally[number] = 1
            different += 1
    return different


@part()
def _survivors(numbers, head, spots, num, tally):  # type: ignore[no-untyped-def]
    """Keep the places whose number occurs more than once."""
    kept = 0
    for j in range(num):
        number = numbers[head + j]
        spots[kept] = spots[j]
        numbers[head + kept] = number
        kept += tally[np.int64(number)] >= 2
    return kept


@part()
def _covered(spots, num, n, sums, head):  # type: ignore[no-untyped-def]
    """Characters of the words of all sequences that are kept, each word once."""
    total = np.int64(0)
    reach = np.int64(0)
    for j in range(num):
        spot = np.int64(spots[j])
        total += np.int64(sums[head + spot + n]) - np.int64(sums[head + max(spot, reach)])
        reach = spot + n
    return total


@part()
def _most_covered(numbers, spots, num, n, sums, head, distinct, reaches, totals):  # type: ignore[no-untyped-def]
    """Characters of the words of the sequence that covers most, each word once."""
    for each in range(distinct):
        reaches[each] = 0
        totals[each] = 0
    most = np.int64(0)
    for j in range(num):
        number, spot = np.int64(numbers[head + j]), np.int64(spots[j])
        fresh = max(spot, np.int64(reaches[number]))
        total = np.int64(totals[number]) + np.int64(sums[head + spot + n]) - np.int64(sums[head + fresh])
        reaches[number] = spot + n
        totals[number] = total
        most = max(most, total)
    return most


@kernel(seconds=4)
def find_repeats(  # type: ignore[no-untyped-def]
    first, stop, wanted, words, numbers, counts, sums, heads, table, tallies, generation, spots, covered
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
    table, tallies
        uint64 (2 * slots,) and uint32 (3, slots); slots is a power of two.
    generation
        Greater than any this table has seen; document i takes the LONGEST from generation + LONGEST * (i - first) on.
        Below 2^32.
    spots
        uint32, scratch: as many as a document has words.
    covered
        int64 (documents, LONGEST + 1): column n of rows first:stop is written as wanted, 0 elsewhere.
    """
    tally, reaches, totals = tallies[0], tallies[1], tallies[2]
    slots = len(tally)
    deepest = 0
    for n in range(FIRST_TOP, LONGEST + 1):
        if wanted >> n & 1:
            deepest = n
    for document in range(first, stop):
        covered[document, :] = 0
        head, num_words = heads[document], words[document]
        num = _repeated_words(numbers, counts, head, num_words, spots)
        base = np.uint64(generation) + np.uint64(LONGEST * (document - first))
        distinct = 0
        settled = False
        for n in range(2, deepest + 1):
            if num < 2:
                break
            if settled:
                num = _pairs(numbers, head, spots, num)
                _recount(numbers, head, num, distinct, tally)
            else:
                room, shift = 2, np.uint64(63)
                while room < 2 * num and room < slots:
                    room *= 2
                    shift -= ONE
                beginnings = -1
                if n > 2 and 2 * num > num_words:
                    beginnings = _beginnings(numbers, head, spots, num, tally, distinct)
                stamp = (base + np.uint64(n - 1)) << HIGH_32
                num, distinct = _renumber(
                    numbers, head, spots, num, table, stamp, np.uint64(room - 1), shift, room // 2, tally
                )
                if distinct < 0:
                    return document
                settled = distinct == beginnings
            num = _survivors(numbers, head, spots, num, tally)
            if wanted >> n & 1 and num:
                if n <= LAST_TOP:
                    covered[document, n] = _most_covered(numbers, spots, num, n, sums, head, distinct, reaches, totals)
                else:
                    covered[document, n] = _covered(spots, num, n, sums, head)
    return stop
