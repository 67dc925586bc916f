"""How evenly are the bytes of a text spread over their 256 values, and how much of it repeats with a short period?

Entropy is log2(n) - sum(c log2 c) / n over the counts c of the byte values, added in order of the value,
even and odd values apart. Four histograms, so that equal neighbours do not wait for each other.

Periods: a run of period p also has every period k * p, so runs of the periods 33..64 are all the runs there are, and a
run of at least 256 bytes holds, at one of the places 64, 248, 432, ..., eight bytes that equal those one period
before. Only there is anything compared: all 32 periods at once, in vector registers. On a hit the run is followed to
both its ends and its least period is looked for among the divisors of p: 256 bytes hold the unit often enough that the
least period of the unit is that of the run. A run counts at the first place whose 64 bytes before it holds as well: so
runs come in order of their starts, those of one place touch each other, and their union is kept in two numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dataguard.core.compiled import kernel, part

__all__ = ["NUM_LOGS", "WANT_ENTROPY", "WANT_PERIODS", "measure"]

ir = cgutils.ir

WANT_ENTROPY, WANT_PERIODS = 1, 2

NUM_LOGS = 4096
"""Length of the table of c * log2(c)."""

SHORTEST_RUN = 256
LONGEST_PERIOD = 64
HALF = 32
PROBE = 8
STRIDE = SHORTEST_RUN - LONGEST_PERIOD - PROBE


LOW_8 = np.uint64(0xFF)
EIGHT = np.uint64(8)


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


@intrinsic
def _equal_before(typing: Any, values: Any, at: Any) -> Any:  # noqa: ARG001
    """Bit i: whether the eight bytes at `values[at:]` equal those 64 - i bytes before, for i in 0:32.

    From 64 bytes before to 8 behind, all must be there.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, word = ir.IntType(8), ir.IntType(64)
        vector = ir.VectorType(byte, HALF)
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        here = builder.gep(data, [arguments[1]])
        equal = None
        for k in range(PROBE):
            value = builder.load(builder.gep(here, [ir.Constant(word, k)]))
            lane = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
            every = builder.shuffle_vector(
                lane, ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), HALF), [0] * HALF)
            )
            before = builder.bitcast(builder.gep(here, [ir.Constant(word, k - LONGEST_PERIOD)]), vector.as_pointer())
            block = builder.load(before)
            block.align = 1
            same = builder.icmp_unsigned("==", block, every)
            equal = same if equal is None else builder.and_(equal, same)
        return builder.zext(builder.bitcast(equal, ir.IntType(HALF)), word)

    return types.uint64(values, types.int64), generate


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


@part()
def _fill(values, begin, end, counts):  # type: ignore[no-untyped-def]
    """Add the bytes to four histograms that lie one behind the other."""
    for each in range(len(counts)):
        counts[each] = 0
    for block in range((end - begin) >> 3):
        word = _load(values, begin + 8 * block)
        for k in range(8):
            counts[(word & LOW_8) | np.uint64(256 * (k & 3))] += np.uint32(1)
            word >>= EIGHT
    for i in range(begin + ((end - begin) >> 3 << 3), end):
        counts[values[i]] += np.uint32(1)


@part()
def _entropy(length, counts, logs):  # type: ignore[no-untyped-def]
    """Of a text of that many bytes, from its histograms."""
    first, second = 0.0, 0.0
    for value in range(0, 256, 2):
        # Even and odd values on their own, so that one addition need not wait for the other.
        one = np.int64(counts[value]) + counts[256 + value] + counts[512 + value] + counts[768 + value]
        two = np.int64(counts[value + 1]) + counts[257 + value] + counts[513 + value] + counts[769 + value]
        first += logs[one] if one < NUM_LOGS else one * np.log2(np.float64(one))
        second += logs[two] if two < NUM_LOGS else two * np.log2(np.float64(two))
    size = np.float64(length)
    # Rounding may lead out of the range by the last bit.
    return min(8.0, max(0.0, np.log2(size) - (first + second) / size))


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
def _run_stop(values, stop, period, end):  # type: ignore[no-untyped-def]
    """Where the bytes from `stop` on no longer equal those one period before."""
    while stop + 8 <= end:
        differs = _load(values, stop) ^ _load(values, stop - period)
        if differs:
            return stop + (_trailing_zeros(differs) >> 3)
        stop += 8
    while stop < end and values[stop] == values[stop - period]:
        stop += 1
    return stop


@part()
def _run_start(values, start, period, begin):  # type: ignore[no-untyped-def]
    """How far down the bytes below `start` equal those one period behind."""
    while start - 8 >= begin:
        differs = _load(values, start - 8) ^ _load(values, start - 8 + period)
        if differs:
            return start - (_leading_zeros(differs) >> 3)
        start -= 8
    while start > begin and values[start - 1] == values[start - 1 + period]:
        start -= 1
    return start


@part()
def _periods(values, begin, end, ends):  # type: ignore[no-untyped-def]
    """Most repeats of a unit in a run, and the bytes that runs cover."""
    repeats = covered = 0
    covered_to = begin
    ends[:] = begin
    at = begin + LONGEST_PERIOD
    while at + PROBE <= end:
        equal = _equal_before(values, at)
        if equal:
            least, most = at, at
            # A run that is known to have a least period has each multiple of it too, and may only be longer for that.
            known, known_start, known_stop = LONGEST_PERIOD + 1, at, at
            for period in range(HALF + 1, LONGEST_PERIOD + 1):
                if equal >> np.uint64(LONGEST_PERIOD - period) & np.uint64(1) == 0:
                    continue
                if ends[period] > at:  # within a run that was met before
                    continue
                start, stop = at - period, at + PROBE
                if period % known == 0:
                    start, stop = min(start, known_start), max(stop, known_stop)
                stop = _run_stop(values, stop, period, end)
                start = _run_start(values, start, period, begin)
                if start > at - LONGEST_PERIOD:  # a run that is long enough is met again, at the next place
                    continue
                ends[period] = stop
                if stop - start >= SHORTEST_RUN:
                    divisor = _least_period(values, start, period)
                    repeats = max(repeats, (stop - start) // divisor)
                    least, most = min(least, start), max(most, stop)
                    if divisor < known:
                        known, known_start, known_stop = divisor, start, stop
            if most > least:
                covered += max(0, most - max(least, covered_to))
                covered_to = max(covered_to, most)
        at += STRIDE
    return repeats, covered


@kernel(seconds=2)
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
        uint32[1024] and int64[65], scratch.
    entropy, repeats, covered
        float64, int64, int64, one a document: places first:stop are written as wanted.
    """
    for document in range(first, stop):
        begin, end = offsets[document], offsets[document + 1]
        if wanted & WANT_ENTROPY:
            entropy[document] = 0.0
            if end > begin:
                _fill(values, begin, end, counts)
                entropy[document] = _entropy(end - begin, counts, logs)
        if wanted & WANT_PERIODS:
            repeats[document], covered[document] = _periods(values, begin, end, ends)
