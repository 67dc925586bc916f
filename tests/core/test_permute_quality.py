"""Is the keyed permutation random enough? Avalanche, residue classes and pairs, under fixed keys, within bounds.

Bounds are wide (about five standard deviations of the statistic), since the keys are fixed: a change of the algorithm
that makes it worse fails here, chance does not.
"""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from numpy.typing import NDArray

from dataguard.core.keys import derive_key
from dataguard.core.permute_kernels import permute_bulk


def keys(count: int, name: str) -> NDArray[np.uint64]:
    return np.array([derive_key(name, i) for i in range(count)], dtype=np.uint64)


def excess(counts: NDArray[np.int64]) -> float:
    """Chi-square of counts against equal ones, as standard deviations above its mean."""
    expected = counts.sum() / counts.size
    freedom = counts.size - 1
    return float(((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom)


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_every_order_of_a_few_is_as_likely(n: int) -> None:
    orders = permute_bulk(np.array(n), keys(24_000, "orders")[:, None], np.arange(n)[None, :])
    code = (orders * n ** np.arange(n)).sum(axis=1)
    seen = np.array([np.count_nonzero(code == (np.array(p) * n ** np.arange(n)).sum()) for p in permutations(range(n))])
    assert seen.sum() == len(orders)
    assert excess(seen) < 5


@pytest.mark.parametrize("n", [7, 33, 63, 64, 65, 72, 81, 100, 256, 1000])
def test_places_and_pairs_are_uniform_over_keys(n: int) -> None:
    # Index 0 with its neighbour, one in the same column of the grid, and the last: pairs a weak network leaves tied.
    width = -(-n // (math.isqrt(n - 1) + 1))
    others = [i for i in dict.fromkeys((1, width, n - 1)) if 0 < i < n]
    placed = permute_bulk(np.array(n), keys(30_000, "pairs")[:, None], np.array([0, *others])[None, :])
    assert excess(np.bincount(placed[:, 0], minlength=n)) < 5
    for column in range(1, placed.shape[1]):
        apart = (placed[:, column] - placed[:, 0]) % n
        assert apart.min() > 0
        assert excess(np.bincount(apart, minlength=n)[1:]) < 5, others[column - 1]


@pytest.mark.parametrize("n", [2**16, 2**20, 10**6, 2**32 + 1, 10**12])
@pytest.mark.parametrize("modulus", [2, 3, 4, 8, 64, 100])
def test_consecutive_positions_land_on_all_residues(n: int, modulus: int) -> None:
    # A known affine round put 8,192 consecutive positions on multiples of 4.
    for start in (0, n // 3):
        placed = permute_bulk(n, derive_key("residues", n), np.arange(start, start + 8192))
        assert excess(np.bincount(placed % modulus, minlength=modulus)) < 5


@pytest.mark.parametrize("stride", [1, 2, 255, 256, 257, 4096])
def test_strides_of_indices_fill_all_parts(stride: int) -> None:
    n = 2**24
    placed = permute_bulk(n, derive_key("strides", stride), (np.arange(4000) * stride) % n)
    assert excess(np.bincount(placed // (n // 16), minlength=16)) < 5
    steps = np.diff(placed) % n
    assert excess(np.bincount(steps // (n // 16), minlength=16)) < 5


@pytest.mark.parametrize("bits", [8, 16, 30, 48, 62])
def test_each_bit_of_index_and_key_changes_half_of_the_place(bits: int) -> None:
    n = 2**bits
    many = keys(2000, "avalanche")
    index = (many % np.uint64(n)).astype(np.int64)
    base = permute_bulk(np.array(n), many, index)

    def share_changed(other: NDArray[np.int64]) -> NDArray[np.float64]:
        changed = base ^ other
        return np.array([np.count_nonzero((changed >> bit) & 1) for bit in range(bits)]) / len(base)

    for flipped in range(0, bits, max(1, bits // 8)):
        shares = share_changed(permute_bulk(np.array(n), many, index ^ (1 << flipped)))
        assert np.abs(shares - 0.5).max() < 0.06, f"bit {flipped} of the index"
    for flipped in range(0, 64, 7):
        shares = share_changed(permute_bulk(np.array(n), many ^ np.uint64(1 << flipped), index))
        assert np.abs(shares - 0.5).max() < 0.06, f"bit {flipped} of the key"


def test_two_keys_give_unrelated_orders() -> None:
    n = 10**5
    one, other = (permute_bulk(n, key, np.arange(n)) for key in (0, 1))
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.02
    assert abs(np.corrcoef(one, np.arange(n))[0, 1]) < 0.02
    # Two random orders agree in one place on average (Poisson).
    assert np.count_nonzero(one == other) < 8
    assert np.count_nonzero(one == np.arange(n)) < 8


def test_number_of_cycles_is_that_of_random_orders() -> None:
    n, count = 500, 200
    tables = permute_bulk(np.array(n), keys(count, "cycles")[:, None], np.arange(n)[None, :])
    found = []
    for table in tables:
        seen = np.zeros(n, dtype=bool)
        cycles = 0
        for first in range(n):
            at = first
            cycles += not seen[first]
            while not seen[at]:
                seen[at] = True
                at = int(table[at])
        found.append(cycles)
    harmonic = sum(1 / i for i in range(1, n + 1))
    assert abs(np.mean(found) - harmonic) < 5 * math.sqrt(harmonic / count)
