"""What is the CRC-32C (Castagnoli) of some bytes, without a library?

Short content goes byte by byte through a table. Long content (pictures and histograms stand between the scalars of a
TensorBoard file) is cut into rows of 256 bytes whose remainders NumPy computes side by side; two neighbours are then
joined by the linear map that shifts a remainder past the bytes behind it, pair by pair, until one is left. Zeros in
front of content change no remainder that began at zero, so the first row may be filled up.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["crc32c", "masked"]

_POLYNOMIAL = 0x82F63B78
_ONES = 0xFFFFFFFF
_SHORT_BYTES = 1024
_ROW_BYTES = 256


def _table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()
_VECTOR = np.array(_TABLE, np.uint32)


def crc32c(content: bytes) -> int:
    """The CRC-32C.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    if len(content) > _SHORT_BYTES:
        return _long(content)
    value = _ONES
    for byte in content:
        value = _TABLE[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ _ONES


def masked(crc: int) -> int:
    """As it stands in a TFRecord file, where a CRC of content that holds CRCs is avoided.

    >>> hex(masked(0xE3069283))
    '0xc78ab0e5'
    """
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & _ONES


def _long(content: bytes) -> int:
    filled = -len(content) % _ROW_BYTES
    flat = np.zeros(filled + len(content), np.uint8)
    flat[filled:] = np.frombuffer(content, np.uint8)
    flat[filled : filled + 4] ^= 0xFF  # beginning at all ones is beginning at zero with the first four bytes turned
    columns = np.ascontiguousarray(flat.reshape(-1, _ROW_BYTES).T)  # (byte of the row, row)
    remainders = np.zeros(columns.shape[1], np.uint32)
    for column in columns:
        remainders = _VECTOR[(remainders ^ column) & 0xFF] ^ (remainders >> np.uint32(8))
    shift = _shift_past_row()
    while len(remainders) > 1:
        if len(remainders) % 2:
            remainders = np.concatenate([np.zeros(1, np.uint32), remainders])
        remainders = _apply(shift, remainders[0::2]) ^ remainders[1::2]
        shift = _apply(shift, shift)
    return int(remainders[0]) ^ _ONES


def _shift_past_row() -> NDArray[np.uint32]:
    """What each bit of a remainder becomes past a row of zeros, shape (32,)."""
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    for _ in range(_ROW_BYTES):
        bits = _VECTOR[bits & 0xFF] ^ (bits >> np.uint32(8))
    return bits


def _apply(images: NDArray[np.uint32], values: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The linear map whose images of single bits are given, of each value."""
    result = np.zeros_like(values)
    for bit in range(32):
        result ^= np.where((values >> np.uint32(bit)) & 1, images[bit], np.uint32(0)).astype(np.uint32)
    return result
