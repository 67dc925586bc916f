"""C6, C23 and exercise 3 (C22): bounded logits, rows that see nothing, and a cap that belongs before the mask."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from dataguard.errors import UsageError
from dataguard.torch.stability import QKNormAttention, attention_logits, attn_logit_softcap
from dataguard.torch.watching.attention import LogitWatch
from dataguard.torch.watching.watch import watch

FP16_MAX = 65_504


def attention(**more: object) -> QKNormAttention:
    torch.manual_seed(0)
    return QKNormAttention(32, 4, **more)  # type: ignore[arg-type]


def by_hand(module: QKNormAttention, x: torch.Tensor, seen: torch.Tensor, cap: float | None = None) -> torch.Tensor:
    """Head by head and query by query, with what it sees picked out: no masked softmax anywhere."""
    size, length, _ = x.shape
    width, group = module.head_width, module.num_heads // module.num_kv_heads

    def normed(t: torch.Tensor) -> torch.Tensor:
        return t / (t.square().mean(-1, keepdim=True) + 1e-6).sqrt()

    out = torch.zeros(size, length, module.num_heads * width)
    for b in range(size):
        for h in range(module.num_heads):
            rows, shared = slice(h * width, (h + 1) * width), slice(h // group * width, (h // group + 1) * width)
            q = normed(x[b] @ module.q_proj.weight[rows].T) * module.q_norm.weight
            k = normed(x[b] @ module.k_proj.weight[shared].T) * module.k_norm.weight
            v = x[b] @ module.v_proj.weight[shared].T
            for i in range(length):
                keys = seen[i].nonzero()[:, 0]
                if len(keys):
                    logits = k[keys] @ q[i] / math.sqrt(width)
                    if cap is not None:
                        logits = cap * torch.tanh(logits / cap)
                    out[b, i, rows] = logits.softmax(0) @ v[keys]
    return out @ module.o_proj.weight.T


@pytest.mark.parametrize("cap", [None, 0.7])
@pytest.mark.parametrize("num_kv_heads", [4, 2, 1])
@pytest.mark.parametrize("kind", ["none", "causal", "bool", "added", "bool and causal"])
def test_it_is_the_attention_written_out(kind: str, num_kv_heads: int, cap: float | None) -> None:
    module = attention(num_kv_heads=num_kv_heads, logit_cap=cap)
    module.q_norm.weight.data.uniform_(0.5, 2.0)
    x = torch.randn(2, 5, 32)
    seen = torch.ones(5, 5, dtype=torch.bool)
    mask = None
    if "bool" in kind or kind == "added":
        seen = torch.rand(5, 5) > 0.4
        seen[3] = False
        mask = seen if "bool" in kind else torch.zeros(5, 5).masked_fill(~seen, -torch.inf)
    if "causal" in kind:
        seen = seen & torch.ones(5, 5, dtype=torch.bool).tril()
    given = module(x, mask, is_causal="causal" in kind)
    torch.testing.assert_close(given, by_hand(module, x, seen, cap), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cap", [None, 20.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("added", [False, True])
def test_a_query_that_sees_nothing_gives_zeros_and_finite_gradients(
    added: bool, dtype: torch.dtype, cap: float | None
) -> None:
    module = attention(logit_cap=cap).to(dtype)
    x = torch.randn(2, 6, 32, dtype=dtype, requires_grad=True)
    seen = torch.ones(2, 1, 6, 6, dtype=torch.bool).tril()
    seen[1, :, :, :2] = False  # padding on the left: the first two queries of the second sample see nothing
    mask = torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, -torch.inf) if added else seen
    out = module(x, mask)
    assert out.dtype == dtype
    assert out[1, :2].abs().max() == 0
    assert out[1, 2:].abs().min(-1).values.max() > 0
    out.float().square().sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in module.parameters() if p.grad is not None)
    assert x.grad is not None
    assert x.grad.isfinite().all()
    # Written out as the seed has it, the same mask gives NaN.
    assert torch.zeros(6).masked_fill(~seen[1, 0, 0], -torch.inf).softmax(0).isnan().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_under_autocast_too(dtype: torch.dtype) -> None:
    module = attention()
    mask = torch.zeros(6, 6, dtype=torch.bool)
    mask[1:] = True
    with torch.autocast("cpu", dtype):
        out = module(torch.randn(1, 6, 32), mask)
    assert out[0, 0].abs().max() == 0
    assert out.isfinite().all()
    out.float().sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in module.parameters() if p.grad is not None)


def test_exercise_3() -> None:
    """(a) 250 * 250 / 8 = 7,812.5, inside fp16 and deadly for a softmax; (b) after the norm 8, the root of 64."""
    vector = torch.zeros(64)
    vector[0] = 250.0
    logit = (vector @ vector / math.sqrt(64)).item()
    assert logit == 7812.5
    assert torch.tensor(logit).half().item() < FP16_MAX
    logits = torch.tensor([logit, logit - 200], requires_grad=True)
    (gradient,) = torch.autograd.grad(logits.softmax(0)[0], logits)
    assert gradient.tolist() == [0.0, 0.0], "saturated: nothing comes back through it"
    module = QKNormAttention(64, 1, eps=0.0)
    module.k_proj.weight.data.copy_(module.q_proj.weight)
    x = 250 * torch.randn(1, 1, 64)
    q = module.q_norm(module.q_proj(x))
    assert q.norm().item() == pytest.approx(8.0, rel=1e-5)
    (largest,) = attention_logits(module, lambda: module(x)).values()
    assert largest.item() == pytest.approx(8.0, rel=1e-5)
    assert module.largest_possible_logit == 8.0


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_no_logit_exceeds_what_the_gains_allow(scale: float) -> None:
    module = attention()
    for layer in (module.q_proj, module.k_proj):
        layer.weight.data.mul_(scale)
    module.q_norm.weight.data.uniform_(-3, 3)
    (logits,) = attention_logits(module, lambda: module(torch.randn(4, 50, 32), is_causal=True)).values()
    assert 0.3 * module.largest_possible_logit < logits.max() <= module.largest_possible_logit
    plain = torch.nn.functional.linear(torch.randn(50, 32), module.q_proj.weight)
    assert (plain @ plain.T).max() > 1e7 or scale == 1, "without the norm they follow the weights"


@pytest.mark.parametrize("cap", [None, 5.0])
def test_torch_watching_sees_it(cap: float | None) -> None:
    class Kept:
        step_in_hand = 0

        def __init__(self) -> None:
            self.values: dict[str, float] = {}

        def record(self, step: int, values: dict[str, torch.Tensor], /) -> None:
            self.values |= {name: value.item() for name, value in values.items()}

    kept = Kept()
    model = torch.nn.Sequential(attention(logit_cap=cap), attention(logit_cap=cap))
    x = torch.randn(2, 7, 32)
    blind = torch.ones(7, 7, dtype=torch.bool)
    blind[0] = False
    model[0].register_forward_pre_hook(lambda module, args: (args[0], blind))  # type: ignore[misc]
    expected = [each.max().item() for each in attention_logits(model, lambda: model(x)).values()]
    with watch(kept, model, every=1):  # type: ignore[arg-type]
        model(x).sum().backward()
    seen = [kept.values["attention_logit_max/0"], kept.values["attention_logit_max/1"]]
    assert seen == pytest.approx(expected)
    assert all(0 < each <= 8**0.5 for each in seen), "the row that sees nothing is no logit"


def test_a_head_by_itself_is_told_apart() -> None:
    module = attention(num_kv_heads=2)
    x = torch.randn(3, 9, 32)
    q = module.q_norm(module.q_proj(x).unflatten(-1, (4, 8)).transpose(1, 2))
    k = module.k_norm(module.k_proj(x).unflatten(-1, (2, 8)).transpose(1, 2)).repeat_interleave(2, 1)
    expected = (q @ k.transpose(-2, -1) / 8**0.5).amax((0, 2, 3))
    (seen,) = attention_logits(module, lambda: module(x)).values()
    torch.testing.assert_close(seen, expected)
    found: list[torch.Tensor] = []
    with LogitWatch(found.append, lambda: True):
        module(x)
    assert found[0].shape == ()
    torch.testing.assert_close(found[0], expected.max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_cap_keeps_the_type_and_the_band(dtype: torch.dtype) -> None:
    logits = torch.tensor([-torch.inf, -1e4, -1.0, 0.0, 0.25, 1e4, torch.inf], dtype=dtype)
    capped = attn_logit_softcap(logits, 50.0)
    assert capped.dtype == dtype
    assert capped.abs().max() <= 50
    assert capped[4].item() == pytest.approx(0.25, abs=2e-3)
    assert attn_logit_softcap(torch.tensor([torch.nan]), 50.0).isnan().all(), "NaN is not hidden"
    x = torch.linspace(-5, 5, 11)
    assert (attn_logit_softcap(x, 50.0) - x).abs().max() <= 5**3 / (3 * 50**2) * 1.01


def test_the_cap_behind_the_mask_would_show_what_is_hidden() -> None:
    logits = torch.tensor([1.0, 2.0, 60.0])
    hidden = torch.tensor([False, False, True])
    before = attn_logit_softcap(logits, 5.0).masked_fill(hidden, -torch.inf).softmax(0)
    behind = attn_logit_softcap(logits.masked_fill(hidden, -torch.inf), 5.0).softmax(0)
    assert before[2] == 0
    assert behind[2] > 1e-4, "-inf became -5, a logit like any other"
    module = attention(logit_cap=5.0)
    x = torch.randn(1, 4, 32)
    changed = x.clone()
    changed[0, 3] += 100
    torch.testing.assert_close(module(x, is_causal=True)[0, :3], module(changed, is_causal=True)[0, :3])


@pytest.mark.parametrize("cap", [0.0, -1.0, math.nan, math.inf, True, "50"])
def test_a_cap_that_cannot_be(cap: object) -> None:
    with pytest.raises(UsageError, match="cap"):
        attn_logit_softcap(torch.zeros(2), cap)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="cap"):
        QKNormAttention(8, 2, logit_cap=cap)  # type: ignore[arg-type]


def test_what_cannot_be() -> None:
    for words in ((30, 4, {}), (32, 4, {"num_kv_heads": 3}), (32, 4, {"num_kv_heads": 0})):
        with pytest.raises(UsageError, match="cannot be"):
            QKNormAttention(words[0], words[1], **words[2])  # type: ignore[arg-type]
    module = attention()
    with pytest.raises(UsageError, match="a mask of shape"):
        module(torch.zeros(2, 5, 32), torch.ones(2, 5, dtype=torch.bool))  # a padding mask of that shape means nothing
    with pytest.raises(UsageError, match="a mask of type"):
        module(torch.zeros(2, 5, 32), torch.ones(5, 5, dtype=torch.int64))
    with pytest.raises(UsageError, match="an input of shape"):
        module(torch.zeros(5, 32))
    with pytest.raises(UsageError, match="floating"):
        attn_logit_softcap(torch.zeros(2, dtype=torch.int64), 1.0)


def test_rotary_embeddings_come_behind_the_norm() -> None:
    module = attention()
    angle = torch.arange(6.0)[:, None] * torch.tensor([1.0, 0.1, 0.01, 0.001])
    turn = torch.polar(torch.ones_like(angle), angle)

    def rotate(t: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(torch.view_as_complex(t.unflatten(-1, (4, 2)).contiguous()) * turn).flatten(-2)

    x = torch.randn(1, 6, 32)
    shown = attention_logits(module, lambda: module(x, rotate=rotate))[""]
    assert (shown <= module.largest_possible_logit).all()
    assert not torch.allclose(module(x, rotate=rotate), module(x))
    assert functional.softmax(shown, 0).isfinite().all()
