"""Which lines of a block are ordinary JSON objects, beyond doubt, and what are the texts in them?

A line is *certain* where it is one JSON object by the letter of RFC 8259 (no surrogate spelled by half an escape
either), within the limits given, with the text field there once and a string. The text of such a line is written out
without its escapes. Of every other line nothing is said but that it is not certain: formats/records.py, which names
what is wrong, is asked about it. What this file is certain of has the same text there, if it is UTF-8: that is told by
utf8.py, and bytes beyond ASCII are passed over here wherever a string may hold them.

1. One pass from the first byte to the last. No line's end is looked for beforehand: within a line of JSON there is no
   line feed, so wherever one is met inside an object the line is not certain.
2. Strings are most of the bytes. 32 of them are loaded at once, stored to where a text would continue, and compared:
   the first that is a quote, a backslash or a control is where the pass goes on. (Other strings are written to the
   same place, which the next one overwrites. What is written is never longer than what was read, so a buffer of the
   size of the block takes it all.)
3. Objects and arrays are walked with a bit each for what is open. Names count only in the objects on the way to the
   text; a name with an escape there is not certain.

-1 as a place says that the line is not certain.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dataguard.core.compiled import kernel, part

__all__ = ["MOST_DEPTH", "extract_lines"]

ir = cgutils.ir

MOST_DEPTH = 62
"""Deeper lines are never certain, and no longer path is taken: what is open, and was seen, are bits of a number."""

WIDTH = 32
MOST_NUMBER_BYTES = 300  # what no number needs, and no reader of JSON fails at

TAB, LF, CR, SPACE, QUOTE, PLUS, COMMA, MINUS, DOT = 0x09, 0x0A, 0x0D, 0x20, 0x22, 0x2B, 0x2C, 0x2D, 0x2E
ZERO, NINE, COLON, LIST, BACKSLASH, LIST_END, OPEN, CLOSE = 0x30, 0x39, 0x3A, 0x5B, 0x5C, 0x5D, 0x7B, 0x7D
TRUE, NULL, FALS = 0x74727565, 0x6E756C6C, 0x66616C73  # as numbers, the first letter highest

# what may come next
VALUE, FIRST_NAME, NAME, FIRST_ENTRY, BEHIND = 0, 1, 2, 3, 4

ESCAPED = np.zeros(256, np.uint8)
"""What stands behind a backslash -> the byte it means, 0 for none."""
ESCAPED[list(b'"\\/bfnrt')] = list(b'"\\/\b\f\n\r\t')
HEX = np.full(256, -1, np.int64)
HEX[list(b"0123456789abcdef")] = range(16)
HEX[list(b"ABCDEF")] = range(10, 16)


def _vector(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    """A pointer to the 32 bytes at a place of an array."""
    place = builder.gep(context.make_array(kind)(context, builder, array).data, [at])
    return builder.bitcast(place, ir.VectorType(ir.IntType(8), WIDTH).as_pointer())


def _constant(vector: Any, byte: int) -> Any:
    return ir.Constant(vector.type, [byte] * WIDTH)


def _bits(builder: Any, truths: Any) -> Any:
    return builder.zext(builder.bitcast(truths, ir.IntType(WIDTH)), ir.IntType(64))


@intrinsic
def _copy(typing: Any, data: Any, at: Any, out: Any, to: Any) -> Any:  # noqa: ARG001
    """Copy data[at:at + 32] to out[to:to + 32], which must be there; bit k is set where byte k is no plain one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds, values = signature.args, arguments
        vector = builder.load(_vector(context, builder, kinds[0], values[0], values[1]))
        vector.align = 1
        builder.store(vector, _vector(context, builder, kinds[2], values[2], values[3])).align = 1
        special = builder.icmp_unsigned("<", vector, _constant(vector, SPACE))
        for byte in (QUOTE, BACKSLASH):
            special = builder.or_(special, builder.icmp_signed("==", vector, _constant(vector, byte)))
        return _bits(builder, special)

    return types.int64(data, types.int64, out, types.int64), generate


@intrinsic
def _line_feeds(typing: Any, data: Any, at: Any) -> Any:  # noqa: ARG001
    """Bit k is set where data[at + k] is a line feed, for k below 32; all of them must be there."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = builder.load(_vector(context, builder, signature.args[0], arguments[0], arguments[1]))
        vector.align = 1
        return _bits(builder, builder.icmp_signed("==", vector, _constant(vector, LF)))

    return types.int64(data, types.int64), generate


@intrinsic
def _first(typing: Any, bits: Any) -> Any:  # noqa: ARG001
    """The number of the lowest bit that is set; there must be one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


@part()
def _line_end(data, at):  # type: ignore[no-untyped-def]
    """Where the next line feed stands, or the data ends."""
    size = len(data)
    while at + WIDTH <= size:
        bits = _line_feeds(data, at)
        if bits:
            return at + _first(bits)
        at += WIDTH
    while at < size and data[at] != LF:
        at += 1
    return at


@part()
def _hex4(data, at):  # type: ignore[no-untyped-def]
    r"""The number in the ``\uXXXX`` at `at`, -1 where there is none."""
    if at + 6 > len(data) or data[at] != BACKSLASH or data[at + 1] != ord("u"):
        return -1
    a, b, c, d = HEX[data[at + 2]], HEX[data[at + 3]], HEX[data[at + 4]], HEX[data[at + 5]]
    return (a << 12) | (b << 8) | (c << 4) | d  # negative where one of them is


@part()
def _escape(data, at, out, to):  # type: ignore[no-untyped-def]
    """Write what the escape at `at` (or the pair of them) means. Returns what is behind both; data[at + 1] is there."""
    meaning = ESCAPED[data[at + 1]]
    if meaning:
        out[to] = meaning
        return at + 2, to + 1
    unit = _hex4(data, at)
    at += 6
    if unit < 0:
        return -1, to
    if unit < 0x80:
        out[to] = unit
        return at, to + 1
    if unit < 0x800:
        out[to] = 0xC0 | (unit >> 6)
    else:
        if unit < 0xD800 or unit >= 0xE000:
            out[to] = 0xE0 | (unit >> 12)
        else:
            low = _hex4(data, at)
            at += 6
            if unit >= 0xDC00 or low < 0xDC00 or low >= 0xE000:
                return -1, to
            unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)
            out[to] = 0xF0 | (unit >> 18)
            to += 1
            out[to] = 0x80 | ((unit >> 12) & 0x3F)
        to += 1
        out[to] = 0x80 | ((unit >> 6) & 0x3F)
    out[to + 1] = 0x80 | (unit & 0x3F)
    return at, to + 2


@part()
def _string(data, at, out, to):  # type: ignore[no-untyped-def]
    """Write what the string means whose quote stands before `at`. Returns what is behind both."""
    size = len(data)
    while True:
        if at + WIDTH <= size:
            bits = _copy(data, at, out, to)
            step = _first(bits) if bits else WIDTH
            at, to = at + step, to + step
            if not bits:
                continue
        else:
            while at < size and data[at] >= SPACE and data[at] != QUOTE and data[at] != BACKSLASH:
                out[to] = data[at]
                at, to = at + 1, to + 1
        if at + 1 >= size:  # a bracket is to come at least
            return -1, to
        byte = data[at]
        if byte == QUOTE:
            return at + 1, to
        if byte < SPACE:
            return -1, to
        if byte == BACKSLASH:
            at, to = _escape(data, at, out, to)
            if at < 0:
                return -1, to


@part()
def _digits(data, at):  # type: ignore[no-untyped-def]
    start = at
    while at < len(data) and ZERO <= data[at] <= NINE:
        at += 1
    return at if at > start else -1


@part()
def _number(data, at):  # type: ignore[no-untyped-def]
    """What is behind the number at `at`."""
    size = len(data)
    start = at
    first = at + 1 if data[at] == MINUS else at
    at = _digits(data, first)
    if at < 0 or (data[first] == ZERO and at > first + 1):
        return -1
    if at < size and data[at] == DOT:
        at = _digits(data, at + 1)
        if at < 0:
            return -1
    if at < size and data[at] | 0x20 == ord("e"):
        at += 1
        if at < size and (data[at] == PLUS or data[at] == MINUS):
            at += 1
        at = _digits(data, at)
    return -1 if at - start > MOST_NUMBER_BYTES else at


@part()
def _word(data, at):  # type: ignore[no-untyped-def]
    """What is behind the true, false or null at `at`."""
    if at + 5 > len(data):  # a bracket is to come at least
        return -1
    word = np.int64(data[at]) << 24 | np.int64(data[at + 1]) << 16 | np.int64(data[at + 2]) << 8 | data[at + 3]
    if word == TRUE or word == NULL:  # noqa: SIM109 - comparisons are what the compiler knows best
        return at + 4
    return at + 5 if word == FALS and data[at + 4] == ord("e") else -1


@part()
def _skip_space(data, at):  # type: ignore[no-untyped-def]
    while at < len(data) and (data[at] == SPACE or data[at] == TAB or data[at] == CR):
        at += 1
    return at


@part()
def _is_name(data, start, stop, names, bounds, number):  # type: ignore[no-untyped-def]
    first = bounds[number]
    if stop - start != bounds[number + 1] - first:
        return False
    k = 0
    while start + k < stop and data[start + k] == names[first + k]:
        k += 1
    return start + k == stop


@part()
def _object(data, at, names, bounds, max_depth, out, to):  # type: ignore[no-untyped-def]
    """Walk the object at `at` and write its text. Returns what is behind both; -1 and a place on the line."""
    size = len(data)
    num_names = len(bounds) - 2  # the last one is the whole path as one name
    depth = 1
    open_objects = 1  # bit d: whether what is open at depth d + 1 is one
    on_path = 0  # how many objects on the way to the text are open within the outermost
    seen = 0  # bit k: whether name k of the path was there
    text_stop = to
    state = FIRST_NAME
    at += 1
    while True:
        at = _skip_space(data, at)
        if at >= size:
            return -1, at
        byte, is_text = data[at], False
        if (state == FIRST_NAME and byte == CLOSE) or (state == FIRST_ENTRY and byte == LIST_END):
            state = BEHIND
        if state == BEHIND:
            is_object = open_objects >> (depth - 1) & 1
            at += 1
            if byte == COMMA:
                state = NAME if is_object else VALUE
                continue
            if byte != (CLOSE if is_object else LIST_END):
                return -1, at - 1
            depth -= 1
            if depth == 0:
                return (at, text_stop) if seen == (1 << num_names) - 1 else (-1, at)
            on_path = min(on_path, depth - 1)
            continue
        if state == FIRST_NAME or state == NAME:  # noqa: SIM109
            start = at + 1
            behind, written = _string(data, start, out, text_stop) if byte == QUOTE else (-1, text_stop)
            if behind < 0:
                return -1, at
            if depth == on_path + 1:
                if behind - 1 - start != written - text_stop:  # an escape is longer than what it means
                    return -1, at
                if depth == 1 < num_names and _is_name(data, start, behind - 1, names, bounds, num_names):
                    return -1, at
                if _is_name(data, start, behind - 1, names, bounds, on_path):
                    if seen >> on_path & 1:
                        return -1, at
                    seen |= 1 << on_path
                    is_text = True
            at = _skip_space(data, behind)
            if at >= size or data[at] != COLON:
                return -1, behind
            at = _skip_space(data, at + 1)
            if at >= size:
                return -1, behind
            byte = data[at]
        state = BEHIND
        if is_text:
            if byte != (QUOTE if on_path + 1 == num_names else OPEN):
                return -1, at
            on_path += byte == OPEN
        behind = at + 1
        if byte == QUOTE:
            behind, written = _string(data, behind, out, text_stop)
            if is_text:
                text_stop = written
        elif byte == OPEN or byte == LIST:  # noqa: SIM109
            if depth >= max_depth:
                return -1, at
            bit = 1 << depth
            depth += 1
            open_objects = open_objects | bit if byte == OPEN else open_objects & ~bit
            state = FIRST_NAME if byte == OPEN else FIRST_ENTRY
        else:
            behind = _number(data, at) if byte == MINUS or ZERO <= byte <= NINE else _word(data, at)
        if behind < 0:
            return -1, at
        at = behind


@kernel(seconds=5)
def extract_lines(data, names, bounds, max_line_bytes, max_depth, out, ends, starts, stops, is_certain):  # type: ignore[no-untyped-def]
    """Tell the certain lines of a block from the others, and write out their texts.

    Parameters
    ----------
    data
        u1, read-only: whole lines, the last with or without its line feed.
    names, bounds
        u1, i8: the names on the path to the text one after the other, then the whole path as one name (which may not
        be there; unused for a path of one), and where each begins, shape (names + 2,).
    max_line_bytes, max_depth
        Lines over that, their endings included, are not certain; the depth is at most MOST_DEPTH.
    out
        u1, as long as `data`: the texts, one behind the other.
    ends, starts, stops, is_certain
        i8, i8, i8, b1, one entry a line: where its text ends in `out` (an uncertain line has none), where it begins in
        `data` and where what it holds ends, without its LF or CR LF.

    Returns how many lines there are, -1 where they are more than the arrays have entries.
    """
    size = len(data)
    at = to = line = 0
    while at < size:
        if line == len(starts):
            return -1
        start = at
        behind, text_stop = _object(data, at, names, bounds, max_depth, out, to) if data[at] == OPEN else (-1, at)
        if behind >= 0:
            behind = _skip_space(data, behind)
            if behind < size and data[behind] != LF:
                behind, text_stop = -1, behind
        end = behind if behind >= 0 else _line_end(data, text_stop)
        at = min(end + 1, size)
        is_certain[line] = behind >= 0 and at - start <= max_line_bytes
        if is_certain[line]:
            to = text_stop
        ends[line] = to
        starts[line] = start
        stops[line] = end - 1 if end > start and data[end - 1] == CR else end
        line += 1
    return line
