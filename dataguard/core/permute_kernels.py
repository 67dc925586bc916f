"""How is the keyed permutation applied to millions of indices?

The compiled twin of `core.permute`, bit-equal to it: see there for the algorithm, and for what the arguments mean. It
runs without the interpreter lock.

1. The values are cut into runs of equal (n, key), so that what depends on these alone (the grid, the rounds' keys, the
   sorted table of a small domain) is computed once a run.
2. A run is worked on in pieces of 256 values, one round after the other over the whole piece: such a loop has no
   branches, and the compiler turns it into vector instructions. (Value by value, the multiplications of one value wait
   for each other: 24 ns instead of 9.)
3. Values that landed outside are collected and walk on together until none is left.
4. The division by b is a multiplication by its reciprocal, mended by one where rounding was unlucky: the quotient is
   below 2^31, so the estimate is never further off.

Its constants stand here again, equal to those of `core.permute` by test: numba's cache on disk sees changes of this
file alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataguard.core.compiled import kernel, part
from dataguard.core.permute import as_checked_arrays

__all__ = ["permute_bulk", "unpermute_bulk"]

SMALLEST_GRID = 64
NUM_ROUNDS = 8
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MULTIPLY_1 = np.uint64(0xBF58476D1CE4E5B9)
MULTIPLY_2 = np.uint64(0x94D049BB133111EB)
PIECE = 256


def permute_bulk(n: Any, key: Any, index: Any) -> NDArray[np.int64]:
    """The place of each index in the keyed permutation of [0, n): `core.permute.permute`, for many indices.

    Parameters
    ----------
    n, index
        int64, broadcast together; n from 1 to 2^62, index in 0:n.
    key
        uint64, broadcast with them.

    Raises
    ------
    SpanError
        If n is below 1 or above 2^62, or an index lies outside 0:n.

    Examples
    --------
    >>> permute_bulk(10**12, 7, np.arange(3))
    array([982658327428, 142611159466, 986539487179])
    """
    return _bulk(n, key, index, inverse=False)


def unpermute_bulk(n: Any, key: Any, value: Any) -> NDArray[np.int64]:
    """The index whose place each value is: the exact inverse of `permute_bulk`.

    >>> unpermute_bulk(10**12, 7, permute_bulk(10**12, 7, np.arange(3)))
    array([0, 1, 2])
    """
    return _bulk(n, key, value, inverse=True)


def _bulk(n: Any, key: Any, x: Any, *, inverse: bool) -> NDArray[np.int64]:
    sizes, keys, values = as_checked_arrays(n, key, x)
    shape = np.broadcast_shapes(sizes.shape, keys.shape, values.shape)
    out = np.empty(shape, dtype=np.int64)
    flat = []
    for array in (sizes, keys, values):
        # An n or key that holds for all stays one value. Contiguous and writable always: one compiled variant.
        spread = (
            array.reshape(1) if array.ndim == 0 and array is not values else np.broadcast_to(array, shape).reshape(-1)
        )
        flat.append(np.require(spread, requirements=["C", "W"]))
    _run(*flat, inverse, out.reshape(-1))
    return out


@part(inline=True)
def _mix(x):  # type: ignore[no-untyped-def]
    x = (x ^ (x >> np.uint64(30))) * MULTIPLY_1
    x = (x ^ (x >> np.uint64(27))) * MULTIPLY_2
    return x ^ (x >> np.uint64(31))


@part(inline=True)
def _round(target, other, count, key, side, inverse):  # type: ignore[no-untyped-def]
    for j in range(count):
        h = (other[j] ^ key) * MULTIPLY_1
        h = (h ^ (h >> np.uint64(29))) * MULTIPLY_2
        shift = ((h >> np.uint64(32)) * side) >> np.uint64(32)
        # Unsigned numbers wrap, so the smaller of both candidates is the one in 0:side.
        if inverse:
            moved = target[j] - shift
            target[j] = min(moved, moved + side)
        else:
            moved = target[j] + shift
            target[j] = min(moved, moved - side)


@part()
def _all_rounds(values, count, left, right, a, b, keys, inverse):  # type: ignore[no-untyped-def]
    """Halves of permuted `values`, cells of the a x b grid, left in `left` and `right`."""
    width = np.int64(b)
    reciprocal = 1.0 / np.float64(width)
    for j in range(count):
        x = values[j]
        quotient = np.int64(np.float64(x) * reciprocal)
        rest = x - quotient * width
        if rest < 0:
            rest += width
            quotient -= 1
        elif rest >= width:
            rest -= width
            quotient += 1
        left[j] = np.uint64(quotient)
        right[j] = np.uint64(rest)
    if inverse:
        for i in range(NUM_ROUNDS - 2, -1, -2):
            _round(right, left, count, keys[i + 1], b, True)  # noqa: FBT003
            _round(left, right, count, keys[i], a, True)  # noqa: FBT003
    else:
        for i in range(0, NUM_ROUNDS, 2):
            _round(left, right, count, keys[i], a, False)  # noqa: FBT003
            _round(right, left, count, keys[i + 1], b, False)  # noqa: FBT003


@part()
def _grid_run(n, key, values, inverse, out, keys, left, right, walkers, walking):  # type: ignore[no-untyped-def]
    a_side = np.int64(np.ceil(np.sqrt(np.float64(n))))
    # The root of a rounded float is off by one at most.
    if (a_side - 1) * (a_side - 1) >= n:
        a_side -= 1
    if a_side * a_side < n:
        a_side += 1
    a, b = np.uint64(a_side), np.uint64((n + a_side - 1) // a_side)
    for i in range(NUM_ROUNDS):
        keys[i] = _mix(key + np.uint64(i + 1) * GOLDEN)
    for start in range(0, len(values), PIECE):
        count = min(PIECE, len(values) - start)
        _all_rounds(values[start : start + count], count, left, right, a, b, keys, inverse)
        num_walkers = 0
        for j in range(count):
            cell = np.int64(left[j] * b + right[j])
            out[start + j] = cell
            walkers[num_walkers] = start + j
            num_walkers += cell >= n
        while num_walkers:
            for j in range(num_walkers):
                walking[j] = out[walkers[j]]
            _all_rounds(walking, num_walkers, left, right, a, b, keys, inverse)
            still = 0
            for j in range(num_walkers):
                cell = np.int64(left[j] * b + right[j])
                place = walkers[j]
                out[place] = cell
                walkers[still] = place
                still += cell >= n
            num_walkers = still


@part()
def _sorted_run(n, key, values, inverse, out):  # type: ignore[no-untyped-def]
    base = _mix(key + GOLDEN)
    hashes = np.empty(n, dtype=np.uint64)
    order = np.empty(n, dtype=np.int64)
    for i in range(n):
        h = _mix(base + np.uint64(i) * GOLDEN)
        # Insertion sort: stable, so equal hashes stay in order of index.
        j = i
        while j > 0 and hashes[j - 1] > h:
            hashes[j], order[j] = hashes[j - 1], order[j - 1]
            j -= 1
        hashes[j], order[j] = h, i
    if not inverse:
        ranks = np.empty(n, dtype=np.int64)
        for i in range(n):
            ranks[order[i]] = i
        order = ranks
    for i in range(len(values)):
        out[i] = order[values[i]]


@kernel(seconds=4)
def _run(n, key, values, inverse, out):  # type: ignore[no-untyped-def]
    keys = np.empty(NUM_ROUNDS, dtype=np.uint64)
    left = np.empty(PIECE, dtype=np.uint64)
    right = np.empty(PIECE, dtype=np.uint64)
    walkers = np.empty(PIECE, dtype=np.int64)
    walking = np.empty(PIECE, dtype=np.int64)
    n_stride = 0 if len(n) == 1 else 1
    key_stride = 0 if len(key) == 1 else 1
    total = len(values)
    start = 0
    while start < total:
        size, secret = n[start * n_stride], key[start * key_stride]
        stop = start + 1
        if n_stride + key_stride == 0:
            stop = total
        while stop < total and n[stop * n_stride] == size and key[stop * key_stride] == secret:
            stop += 1
        if size < SMALLEST_GRID:
            _sorted_run(size, secret, values[start:stop], inverse, out[start:stop])
        else:
            _grid_run(size, secret, values[start:stop], inverse, out[start:stop], keys, left, right, walkers, walking)
        start = stop
