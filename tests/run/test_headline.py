"""A headline signal in one byte: near, monotone, and never a zero that was none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.errors import UnknownSignal
from dataguard.run.headline import decode, encode, scale_of
from dataguard.score.registry import HEADLINE, spec_of

NAMES = [name for names in HEADLINE.values() for name in names]


@pytest.mark.parametrize("name", NAMES)
def test_every_headline_signal_has_a_scale_of_its_own_range(name: str) -> None:
    scale, spec = scale_of(name), spec_of(name)
    levels = scale.levels()
    assert levels.shape == (255,)
    assert (np.diff(levels) > 0).all()
    assert levels[0] == 0 or name == "length_outlier"
    if np.isfinite(spec.high):
        assert levels[-1] == spec.high


def test_a_signal_without_a_scale_is_refused() -> None:
    with pytest.raises(UnknownSignal, match="no scale"):
        encode("word_entropy", [1.0])


@pytest.mark.parametrize("name", NAMES)
def test_every_byte_comes_back(name: str) -> None:
    every = np.arange(256, dtype=np.uint8)
    assert encode(name, decode(name, every)).tolist() == every.tolist()


@pytest.mark.parametrize("name", NAMES)
@given(value=st.floats(-1e12, 1e12) | st.floats(0, 1))
def test_the_nearest_level_is_told(name: str, value: float) -> None:
    levels = scale_of(name).levels()
    value = max(value, -20.0) if name == "length_outlier" else abs(value)
    told = float(decode(name, encode(name, [value]))[0])
    nearest = float(np.abs(levels - min(max(value, levels[0]), levels[-1])).min())
    if value == 0 and levels[0] == 0:
        assert told == 0
    elif scale_of(name).kind == "logarithmic":
        assert told > 0
        assert abs(told - min(max(value, levels[1]), levels[-1])) <= nearest * (1 + 1e-9) or value < levels[1]
    else:
        assert abs(told - min(max(value, levels[0]), levels[-1])) <= nearest * (1 + 1e-9)


def test_nothing_judged_is_no_value() -> None:
    assert encode("byte_entropy", [np.nan]).tolist() == [0]
    assert np.isnan(decode("byte_entropy", [0])).all()


def test_small_counts_keep_apart() -> None:
    assert len(set(encode("token_periodic_repeats", np.arange(12)).tolist())) == 12
