"""The arithmetic of curves and counts: nothing is lost in columns, and quantiles are those of the samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.report.run.curves import columns_of, ranks_first
from dataguard.report.run.delivered import quantile

VALUES = st.floats(width=32) | st.just(math.nan)


@given(
    steps=st.lists(st.integers(0, 5_000), min_size=1, max_size=80, unique=True),
    values=st.lists(VALUES, min_size=80, max_size=80),
    most=st.integers(1, 40),
)
def test_columns_keep_every_extreme_and_count_what_is_no_number(
    steps: list[int], values: list[float], most: int
) -> None:
    steps = sorted(steps)
    values = values[: len(steps)]
    first, low, high, odd = columns_of(np.array(steps), np.array(values), most)
    assert len(first) <= most
    assert first[0] == steps[0]
    assert set(first.tolist()) <= set(steps)
    ends = [*first.tolist()[1:], steps[-1] + 1]
    assert odd.sum() == sum(not math.isfinite(value) for value in values)
    for k, (begin, end) in enumerate(zip(first.tolist(), ends, strict=True)):
        finite = [v for s, v in zip(steps, values, strict=True) if begin <= s < end and math.isfinite(v)]
        if finite:
            assert (low[k], high[k]) == (min(finite), max(finite))
        else:
            assert math.isnan(low[k])
            assert math.isnan(high[k])


@given(bytes_=st.lists(st.integers(0, 255), max_size=60), share=st.sampled_from([0.05, 0.5, 0.95]))
def test_a_quantile_of_counts_is_that_of_the_samples(bytes_: list[int], share: float) -> None:
    counts = np.bincount(np.array(bytes_, np.int64), minlength=256)[None]
    known = [each for each in bytes_ if each]
    expected = int(np.quantile(known, share, method="inverted_cdf")) if known else 0
    assert quantile(counts, share).tolist() == [expected]


@pytest.mark.parametrize(
    ("odd", "num_ranks", "most", "expected"),
    [
        ([], 3, 8, [0, 1, 2]),
        ([9, 9, 4], 10, 3, [0, 4, 9]),
        ([1, 2, 3], 10, 2, [1, 2]),
        ([70], 64, 2, [0, 1]),
    ],
)
def test_ranks_that_stand_out_come_first(odd: list[int], num_ranks: int, most: int, expected: list[int]) -> None:
    assert ranks_first(odd, num_ranks, most) == expected
