"""How evenly are the bytes of a text spread over their 256 values, and how much of it repeats with a short period?

Entropy is log2(n) - sum(c log2 c) / n over the counts c of the byte values, added in order of the value. Four
histograms, so that equal neighbours do not wait for each other.

Periods: a run of period p also has every period k * p, so runs of the periods 33..64 are all the runs there are, and a
run of at least 256 bytes holds, at one of the places 64, 248, 432, ..., eight bytes that equal those one period
before. Only there is anything compared: all 32 periods at once, in vector registers. On a hit the run is followed to
both its ends and its least period is looked for among the divisors of p: 256 bytes hold the unit often enough that the
least period of the unit is that of the run. A run counts at the first place whose 64 bytes before it holds as well: so
runs come in order of their starts, those of one place touch each other, and their union is kept in two numbers.
"""

from __future__ import annotations

import numpy as np

from dataguard.core.compiled import kernel, part

__all__ = ["NUM_LOGS", "WANT_ENTROPY", "WANT_PERIODS", "measure"]

WANT_ENTROPY, WANT_PERIODS = 1, 2

NUM_LOGS = 4096
"""Length of the table of c * log2(c)."""

SHORTEST_RUN = 256
LONGEST_PERIOD = 64
HALF = 32
PROBE = 8
STRIDE = SHORTEST_RUN - LONGEST_PERIOD - PROBE


@part()
def _entropy(values, begin, end, counts, logs):  # type: ignore[no-untyped-def]
    counts[:] = 0
    i = begin
    while i + 4 <= end:
        counts[0, values[i]] += 1
        counts[1, values[i + 1]] += 1
        counts[2, values[i + 2]] += 1
        counts[3, values[i + 3]] += 1
        i += 4
    while i < end:
        counts[0, values[i]] += 1
        i += 1
    total = 0.0
    for value in range(256):
        count = counts[0, value] + counts[1, value] + counts[2, value] + counts[3, value]
        total += logs[count] if count < NUM_LOGS else count * np.log2(np.float64(count))
    length = np.float64(end - begin)
    # Rounding may lead out of the range by the last bit.
    return min(8.0, max(0.0, np.log2(length) - total / length))


@part()
def _least_period(values, start, period):  # type: ignore[no-untyped-def]
    """The least divisor of `period` with which the unit at `start` repeats."""
    for divisor in range(1, period // 2 + 1):
        if period % divisor == 0:
            i = divisor
            while i < period and values[start + i] == values[start + i - divisor]:
                i += 1
            if i == period:
                return divisor
    return period


@part()
def _hit(values, at):  # type: ignore[no-untyped-def]
    """Whether the eight bytes at `at` equal those one period before, for any period of 33..64."""
    hit = False
    first, second, third, fourth = values[at], values[at + 1], values[at + 2], values[at + 3]
    for back in range(HALF):
        there = at - LONGEST_PERIOD + back
        hit |= (
            (values[there] == first)
            & (values[there + 1] == second)
            & (values[there + 2] == third)
            & (values[there + 3] == fourth)
        )
    return hit


@part()
def _periods(values, begin, end, ends):  # type: ignore[no-untyped-def]
    """Most repeats of a unit in a run, and the bytes that runs cover."""
    repeats = covered = 0
    covered_to = begin
    ends[:] = begin
    at = begin + LONGEST_PERIOD
    while at + PROBE <= end:
        if _hit(values, at):
            least, most = at, at
            for period in range(HALF + 1, LONGEST_PERIOD + 1):
                if ends[period] > at:  # within a run that is known
                    continue
                same = 0
                while same < PROBE and values[at + same] == values[at + same - period]:
                    same += 1
                if same < PROBE:
                    continue
                stop = at + PROBE
                while stop < end and values[stop] == values[stop - period]:
                    stop += 1
                start = at - period
                while start > begin and values[start - 1] == values[start - 1 + period]:
                    start -= 1
                if start > at - LONGEST_PERIOD:  # a run that is long enough is met again, at the next place
                    continue
                ends[period] = stop
                if stop - start >= SHORTEST_RUN:
                    repeats = max(repeats, (stop - start) // _least_period(values, start, period))
                    least, most = min(least, start), max(most, stop)
            if most > least:
                covered += max(0, most - max(least, covered_to))
                covered_to = max(covered_to, most)
        at += STRIDE
    return repeats, covered


@kernel(seconds=3)
def measure(values, offsets, first, stop, wanted, logs, counts, ends, entropy, repeats, covered):  # type: ignore[no-untyped-def]
    """Byte entropy and periodic runs of the documents first:stop.

    Parameters
    ----------
    values, offsets
        uint8 and int64: the bytes of all documents, where each begins and the last ends.
    wanted
        Sum of WANT_... flags.
    logs
        float64[NUM_LOGS], c * log2(c), 0 at 0.
    counts, ends
        int64 (4, 256) and (65,), scratch.
    entropy, repeats, covered
        float64, int64, int64, one a document: places first:stop are written as wanted.
    """
    for document in range(first, stop):
        begin, end = offsets[document], offsets[document + 1]
        if wanted & WANT_ENTROPY:
            entropy[document] = _entropy(values, begin, end, counts, logs) if end > begin else 0.0
        if wanted & WANT_PERIODS:
            repeats[document], covered[document] = _periods(values, begin, end, ends)
