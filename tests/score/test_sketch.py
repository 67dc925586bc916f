"""Buckets are where they are said to be, for every float there is, and a sketch knows no order."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataguard.errors import UsageError
from dataguard.score.sketch import RELATIVE_ERROR, Sketch, buckets_of, middles_of, of_rank, rank_of

FINITE = st.floats(allow_nan=False, allow_infinity=False)
TINY = sys.float_info.min


def assert_same(a: Sketch, b: Sketch) -> None:
    assert [part.tolist() for part in a.buckets()] == [part.tolist() for part in b.buckets()]
    assert (a.count, a.smallest, a.largest) == (b.count, b.smallest, b.largest)


@settings(max_examples=300)
@given(st.lists(FINITE, min_size=1, max_size=50))
def test_a_value_is_near_the_middle_of_its_bucket(values: list[float]) -> None:
    array = np.array(values)
    middles = middles_of(buckets_of(array))
    for value, middle in zip(values, middles.tolist(), strict=True):
        if abs(value) < TINY:
            assert middle == 0
        else:
            assert abs(middle - value) <= RELATIVE_ERROR * abs(value)
    assert np.array_equal(buckets_of(middles), buckets_of(array))


@given(st.lists(FINITE, min_size=2, max_size=30))
def test_buckets_are_in_the_order_of_values(values: list[float]) -> None:
    buckets = buckets_of(np.sort(np.array(values))).tolist()
    assert buckets == sorted(buckets)
    assert buckets_of(-np.sort(np.array(values))).tolist() == [-bucket for bucket in buckets]


@given(st.lists(st.lists(FINITE | st.sampled_from([0.0, -0.0, 1.0]), max_size=8), max_size=5))
def test_any_order_and_any_pieces_give_the_same(pieces: list[list[float]]) -> None:
    whole = Sketch()
    whole.add(np.array([value for piece in pieces for value in piece]))
    keys, counts = whole.buckets()
    assert keys.tolist() == sorted(set(keys.tolist()))
    assert whole.count == counts.sum() == sum(len(piece) for piece in pieces)
    for order in itertools.islice(itertools.permutations(pieces), 6):
        in_one, merged = Sketch(), Sketch()
        for piece in order:
            in_one.add(np.array(piece[::-1]))
            part = Sketch()
            part.add(np.array(piece))
            merged.merge(part)
        assert_same(in_one, whole)
        assert_same(merged, whole)
    again = Sketch.of_buckets(keys, counts, smallest=whole.smallest, largest=whole.largest)
    assert_same(again, whole)
    again.add(np.array([2.5, -3.0]))
    whole.add(np.array([-3.0, 2.5]))
    assert_same(again, whole)


@given(st.lists(FINITE, min_size=1, max_size=60), st.integers(0, 1000))
def test_quantiles_are_within_their_error(values: list[float], permille: int) -> None:
    sketch = Sketch()
    sketch.add(np.array(values))
    keys, counts = sketch.buckets()
    found = of_rank(middles_of(keys), counts, rank_of(permille, len(values)))
    exact = float(np.quantile(np.array(values), permille / 1000, method="inverted_cdf"))
    # The rank by integers; NumPy's by floats may be one off where permille * n / 1000 is whole.
    ranked = sorted(values)[rank_of(permille, len(values)) - 1]
    assert abs(found - ranked) <= max(RELATIVE_ERROR * abs(ranked), TINY)
    assert ranked in {exact, *sorted(values)[max(0, sorted(values).index(exact) - 1) :][:3]}


def test_memory_is_that_of_the_octaves_and_not_of_the_values() -> None:
    sketch = Sketch()
    for start in range(20):
        sketch.add((np.arange(50_000) + start) / 50_000)
    assert sketch.count == 1_000_000
    assert len(sketch.buckets()[0]) < 128 * 17
    assert sketch._above.counts.nbytes <= 8 * 128 * 17
    everything = Sketch()
    everything.add(np.array([TINY, sys.float_info.max, -TINY, -sys.float_info.max]))
    assert everything._above.counts.nbytes + everything._below.counts.nbytes < 4.2e6


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(value: float) -> None:
    sketch = Sketch()
    with pytest.raises(UsageError, match="not finite"):
        sketch.add(np.array([1.0, value]))
    assert sketch.count == 0
