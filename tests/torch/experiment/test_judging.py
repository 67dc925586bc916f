"""Arithmetic of a cell: how often it alarms falsely, what its baseline takes away, and what another node adds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dataguard.core.evidence import Told
from dataguard.torch.experiment.answers import Measured, Repeat, StateResult, number, spelled
from dataguard.torch.experiment.judging import Asked, Judged, damage_of, judge, stands_out_factor

LOSS = Asked(signal="loss", sign=1, effect=None)
PLACEBOS = [3.0 + 0.01 * i for i in range(-8, 8)]


def state(
    batch: Sequence[float], placebos: Sequence[float] = PLACEBOS, *, checkpoint: Any = "before", node: str = "a",
    drift: Sequence[float] | None = None, norm: Callable[[float], float] = lambda loss: 1.0, **more: Any,
) -> StateResult:  # fmt: skip
    """Losses of the batch, one a repeat; `drift` is added to all placebo batches of a repeat."""
    drift = drift or [0.0] * len(batch)

    def measured(loss: float) -> Measured:
        return Measured(loss=spelled(loss), grad_norm=spelled(norm(loss)))

    return StateResult(
        checkpoint=checkpoint,
        node=node,
        repeats=tuple(
            Repeat(batch=measured(value), placebos=tuple(measured(each + by) for each in placebos), **more)
            for value, by in zip(batch, drift, strict=True)
        ),
    )


def cell(states: Sequence[StateResult], asked: Asked = LOSS, *key: str) -> Judged:
    return judge(states, asked)[key or ("before", "event", "a")]  # type: ignore[index]


@pytest.mark.parametrize("num_placebos", [6, 12, 16, 24])
def test_of_ordinary_batches_one_in_a_thousand_stands_out(num_placebos: int) -> None:
    draws = np.random.default_rng(11).standard_normal((20_000, num_placebos + 1))
    middle = np.median(draws[:, 1:], axis=1)
    scale = 1.4826 * np.median(np.abs(draws[:, 1:] - middle[:, None]), axis=1)
    alarms = int(((draws[:, 0] - middle) / scale > stands_out_factor(num_placebos)).sum())
    assert 5 <= alarms <= 40


def test_a_batch_beyond_ordinary_ones_shows_and_an_ordinary_one_does_not() -> None:
    assert cell([state([3.9, 3.9])]).spikes is Told.YES
    assert cell([state([3.05, 3.05])]).spikes is Told.NO
    falls = Asked(signal="loss", sign=-1, effect=None)
    assert cell([state([2.1, 2.1])], falls).spikes is Told.YES
    assert cell([state([3.9, 3.9])], falls).spikes is Told.NO


def test_a_small_event_is_not_a_matter_of_nats() -> None:
    """0.06 nats among batches that differ by a tenth of that: a threshold in nats would not see it."""
    quiet = [3.0 + 0.0005 * i for i in range(-8, 8)]
    assert cell([state([3.06, 3.06], quiet)]).spikes is Told.YES


def test_a_spread_as_big_as_the_effect_is_unknown() -> None:
    assert cell([state([3.9, 3.1])]).spikes is Told.UNKNOWN
    assert cell([state([3.9, 6.9])]).spikes is Told.UNKNOWN
    noise = np.random.default_rng(5).standard_normal((2, 16)) * 0.3
    unlike = [state([3.0, 3.0], 3 + row) for row in noise]
    differing = StateResult(checkpoint="before", node="a", repeats=(unlike[0].repeats[0], unlike[1].repeats[0]))
    assert cell([differing]).spikes is Told.UNKNOWN, "batches differ by no more than each from itself"


def test_what_could_not_have_been_seen_is_unknown_and_not_a_no() -> None:
    small = Asked(signal="loss", sign=1, effect=0.1)
    assert cell([state([3.0, 3.0])], small).spikes is Told.UNKNOWN
    assert cell([state([3.0, 3.0])], Asked(signal="loss", sign=1, effect=5.0)).spikes is Told.NO


def test_from_another_state_the_same_batch_has_another_size() -> None:
    large = Asked(signal="loss", sign=1, effect=5.0)
    threshold = cell([state([3.0, 3.0])]).threshold
    assert cell([state([4.9, 4.9])], large).spikes is Told.YES, "nearer, as a ratio, to the event"
    assert cell([state([3.0 + 1.2 * threshold] * 2)], large).spikes is Told.NO


def test_nan_everywhere_shows_and_sometimes_is_unknown() -> None:
    assert cell([state([math.nan, math.nan])]).spikes is Told.YES
    assert cell([state([math.nan, 3.0])]).spikes is Told.UNKNOWN
    assert cell([state([3.0, 3.0], norm=lambda loss: math.inf if loss == 3.0 else 1.0)]).spikes is Told.YES
    broken = [math.nan] * 16
    assert cell([state([math.nan] * 2, broken)], LOSS, "before", "placebo", "a").spikes is Told.YES


def test_gradient_norms_are_held_against_each_other_as_ratios() -> None:
    asked = Asked(signal="grad_norm", sign=1, effect=math.log(15))
    assert cell([state([3.0, 3.0], norm=lambda loss: 15.0 if loss == 3.0 else loss / 3)], asked).spikes is Told.YES
    assert cell([state([9.0, 9.0])], asked).spikes is Told.NO, "the loss is not what is looked at"


def test_a_state_is_held_against_an_earlier_one_and_not_the_other_way_round() -> None:
    damaged = state([5.0, 5.0], [each + 2 for each in PLACEBOS])
    earlier = state([3.2, 3.2], [each + 0.2 for each in PLACEBOS], checkpoint="earlier")
    told = judge([damaged, earlier], LOSS)
    assert told[("before", "placebo", "a")].spikes is Told.YES
    assert told[("before", "event", "a")].spikes is Told.YES
    assert told[("earlier", "placebo", "a")].spikes is Told.NO
    ordinary = state([3.0, 3.0])
    assert judge([ordinary, earlier], LOSS)[("earlier", "placebo", "a")].spikes is Told.NO, "loss falls in training"


def test_a_node_is_held_against_the_other() -> None:
    sick = state([6.0, 6.0], [each + 3 for each in PLACEBOS], node="b")
    alone = judge([sick], LOSS)
    assert alone[("before", "event", "b")].spikes is Told.NO, "all is alike there"
    told = judge([sick, state([3.0, 3.0])], LOSS)
    assert told[("before", "event", "b")].spikes is Told.YES
    assert told[("before", "placebo", "b")].spikes is Told.YES
    assert told[("before", "event", "a")].spikes is Told.NO


def shares_level(batch: Sequence[float], placebos: NDArray[np.float64], level: float, needed: float) -> bool:
    """The twin: whether all that was measured, (R,) and (R, K), lies above a level, and by enough."""
    for own, row in zip(batch, placebos.tolist(), strict=True):
        if min(row) <= level or own - level <= needed or statistics.median(row) - level <= needed:
            return False
    return True


def test_a_shift_that_all_batches_share_is_that_of_the_state_by_what_was_logged_before() -> None:
    rng = np.random.default_rng(3)
    seen = set()
    for _ in range(200):
        rise = float(rng.uniform(-0.5, 1.5))
        placebos = 3.0 + rise + 0.05 * rng.standard_normal(16)
        batch = [3.0 + rise + float(rng.normal(0, 0.05))] * 2
        told = judge([state(batch, placebos.tolist())], LOSS, {"before": 3.0})
        scale = 1.4826 * float(np.median(np.abs(placebos - np.median(placebos))))
        shared = shares_level(batch, np.stack([placebos, placebos]), 3.0, 5.26 * scale)
        assert (told[("before", "placebo", "a")].spikes is Told.YES) == shared
        assert (told[("before", "event", "a")].spikes is Told.YES) or not shared
        seen.add(shared)
    assert seen == {True, False}


def test_a_level_is_no_level_where_it_was_not_logged_of_that_state_or_of_that_signal() -> None:
    risen = state([5.0, 5.0], [each + 2 for each in PLACEBOS])
    assert cell([risen], LOSS, "before", "placebo", "a").spikes is Told.NO, "all is alike there"
    for asked, levels in (
        (LOSS, {"earlier": 3.0}),
        (Asked(signal="loss", sign=-1, effect=None), {"before": 3.0}),
        (Asked(signal="grad_norm", sign=1, effect=None), {"before": -1.0}),
    ):
        assert judge([risen], asked, levels)[("before", "placebo", "a")].spikes is not Told.YES
    assert "logged before the event" in judge([risen], LOSS, {"before": 3.0})[("before", "event", "a")].text
    spiked = judge([state([5.0, 5.0])], LOSS, {"before": 3.0})
    assert spiked[("before", "event", "a")].spikes is Told.YES
    assert spiked[("before", "placebo", "a")].spikes is Told.NO, "the batch alone does it"


def after(rise: float, control: float = -0.01, num: int = 8) -> dict[str, tuple[float, ...]]:
    losses = PLACEBOS[:num]
    return {
        "after_batch": tuple(each + rise for each in losses),
        "after_placebo": tuple(each + control for each in losses),
    }


def test_damage_is_where_every_other_batch_rises_more_than_after_an_ordinary_update() -> None:
    assert damage_of(state([3.0, 3.0], **after(0.5))) == (Told.YES, pytest.approx(0.51))
    assert damage_of(state([3.0, 3.0], **after(-0.005)))[0] is Told.NO
    assert damage_of(state([3.0, 3.0], **after(0.01, control=0.02)))[0] is Told.NO, "an ordinary update does as much"
    assert damage_of(state([3.0, 3.0], **after(5.2, control=5.0)))[0] is Told.NO, "most of it is the trainer's own"
    assert damage_of(state([3.0, 3.0], **after(0.5, num=6)))[0] is Told.UNKNOWN, "six rise once in 64 times by chance"
    assert damage_of(state([3.0, 3.0], **after(math.nan)))[0] is Told.YES


def test_a_batch_whose_update_does_it_shows_it() -> None:
    """Its own loss is ordinary, as a loss is that from before the update."""
    ordinary = state([3.0, 3.0], **after(0.9))
    assert cell([ordinary]).spikes is Told.YES
    assert "its update raises" in cell([ordinary]).text
    assert cell([state([3.0, 3.0], **after(0.05))]).spikes is Told.NO
    assert cell([state([3.0, 3.0], **after(0.05))], Asked(signal="loss", sign=1, effect=0.1)).spikes is Told.YES


def test_numbers_are_spelled_and_read() -> None:
    assert [number(spelled(each)) for each in (1.5, math.inf, -math.inf)] == [1.5, math.inf, -math.inf]
    assert math.isnan(number(spelled(math.nan)))
