"""Counts of a mixture, their inverse, and the deal within blocks."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataguard.errors import NotInRun
from dataguard.plan.document import Mixture
from dataguard.plan.mixture import Dealer, Peel
from tests.twins.stream import counts

WEIGHTS = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d", "\u00e9", "A"]),
    st.one_of(st.integers(1, 6), st.integers(1, 10**6), st.sampled_from([2**31, 2**62, 2**80])),
    min_size=1,
)


def dealer(weights: dict[str, int], *, seed: int = 17, start: int = 0, block: int = 256) -> Dealer:
    return Dealer(seed, Mixture(start=start, manifest="m", weights=weights), block=block)


@given(WEIGHTS, st.one_of(st.integers(0, 1000), st.integers(0, 2**90)))
def test_counts_are_exact_shares_to_below_2(weights: dict[str, int], n: int) -> None:
    peel = Peel(weights)
    found = dict(zip(peel.names, peel.counts(n), strict=True))
    assert found == counts(weights, n)
    assert sum(found.values()) == n
    for name, weight in weights.items():
        assert abs(found[name] - Fraction(n * weight, peel.total)) < 2
    after = dict(zip(peel.names, peel.counts(n + 1), strict=True))
    assert sorted(after[name] - found[name] for name in weights) == [0] * (len(weights) - 1) + [1]


@given(WEIGHTS, st.lists(st.integers(0, 2**61), min_size=1, max_size=5))
def test_counts_of_many_are_those_of_each(weights: dict[str, int], numbers: list[int]) -> None:
    peel = Peel(weights)
    for some in (numbers, [n % 1000 for n in numbers]):
        assert peel.counts_of(some).tolist() == [list(peel.counts(n)) for n in some]


@given(WEIGHTS, st.data())
def test_reached_is_the_inverse_of_counts(weights: dict[str, int], data: st.DataObject) -> None:
    peel = Peel(weights)
    source = data.draw(st.integers(0, len(weights) - 1))
    draw = data.draw(st.one_of(st.integers(0, 50), st.integers(0, 2**70)))
    n = peel.reached(source, draw)
    assert peel.counts(n)[source] == draw + 1
    assert peel.counts(n - 1)[source] == draw


def test_ties_go_by_name_in_byte_order() -> None:
    assert Peel({"b": 1, "a": 1, "A": 1, "\u00e9": 2}).names == ("\u00e9", "A", "a", "b")


@settings(max_examples=60)
@given(WEIGHTS, st.sampled_from([1, 2, 7, 256]), st.integers(0, 2**64), st.integers(0, 10**6))
def test_draws_count_up_and_places_find_them(weights: dict[str, int], block: int, seed: int, start: int) -> None:
    mixed = dealer(weights, seed=seed, start=start, block=block)
    for lane in (0, 5):
        lanes = np.full(60, lane)
        source, draw = mixed.deal(lanes, np.arange(60))
        seen = [0] * mixed.num_sources
        for place, (i, d) in enumerate(zip(source.tolist(), draw.tolist(), strict=True)):
            assert mixed.drawn(np.array([lane]), np.array([place])).tolist() == [seen]
            assert d == seen[i]
            seen[i] += 1
            assert mixed.places([lane], i, [d]) == [place]


def test_far_places_are_dealt_as_near_ones() -> None:
    mixed = dealer({"a": 5, "b": 2, "c": 1})
    for place in (10**6, 2**40 + 3, 2**55):
        source, draw = (int(value[0]) for value in mixed.deal(np.array([3]), np.array([place])))
        assert mixed.places([3], source, [draw]) == [place]
        assert abs(draw - place * (5, 2, 1)[source] // 8) <= 258


def test_each_block_holds_its_quota_and_lanes_differ() -> None:
    mixed = dealer({"rare": 1, "common": 1023})
    lanes = np.repeat(np.arange(64), 1024)
    source, _ = mixed.deal(lanes, np.tile(np.arange(1024), 64))
    rare = (source == mixed.names.index("rare")).reshape(64, 1024)
    # About one in a lane's first 1,024 places, at places of its own: a phase common to all would put them together.
    assert rare.sum(axis=1).max() <= 3
    assert 40 <= rare.sum() <= 90
    assert len({tuple(np.flatnonzero(row)) for row in rare}) > 32


def test_equal_weights_do_not_lock_onto_lanes() -> None:
    mixed = dealer({"a": 1, "b": 1})
    for lane in range(4):
        source, _ = mixed.deal(np.full(512, lane), np.arange(512))
        assert abs(source.sum() - 256) <= 2
        assert 60 < np.count_nonzero(np.diff(source)) < 450


def test_many_sources_and_many_blocks_at_once() -> None:
    mixed = dealer({f"s{i:03}": 1 + i % 7 for i in range(300)})
    lanes, places = np.divmod(np.arange(40_000), 400)
    source, draw = mixed.deal(lanes, places * 64)  # more blocks than are kept
    again = dealer({f"s{i:03}": 1 + i % 7 for i in range(300)})
    some = np.array([0, 17, 39_999, 20_000])
    assert [v.tolist() for v in again.deal(lanes[some], places[some] * 64)] == [
        source[some].tolist(),
        draw[some].tolist(),
    ]


def test_a_draw_that_never_comes_is_refused() -> None:
    mixed = dealer({"a": 2**70, "b": 1})
    with pytest.raises(NotInRun, match="past the last position"):
        mixed.places([0], mixed.names.index("b"), [2])
