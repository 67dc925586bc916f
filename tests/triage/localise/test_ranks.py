"""The rank that is ill is named, and only that one; chance is not taken for it among hundreds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataguard.triage.localise.ranks import RankTable, is_reduced, judge_ranks
from dataguard.triage.localise.trend import levels_at

SEVERAL = [2, 3, 4, 7, 8, 64]


def table(num_ranks: int, *, seed: int = 5, num_steps: int = 150) -> RankTable:
    """Losses that fall, with noise of 0.1 nats."""
    random = np.random.default_rng(seed)
    trend = 2 + 4 * np.exp(-np.arange(num_steps) / 50)
    values = random.normal(0, 0.1, (num_steps, num_ranks)) + trend[:, None]
    return RankTable(np.arange(num_steps), np.arange(num_ranks), values)


def outlying(found) -> list[int]:
    return found.ranks[found.outlying].tolist()


@pytest.mark.parametrize("num_ranks", SEVERAL)
def test_one_rank_that_stands_out_once_is_named(num_ranks: int) -> None:
    losses = table(num_ranks)
    losses.values[145, 1] += 1.5
    found = judge_ranks(losses, [144, 145], 144)
    assert found is not None
    assert (outlying(found), found.persistent.any()) == ([1], False)
    assert found.against == ("ranks" if num_ranks >= 8 else "past")
    assert found.step[1] == 145
    assert found.value[1] == losses.values[145, 1]
    assert found.z[1] > 8


@pytest.mark.parametrize("num_ranks", [4, 5, 7, 8])
def test_a_rank_that_is_far_out_hides_no_other(num_ranks: int) -> None:
    losses = table(num_ranks)
    losses.values[145, 1] += 1.5
    losses.values[145, 3] += 40.0  # the mean of the others of rank 1 lies above rank 1
    found = judge_ranks(losses, [144, 145], 144)
    assert found is not None
    assert outlying(found) == [1, 3]


@pytest.mark.parametrize("seed", [5, 6, 7])
def test_a_rank_is_no_part_of_what_it_is_held_against(seed: int) -> None:
    losses = table(4, seed=seed)
    losses.values[145, 1] += 0.8  # half the ranks are out: the median of all four lies half way to this one
    losses.values[145, 3] += 40.0
    found = judge_ranks(losses, [145], 145)
    assert found is not None
    assert outlying(found) == [1, 3]
    assert found.z[1] == pytest.approx(8, rel=0.5)


@pytest.mark.parametrize("num_ranks", SEVERAL)
def test_a_loss_that_all_ranks_share_is_no_rank_s(num_ranks: int) -> None:
    losses = table(num_ranks)
    losses.values[145] += 2.0
    found = judge_ranks(losses, [144, 145], 144)
    assert found is not None
    assert outlying(found) == []


def test_where_all_ranks_spread_out_none_of_them_is_named() -> None:
    losses = table(64)
    losses.values[145] += 10 * (losses.values[145] - losses.values[145].mean())
    found = judge_ranks(losses, [145], 145)
    assert found is not None
    assert outlying(found) == []


@pytest.mark.parametrize("num_ranks", [3, 4, 8, 64])
@pytest.mark.parametrize("how", ["always", "now and then"])
def test_a_rank_that_stands_out_over_other_data_is_persistent(num_ranks: int, how: str) -> None:
    losses = table(num_ranks)
    losses.values[:: 1 if how == "always" else 10, 2] += 1.5
    found = judge_ranks(losses, [139, 140], 139)
    assert found is not None
    assert found.ranks[found.persistent].tolist() == [2]
    assert found.num_out[2] >= 14
    assert found.num_looked[2] == 139


def test_one_rank_of_512_that_doubles_is_seen_though_the_mean_hardly_moves() -> None:
    losses = table(512, num_steps=40)
    losses.values[39, 300] *= 2
    found = judge_ranks(losses, [39], 39)
    assert found is not None
    assert outlying(found) == [300]


def test_among_512_alike_ranks_chance_names_none() -> None:
    # z > 4 comes up on 1.6 % of steps: 30 steps of 512 ranks hold about one such value.
    losses = table(512, num_steps=60)
    found = judge_ranks(losses, list(range(30, 60)), 30)
    assert found is not None
    assert (outlying(found), found.persistent.any()) == ([], False)


def test_false_alarms_are_as_rare_as_is_said() -> None:
    alarms = 0
    for seed in range(40):
        found = judge_ranks(table(4, seed=100 + seed, num_steps=100), [97, 98], 97)
        assert found is not None
        alarms += bool(found.outlying.any()) + bool(found.persistent.any())
    assert alarms <= 3  # 1 % each of 40: 0.8 expected at most


@given(st.permutations(range(6)), st.booleans())
@settings(max_examples=6)
def test_permuting_ranks_permutes_the_answer(order: list[int], logarithm: bool) -> None:
    losses = table(6)
    losses.values[145, 1] += 1.5
    losses.values[::9, 4] += 1.0
    found = judge_ranks(losses, [144, 145], 144, logarithm=logarithm)
    moved = judge_ranks(
        RankTable(losses.steps, losses.ranks, losses.values[:, order]), [144, 145], 144, logarithm=logarithm
    )
    assert found is not None
    assert moved is not None
    for name in ("step", "outlying", "persistent", "num_out", "num_looked"):
        assert getattr(moved, name).tolist() == getattr(found, name)[order].tolist(), name
    np.testing.assert_allclose(moved.z, found.z[order])


def test_the_rank_that_has_no_number_is_named() -> None:
    losses = table(4)
    losses.values[145, 3] = np.inf
    found = judge_ranks(losses, [145], 145)
    assert found is not None
    assert outlying(found) == [3]
    losses.values[145] = np.inf
    found = judge_ranks(losses, [145], 145)
    assert found is not None
    assert outlying(found) == []


def test_nothing_is_said_without_anything_to_hold_it_against() -> None:
    assert judge_ranks(table(1), [145], 145) is None
    assert judge_ranks(table(4), [10], 10) is None  # ten steps are no past
    assert judge_ranks(table(4), [500], 145) is None
    assert judge_ranks(table(16), [10], 10) is not None  # ranks hold each other


def test_losses_that_were_reduced_are_recognised() -> None:
    losses = table(4)
    assert not is_reduced(losses)
    assert not is_reduced(table(1))
    losses.values[:] = losses.values.mean(axis=1, keepdims=True)
    assert is_reduced(losses)
    losses.values[3, 2] = np.nan  # a value that was never logged changes nothing
    assert is_reduced(losses)


def test_the_level_of_a_loss_that_falls_goes_on_falling() -> None:
    steps = np.arange(40)
    falling = 6 - 0.05 * steps
    np.testing.assert_allclose(levels_at(steps, falling, np.array([40, 45])), [4.0, 3.75])
    assert levels_at(steps, falling, np.array([10**6]))[0] > 3.0  # no further than it is known
    np.testing.assert_allclose(levels_at(steps, falling, np.array([0, 20])), [6 - 0.05, 5.0])
