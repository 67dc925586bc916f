"""A11, A12, A15, C3, C22: numbers of the seeds, held against torch's own AdamW."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from dataguard.errors import UsageError
from dataguard.torch.stability import (
    largest_update_ratio,
    peak_learning_rate,
    update_amplification,
    usual_update_ratio,
)
from dataguard.torch.watching.numbers import AdamMoments, adam_moments, ratio

EPS = 1e-12


def optimizer_of(
    past_rms: torch.Tensor, *, beta2: float, eps: float = EPS, steps: int = 10**6
) -> tuple[torch.nn.Parameter, torch.optim.AdamW]:
    """AdamW as it stands after so many steps: nothing in the first moment, this rms in the second."""
    parameter = torch.nn.Parameter(torch.zeros_like(past_rms))
    optimizer = torch.optim.AdamW([parameter], lr=1.0, betas=(0.9, beta2), eps=eps, weight_decay=0.0)
    state: dict[str, Any] = {
        "step": torch.tensor(float(steps)),
        "exp_avg": torch.zeros_like(past_rms),
        "exp_avg_sq": past_rms.square(),
    }
    optimizer.state[parameter] = state
    return parameter, optimizer


def moved(gradient: float, past_rms: float, *, beta2: float) -> float:
    """How far the real optimizer moves the parameter for this gradient, at a learning rate of 1."""
    parameter, optimizer = optimizer_of(torch.tensor([past_rms], dtype=torch.float64), beta2=beta2)
    parameter.grad = torch.tensor([gradient], dtype=torch.float64)
    optimizer.step()
    return abs(parameter.item())


def test_a11_the_largest_ratio_of_one_gradient() -> None:
    assert largest_update_ratio(0.9, 0.95) == pytest.approx(0.447, abs=5e-4)
    assert largest_update_ratio(0.9, 0.999) == pytest.approx(3.16, abs=5e-3)
    for beta2 in (0.95, 0.99, 0.999):
        assert moved(1e6, 1.0, beta2=beta2) == pytest.approx(largest_update_ratio(0.9, beta2), rel=1e-4)
        assert moved(30.0, 1.0, beta2=beta2) < largest_update_ratio(0.9, beta2)


def test_a12_an_outlier_is_no_smaller_than_a_normal_step_under_noise() -> None:
    """Thirty times the usual gradient, in the middle of noise: .44 to .46 against .23."""
    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.zeros(4000))
    optimizer = torch.optim.AdamW([parameter], lr=1.0, betas=(0.9, 0.95), eps=EPS, weight_decay=0.0)

    def rms_of_step(gradient: torch.Tensor) -> float:
        before = parameter.detach().clone()
        parameter.grad = gradient
        optimizer.step()
        return (parameter.detach() - before).square().mean().sqrt().item()

    usual = [rms_of_step(torch.randn(4000)) for _ in range(200)][100:]
    normal = math.sqrt(sum(each**2 for each in usual) / len(usual))
    outlier = rms_of_step(30 * torch.randn(4000).sign())
    assert normal == pytest.approx(0.23, abs=0.01)
    assert usual_update_ratio(0.9) == pytest.approx(normal, abs=0.01)
    assert outlier == pytest.approx(0.45, abs=0.015)
    assert outlier > 1.8 * normal, "not damped below a normal step"


def test_a15_at_the_epsilon_floor_a_moderate_gradient_moves_far() -> None:
    """With v collapsed the ratio is set by epsilon, and the share of such coordinates tells it beforehand."""
    past = torch.tensor([1e-2] * 6 + [1e-10] * 4)
    parameter, optimizer = optimizer_of(past, beta2=0.999, eps=1e-8)
    group = optimizer.param_groups[0]
    before = adam_moments(optimizer.state[parameter], group)
    assert before is not None
    assert ratio(before)[2].item() == 4, "four of ten coordinates lie below ten epsilon"
    parameter.grad = torch.full((10,), 1e-5)
    optimizer.step()
    far, usual = parameter[-1].abs().item(), parameter[0].abs().item()
    assert far / usual > 1000, "the same gradient"
    floored, higher = optimizer_of(past, beta2=0.999, eps=1e-5)
    floored.grad = torch.full((10,), 1e-5)
    higher.step()
    assert floored[-1].abs().item() < far / 10, "a higher epsilon bounds it"


def test_a15_the_floor_is_ten_epsilon() -> None:
    """From there on down epsilon is a tenth of the denominator or more; at epsilon itself it would be half of it."""
    eps = 1e-8
    roots = torch.tensor([0.5 * eps, 5 * eps, 9.9 * eps, 10.1 * eps, 1.0])
    assert ratio(AdamMoments(torch.ones(5), roots.square(), eps))[2].item() == 3


def test_c3_both_checks_of_the_text() -> None:
    assert peak_learning_rate(4096, 2e-2) == pytest.approx(3e-4, rel=0.05)
    assert peak_learning_rate(12_288, 6e-3) == pytest.approx(5e-5, rel=0.1)
    assert peak_learning_rate(4096, 2e-2) == 2 * peak_learning_rate(16_384, 2e-2)
    for words in ((0, 1e-2), (-1, 1e-2), (4096, 0.0), (4096, math.nan), (True, 1e-2)):
        with pytest.raises(UsageError):
            peak_learning_rate(*words)


def test_c22_exercise_2_with_the_real_optimizer() -> None:
    """v is updated first: 4.4 times a normal step, 3.4 times clipped, not 25 and 5."""
    normal = moved(0.02, 0.02, beta2=0.95)
    assert normal == pytest.approx(0.1, rel=1e-4)
    spike, clipped = moved(0.5, 0.02, beta2=0.95) / normal, moved(0.5 / 5.0, 0.02, beta2=0.95) / normal
    assert spike == pytest.approx(4.4, abs=0.05)
    assert clipped == pytest.approx(3.4, abs=0.05)
    assert spike == pytest.approx(update_amplification(25, 0.95), rel=1e-4)
    assert clipped == pytest.approx(update_amplification(5, 0.95), rel=1e-4)
    # The exercise's own model, which holds v stale: right by its premise, wrong of Adam.
    assert pytest.approx(25) == (0.5 * 0.1 / 0.02) / (0.02 * 0.1 / 0.02)
    assert update_amplification(25, 0.95) < 25 / 5


@pytest.mark.parametrize("beta2", [0.9, 0.95, 0.999])
@pytest.mark.parametrize("outlier", [1.0, 2.0, 10.0, 1e3])
def test_amplification_is_never_more_than_the_outlier_or_the_bound(outlier: float, beta2: float) -> None:
    told = update_amplification(outlier, beta2)
    assert told <= outlier * (1 + 1e-12)
    assert told < 1 / math.sqrt(1 - beta2)
    assert told == pytest.approx(moved(outlier, 1.0, beta2=beta2) / moved(1.0, 1.0, beta2=beta2), rel=1e-6)


def test_betas_that_cannot_be() -> None:
    for call in (
        lambda: largest_update_ratio(1.0, 0.95),
        lambda: largest_update_ratio(0.9, 1.0),
        lambda: usual_update_ratio(-0.1),
        lambda: update_amplification(2.0, 1.5),
        lambda: update_amplification(0.0, 0.95),
    ):
        with pytest.raises(UsageError, match="cannot be"):
            call()
