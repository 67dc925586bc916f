"""Skipped updates are counted: a few in a row, a few in a window, and then training stops with a message."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from dataguard.errors import AnswerNo, RanksDisagree, UsageError
from dataguard.torch.monitoring.decision import SkipBudget, Skips
from dataguard.torch.monitoring.judged import Layout, reduced, row_of


def walk(skips: Skips, skipped: set[int], steps: range) -> int | None:
    """The step at which it stops."""
    for step in steps:
        try:
            if step in skipped:
                skips.add(step, "loss is not finite")
            else:
                skips.keep(step)
        except AnswerNo:
            return step
    return None


def test_so_many_in_a_row() -> None:
    budget = SkipBudget(num_in_a_row=3)
    assert walk(Skips(budget), {5, 6, 7}, range(20)) is None
    assert walk(Skips(budget), {5, 6, 7, 8}, range(20)) == 8
    assert walk(Skips(budget), {5, 6, 7, 9, 10, 11}, range(20)) is None


def test_so_many_in_a_window() -> None:
    budget = SkipBudget(num_steps=4, window_steps=100, num_in_a_row=2)
    assert walk(Skips(budget), {0, 20, 40, 60, 99}, range(200)) == 99
    assert walk(Skips(budget), {0, 20, 40, 60, 100}, range(200)) is None, "the first is out of the window"
    assert walk(Skips(budget), set(range(0, 1000, 25)), range(1000)) is None
    assert walk(Skips(budget), set(range(0, 1000, 24)), range(1000)) is not None


def test_a_state_goes_on_exactly_and_going_back_takes_skips_back() -> None:
    budget = SkipBudget(num_steps=4, window_steps=100, num_in_a_row=3)
    skips = Skips(budget)
    walk(skips, {10, 11}, range(12))
    other = Skips(budget)
    other.load_state_dict(json.loads(json.dumps(skips.state_dict())))
    assert walk(other, {12, 13}, range(12, 20)) == 13
    # Back to step 11: its skip is not counted twice.
    assert walk(skips, {11, 12}, range(11, 20)) is None


@pytest.mark.parametrize("words", [{"on": "always"}, {"num_steps": 0}, {"window_steps": 1.5}, {"num_in_a_row": True}])
def test_budgets_that_cannot_be(words: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="cannot be"):
        SkipBudget(**words)


# -- what ranks show each other


def rows(*ranks: dict[str, float], label: int = 7, agreed: Layout | None = None, **more: Any) -> np.ndarray:
    layout = Layout() if agreed is None else agreed
    return np.stack([
        row_of(label, {name: value for name, value in rank.items() if "/" not in name}, seconds=float(number),
               watched=more.get("watched", layout), agreed=layout,
               sampled={name: value for name, value in rank.items() if "/" in name})
        for number, rank in enumerate(ranks)
    ])  # fmt: skip


def test_means_over_the_ranks_that_have_a_value() -> None:
    seen = reduced(7, rows({"loss": 1.0, "grad_norm": 2.0}, {"loss": 2.0}, {"loss": 6.0, "grad_norm": 4.0}), Layout())
    assert (seen.mean_loss, seen.mean_grad_norm, seen.seconds) == (3.0, 3.0, 2.0)
    assert seen.nonfinite == ()
    assert seen.more == {}
    assert reduced(7, rows({"loss": 1.0}), Layout()).mean_grad_norm is None


@pytest.mark.parametrize(("value", "mean"), [(math.nan, math.nan), (math.inf, math.inf), (-math.inf, -math.inf)])
def test_one_rank_that_is_not_finite_makes_the_mean_so_and_is_named(value: float, mean: float) -> None:
    seen = reduced(7, rows({"loss": 1.0}, {"loss": value}, {"loss": 1.0, "grad_norm": math.inf}), Layout())
    assert seen.mean_loss == pytest.approx(mean, nan_ok=True)
    assert seen.nonfinite == (1, 2)
    assert seen.nonfinite_losses == (1,)


def test_a_value_that_was_not_given_is_no_nan() -> None:
    assert reduced(7, rows({"loss": 1.0}, {"loss": 1.0}), Layout()).nonfinite == ()


def test_the_smallest_loss_scale_and_the_largest_logits_count() -> None:
    layout = Layout(names=("a/0", "a/1"), every=7)
    ranks = ({"loss": 1.0, "loss_scale": 8.0, "a/0": 3.0}, {"loss": 1.0, "loss_scale": 4.0, "a/0": 5.0})
    seen = reduced(7, rows(*ranks, agreed=layout), layout)
    assert seen.more == {"loss_scale": 4.0, "a/0": 5.0}, "a/1 was sampled nowhere"
    assert rows(*ranks, agreed=layout).shape == (2, 10)
    assert rows(*ranks, label=8, agreed=layout).shape == (2, 8), "of a step that is not sampled nothing is sent"


def test_names_are_agreed_on_before_they_are_sent() -> None:
    one, other = Layout(names=("a/0",), every=5), Layout(names=("a/1",), every=5)
    both = np.concatenate([rows({"loss": 1.0}, watched=one), rows({"loss": 1.0}, watched=other)])
    assert not reduced(7, both, Layout()).agree_on_names
    both = np.concatenate([rows({"loss": 1.0}, watched=one), rows({"loss": 1.0}, watched=Layout(names=("a/0",)))])
    assert not reduced(7, both, Layout()).agree_on_names
    assert reduced(7, rows({"loss": 1.0}, {"loss": 2.0}, watched=one), Layout()).agree_on_names


def test_ranks_that_log_different_steps_are_told_apart() -> None:
    both = np.concatenate([rows({"loss": 1.0}, {"loss": 1.0}, label=7), rows({"loss": 1.0}, label=8)])
    with pytest.raises(RanksDisagree, match="step 7: rank 0, 1; step 8: rank 2"):
        reduced(7, both, Layout())
