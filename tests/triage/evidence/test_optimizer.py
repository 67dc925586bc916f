"""Signs of the optimizer, each alone on a log that is quiet otherwise, and what is no sign."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import permutations

import numpy as np
import pytest

from dataguard.core.evidence import Told
from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.core.trainer import OptimizerFacts, ScheduleFacts, TrainerFacts
from dataguard.run.logs import TrainingLog
from dataguard.run.logs.log import LogRows
from dataguard.triage.evidence import optimizer_signs
from dataguard.triage.evidence.optimizer import _trend_chance, climbs

ADAM = TrainerFacts(optimizer=OptimizerFacts(beta1=0.9, beta2=0.95))
Series = Callable[[int], float]


def event(start: int, *, event_class: EventClass = EventClass.TRANSIENT_SPIKE, size: float = 0.5) -> SpikeEvent:
    return SpikeEvent(
        event_class=event_class,
        start=start,
        stop=start + 5,
        peak=start,
        size_nats=size,
        sigmas=20.0,
        grad_norm_ratio=4.0,
    )


def noise(step: int, salt: int = 0) -> float:
    """From -1 to 1, the same always, and of no trend."""
    return math.sin(12.9898 * step + 78.233 * salt) ** 3


def log(series: Mapping[str, Series], *, steps: range = range(1_000, 4_000, 10)) -> TrainingLog:
    rows = LogRows()
    for step in steps:
        rows.add(step, {name: value(step) for name, value in series.items()})
    return rows.finish("a", "csv")


QUIET: dict[str, Series] = {
    "attention_logit_max/blocks.3": lambda step: 8.0 + 0.5 * noise(step, 1),
    "attention_logit_max/blocks.4": lambda step: 9.0 + 0.5 * noise(step, 2),
    "grad_norm": lambda step: 1.0 + 0.2 * noise(step, 3),
    "update_ratio_rms/blocks.3": lambda step: 0.23 + 0.01 * noise(step, 4),
    "epsilon_floor_share/blocks.3": lambda step: 0.02 + 0.01 * abs(noise(step, 5)),
    "lr": lambda step: 1e-3 if step < 2_000 else 4e-4,
}


def signs(
    series: Mapping[str, Series],
    *,
    start: int = 3_900,
    events: tuple[SpikeEvent, ...] = (),
    facts: TrainerFacts = ADAM,
    event_class: EventClass = EventClass.TRANSIENT_SPIKE,
) -> tuple[Told, tuple[str, ...]]:
    return optimizer_signs(log(series), event(start, event_class=event_class), events, facts)


def test_a_quiet_log_is_looked_at_and_shows_nothing() -> None:
    answer, texts = signs(QUIET)
    assert answer is Told.NO, texts
    assert any("does not climb" in text for text in texts)


def test_nothing_logged_is_unknown_and_never_no() -> None:
    assert signs({"loss": lambda step: 2.0})[0] is Told.UNKNOWN
    answer, texts = signs({"loss": lambda step: 2.0, "grad_norm": QUIET["grad_norm"], "lr": QUIET["lr"]})
    assert answer is Told.UNKNOWN
    assert any("no attention logits" in text for text in texts)
    assert optimizer_signs(log(QUIET), None, (), ADAM) == (Told.UNKNOWN, ())


def test_logits_that_climb_are_named_by_block_and_head() -> None:
    climbing = {**QUIET, "attention_logit_max/blocks.4/head=7": lambda step: 5.0 + (step - 1_000) / 50 + noise(step, 6)}
    answer, texts = signs(climbing)
    assert answer is Told.YES
    (text,) = texts
    assert text.startswith("attention_logit_max/blocks.4/head=7 climbs from ")


def test_a_gradient_norm_that_creeps_up_ahead() -> None:
    creeping = {**QUIET, "grad_norm": lambda step: math.exp((step - 1_000) / 2_000) * (1 + 0.1 * noise(step, 7))}
    assert signs(creeping)[0] is Told.YES
    assert signs(creeping, start=1_050)[0] is not Told.YES  # too short a time to tell


@pytest.mark.parametrize(
    "series",
    [
        lambda step: 5.0 * math.sqrt((step - 990) / 10),  # levels off, as in every young model
        lambda step: 8.0 * (1 + (step - 1_000) / 20_000),  # climbs by less than twice
        lambda step: 8.0 + 6.0 * noise(step, 8),  # wanders
        lambda step: 8.0 - step / 1_000,  # falls
        lambda step: 8.0,
    ],
)
def test_what_does_not_climb(series: Series) -> None:
    assert signs({**QUIET, "attention_logit_max/blocks.4": series})[0] is Told.NO


def test_climbs_is_no_alarm_on_noise() -> None:
    """Of 2,000 series, at 1 in 1,000 by the rank test alone: the growth that is asked for lets none through."""
    generator = np.random.default_rng(17)
    alarms = sum(climbs(generator.lognormal(0.0, 0.5, 200), chance=1e-3) is not None for _ in range(2_000))
    assert alarms == 0
    assert climbs(np.array([math.nan, -1.0, math.inf]), chance=1.0) is None


def test_the_chance_of_a_trend_is_exact() -> None:
    """Against all orders of five."""

    def concordant(order: tuple[int, ...]) -> int:
        return sum((after > before) - (after < before) for i, before in enumerate(order) for after in order[i + 1 :])

    counts = [concordant(order) for order in permutations(range(5))]
    for least in range(-10, 11, 2):
        assert _trend_chance(least, 5) == pytest.approx(sum(count >= least for count in counts) / len(counts))


def test_update_ratios_above_what_one_outlier_can_give() -> None:
    high = {**QUIET, "update_ratio_rms/blocks.3": lambda step: 0.5 if step == 3_900 else 0.23}
    answer, texts = signs(high)
    assert answer is Told.YES
    assert texts[0].startswith("update_ratio_rms/blocks.3 is 0.5 at step 3,900, above 0.447")
    slow = TrainerFacts(optimizer=OptimizerFacts(beta1=0.9, beta2=0.999))
    assert signs(high, facts=slow)[0] is Told.NO  # there one outlier can give 3.16
    assert signs(high, facts=TrainerFacts())[0] is Told.NO  # nobody told the betas: nothing is assumed of them


def test_ratios_near_one_are_no_sign_while_moments_are_young() -> None:
    young = {"update_ratio_rms/blocks.3": lambda step: 0.9 if step < 1_010 else 0.2}
    assert signs(young, start=1_010)[0] is not Told.YES


def test_second_moments_at_the_floor() -> None:
    answer, texts = signs({**QUIET, "epsilon_floor_share/blocks.3": lambda step: 0.6})
    assert answer is Told.YES
    assert "60% of second moments" in texts[0]
    assert signs({**QUIET, "epsilon_floor_share/blocks.3": lambda step: 0.4})[0] is Told.NO


def test_rows_of_tokens_that_hardly_occur_are_no_sign() -> None:
    for name in ("embed", "lm_head"):
        for share in (lambda step: 0.7, lambda step: 0.4 + (step - 1_000) / 5_000):
            assert signs({**QUIET, f"epsilon_floor_share/{name}": share})[0] is Told.NO


def warming(step: int) -> float:
    return 1e-3 * min(1.0, (step - 990) / 500) * (1.0 if step < 2_000 else 0.5)


def test_the_rate_at_its_peak_at_the_end_of_the_warm_up() -> None:
    answer, texts = signs({**QUIET, "lr": warming}, start=1_500)
    assert answer is Told.YES
    assert any("of its peak" in text for text in texts)
    assert signs({**QUIET, "lr": warming}, start=1_050)[0] is not Told.YES  # 12 % of the peak
    assert signs({**QUIET, "lr": warming}, start=3_900)[0] is Told.NO  # long after
    assert signs({**QUIET, "lr": lambda step: 1e-3}, start=3_900)[0] is Told.NO  # no warm-up, no peak


def test_a_warm_up_below_one_percent() -> None:
    short = TrainerFacts(schedule=ScheduleFacts(warmup_steps=1_000, total_steps=1_000_000))
    series = {name: values for name, values in QUIET.items() if name != "lr"}
    answer, texts = signs(series, start=1_200, facts=short)
    assert answer is Told.YES
    assert "warm-up is 0.10% of all steps (1,000 of 1,000,000), below 1%" in texts
    assert signs(series, start=3_900, facts=short)[0] is Told.NO  # long after it
    long_enough = TrainerFacts(schedule=ScheduleFacts(warmup_steps=1_000, total_steps=100_000))
    assert signs(series, start=1_200, facts=long_enough)[0] is not Told.YES
    unsaid = TrainerFacts(schedule=ScheduleFacts(warmup_steps=1_000))
    assert signs(series, start=1_200, facts=unsaid)[0] is not Told.YES


def test_events_that_come_again_sooner_than_chance_lets_them() -> None:
    close = (event(3_700), event(3_800), event(3_900))
    answer, texts = signs(QUIET, events=close)
    assert answer is Told.YES
    assert texts[0].startswith("3 damaging events within 201 steps")
    assert signs(QUIET, events=(event(2_000), event(3_900)))[0] is Told.NO
    harmless = tuple(event(start, event_class=EventClass.HARD_BATCH) for start in (3_700, 3_750, 3_800))
    assert signs(QUIET, events=harmless)[0] is Told.NO
    later = (event(3_900), event(3_950), event(3_960))
    assert signs(QUIET, events=later)[0] is Told.NO  # what comes afterwards is no sign beforehand


def test_spikes_that_grow() -> None:
    far = [event(start, size=size) for start, size in ((1_100, 0.1), (20_000, 0.2), (40_000, 0.3), (60_000, 0.4))]
    last = event(80_000, size=0.5)
    wide = log(QUIET, steps=range(1_000, 81_000, 200))
    assert optimizer_signs(wide, last, (*far, last), TrainerFacts())[0] is Told.YES
    smaller = event(80_000, size=0.35)
    assert optimizer_signs(wide, smaller, (*far, smaller), TrainerFacts())[0] is not Told.YES


def test_a_drift_of_logits_is_its_own_sign() -> None:
    drift = SpikeEvent(
        event_class=EventClass.CREEPING_DRIFT,
        start=1_010,
        stop=3_900,
        peak=3_890,
        size_nats=None,
        sigmas=None,
        signal="attention_logit_max/blocks.3",
    )
    answer, texts = optimizer_signs(log(QUIET), drift, (drift,), TrainerFacts())
    assert answer is Told.YES
    assert texts == ("the drift itself is of attention_logit_max/blocks.3, from step 1,010 on",)
