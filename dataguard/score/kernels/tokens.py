"""How are all signals of a row of token ids computed in one visit, without allocating?

For each row, and only what is asked for:

1. **Dense ids.** Every id becomes the number of its first appearance: through a table indexed by the id below
   `DIRECT_IDS`, through an open-addressing table above. Counting them gives distinct ids and entropy.
2. **4-grams.** A window can occur twice only if each of its tokens does; the others are distinct unseen. What is left
   is packed into one exact 64-bit key, four dense ids of 16 bits, and entered into a table. A row with more than 65,536
   distinct ids takes `_distinct_windows`, which numbers pairs and pairs of pairs and is as exact.
3. **Periods.** A run of R repeats of a unit of p tokens has (R - 1) p consecutive places with t[i] == t[i - p], so it
   is enough to look at every 2p-th place for runs of 3; a hit is followed both ways. Each place is passed at most twice
   a period.
4. **Vocabulary.** Ids outside [0, size), counted as unsigned numbers: a negative id is a very large one.

Nothing is cleared between rows: an entry of a table holds when its upper 32 bits are the stamp of the row. Keys are
compared in full, so no result depends on hashing; equal rows give equal bits wherever they stand. The logarithm is made
of additions, multiplications and divisions, so that it is the same on every machine.

Ids come as int64; unsigned 64-bit ids by their bits.
"""

from __future__ import annotations

import numpy as np

from dataguard.core.compiled import kernel, part

__all__ = [
    "DIRECT_IDS",
    "LARGEST_PERIOD",
    "NUM_SMALL_COUNTS",
    "WANT_COUNTS",
    "WANT_NGRAMS",
    "WANT_PERIODS",
    "WANT_VOCABULARY",
    "count_ngrams",
    "fill_small_logs",
    "score_rows",
]

DIRECT_IDS = 1 << 18
"""Ids below are looked up by index: every vocabulary in use. 2 MB of table a thread."""
NUM_SMALL_COUNTS = 1024
"""Counts below are tallied, and their logarithms stand in a table."""
LARGEST_PERIOD = 13
MARKED_REPEATS = np.uint64(4)

WANT_COUNTS = 1
WANT_NGRAMS = 2
WANT_PERIODS = 4
WANT_VOCABULARY = 8

_PACKED_IDS = 1 << 16
_FOUR = 4
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_16 = np.uint64(16)
_1 = np.uint64(1)
_64 = np.uint64(64)
_ROOT_HALF = 0.7071067811865476
_TWO_OVER_LN_2 = 2.8853900817779268


@part()
def _log2(x):  # type: ignore[no-untyped-def]
    """log2 of a positive number, within 3 units in the last place; exact for powers of two."""
    exponent = 0.0
    while x >= 65536.0:
        x *= 1.52587890625e-05
        exponent += 16.0
    while x >= 2.0 * _ROOT_HALF:
        x *= 0.5
        exponent += 1.0
    s = (x - 1.0) / (x + 1.0)
    z = s * s
    series = 1.0 / 23.0
    for odd in (21.0, 19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0):
        series = series * z + 1.0 / odd
    return exponent + _TWO_OVER_LN_2 * s * series


@part(inline=True)
def _class_of(table, shift, mask, key, stamp, next_class):  # type: ignore[no-untyped-def]
    """The number of a key in the table; `next_class` where it was not there, and is now."""
    slot = ((key ^ (key >> _32)) * _GOLDEN) >> shift
    found = next_class
    while True:
        entry = table[slot, 1]
        if entry >> _32 != stamp:
            table[slot, 0] = key
            table[slot, 1] = (stamp << _32) | next_class
            break
        if table[slot, 0] == key:
            found = entry & _LOW
            break
        slot = (slot + _1) & mask
    return found


@part()
def _shift_for(num_keys):  # type: ignore[no-untyped-def]
    """64 - bits of the least table that `num_keys` fill to two thirds at most, of 16 places at least."""
    bits = np.uint64(4)
    while (1 << np.int64(bits)) * 2 < num_keys * 3:
        bits += _1
    return _64 - bits


@part()
def _number(row, dense, counts, direct, table, stamp):  # type: ignore[no-untyped-def]
    """Number the ids of a row by first appearance into `dense`, count them in `counts`; how many there are."""
    shift = _shift_for(len(row))
    mask = (_1 << (_64 - shift)) - _1
    num = np.uint64(0)
    for i in range(len(row)):
        value = np.uint64(row[i])
        if value < np.uint64(DIRECT_IDS):
            entry = direct[value]
            if entry >> _32 == stamp:
                found = entry & _LOW
            else:
                found = num
                direct[value] = (stamp << _32) | num
        else:
            found = _class_of(table, shift, mask, value, stamp, num)
        dense[i] = found
        if found == num:
            counts[found] = 1
            num += _1
        else:
            counts[found] += 1
    return np.int64(num)


@part()
def _entropy(counts, distinct, length, tallies, logs):  # type: ignore[no-untyped-def]
    """Entropy in bits of `distinct` counts that sum to `length`: log2 n - (sum of c log2 c) / n."""
    if distinct <= 1:
        return 0.0
    total = 0.0
    largest = 1
    for d in range(distinct):
        c = counts[d]
        if c < NUM_SMALL_COUNTS:
            tallies[c] += 1
            largest = max(largest, c)
        else:
            total += np.float64(c) * _log2(np.float64(c))
    for c in range(1, largest + 1):
        if tallies[c]:
            total += np.float64(tallies[c]) * logs[c]
            tallies[c] = 0
    return max(0.0, _log2(np.float64(length)) - total / np.float64(length))


@part()
def _duplicate_windows(dense, counts, length, keys, table, stamp):  # type: ignore[no-untyped-def]
    """Windows of 4 tokens that equal an earlier one, in a row of at most 65,536 distinct ids."""
    key = np.uint64(0)
    streak = 0
    num = 0
    for i in range(length):
        d = np.uint64(dense[i])
        key = (key << _16) | d
        streak = streak + 1 if counts[d] > 1 else 0
        keys[num] = key
        num += streak >= _FOUR
    shift = _shift_for(num)
    mask = (_1 << (_64 - shift)) - _1
    distinct = np.uint64(0)
    for i in range(num):
        found = _class_of(table, shift, mask, keys[i], stamp, distinct)
        distinct += np.uint64(found == distinct)
    return num - np.int64(distinct)


@part()
def _distinct_windows(dense, distinct, length, n, classes, table, stamps):  # type: ignore[no-untyped-def]
    """Distinct windows of n dense ids, of any number of them.

    Windows of w ids are numbered; (number of the window here, number of the window w further) is an exact key of a
    window of 2w, and with one more id of 2w + 1: the digits of n are walked from its second, so that the cost grows
    with log n.
    """
    if length < n:
        return 0
    for i in range(length):
        classes[i] = dense[i]
    shift = _shift_for(length)
    mask = (_1 << (_64 - shift)) - _1
    digit = 1
    while digit * 2 <= n:
        digit *= 2
    width = 1
    num = np.uint64(distinct)
    while digit > 1:
        digit //= 2
        stamps[0] += _1
        num = np.uint64(0)
        for i in range(length - 2 * width + 1):
            key = (np.uint64(classes[i]) << _32) | np.uint64(classes[i + width])
            found = _class_of(table, shift, mask, key, stamps[0], num)
            num += np.uint64(found == num)
            classes[i] = found
        width *= 2
        if n & digit:
            stamps[0] += _1
            num = np.uint64(0)
            for i in range(length - width):
                key = (np.uint64(classes[i]) << _32) | np.uint64(dense[i + width])
                found = _class_of(table, shift, mask, key, stamps[0], num)
                num += np.uint64(found == num)
                classes[i] = found
            width += 1
    return np.int64(num)


@part(inline=True)
def _same(row, i, p):  # type: ignore[no-untyped-def]
    return row[i] == row[i - p]


@part()
def _periods(row, marks):  # type: ignore[no-untyped-def]
    """Most repeats of a unit of 1..13 tokens (0 below 3), and how many places lie in runs of 4 and more.

    `marks` is all zero before and after. Places are unsigned, which spares asking of each whether it is negative.
    """
    length = np.uint64(len(row))
    best = np.uint64(0)
    low, high = length, np.uint64(0)
    for period in range(1, LARGEST_PERIOD + 1):
        p = np.uint64(period)
        step = p + p
        i = p + step - _1
        while True:
            # Four looks for one question: a hit is rare.
            last = step + step + step
            while i + last < length and not (
                _same(row, i, p) | _same(row, i + step, p) | _same(row, i + step + step, p) | _same(row, i + last, p)
            ):
                i += last + step
            while i < length and not _same(row, i, p):
                i += step
            if i >= length:
                break
            start = i
            while start > p and _same(row, start - _1, p):
                start -= _1
            stop = i + _1
            while stop < length and _same(row, stop, p):
                stop += _1
            if stop - start >= step:
                first = start - p
                repeats = (stop - first) // p
                best = max(best, repeats)
                if repeats >= MARKED_REPEATS:
                    for k in range(first, stop):
                        marks[k] = 1
                    low, high = min(low, first), max(high, stop)
            i = stop + step
    covered = 0
    for k in range(low, high):
        covered += marks[k]
        marks[k] = 0
    return np.int64(best), covered


@part()
def _outside(row, vocab_size):  # type: ignore[no-untyped-def]
    count = 0
    for i in range(len(row)):
        count += np.uint64(row[i]) >= vocab_size
    return count


@kernel(seconds=5)
def score_rows(  # type: ignore[no-untyped-def]
    ids, offsets, wanted, vocab_size, direct, table, stamps, dense, classes, counts, marks, tallies, logs, wholes, reals
):
    """Score rows ``ids[offsets[r]:offsets[r + 1]]``.

    Parameters
    ----------
    ids, offsets
        int64.
    wanted
        Sum of ``WANT_*``. The 4-grams want the counts as well.
    vocab_size
        int64, at least 1; used with `WANT_VOCABULARY`.
    direct, table, stamps, dense, classes, counts, marks, tallies, logs
        What `dataguard.score.scratch` lays out for the longest row.
    wholes
        int64 (rows, 3), written: distinct ids, periodic repeats, ids out of vocabulary.
    reals
        float64 (rows, 5), written: entropy, entropy ratio, duplicate 4-grams, periodic fraction, anomaly.
    """
    for r in range(len(offsets) - 1):
        row = ids[offsets[r] : offsets[r + 1]]
        length = len(row)
        distinct, entropy, duplicates = 0, 0.0, 0.0
        if wanted & WANT_COUNTS:
            stamps[0] += _1
            distinct = _number(row, dense, counts, direct, table, stamps[0])
            entropy = _entropy(counts, distinct, length, tallies, logs)
        if wanted & WANT_NGRAMS and length >= _FOUR:
            windows = length - _FOUR + 1
            if distinct <= _PACKED_IDS:
                stamps[0] += _1
                equal = _duplicate_windows(dense, counts, length, classes, table, stamps[0])
            else:
                equal = windows - _distinct_windows(dense, distinct, length, _FOUR, classes, table, stamps)
            duplicates = equal / windows
        wholes[r, 0] = distinct
        reals[r, 0] = entropy
        reals[r, 2] = duplicates
        reals[r, 4] = 0.5 * duplicates + 0.5 * max(0.0, 1.0 - entropy / 8.0) if length else 0.0
        if wanted & WANT_PERIODS:
            repeats, covered = _periods(row, marks)
            wholes[r, 1] = repeats
            reals[r, 3] = covered / length if length else 0.0
        if wanted & WANT_VOCABULARY:
            wholes[r, 2] = _outside(row, np.uint64(vocab_size))
            most = min(length, vocab_size)
            reals[r, 1] = min(1.0, entropy / _log2(np.float64(most))) if most > 1 else 1.0


@kernel(seconds=3)
def count_ngrams(  # type: ignore[no-untyped-def]
    ids, offsets, n, direct, table, stamps, dense, classes, counts, distinct_windows
):
    """Distinct windows of n tokens of each row into `distinct_windows`, int64 (rows,); the rest as in `score_rows`."""
    for r in range(len(offsets) - 1):
        row = ids[offsets[r] : offsets[r + 1]]
        stamps[0] += _1
        distinct = _number(row, dense, counts, direct, table, stamps[0])
        distinct_windows[r] = _distinct_windows(dense, distinct, len(row), n, classes, table, stamps)


@kernel(seconds=1)
def fill_small_logs(logs):  # type: ignore[no-untyped-def]
    """``c * log2(c)`` for every count c below ``len(logs)``, float64, written; 0 for 0."""
    logs[0] = 0.0
    for c in range(1, len(logs)):
        logs[c] = np.float64(c) * _log2(np.float64(c))
