"""Medians of a sliding window, against NumPy's."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dataguard.triage.detect.compare import binomial_tail_log10
from dataguard.triage.detect.window import SortedWindow


@given(st.lists(st.integers(-5, 5).map(lambda number: number / 2) | st.floats(-100, 100), min_size=1, max_size=40))
def test_median_and_mad_are_those_of_numpy(values: list[float]) -> None:
    window = SortedWindow(16)
    for i, value in enumerate(values):
        window.push(value)
        last = np.array(values[max(0, i - 15) : i + 1])
        assert window.median() == np.median(last)
        np.testing.assert_allclose(window.mad(), np.median(np.abs(last - np.median(last))), atol=1e-9)


def test_the_chance_that_spikes_recur_by_accident() -> None:
    assert binomial_tail_log10(0, 5, 0.1) == 0.0
    np.testing.assert_allclose(10 ** binomial_tail_log10(3, 4, 0.5), 5 / 16)
    assert binomial_tail_log10(1, 5, 0.0) < -1e8
