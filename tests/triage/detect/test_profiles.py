"""Rules of others, against themselves written down once more, point by point."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import numpy as np
import pytest

from dataguard.errors import UsageError
from dataguard.triage.detect.profiles import PROFILES, rule_of
from tests.triage.detect.curves import curve

NAIVE: dict[str, Callable[[list[float], int], bool]] = {
    "seed-3sigma": lambda x, i: (
        i >= 300 and x[i] > statistics.fmean(x[i - 300 : i]) + 3 * statistics.pstdev(x[i - 300 : i])
    ),
    "olmo-6sigma": lambda x, i: (
        i >= 64 and x[i] - statistics.fmean(x[max(0, i - 128) : i]) > 6 * statistics.stdev(x[max(0, i - 128) : i])
    ),
    "seed-window-delta": lambda x, i: (
        i >= 49 and statistics.fmean(x[i - 24 : i + 1]) - statistics.fmean(x[i - 49 : i - 24]) > 0.1
    ),
    "seed-rise": lambda x, i: i >= 20 and x[i] - x[i - 20] > 0.2,
    "kill-loss-spike": lambda x, i: (
        i >= 104 and all(x[j] >= 2 * statistics.fmean(x[j - 100 : j]) for j in range(i - 4, i + 1))
    ),
    "lightning": lambda x, i: i >= 10 and x[i] >= 3 * statistics.fmean(x[i - 10 : i]),
}


@pytest.mark.parametrize("name", NAIVE)
def test_rules_are_those_of_their_sources(name: str) -> None:
    losses = curve(500, seed=1)
    losses[350:357] += 9.0
    losses[420] += 0.5
    losses[310:350:4] += 0.02 * np.arange(10)  # about what each rule calls its bound
    losses[440:] += 0.2
    expected = [i for i in range(500) if NAIVE[name](losses.tolist(), i)]
    assert rule_of(name)(losses).nonzero()[0].tolist() == expected
    assert expected


def test_what_one_nan_does_to_each_rule_is_as_told() -> None:
    losses = np.full(700, 2.5) + 0.01 * (-1.0) ** np.arange(700)
    losses[400] = np.nan
    losses[500] = 20.0
    alarms = {name: rule(losses).nonzero()[0].tolist() for name, rule in PROFILES.items() if rule is not None}
    assert alarms["seed-3sigma"] == []  # blind
    assert alarms["olmo-6sigma"][:129] == list(range(400, 529))  # skips for as long as it remembers
    assert alarms["seed-rise"] == [500]
    assert alarms["lightning"] == [500]


def test_a_profile_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="no rule is called 'x'"):
        rule_of("x")


def test_the_window_of_row_a7_leaves_out_the_point_that_it_judges() -> None:
    losses = np.r_[np.tile([1.0, 1.2], 150), 1.402]  # mean 1.1, deviation 0.1: with the point itself 1.404 is the bound
    assert rule_of("seed-3sigma")(losses).nonzero()[0].tolist() == [300]
