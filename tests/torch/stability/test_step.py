"""C1, C2, C11, C12: one step, each outcome, and what it leaves as it was."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dataguard.errors import AnswerNo, AttemptError, UsageError
from dataguard.torch.stability import (
    AnomalyJudge,
    GradientHistory,
    StepOutcome,
    StepResult,
    nonfinite_ranks,
    train_step,
)
from tests.torch.stability.step_rank import Model, loss, microbatch

IGNORED = {"labels": torch.full((2, 12), -100)}


class Trainer:
    """A model, its optimizer and its past; `step` makes one."""

    def __init__(self, *, past: int = 0, **more: Any) -> None:
        self.model = Model()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.history = GradientHistory(least=8)
        self.more = more
        for number in range(past):
            assert not self.step(microbatch(number)).skipped

    def step(self, *microbatches: dict[str, torch.Tensor], **more: Any) -> StepResult:
        words = {"history": self.history, **self.more, **more}
        return train_step(self.model, self.optimizer, microbatches, loss, **words)

    def state(self) -> tuple[list[torch.Tensor], dict[str, Any]]:
        weights = [each.detach().clone() for each in self.model.parameters()]
        return weights, copy.deepcopy(self.optimizer.state_dict())


def same(a: Any, b: Any) -> bool:
    return str(a) == str(b) and all(torch.equal(x, y) for x, y in zip(a[0], b[0], strict=True))


CASES: dict[StepOutcome, Callable[[Trainer], StepResult]] = {
    StepOutcome.UPDATED: lambda t: t.step(microbatch(50)),
    StepOutcome.SKIPPED_BAD_DATA: lambda t: t.step(
        {**microbatch(50), "input_ids": torch.full((2, 12), 3)}, judge=AnomalyJudge()
    ),
    StepOutcome.SKIPPED_NO_LABELS: lambda t: t.step(microbatch(50, **IGNORED)),
    StepOutcome.SKIPPED_NONFINITE: lambda t: t.step(microbatch(50), microbatch(51, times=torch.tensor(math.nan))),
    StepOutcome.SKIPPED_GRAD_SPIKE: lambda t: t.step(microbatch(50, times=torch.tensor(1e3))),
    StepOutcome.SKIPPED_LOSS_SCALE: lambda t: t.step(
        microbatch(50), amp_dtype=torch.float16, scaler=torch.amp.GradScaler("cpu", init_scale=2.0**40)
    ),
}


@pytest.mark.parametrize("outcome", StepOutcome)
def test_every_outcome_has_every_key_and_no_nan(outcome: StepOutcome) -> None:
    trainer = Trainer(past=10)
    before = trainer.state()
    result = CASES[outcome](trainer)
    assert result.outcome is outcome
    assert result.skipped == (outcome is not StepOutcome.UPDATED)
    assert list(result.to_dict()) == [each.name for each in dataclasses.fields(StepResult)]
    json.dumps(result.to_dict(), allow_nan=False)
    assert (result.reason is None) == (outcome is StepOutcome.UPDATED)
    assert same(before, trainer.state()) == result.skipped, "neither weights nor moments move in a skipped step"
    assert all(parameter.grad is None for parameter in trainer.model.parameters())
    measured = {StepOutcome.UPDATED, StepOutcome.SKIPPED_GRAD_SPIKE}
    assert (result.loss is not None) == (outcome in {*measured, StepOutcome.SKIPPED_LOSS_SCALE})
    assert (result.grad_norm is not None) == (outcome in measured)
    recorded = result.recorded()
    assert set(recorded) == (set() if outcome in NOTHING_COMPUTED else {"loss", "grad_norm"})
    assert math.isnan(recorded.get("loss", 0.0)) == (outcome is StepOutcome.SKIPPED_NONFINITE)
    assert math.isnan(recorded.get("grad_norm", 0.0)) == (outcome not in {*measured, *NOTHING_COMPUTED})
    assert not trainer.step(microbatch(60)).skipped, "the next step is made"


NOTHING_COMPUTED = {StepOutcome.SKIPPED_BAD_DATA, StepOutcome.SKIPPED_NO_LABELS}


def test_what_is_recorded_is_the_rank_s_own_loss_and_no_mean_over_ranks() -> None:
    result = dataclasses.replace(Trainer().step(microbatch(1)), loss=2.0, own_loss=3.0)
    assert result.recorded() == {"loss": 3.0, "grad_norm": result.grad_norm}


def test_a_gradient_that_is_not_finite_behind_a_finite_loss() -> None:
    trainer = Trainer(past=2)
    trainer.model.head.weight.register_hook(lambda grad: grad * math.inf)
    before = trainer.state()
    result = trainer.step(microbatch(3))
    assert (result.outcome, result.nonfinite_ranks) == (StepOutcome.SKIPPED_NONFINITE, ())
    assert result.loss is not None
    assert same(before, trainer.state())


def test_the_limit_is_on_the_raw_norm_against_the_runs_own_past() -> None:
    trainer = Trainer(past=20, max_grad_norm=1e-3)  # clipped, every spike has a norm of .001
    result = trainer.step(microbatch(50, times=torch.tensor(30.0)))
    assert result.outcome is StepOutcome.SKIPPED_GRAD_SPIKE
    assert result.grad_norm_limit is not None
    assert result.grad_norm is not None
    assert result.grad_norm > result.grad_norm_limit > 100 * 1e-3
    again = trainer.step(microbatch(50, times=torch.tensor(30.0)))
    assert again.grad_norm_limit == result.grad_norm_limit, "what was skipped does not enter the past"
    assert trainer.step(microbatch(51)).outcome is StepOutcome.UPDATED
    given = trainer.step(microbatch(52), grad_norm_limit=1e-6)
    assert (given.outcome, given.grad_norm_limit) == (StepOutcome.SKIPPED_GRAD_SPIKE, 1e-6)


def test_without_a_past_nothing_is_judged_unless_a_limit_is_given() -> None:
    assert Trainer().step(microbatch(0, times=torch.tensor(1e4))).grad_norm_limit is None
    assert Trainer().step(microbatch(0, times=torch.tensor(1e4)), grad_norm_limit=5.0).skipped


def test_gradients_accumulate_to_the_mean_over_all_labels() -> None:
    """Microbatches of different numbers of labels weigh by them, one without any adds nothing."""
    labels = microbatch(1)["labels"].clone()
    labels[:, 3:] = -100
    several = [microbatch(0), {**microbatch(1), "labels": labels}, microbatch(2, **IGNORED)]
    trainer, plain = Trainer(max_grad_norm=None), Model()
    result = trainer.step(*several)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-2)
    joined = {key: torch.cat([each[key] for each in several]) for key in ("input_ids", "labels")}
    mean = nn.functional.cross_entropy(plain(joined["input_ids"]).flatten(0, 1), joined["labels"].flatten())
    mean.backward()
    norm = torch.nn.utils.get_total_norm([each.grad for each in plain.parameters() if each.grad is not None])
    optimizer.step()
    assert result.num_labels == 24 + 6
    assert result.loss == pytest.approx(mean.item(), rel=1e-6)
    assert result.grad_norm == pytest.approx(norm.item(), rel=1e-5)
    for ours, theirs in zip(trainer.model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_it_is_clipped_to_the_norm() -> None:
    trainer = Trainer(max_grad_norm=0.01)
    trainer.optimizer = torch.optim.SGD(trainer.model.parameters(), lr=1.0)  # type: ignore[assignment]
    before = trainer.state()[0]
    result = trainer.step(microbatch(0))
    assert result.grad_norm is not None
    assert result.grad_norm > 0.01, "what is told is from before"
    step = math.sqrt(sum(float((a - b).square().sum()) for a, b in zip(before, trainer.state()[0], strict=True)))
    assert step == pytest.approx(0.01, rel=1e-3)


def test_too_many_skips_in_a_row_end_it_with_a_message() -> None:
    trainer = Trainer(past=8, max_skips=3)
    nan = microbatch(1, times=torch.tensor(math.nan))
    assert [trainer.step(nan).num_skips, trainer.step(microbatch(2, **IGNORED)).num_skips] == [1, 2]
    assert trainer.step(microbatch(3)).num_skips == 0, "an update begins the count anew"
    trainer.step(nan)
    trainer.step(nan)
    with pytest.raises(AnswerNo, match="3 steps in a row were skipped") as raised:
        trainer.step(microbatch(2, **IGNORED))
    assert "2 skipped_nonfinite, 1 skipped_no_labels; the last: no token has a label" in str(raised.value)


def test_a_level_that_moves_for_good_ends_in_the_cap_and_not_in_skipping_for_ever() -> None:
    trainer = Trainer(past=20, max_skips=5)
    for number in range(4):
        assert trainer.step(microbatch(number, times=torch.tensor(100.0))).num_skips == number + 1
    with pytest.raises(AnswerNo, match="5 skipped_grad_spike"):
        trainer.step(microbatch(5, times=torch.tensor(100.0)))


# -- number types


def test_float16_with_a_scaler_on_the_cpu() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**34, growth_interval=1000)
    trainer = Trainer(amp_dtype=torch.float16, scaler=scaler, max_skips=2)
    results = [trainer.step(microbatch(number)) for number in range(30)]
    outcomes = [each.outcome for each in results]
    num_overflows = outcomes.index(StepOutcome.UPDATED)
    assert num_overflows > 2, "more than the cap: a scale that may still fall is no fault"
    assert set(outcomes[:num_overflows]) == {StepOutcome.SKIPPED_LOSS_SCALE}
    assert outcomes[num_overflows:].count(StepOutcome.UPDATED) > 0.7 * (30 - num_overflows)
    assert outcomes[-1] is StepOutcome.UPDATED
    scales = [each.loss_scale for each in results]
    assert scales[:3] == [2.0**34, 2.0**33, 2.0**32]
    exact = Trainer()
    first = exact.step(microbatch(num_overflows))
    assert results[num_overflows].grad_norm == pytest.approx(first.grad_norm, rel=0.01), "told without the scale"
    assert results[-1].num_skips == 0


def test_an_overflow_at_a_scale_below_one_counts() -> None:
    trainer = Trainer(amp_dtype=torch.float16, scaler=torch.amp.GradScaler("cpu", init_scale=2.0), max_skips=3)
    trainer.model.head.weight.register_hook(lambda grad: grad * math.inf)
    trainer.step(microbatch(0))  # 2, and then 1
    trainer.step(microbatch(0))
    trainer.step(microbatch(0))
    with pytest.raises(AnswerNo, match="3 skipped_loss_scale"):
        trainer.step(microbatch(0))


def test_a_scaler_without_float16_is_refused_and_float16_without_a_scaler() -> None:
    trainer = Trainer()
    scaler = torch.amp.GradScaler("cpu")
    for dtype in (torch.bfloat16, None):
        with pytest.raises(UsageError, match="a loss scaler with"):
            trainer.step(microbatch(0), amp_dtype=dtype, scaler=scaler)
    with pytest.raises(UsageError, match="float16 without a loss scaler"):
        trainer.step(microbatch(0), amp_dtype=torch.float16)
    assert not trainer.step(microbatch(0), amp_dtype=torch.bfloat16).skipped
    off = torch.amp.GradScaler("cpu", enabled=False)
    assert trainer.step(microbatch(0), amp_dtype=torch.bfloat16, scaler=off).loss_scale is None


def test_what_cannot_be() -> None:
    trainer = Trainer()
    with pytest.raises(UsageError, match="without microbatches"):
        trainer.step()
    with pytest.raises(UsageError, match="max_skips"):
        trainer.step(microbatch(0), max_skips=0)
    with pytest.raises(UsageError, match="not one number"):
        train_step(
            trainer.model,
            trainer.optimizer,
            [microbatch(0)],
            lambda model, each: model(each["input_ids"]),
            history=trainer.history,
        )


# -- the past


def test_the_history_goes_through_a_checkpoint() -> None:
    trainer = Trainer(past=20, max_skips=5)
    trainer.step(microbatch(1, times=torch.tensor(math.nan)))
    state = json.loads(json.dumps(trainer.history.state_dict()))
    other = GradientHistory(least=8)
    other.load_state_dict(state)
    assert (other.limit, other.skipped) == (trainer.history.limit, (StepOutcome.SKIPPED_NONFINITE,))
    with pytest.raises(AttemptError, match="version 0"):
        other.load_state_dict({**state, "version": 0})


def test_the_limit_by_hand_and_its_floor() -> None:
    history = GradientHistory(window=5, least=5)
    norms = [9.0, 1.0, 2.0, 4.0, 3.0, 2.5]
    for number, norm in enumerate(norms):
        assert (history.limit is None) == (number < 5)
        history.add(norm)
    logs = np.log(norms[1:])  # the window
    sigma = 1.4826 * np.median(np.abs(logs - np.median(logs)))
    assert history.limit == pytest.approx(float(np.exp(np.median(logs) + 6 * sigma)))
    constant = GradientHistory(least=3)
    for _ in range(3):
        constant.add(0.5)
    assert constant.limit == pytest.approx(1.0), "twice the median, though the past never varied"
    before = constant.limit
    for bad in (math.nan, math.inf, 0.0):
        constant.add(bad)
    assert constant.limit == before
    for words in ({"least": 0}, {"window": 4, "least": 5}, {"sigmas": 0.0}):
        with pytest.raises(UsageError, match="cannot be"):
            GradientHistory(**words)  # type: ignore[arg-type]


def test_what_is_not_finite_enters_no_history() -> None:
    history = GradientHistory(least=4)
    for norm in (1.0, 1.1, 0.9, 1.0):
        history.add(norm)
    before = history.limit
    for norm in (math.nan, math.inf, 0.0):
        history.add(norm)
    assert history.limit == before


def test_quiet_noise_raises_no_alarm() -> None:
    """Lognormal norms, 20,000 steps: at six sigmas of a scale known to a tenth, none."""
    generator = torch.Generator().manual_seed(3)
    history = GradientHistory()
    alarms = 0
    for log in (0.2 * torch.randn(20_000, generator=generator)).tolist():
        norm = math.exp(log)
        limit = history.limit
        alarms += limit is not None and norm > limit
        history.add(norm)
    assert alarms == 0


# -- the judge


def test_the_judge_is_the_projects_own_signal_without_padding() -> None:
    ids = torch.randint(0, 30_000, (3, 2048), generator=torch.Generator().manual_seed(0))
    ids[0] = torch.arange(13).repeat(158)[:2048]
    ids[1, 1024:] = 0  # half padding, which the seed scores .446
    mask = torch.ones(3, 2048, dtype=torch.int64)
    mask[1, 1024:] = 0
    scores = AnomalyJudge().scores({"input_ids": ids, "attention_mask": mask})
    assert scores[0] == pytest.approx(0.766, abs=1e-3), "SCORES.md, period 13"
    assert scores[1] == pytest.approx(scores[2], abs=0.01)
    labels = torch.where(mask == 1, ids, -100)
    labels[2] = -100
    assert len(AnomalyJudge().scores({"input_ids": ids, "labels": labels})) == 2, "a row of padding is not scored"
    assert AnomalyJudge().scores({"input_ids": ids})[1] > 0.35, "where nobody says what is padding, it counts"


def test_the_rule_of_the_seed_over_the_global_batch() -> None:
    judge = AnomalyJudge()
    assert judge.verdict(0.35, 0.75) is None
    assert judge.verdict(0.36, 0.5) == "the mean anomaly is 0.360, above 0.35"
    assert judge.verdict(0.1, 0.76) == "the worst sample has an anomaly of 0.760, above 0.75"
    period_16 = torch.arange(16).repeat(128)[None]
    assert judge.verdict(0.2, float(judge.scores({"input_ids": period_16}).max())) is None, "its known blind spot"
    with pytest.raises(UsageError, match="bounds"):
        AnomalyJudge(mean_above=2.0)


def test_scores_add_up_over_microbatches() -> None:
    trainer = Trainer()
    one, other = microbatch(0), {**microbatch(1), "input_ids": torch.full((2, 12), 3)}
    judge = AnomalyJudge(mean_above=1.0, any_above=1.0)
    result = trainer.step(one, other, judge=judge)
    scores = np.concatenate([judge.scores(one), judge.scores(other)])
    assert result.anomaly_mean == pytest.approx(scores.mean())
    assert result.anomaly_max == pytest.approx(scores.max())
    empty = trainer.step(microbatch(1, **IGNORED), judge=judge)
    assert (empty.outcome, empty.anomaly_mean) == (StepOutcome.SKIPPED_NO_LABELS, None)


# -- nonfinite_ranks alone


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_without_a_process_group_this_is_rank_0(bad: float) -> None:
    assert nonfinite_ranks() == ()
    assert nonfinite_ranks(1, 2.0, torch.ones(3), torch.tensor([4])) == ()
    assert nonfinite_ranks(1.0, bad) == (0,)
    assert nonfinite_ranks(torch.tensor([[1.0, bad]], dtype=torch.bfloat16), 1.0) == (0,)
    with pytest.raises(UsageError, match="a str cannot be looked at"):
        nonfinite_ranks("nan")  # type: ignore[arg-type]
