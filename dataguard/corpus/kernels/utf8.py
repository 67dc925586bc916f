"""Which rows of a column of bytes are not UTF-8?

A row is UTF-8 where Python's decoder takes it: no surrogates, nothing overlong, nothing past U+10FFFF, no character cut
by the row's end.

1. All rows are looked at as one run of bytes first. Where that is UTF-8 and no row begins within a character, all rows
   are UTF-8. Otherwise each row is looked at by itself.
2. 32 bytes are judged together, each by itself and the three before it: it must continue a character exactly where one
   of those begins a character that long, and the second byte of some characters has bounds of its own. There are no
   branches in that, so it takes the same time for any script. Where there is nothing but ASCII it is passed over.
3. The first bytes, and what is left at the end, are walked character by character.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dataguard.core.compiled import kernel, part

__all__ = ["mark_not_utf8"]

ir = cgutils.ir
WIDTH = 32


def _load(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    """The 32 bytes at a place of an array."""
    data = builder.gep(context.make_array(kind)(context, builder, array).data, [at])
    vector = builder.load(builder.bitcast(data, ir.VectorType(ir.IntType(8), WIDTH).as_pointer()))
    vector.align = 1
    return vector


def _bits(builder: Any, truths: Any) -> Any:
    return builder.zext(builder.bitcast(truths, ir.IntType(WIDTH)), ir.IntType(64))


@intrinsic
def _beyond_ascii(typing: Any, values: Any, at: Any) -> Any:  # noqa: ARG001
    """Bit k is set where values[at + k] is no ASCII, for k below 32; all of them must be there."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = _load(context, builder, signature.args[0], *arguments)
        return _bits(builder, builder.icmp_signed("<", vector, ir.Constant(vector.type, [0] * WIDTH)))

    return types.int64(values, types.int64), generate


@intrinsic
def _misplaced(typing: Any, values: Any, at: Any) -> Any:  # noqa: ARG001
    """Bit k is set where values[at + k] may not stand behind the three before it; values[at - 3:at + 32] are there."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, place = arguments

        def before(num_bytes: int) -> Any:
            moved = builder.sub(place, ir.Constant(place.type, num_bytes))
            return _load(context, builder, signature.args[0], array, moved)

        def holds(vector: Any, comparison: str, byte: int) -> Any:
            return builder.icmp_unsigned(comparison, vector, ir.Constant(vector.type, [byte] * WIDTH))

        byte, first, second, third = before(0), before(1), before(2), before(3)
        must = builder.or_(holds(first, ">=", 0xC0), builder.or_(holds(second, ">=", 0xE0), holds(third, ">=", 0xF0)))
        does = builder.and_(holds(byte, ">=", 0x80), holds(byte, "<", 0xC0))
        wrong = builder.xor(must, does)
        # C0 and C1 would be overlong, F5 and above past U+10FFFF
        never = builder.or_(builder.and_(holds(byte, ">=", 0xC0), holds(byte, "<", 0xC2)), holds(byte, ">=", 0xF5))
        wrong = builder.or_(wrong, never)
        # nothing overlong, no surrogates, nothing past U+10FFFF
        for lead, comparison, bound in ((0xE0, "<", 0xA0), (0xED, ">=", 0xA0), (0xF0, "<", 0x90), (0xF4, ">=", 0x90)):
            outside = builder.and_(holds(first, "==", lead), holds(byte, comparison, bound))
            wrong = builder.or_(wrong, outside)
        return _bits(builder, wrong)

    return types.int64(values, types.int64), generate


@part()
def _walk(values, at, until, stop):  # type: ignore[no-untyped-def]
    """The end of the first character that ends at `until` or behind, from one that begins at `at`; -1 for no UTF-8."""
    while at < until:
        first = values[at]
        if first < 0x80:
            at += 1
            continue
        num_bytes = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
        if first < 0xC2 or first > 0xF4 or at + num_bytes > stop:
            return -1
        second = values[at + 1]
        lowest = 0xA0 if first == 0xE0 else 0x90 if first == 0xF0 else 0x80
        highest = 0x9F if first == 0xED else 0x8F if first == 0xF4 else 0xBF
        if second < lowest or second > highest:
            return -1
        for k in range(2, num_bytes):
            if values[at + k] & 0xC0 != 0x80:
                return -1
        at += num_bytes
    return at


@part()
def _is_utf8(values, at, stop):  # type: ignore[no-untyped-def]
    if stop - at > WIDTH + 8:
        at = _walk(values, at, at + 3, stop)
        if at < 0:
            return False
        was_ascii = False  # whether no character may reach over from the 32 bytes before
        while at + WIDTH <= stop:
            is_ascii = _beyond_ascii(values, at) == 0
            if not (is_ascii and was_ascii) and _misplaced(values, at):
                return False
            was_ascii = is_ascii
            at += WIDTH
        # back to where the last character begins
        while values[at - 1] & 0xC0 == 0x80:
            at -= 1
        if values[at - 1] >= 0xC0:
            at -= 1
    return _walk(values, at, stop, stop) >= 0


@kernel(seconds=1.5)
def mark_not_utf8(values, offsets, is_bad):  # type: ignore[no-untyped-def]
    """Set `is_bad` (b1, shape (rows,)) where values[offsets[i]:offsets[i + 1]] is not UTF-8.

    `values` is u1, read-only; `offsets` i8, read-only, shape (rows + 1,), none below the one before it, all of them
    within `values`. Entries of rows that are UTF-8 are left as they are. Returns how many rows are not.
    """
    num_rows = len(offsets) - 1
    stop = offsets[num_rows]
    is_whole = _is_utf8(values, offsets[0], stop)
    for row in range(num_rows):
        is_whole = is_whole and (offsets[row] == stop or values[offsets[row]] & 0xC0 != 0x80)
    if is_whole:
        return 0
    num_bad = 0
    for row in range(num_rows):
        if not _is_utf8(values, offsets[row], offsets[row + 1]):
            is_bad[row] = True
            num_bad += 1
    return num_bad
