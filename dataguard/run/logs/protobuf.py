"""Which fields does a protobuf message hold, on the wire?

Enough to walk a message without its schema: each field with its number and its value (an int for varints and fixed
numbers, bytes for everything that has a length).
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["fields_of", "signed", "varints_of"]

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def fields_of(message: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Each field as (number, wire type, value).

    >>> list(fields_of(bytes([8, 150, 1, 18, 2, 104, 105])))
    [(1, 0, 150), (2, 2, b'hi')]

    Raises
    ------
    ValueError
        The bytes are no message.
    """
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise ValueError("a field without a number")
        value: int | bytes
        if kind == _VARINT:
            value, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
            value, at = int.from_bytes(message[at : at + size], "little"), at + size
        elif kind == _LENGTH:
            size, at = _varint(message, at)
            value, at = message[at : at + size], at + size
        else:
            raise ValueError(f"a field of wire type {kind}")
        if at > end:
            raise ValueError("a field that is longer than its message")
        yield number, kind, value


def varints_of(packed: bytes) -> list[int]:
    """The numbers of a packed repeated field."""
    numbers, at = [], 0
    while at < len(packed):
        number, at = _varint(packed, at)
        numbers.append(number)
    return numbers


def signed(number: int) -> int:
    """A varint of a signed type.

    >>> signed(2**64 - 1)
    -1
    """
    return number - (1 << 64) if number >> 63 else number


def _varint(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError("a number without an end")
        byte = message[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
