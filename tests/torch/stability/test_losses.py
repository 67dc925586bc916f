"""A14, C8, C10: the z-loss with what does not count left out; rows of an embedding on a radius."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from dataguard.errors import UsageError
from dataguard.torch.stability import clip_embedding_norm_, z_loss


def logits(*, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()


def by_hand(given: torch.Tensor, counted: list[tuple[int, int]], weight: float) -> float:
    total = 0.0
    for b, t in counted:
        total += math.log(sum(math.exp(each) for each in given.detach()[b, t].tolist())) ** 2
    return weight * total / len(counted)


def test_the_mean_over_what_counts() -> None:
    given = logits()
    labels = torch.ones(2, 5, dtype=torch.int64)
    labels[0, 1:] = -100
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[1, 0] = False
    everything = [(b, t) for b in range(2) for t in range(5)]
    seen = [(0, 0), *((1, t) for t in range(5))]
    assert z_loss(given, weight=1e-4).item() == pytest.approx(by_hand(given, everything, 1e-4))
    assert z_loss(given, labels, weight=1e-5).item() == pytest.approx(by_hand(given, seen, 1e-5))
    both = z_loss(given, labels, weight=1.0, mask=mask)
    assert both.item() == pytest.approx(by_hand(given, [each for each in seen if each != (1, 0)], 1.0))
    other = z_loss(given, labels.masked_fill(labels == -100, 9), weight=1.0, ignore_index=9)
    assert other.item() == pytest.approx(by_hand(given, seen, 1.0))


def test_where_nothing_counts_it_is_zero_with_a_graph() -> None:
    given = logits()
    loss = z_loss(given, torch.full((2, 5), -100), weight=1e-4)
    assert loss.item() == 0
    loss.backward()
    assert given.grad is not None
    assert given.grad.abs().max() == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_does_not_count_passes_nothing_on(bad: float) -> None:
    given = logits().detach()
    given[0, 0] = bad
    given.requires_grad_()
    labels = torch.ones(2, 5, dtype=torch.int64)
    labels[0, 0] = -100
    loss = z_loss(given, labels, weight=1e-4)
    loss.backward()
    assert loss.isfinite()
    assert given.grad is not None
    assert given.grad.isfinite().all()
    assert not z_loss(given, weight=1e-4).isfinite(), "where it counts it shows"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_it_is_computed_in_float32(dtype: torch.dtype) -> None:
    given = 200 + logits(dtype=dtype)  # (log Z)**2 is 40,000 and its sum over ten places no float16
    with torch.autocast("cpu", torch.bfloat16):
        loss = z_loss(given, weight=1e-4)
    assert loss.dtype == torch.float32
    exact = torch.logsumexp(given.double(), -1).square().mean().item() * 1e-4
    assert loss.item() == pytest.approx(exact, rel=1e-5)


def test_its_gradient_pulls_log_z_towards_zero() -> None:
    given = (3 + logits()).detach().requires_grad_()
    for _ in range(200):
        loss = z_loss(given, weight=1.0)
        (gradient,) = torch.autograd.grad(loss, given)
        given = (given - 2.0 * gradient).detach().requires_grad_()
    assert torch.logsumexp(given, -1).abs().max() < 1e-2


def test_a_weight_is_asked_for() -> None:
    with pytest.raises(TypeError, match="weight"):
        z_loss(logits())  # type: ignore[call-arg]
    for weight in (-1.0, math.nan, math.inf, True):
        with pytest.raises(UsageError, match="weight"):
            z_loss(logits(), weight=weight)
    with pytest.raises(UsageError, match="labels of shape"):
        z_loss(logits(), torch.ones(2, 4, dtype=torch.int64), weight=1e-4)
    with pytest.raises(UsageError, match="a mask of type"):
        z_loss(logits(), weight=1e-4, mask=torch.ones(2, 5))
    with pytest.raises(UsageError, match="logits of type"):
        z_loss(torch.zeros(2, 3, dtype=torch.int64), weight=1e-4)


# -- embeddings


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_beyond_the_radius_come_back_onto_it(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    embedding = nn.Embedding(500, 64, padding_idx=3).to(dtype)
    before = embedding.weight.detach().clone()
    norms = before.float().norm(dim=-1)
    tolerance = torch.finfo(dtype).eps + 4 * torch.finfo(torch.float32).eps
    clipped = clip_embedding_norm_(embedding, 8.0)
    beyond = norms > 8 * (1 + tolerance)
    assert clipped == int(beyond.sum())
    assert 100 < clipped < 400
    after = embedding.weight.detach()
    assert torch.equal(after[~beyond], before[~beyond])
    torch.testing.assert_close(after[beyond].float().norm(dim=-1), torch.full((clipped,), 8.0), rtol=tolerance, atol=0)
    assert torch.nn.functional.cosine_similarity(after.float(), before.float())[beyond].min() > 1 - 1e-3
    assert after[3].abs().max() == 0
    assert clip_embedding_norm_(embedding, 8.0) == 0, "once is enough"


def test_a_radius_of_one_clips_half_the_rows_at_init() -> None:
    """Row C10, as its docstring warns."""
    torch.manual_seed(0)
    weight = torch.randn(4000, 256) * 256**-0.5
    assert 0.4 < clip_embedding_norm_(weight, 1.0) / 4000 < 0.6
    with pytest.raises(TypeError):
        clip_embedding_norm_(weight)  # type: ignore[call-arg]


def test_rows_that_are_no_numbers_are_told_and_left() -> None:
    weight = torch.full((5, 4), 3.0)
    weight[1, 2], weight[4, 0] = math.nan, math.inf
    before = weight.clone()
    with pytest.warns(RuntimeWarning, match="2 rows of an embedding hold NaN or infinity: 1, 4"):
        assert clip_embedding_norm_(weight, 1.0) == 3
    assert torch.equal(weight[[1, 4]].nan_to_num(7), before[[1, 4]].nan_to_num(7))
    torch.testing.assert_close(weight[[0, 2, 3]].norm(dim=-1), torch.ones(3))


def test_a_radius_that_cannot_be() -> None:
    for radius in (0.0, -1.0, math.nan, math.inf, True):
        with pytest.raises(UsageError, match="radius"):
            clip_embedding_norm_(torch.ones(2, 2), radius)
    with pytest.raises(UsageError, match="an embedding of"):
        clip_embedding_norm_(torch.ones(2), 1.0)
