"""Tails are exact where they say so, and honest where they assume."""

from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.triage.localise.chances import (
    LEAST_CHANCE,
    Tail,
    binomial_tail,
    first_of_all_tail,
    hypergeometric_tail,
    normal_tail,
    stratified_tail,
    z_of_chance,
)


@given(st.integers(1, 9), st.data())
def test_a_hypergeometric_tail_is_what_counting_says(total: int, data: st.DataObject) -> None:
    draws, marked = data.draw(st.integers(0, total)), data.draw(st.integers(0, total))
    hits = data.draw(st.integers(0, total + 1))
    ways = [sum(i < marked for i in drawn) >= hits for drawn in combinations(range(total), draws)]
    assert hypergeometric_tail(hits, draws, marked, total) == pytest.approx(np.mean(ways), abs=1e-12)


@given(st.integers(1, 5), st.integers(0, 5), st.integers(0, 5))
def test_the_largest_of_all_are_among_some(draws: int, others: int, hits: int) -> None:
    orders = list(combinations(range(draws + others), draws))
    ways = [set(range(hits)) <= set(mine) for mine in orders]
    assert first_of_all_tail(min(hits, draws), draws, others) == pytest.approx(
        np.mean(ways)
        if hits <= draws
        else 1.0
        if draws == 0
        else np.mean([set(range(draws)) <= set(m) for m in orders])
    )


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.just(4)), max_size=3), st.integers(0, 8))
def test_strata_are_drawn_from_one_by_one(strata: list[tuple[int, int, int]], hits: int) -> None:
    each = [[sum(i < marked for i in drawn) for drawn in combinations(range(n), draws)] for draws, marked, n in strata]
    ways = [sum(counts) >= hits for counts in product(*each)]
    assert stratified_tail(strata, hits) == pytest.approx(np.mean(ways), abs=1e-12)


def test_binomial_and_normal_tails() -> None:
    assert binomial_tail(3, 10, 0.2) == pytest.approx(
        sum(math.comb(10, k) * 0.2**k * 0.8 ** (10 - k) for k in range(3, 11))
    )
    assert (binomial_tail(0, 5, 0.1), binomial_tail(6, 5, 0.1), binomial_tail(1, 5, 1.0)) == (1.0, 0.0, 1.0)
    for p in (0.3, 1e-3, 1e-9):
        assert normal_tail(z_of_chance(p)) == pytest.approx(p, rel=1e-5)


@pytest.mark.parametrize("kind", ["normal", "exponential", "uniform", "zeros", "counts"])
def test_a_tail_is_not_believed_beyond_what_it_is(kind: str) -> None:
    # Of one more value each time: how often is it called rarer than once in 100, 1,000, 10,000 times?
    random = np.random.default_rng(11)
    draw = {
        "normal": lambda n: random.normal(size=n),
        "exponential": lambda n: random.exponential(size=n),
        "uniform": random.random,
        "zeros": lambda n: np.maximum(random.normal(size=n) - 2.5, 0.0),
        "counts": lambda n: np.log1p(random.poisson(3.0, n).astype(float)),
    }[kind]
    chances = np.concatenate([Tail(draw(200)).chances(draw(200)) for _ in range(150)])
    for level in (1e-2, 1e-3, 1e-4):
        expected = level * len(chances)
        assert np.count_nonzero(chances < level) <= expected + 4 * math.sqrt(expected) + 1, level


def test_far_out_is_unlikely_and_never_impossible() -> None:
    background = np.random.default_rng(3).normal(size=400)
    near, far, gone = Tail(background).chances(np.array([2.0, 12.0, np.inf])).tolist()
    assert near > 0.005
    assert far < 1e-7
    assert gone == LEAST_CHANCE


def test_a_background_without_spread_says_no_more_than_its_ranks() -> None:
    assert Tail(np.zeros(99)).chance(0.9) == pytest.approx(0.01)
    assert Tail(np.arange(20.0)).chance(1e9) == pytest.approx(1 / 21)
