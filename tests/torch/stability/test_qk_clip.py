"""C7: afterwards the largest logit is tau, by head; what cannot be mended raises and changes nothing."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from dataguard.errors import UsageError
from dataguard.torch.stability import QKNormAttention, attention_logits, qk_clip_
from dataguard.torch.stability.projections import projections_of

WIDTH, HEADS = 32, 4
X = torch.randn(3, 11, WIDTH, generator=torch.Generator().manual_seed(5))


class SeparateAttention(nn.Module):
    """Two layers under names that a test chooses."""

    def __init__(
        self, names: tuple[str, str] = ("q_proj", "k_proj"), *, kv_heads: int = HEADS, bias: bool = True
    ) -> None:
        super().__init__()
        self.names, self.num_heads, self.num_kv_heads = names, HEADS, kv_heads
        setattr(self, names[0], nn.Linear(WIDTH, WIDTH, bias=bias))
        setattr(self, names[1], nn.Linear(WIDTH, WIDTH // HEADS * kv_heads, bias=bias))

    def queries_and_keys(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return getattr(self, self.names[0])(x), getattr(self, self.names[1])(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k = (each.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for each in self.queries_and_keys(x))
        k = k.repeat_interleave(HEADS // k.shape[1], 1)
        return functional.scaled_dot_product_attention(q, k, k)


class JointAttention(SeparateAttention):
    """Queries, keys and values one behind the other; as Conv1D where `transposed`."""

    def __init__(self, name: str, *, kv_heads: int = HEADS, transposed: bool = False, grouped: bool = False) -> None:
        nn.Module.__init__(self)
        self.name, self.num_heads, self.num_kv_heads, self.grouped = name, HEADS, kv_heads, grouped
        size = WIDTH // HEADS * (HEADS + 2 * kv_heads)
        layer: Any = Conv1D(size, WIDTH) if transposed else nn.Linear(WIDTH, size)
        nn.init.normal_(layer.weight, std=0.2)
        nn.init.normal_(layer.bias)
        setattr(self, name, layer)

    def queries_and_keys(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        all_of = getattr(self, self.name)(x)
        width, kv = WIDTH // HEADS, self.num_kv_heads
        if self.grouped:
            each = all_of.unflatten(-1, (kv, HEADS // kv + 2, width))
            return each[..., :-2, :].flatten(-3), each[..., -2, :].flatten(-2)
        return all_of[..., : HEADS * width], all_of[..., HEADS * width : (HEADS + kv) * width]


class FalconAttention(JointAttention):
    pass


class Conv1D(nn.Module):
    """A layer whose weight has the shape (in, out), as GPT-2's."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, size))
        self.bias = nn.Parameter(torch.randn(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + self.bias


class MultiHead(nn.MultiheadAttention):
    def __init__(self, **more: Any) -> None:
        super().__init__(WIDTH, HEADS, batch_first=True, **more)
        if self.in_proj_bias is not None:
            nn.init.normal_(self.in_proj_bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x, x[..., : self.kdim], x[..., : self.vdim])[0]


def logits_of(module: nn.Module) -> torch.Tensor:
    (logits,) = attention_logits(module, lambda: module(X)).values()
    return logits


KINDS: dict[str, Any] = {
    "separate": SeparateAttention,
    "without biases": lambda: SeparateAttention(bias=False),
    "W_q and W_k": lambda: SeparateAttention(("W_q", "W_k")),
    "wq and wk": lambda: SeparateAttention(("wq", "wk")),
    "query and key": lambda: SeparateAttention(("query", "key")),
    "shared keys": lambda: SeparateAttention(kv_heads=2),
    "one head of keys": lambda: SeparateAttention(kv_heads=1),
    "qkv": lambda: JointAttention("qkv"),
    "qkv_proj, shared": lambda: JointAttention("qkv_proj", kv_heads=2),
    "c_attn of a Conv1D": lambda: JointAttention("c_attn", transposed=True),
    "groups": lambda: JointAttention("linear_qkv", kv_heads=2, grouped=True),
    "groups of one": lambda: FalconAttention("query_key_value", grouped=True),
    "torch's own": MultiHead,
    "torch's own, separate": lambda: MultiHead(kdim=24, vdim=24),
    "torch's own, an extra key": lambda: MultiHead(add_bias_kv=True),
}


@pytest.fixture(params=KINDS)
def module(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(1)
    made: nn.Module = KINDS[request.param]()
    found = projections_of(made)
    for head, factor in enumerate([9.0, 0.5, 30.0, 2.0]):  # so that heads differ
        found.query.scale_(torch.tensor([factor if each == head else 1.0 for each in range(HEADS)]))
    return made


def test_the_largest_logit_is_tau_on_the_same_batch(module: nn.Module) -> None:
    before = logits_of(module)
    tau = float(before.sort().values[1:3].mean())  # between the heads: two fire
    fired = qk_clip_(module, before, tau)
    assert list(fired) == (before > tau).nonzero()[:, 0].tolist()
    assert len(fired) == 2
    after = logits_of(module)
    for head in range(HEADS):
        expected = tau if head in fired else before[head].item()
        assert after[head].item() == pytest.approx(expected, rel=1e-5)
    again = qk_clip_(module, after.clamp(max=tau), tau)
    assert again == ()


def test_what_did_not_fire_keeps_every_bit(module: nn.Module) -> None:
    found = projections_of(module)
    logits = torch.tensor([50.0, 50.0, 400.0, 50.0])
    before = {name: each.detach().clone() for name, each in module.named_parameters()}
    query_rows = found.query.rows[[0, 1, 3]].reshape(-1)
    kept = found.query.weight.detach().index_select(found.query.axis, query_rows).clone()
    qk_clip_(module, logits, 100.0)
    assert torch.equal(found.query.weight.detach().index_select(found.query.axis, query_rows), kept)
    changed = {name for name, each in module.named_parameters() if not torch.equal(each, before[name])}
    assert changed
    assert not any(name.startswith(("out_proj", "v_proj")) for name in changed)
    if found.group > 1 and found.key.weight is not found.query.weight:
        assert len({name.split(".")[0] for name in changed}) == 1, "keys that are shared are left alone"
    copied = copy.deepcopy(module)
    assert qk_clip_(module, [50.0] * HEADS, 100.0) == ()
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), copied.parameters(), strict=True))


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_an_infinite_or_nan_logit_raises_and_changes_nothing(module: nn.Module, bad: float) -> None:
    before = copy.deepcopy(module)
    with pytest.raises(UsageError, match="head 1 is") as raised:
        qk_clip_(module, [400.0, bad, 50.0, 50.0], 100.0)
    assert "nothing was changed" in str(raised.value)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), before.parameters(), strict=True))


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_with_a_shared_gain_the_largest_decides_for_all(kv_heads: int) -> None:
    torch.manual_seed(2)
    module = QKNormAttention(WIDTH, HEADS, num_kv_heads=kv_heads)
    module.q_norm.weight.data.uniform_(5, 9)
    weights = module.q_proj.weight.detach().clone()
    before = logits_of(module)
    tau = 0.5 * float(before.max())
    fired = qk_clip_(module, before, tau)
    assert int(before.argmax()) in fired
    torch.testing.assert_close(logits_of(module), before * tau / before.max(), rtol=1e-5, atol=0)
    assert torch.equal(weights, module.q_proj.weight), "the norm divides it out again"


class OneGainPerHead(SeparateAttention):
    """As OLMo 2: one norm over all heads, with a gain for each place; or, with an offset, as Gemma."""

    def __init__(self, *, offset: bool = False, kv_heads: int = HEADS) -> None:
        super().__init__(kv_heads=kv_heads)
        self.q_norm = Norm(WIDTH, offset)
        self.k_norm = Norm(WIDTH // HEADS * kv_heads, offset)

    def queries_and_keys(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q, k = super().queries_and_keys(x)
        return self.q_norm(q), self.k_norm(k)


class Norm(nn.Module):
    def __init__(self, size: int, offset: bool) -> None:
        super().__init__()
        self.offset = float(offset)
        self.weight = nn.Parameter(torch.rand(size) * 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * (self.offset + self.weight)


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("offset", [False, True])
def test_gains_by_head_are_clipped_by_head(offset: bool, kv_heads: int) -> None:
    torch.manual_seed(3)
    module = OneGainPerHead(offset=offset, kv_heads=kv_heads)
    before = logits_of(module)
    tau = float(before.sort().values[2:].mean())
    fired = qk_clip_(module, before, tau)
    assert len(fired) == 1
    expected = torch.where(before > tau, tau, before)
    torch.testing.assert_close(logits_of(module), expected, rtol=1e-5, atol=0)


def test_given_tensors_with_their_biases() -> None:
    torch.manual_seed(4)
    module = SeparateAttention(kv_heads=2)
    q, k = module.q_proj, module.k_proj
    before = logits_of(module)
    tau = 0.5 * float(before.min())
    fired = qk_clip_((q.weight, k.weight), before, tau, num_heads=4, num_kv_heads=2, biases=(q.bias, k.bias))
    assert fired == (0, 1, 2, 3)
    torch.testing.assert_close(logits_of(module), torch.full((4,), tau), rtol=1e-5, atol=0)


def test_what_is_not_known_or_does_not_fit() -> None:
    module = SeparateAttention()
    logits = [400.0] * HEADS
    with pytest.raises(UsageError, match="num_heads 8 is not what"):
        qk_clip_(module, logits, 100.0, num_heads=8)
    with pytest.raises(UsageError, match="logits of shape"):
        qk_clip_(module, [400.0], 100.0)
    with pytest.raises(UsageError, match="logits of shape"):
        qk_clip_(module, torch.tensor(400.0), 100.0)
    for tau in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(UsageError, match="tau"):
            qk_clip_(module, logits, tau)
    strange = nn.ModuleDict({"first": nn.Linear(4, 4)})
    with pytest.raises(UsageError, match="how many heads"):
        qk_clip_(strange, logits, 100.0)
    with pytest.raises(UsageError, match="queries and keys of a ModuleDict are not known") as raised:
        qk_clip_(strange, logits, 100.0, num_heads=4)
    assert "found: first" in str(raised.value)
    ambiguous = JointAttention("query_key_value")
    with pytest.raises(UsageError, match="can lie in two ways"):
        qk_clip_(ambiguous, logits, 100.0)
    with pytest.raises(UsageError, match="do not fit the heads"):
        qk_clip_((torch.zeros(10, 4), torch.zeros(10, 4)), [1.0] * 4, 100.0, num_heads=4)
    with pytest.raises(UsageError, match="do not fit the heads"):
        qk_clip_((torch.zeros(8, 4), torch.zeros(4, 4)), [1.0] * 4, 100.0, num_heads=4)
    with pytest.raises(UsageError, match="cannot share"):
        qk_clip_((torch.zeros(8, 4), torch.zeros(6, 4)), [1.0] * 4, 100.0, num_heads=4, num_kv_heads=3)


def test_a_norm_without_gain_leaves_nothing_to_clip() -> None:
    module = QKNormAttention(WIDTH, HEADS)
    module.q_norm = nn.RMSNorm(8, elementwise_affine=False)
    with pytest.raises(UsageError, match="nothing to clip"):
        qk_clip_(module, [400.0] * HEADS, 100.0)


def test_logits_of_several_attentions_are_told_apart_by_path() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn = QKNormAttention(WIDTH, HEADS)
            self.router = nn.Linear(WIDTH, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.router(x).softmax(-1)  # no attention
            return x + self.attn(x)

    model = nn.Sequential(Block(), Block())
    seen = attention_logits(model, lambda: model(X))
    assert list(seen) == ["0.attn", "1.attn"]
    with pytest.raises(RuntimeError):
        attention_logits(model, lambda: model(X[..., :3]))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
