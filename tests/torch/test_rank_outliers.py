"""Which rank is ill: across ranks from 8 up, against its own past below, and only where it lasts over other data."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from dataguard.torch.monitoring.rank_outliers import ENOUGH_RANKS, NUM_PAST, NUM_RECENT, RankWatch


def losses(world_size: int, num_steps: int, *, seed: int = 1, spread: float = 0.1) -> np.ndarray:
    """Ranks see other data at every step, and all of them learn; shape (num_steps, world_size)."""
    generator = np.random.default_rng(seed)
    trend = 2.2 + np.exp(-np.arange(num_steps) / 200)
    return trend[:, None] + spread * generator.standard_normal((num_steps, world_size))


def told(watch: RankWatch, rows: np.ndarray) -> list[tuple[int, int, bool]]:
    """(step, rank, whether persistent) of what was said of each step."""
    return [(step, each.rank, each.is_persistent) for step, row in enumerate(rows) for each in watch.observe(row)]


def test_one_rank_in_512_is_named_where_the_mean_shows_nothing() -> None:
    rows = losses(512, 60)
    sick = rows.copy()
    sick[20:, 183] += 2.2
    assert abs(sick[30].mean() - rows[30].mean()) == pytest.approx(0.0043, abs=1e-4)
    said = told(RankWatch("loss", 512), sick)
    assert {rank for _, rank, _ in said} == {183}
    assert [step for step, _, _ in said] == list(range(20, 60)), "at once, and as long as it lasts"
    first = min(step for step, _, persistent in said if persistent)
    assert first == 20 + NUM_RECENT // 2, "seventeen steps, each with other data"


def test_a_batch_that_is_hard_for_one_rank_is_no_sick_rank() -> None:
    rows = losses(512, 200)
    for step in range(10, 200, 5):
        rows[step, (37 * step) % 512] += 3.0
    said = told(RankWatch("loss", 512), rows)
    assert len(said) == 38
    assert not any(persistent for _, _, persistent in said)


def test_a_small_steady_shift_is_found_though_no_single_step_shows_it() -> None:
    rows = losses(64, 200)
    rows[:, 5] += 0.4  # 4 standard deviations of the ranks: 6 are asked of a single step
    said = told(RankWatch("loss", 64), rows)
    assert {rank for _, rank, persistent in said if persistent} == {5}
    assert sum(persistent for _, _, persistent in said) >= 160


@pytest.mark.parametrize("world_size", [2, 3, 5, 7, 8, 64])
@pytest.mark.parametrize("seed", [3, 4])
@pytest.mark.parametrize("tails", ["normal", "laplace"])
def test_ranks_that_are_well_are_not_called_ill(world_size: int, seed: int, tails: str) -> None:
    generator = np.random.default_rng(seed)
    noise = getattr(generator, tails)(size=(600, world_size)) * 0.1
    watch = RankWatch("loss", world_size)
    assert not any(persistent for _, _, persistent in told(watch, 2.2 + noise))


@pytest.mark.parametrize("world_size", [2, 3, 7])
@pytest.mark.parametrize("sign", [1, -1])
def test_below_eight_a_rank_is_held_against_its_own_past(world_size: int, sign: int) -> None:
    rows = losses(world_size, 260, spread=0.05)
    rows[:, 0] += 0.5  # one that has always been higher is no news
    rows[160:, world_size - 1] += sign * 0.4
    said = told(RankWatch("loss", world_size), rows)
    assert {(rank, persistent) for step, rank, persistent in said if persistent} == {(world_size - 1, True)}
    assert min(step for step, _, persistent in said if persistent) in range(160, 160 + NUM_RECENT)
    assert any(persistent for step, _, persistent in said if step == 259), "its sickness does not become its past"


def test_one_rank_that_is_all_over_the_place_hides_no_other() -> None:
    rows = losses(5, 260, spread=0.05)
    rows[:, 4] += np.random.default_rng(7).normal(0, 3.0, 260)  # moves the mean over ranks by 0.6
    rows[160:, 0] += 0.4
    said = told(RankWatch("loss", 5), rows)
    assert {rank for step, rank, persistent in said if persistent} == {0}
    assert min(step for step, _, persistent in said if persistent) < 160 + NUM_RECENT


def test_what_all_ranks_share_is_nobodys() -> None:
    for world_size in (2, 5, 16):
        rows = losses(world_size, 200)
        rows[120:] += 3.0
        watch = RankWatch("loss", world_size)
        assert told(watch, rows) == []
        assert watch.lone is None


@pytest.mark.parametrize("world_size", [2, 3, 8, 32])
def test_the_one_rank_that_lies_high_is_known(world_size: int) -> None:
    rows = losses(world_size, 120)
    rows[119, 1] += 5.0
    watch = RankWatch("loss", world_size)
    for row in rows:
        watch.observe(row)
    assert watch.lone == 1
    watch.observe(losses(world_size, 1, seed=9)[0])
    assert watch.lone is None


def test_gradient_norms_that_were_reduced_are_all_alike_and_rounding_is_no_outlier() -> None:
    watch = RankWatch("grad_norm", 16)
    for step in range(100):
        row = np.full(16, 1.0 + 0.1 * math.sin(step))
        row[3] *= 1 + 1e-6
        assert watch.observe(row) == ()
    row[3] = 0.0
    (found,) = watch.observe(row)
    assert (found.rank, found.is_persistent) == (3, False), "a rank without any gradient is odd"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("world_size", [3, 16])
def test_what_is_not_finite_disturbs_nobody(world_size: int, value: float) -> None:
    rows = losses(world_size, 150)
    rows[40:, 1] = value
    assert told(RankWatch("loss", world_size), rows) == []
    assert told(RankWatch("loss", world_size), np.full((80, world_size), value)) == []


@pytest.mark.parametrize("world_size", [2, 3, 8, 16])
def test_a_state_goes_on_exactly_and_is_bounded(world_size: int) -> None:
    rows = losses(world_size, 400)
    rows[200:, 1] += 0.5
    rows[::7, 0] = np.nan
    whole = RankWatch("loss", world_size)
    wanted = told(whole, rows)
    first = RankWatch("loss", world_size)
    said = told(first, rows[:210])
    second = RankWatch("loss", world_size)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    said += [(step + 210, *rest) for step, *rest in told(second, rows[210:])]
    assert said == wanted
    rings = whole.state_dict()["rings"]
    assert len(rings["z"]) == NUM_RECENT
    assert len(rings["past_values"]) == (0 if world_size >= ENOUGH_RANKS else NUM_PAST)


def test_another_number_of_ranks_begins_anew() -> None:
    watch = RankWatch("loss", 16)
    told(watch, losses(16, 50))
    other = RankWatch("loss", 8)
    other.load_state_dict(watch.state_dict())
    assert other.state_dict()["rings"]["z"] == []


def test_one_rank_has_nobody_to_be_held_against() -> None:
    assert told(RankWatch("loss", 1), losses(1, 50)) == []
