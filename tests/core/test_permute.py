"""The keyed permutation: bijective at every n, its inverse exact, all three implementations equal bit for bit."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dataguard.core.permute as twin
import dataguard.core.permute_kernels as kernels
from dataguard.core.keys import derive_key
from dataguard.core.permute import LARGEST_N, permute, unpermute
from dataguard.core.permute_kernels import permute_bulk, unpermute_bulk
from dataguard.errors import SpanError
from tests.twins.permute import one_place, places

# 65,537 and 262,145 are 4^k + 1, where a known implementation sized its domain one too small and collided.
AROUND_POWERS = sorted(
    {2**k + d for k in range(1, 19) for d in (-1, 0, 1)} | {4**k + d for k in range(1, 10) for d in (-1, 0, 1)}
)


def key_of(*parts: int | str) -> int:
    return derive_key("test", *parts)


def is_bijective(placed: np.ndarray, n: int) -> bool:
    return placed.min() >= 0 and placed.max() < n and np.count_nonzero(np.bincount(placed, minlength=n) == 1) == n


def test_bijective_for_every_n_to_4096() -> None:
    for n in range(1, 4097):
        index = np.arange(n)
        placed = permute_bulk(n, key_of(n), index)
        assert is_bijective(placed, n), n
        assert np.array_equal(unpermute_bulk(n, key_of(n), placed), index), n
        if n % 8 == 0 or n < 300:
            assert np.array_equal(permute(n, key_of(n), index), placed), n
            assert np.array_equal(unpermute(n, key_of(n), placed), index), n


@pytest.mark.parametrize("n", AROUND_POWERS)
def test_bijective_around_powers(n: int) -> None:
    placed = permute_bulk(n, key_of(n), np.arange(n))
    assert is_bijective(placed, n)
    assert np.array_equal(unpermute_bulk(n, key_of(n), placed), np.arange(n))
    assert np.array_equal(permute(n, key_of(n), np.arange(n)), placed)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 62, 63, 64, 65, 66, 72, 73, 81, 100, 255, 1023])
def test_all_equal_the_slow_twin(n: int) -> None:
    for key in (0, 2**64 - 1, key_of(n)):
        table = places(n, key)
        assert [permute(n, key, i) for i in range(n)] == list(table)
        assert [unpermute(n, key, v) for v in table] == list(range(n))
        assert permute(n, key, np.arange(n)).tolist() == list(table)
        assert permute_bulk(n, key, np.arange(n)).tolist() == list(table)


@given(st.data())
def test_all_agree_at_any_n(data: st.DataObject) -> None:
    n = data.draw(
        st.one_of(st.integers(1, 200), st.integers(1, LARGEST_N), st.integers(31, 62).map(lambda k: 2**k - 1))
    )
    key = data.draw(st.integers(0, 2**64 - 1))
    index = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=20))
    placed = permute(n, key, np.array(index))
    assert placed.tolist() == [permute(n, key, i) for i in index]
    assert placed.tolist() == permute_bulk(n, key, np.array(index)).tolist()
    if n >= 64:
        assert placed.tolist() == [one_place(n, key, i) for i in index]
    assert unpermute(n, key, placed).tolist() == index
    assert unpermute_bulk(n, key, placed).tolist() == index
    assert [unpermute(n, key, int(v)) for v in placed] == index


@pytest.mark.parametrize("n", [2**32 - 1, 2**32, 2**32 + 1, 10**12, 2**52 + 1, 2**61 + 1, LARGEST_N - 1, LARGEST_N])
def test_far_past_32_bits(n: int) -> None:
    index = np.concatenate([np.arange(2000), n - 1 - np.arange(2000), np.arange(2000) * (n // 2000)])
    placed = permute_bulk(n, key_of(n), index)
    assert placed.min() >= 0
    assert placed.max() < n
    assert len(np.unique(placed)) == len(np.unique(index))
    assert np.array_equal(unpermute_bulk(n, key_of(n), placed), index)
    assert np.array_equal(permute(n, key_of(n), index), placed)
    assert np.array_equal(unpermute(n, key_of(n), placed), index)


@settings(max_examples=30)
@given(st.data())
def test_every_value_may_have_an_n_and_key_of_its_own(data: st.DataObject) -> None:
    n = np.array(
        data.draw(st.lists(st.sampled_from([1, 2, 63, 64, 65, 1000, 2**40, LARGEST_N]), min_size=1, max_size=40))
    )
    key = np.array(data.draw(st.lists(st.sampled_from([0, 1, 2**64 - 1]), min_size=len(n), max_size=len(n))), np.uint64)
    index = n - 1 - np.minimum(n - 1, np.arange(len(n)))
    expected = [permute(int(a), int(k), int(i)) for a, k, i in zip(n, key, index, strict=True)]
    for forward, back in ((permute, unpermute), (permute_bulk, unpermute_bulk)):
        placed = forward(n, key, index)
        assert placed.tolist() == expected
        assert back(n, key, placed).tolist() == index.tolist()


def test_arguments_are_broadcast() -> None:
    keys = np.arange(3, dtype=np.uint64)[:, None]
    for forward in (permute, permute_bulk):
        table = forward(np.array(10), keys, np.arange(10)[None, :])
        assert table.shape == (3, 10)
        assert table.tolist() == [[permute(10, k, i) for i in range(10)] for k in range(3)]
        assert forward(10, 1, np.zeros(0, dtype=np.int64)).shape == (0,)
    read_only = np.arange(10)
    read_only.flags.writeable = False
    assert permute_bulk(100, 1, read_only[::2]).tolist() == [permute(100, 1, i) for i in range(0, 10, 2)]


def test_more_values_than_one_piece() -> None:
    index = np.arange(100_003)
    assert np.array_equal(permute(10**9, 5, index), permute_bulk(10**9, 5, index))
    n = np.where(index % 2, 50, 5000)  # both kinds of domain, in more than one chunk
    assert np.array_equal(permute(n, 5, index % 50), permute_bulk(n, 5, index % 50))


@pytest.mark.parametrize("n", [0, -1, LARGEST_N + 1])
def test_domains_that_cannot_be(n: int) -> None:
    with pytest.raises(SpanError, match="no permutation of"):
        permute(n, 1, 0)
    with pytest.raises(SpanError, match="no permutation of"):
        unpermute(n, 1, 0)
    for work in (permute, unpermute, permute_bulk, unpermute_bulk):
        with pytest.raises(SpanError, match="no permutation of"):
            work(n, 1, np.array([0]))
        with pytest.raises(SpanError, match="no permutation of"):
            work(np.array([5, n]), 1, np.array([0, 0]))


@pytest.mark.parametrize("index", [-1, 10, 2**40])
def test_indices_outside_are_refused_with_the_range(index: int) -> None:
    for work in (permute, unpermute):
        with pytest.raises(SpanError, match="0:10"):
            work(10, 1, index)
    for work in (permute, unpermute, permute_bulk, unpermute_bulk):
        with pytest.raises(SpanError, match=f"{index:,} is not"):
            work(10, 1, np.array([3, index]))
        with pytest.raises(SpanError, match=f"{index:,} is not"):
            work(np.array([2**50, 10]), 1, np.array([3, index]))


@pytest.mark.parametrize("key", [-1, 2**64])
def test_keys_outside_64_bits_are_refused(key: int) -> None:
    with pytest.raises(SpanError, match="64-bit"):
        permute(10, key, 1)
    with pytest.raises(SpanError, match="64-bit"):
        permute_bulk(10, key, np.array([1]))


def test_arrays_of_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="signed integer"):
        permute(10, 1, np.array([0.5]))
    with pytest.raises(TypeError, match="uint64"):
        permute(10, np.array([1]), np.array([1]))


def test_one_place_is_itself() -> None:
    assert permute(1, 7, 0) == unpermute(1, 7, 0) == 0


def test_constants_of_the_compiled_twin_are_the_same() -> None:
    for name in ("SMALLEST_GRID", "NUM_ROUNDS", "GOLDEN", "MULTIPLY_1", "MULTIPLY_2"):
        assert int(getattr(twin, name)) == int(getattr(kernels, name)), name


def test_values_of_version_1_stay() -> None:
    assert [permute(10, 1, i) for i in range(10)] == [8, 4, 9, 0, 7, 2, 6, 5, 3, 1]
    assert [permute(1000, 1, i) for i in range(6)] == [777, 998, 188, 845, 376, 636]
    assert [permute(10**12, 1, i) for i in range(3)] == [553213042969, 845562770901, 379734481947]


def test_single_look_ups_do_not_import_numba() -> None:
    code = "import sys, dataguard.core.permute, dataguard.core.keys; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_kernels_work_without_a_folder_for_their_cache() -> None:
    code = (
        "import numba, numba.core.caching as caching\n"
        "def read_only(self): raise PermissionError('read-only file system')\n"
        "caching._CacheLocator.ensure_cache_path = read_only\n"
        "from dataguard.core.permute_kernels import permute_bulk\n"
        "print(permute_bulk(10**12, 7, 0))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "982658327428\n"
