"""Which place does index i take in the keyed permutation of [0, n), and which index took place v?

No table: cost and memory do not depend on n, and the inverse is exact.

1. n >= 64: the smallest near-square grid of a x b >= n cells, a = ceil(sqrt n), b = ceil(n / a). A cell is
   ``(left, right) = divmod(x, b)``. Eight rounds add to one half, modulo its side, a hash of the other half and of the
   round's key: left, right, left, ... The inverse subtracts the same amounts in the reverse order.
2. A result of n or more is a cell outside; it is permuted again (*cycle walking*) until it falls below n. Fewer than
   a cells lie outside, so this is rare at any n.
3. n < 64: the hashes of 0..n-1 under the key are sorted; index i takes the rank of its hash. (A Feistel network is
   far from uniform on so few cells.)

The round function mixes downward: xor with the round's key, multiply, xor-shift right, multiply, and the upper 32
bits are scaled to the side, so every bit of the input reaches every bit of the result. Multipliers and the mixing of
keys are those of SplitMix64 (Steele, Lea and Flood, 2014).

This is the NumPy twin, for single look-ups and tests; `core.permute_kernels` is bit-equal and made for bulk.
"""

from __future__ import annotations

from math import isqrt
from operator import index as as_integer
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from dataguard.errors import SpanError

__all__ = ["LARGEST_N", "permute", "unpermute"]

LARGEST_N = 2**62
"""The largest domain: both sides of its grid stay below 2^32, and all sums within 64 bits."""

SMALLEST_GRID = 64
"""Below it a keyed sort takes the grid's place."""

NUM_ROUNDS = 8
GOLDEN = 0x9E3779B97F4A7C15
MULTIPLY_1 = 0xBF58476D1CE4E5B9
MULTIPLY_2 = 0x94D049BB133111EB

_MASK = 2**64 - 1
_CHUNK = 1 << 15  # elements worked on at once, so that temporaries stay in the cache
_U = np.uint64
_Scalar = TypeVar("_Scalar", bound=np.generic)


@overload
def permute(n: int, key: int, index: int) -> int: ...
@overload
def permute(
    n: int | NDArray[np.int64], key: int | NDArray[np.uint64], index: NDArray[np.int64]
) -> NDArray[np.int64]: ...
def permute(n: Any, key: Any, index: Any) -> Any:
    """The place of each index in the keyed permutation of [0, n).

    Parameters
    ----------
    n
        Size of the domain, 1 to 2^62; an integer, or int64 broadcast with `index`.
    key
        Unsigned 64-bit, from `derive_key`; an integer, or uint64 broadcast with `index`.
    index
        Integer in 0:n, or an int64 array of them.

    Returns
    -------
    int | NDArray[np.int64]
        Places in 0:n: an int for an int, otherwise an array of the broadcast shape.

    Raises
    ------
    SpanError
        If n is below 1 or above 2^62, or an index lies outside 0:n.

    Examples
    --------
    >>> [permute(5, 7, i) for i in range(5)]
    [0, 4, 3, 1, 2]
    >>> permute(10**12, 7, np.arange(3))
    array([982658327428, 142611159466, 986539487179])
    >>> unpermute(10**12, 7, permute(10**12, 7, 123_456_789))
    123456789
    """
    return _apply(n, key, index, inverse=False)


@overload
def unpermute(n: int, key: int, value: int) -> int: ...
@overload
def unpermute(
    n: int | NDArray[np.int64], key: int | NDArray[np.uint64], value: NDArray[np.int64]
) -> NDArray[np.int64]: ...
def unpermute(n: Any, key: Any, value: Any) -> Any:
    """The index whose place is `value`: the exact inverse of `permute`, with the same arguments and errors.

    >>> [unpermute(5, 7, permute(5, 7, i)) for i in range(5)]
    [0, 1, 2, 3, 4]
    """
    return _apply(n, key, value, inverse=True)


def _apply(n: Any, key: Any, x: Any, *, inverse: bool) -> Any:
    if isinstance(x, np.ndarray) or isinstance(n, np.ndarray) or isinstance(key, np.ndarray):
        sizes, keys, values = as_checked_arrays(n, key, x)
        shape = np.broadcast_shapes(sizes.shape, keys.shape, values.shape)
        out = np.empty(shape, dtype=np.int64)
        flat = out.reshape(-1)
        sizes, keys, values = _spread(sizes, shape), _spread(keys, shape), _spread(values, shape)
        for start in range(0, out.size, _CHUNK):
            part = slice(start, min(start + _CHUNK, out.size))
            flat[part] = _chunk(_cut(sizes, part), _cut(keys, part), _cut(values, part), inverse=inverse)
        return out
    size, secret, value = as_integer(n), _checked_key(as_integer(key)), as_integer(x)
    if not 1 <= size <= LARGEST_N:
        raise _bad_size(size)
    if not 0 <= value < size:
        raise _outside(value, size)
    return _scalar(size, secret, value, inverse=inverse)


def _spread(array: NDArray[_Scalar], shape: tuple[int, ...]) -> NDArray[_Scalar]:
    return array if array.ndim == 0 else np.broadcast_to(array, shape).reshape(-1)


def _cut(array: NDArray[_Scalar], part: Any) -> NDArray[_Scalar]:
    return array if array.ndim == 0 else array[part]


def as_checked_arrays(n: Any, key: Any, x: Any) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]:
    """Sizes, keys and values as arrays of the right dtype (0-d where given as scalars), or the error they deserve."""
    sizes, values = np.asarray(n), np.asarray(x)
    for name, array in (("n", sizes), ("index", values)):
        if array.dtype.kind != "i":
            raise TypeError(f"{name} must be of a signed integer dtype, not {array.dtype}")
    keys = key if isinstance(key, np.ndarray) else np.array(_checked_key(as_integer(key)), dtype=_U)
    if keys.dtype != _U:
        raise TypeError(f"keys must be uint64, not {keys.dtype}")
    sizes, values = sizes.astype(np.int64, copy=False), values.astype(np.int64, copy=False)
    if sizes.size and (sizes.min() < 1 or sizes.max() > LARGEST_N):
        raise _bad_size(int(sizes.min() if sizes.min() < 1 else sizes.max()))
    if sizes.ndim == 0 and values.size and values.min() >= 0 and values.max() < sizes:
        return sizes, keys, values  # the common case without temporaries
    outside = (values < 0) | (values >= sizes)
    if outside.any():
        place = np.unravel_index(int(np.argmax(outside)), outside.shape)
        size = np.broadcast_to(sizes, outside.shape)[place]
        raise _outside(int(np.broadcast_to(values, outside.shape)[place]), int(size))
    return sizes, keys, values


def _checked_key(key: int) -> int:
    if not 0 <= key <= _MASK:
        raise SpanError(f"key {key} is no unsigned 64-bit integer", allowed="0:2^64")
    return key


def _bad_size(n: int) -> SpanError:
    return SpanError(f"there is no permutation of {n:,} places", allowed="1 to 2^62")


def _outside(value: int, n: int) -> SpanError:
    return SpanError(f"{value:,} is not in the permutation's domain", allowed=f"0:{n:,}")


# One value, in Python integers.


def _mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * MULTIPLY_1) & _MASK
    x = ((x ^ (x >> 27)) * MULTIPLY_2) & _MASK
    return x ^ (x >> 31)


def _scalar(n: int, key: int, x: int, *, inverse: bool) -> int:
    if n < SMALLEST_GRID:
        base = _mix((key + GOLDEN) & _MASK)
        order = sorted(range(n), key=lambda i: (_mix((base + i * GOLDEN) & _MASK), i))
        return order[x] if inverse else order.index(x)
    a = isqrt(n - 1) + 1
    b = -(-n // a)
    keys = [_mix((key + (i + 1) * GOLDEN) & _MASK) for i in range(NUM_ROUNDS)]
    rounds = range(NUM_ROUNDS - 1, -1, -1) if inverse else range(NUM_ROUNDS)
    while True:
        left, right = divmod(x, b)
        for i in rounds:
            side, other = (a, right) if i % 2 == 0 else (b, left)
            h = ((other ^ keys[i]) * MULTIPLY_1) & _MASK
            h = ((h ^ (h >> 29)) * MULTIPLY_2) & _MASK
            shift = ((h >> 32) * side) >> 32
            if inverse:
                shift = side - shift
            if i % 2 == 0:
                left = (left + shift) % a
            else:
                right = (right + shift) % b
        x = left * b + right
        if x < n:
            return x


# Many values, in NumPy. Arrays that are 0-d hold for all values.


def _chunk(n: NDArray[np.int64], key: NDArray[np.uint64], x: NDArray[np.int64], *, inverse: bool) -> NDArray[np.int64]:
    small = n < SMALLEST_GRID
    if small.ndim == 0 or small.all() or not small.any():
        work = _sorted_chunk if small.any() else _grid_chunk
        return work(n, key, x, inverse=inverse)
    out = np.empty(np.broadcast_shapes(n.shape, key.shape, x.shape), dtype=np.int64)
    for mask, work in ((small, _sorted_chunk), (~small, _grid_chunk)):
        out[mask] = work(n[mask], _cut(key, mask), _cut(x, mask), inverse=inverse)
    return out


def _mix_array(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> _U(30))) * _U(MULTIPLY_1)
    x = (x ^ (x >> _U(27))) * _U(MULTIPLY_2)
    return x ^ (x >> _U(31))


def _sorted_chunk(
    n: NDArray[np.int64], key: NDArray[np.uint64], x: NDArray[np.int64], *, inverse: bool
) -> NDArray[np.int64]:
    # One sorted table for each distinct (n, key); a stable sort settles equal hashes by index.
    pairs = np.empty(np.broadcast_shapes(n.shape, key.shape), dtype=[("n", "<i8"), ("key", "<u8")])
    pairs["n"], pairs["key"] = n, key
    distinct, which = np.unique(pairs, return_inverse=True)
    base = _mix_array(distinct["key"] + _U(GOLDEN))
    widest = int(distinct["n"].max())
    column = np.arange(widest)
    hashes = _mix_array(base[:, None] + column.astype(_U)[None, :] * _U(GOLDEN))
    # Columns past a row's own n sort behind all others, whatever their hash.
    order = np.lexsort((hashes, column[None, :] >= distinct["n"][:, None]), axis=-1)
    if not inverse:
        order = np.argsort(order, axis=-1)
    return order[which.reshape(pairs.shape), x]


def _grid_chunk(
    n: NDArray[np.int64], key: NDArray[np.uint64], x: NDArray[np.int64], *, inverse: bool
) -> NDArray[np.int64]:
    a, b = _sides(n)
    keys = [_mix_array(np.atleast_1d(key) + _U((i + 1) * GOLDEN & _MASK)) for i in range(NUM_ROUNDS)]
    shape = np.broadcast_shapes(n.shape, key.shape, x.shape)
    out = _rounds(a, b, keys, np.broadcast_to(x, shape).astype(_U), inverse=inverse)
    size = n.astype(_U)
    walking = np.flatnonzero(out >= size)
    while len(walking):
        again = _rounds(
            _cut(a, walking),
            _cut(b, walking),
            [k if len(k) == 1 else k[walking] for k in keys],
            out[walking],
            inverse=inverse,
        )
        out[walking] = again
        walking = walking[again >= _cut(size, walking)]
    return out.astype(np.int64)


def _sides(n: NDArray[np.int64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    a = np.ceil(np.sqrt(n.astype(np.float64))).astype(np.int64)
    # The root of a rounded float is off by one at most.
    a = np.where((a - 1) * (a - 1) >= n, a - 1, a)
    a = np.where(a * a < n, a + 1, a)
    b = -(-n // a)
    return a.astype(_U), b.astype(_U)


def _rounds(
    a: NDArray[np.uint64],
    b: NDArray[np.uint64],
    keys: list[NDArray[np.uint64]],
    x: NDArray[np.uint64],
    *,
    inverse: bool,
) -> NDArray[np.uint64]:
    left = x // b
    right = x - left * b
    for i in range(NUM_ROUNDS - 1, -1, -1) if inverse else range(NUM_ROUNDS):
        side, other, mine = (a, right, left) if i % 2 == 0 else (b, left, right)
        h = (other ^ keys[i]) * _U(MULTIPLY_1)
        h ^= h >> _U(29)
        h *= _U(MULTIPLY_2)
        h >>= _U(32)
        shift = (h * side) >> _U(32)
        if inverse:
            shift = side - shift
        mine = mine + shift
        mine -= np.where(mine >= side, side, _U(0))
        left, right = (mine, right) if i % 2 == 0 else (left, mine)
    return left * b + right
