"""What is sampled inside a model is what a plain computation gives, on sampled steps alone, whatever is around it."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed.tensor import Shard

from dataguard.errors import UsageError
from dataguard.torch.watching import attention as watching_attention
from dataguard.torch.watching.blocks import parts_of
from dataguard.torch.watching.sample import Sample
from dataguard.torch.watching.watch import Watch, watch
from tests.twins.transformer import HEADS, Transformer, loss_of, microbatch

ADAM = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
PARTS = {"embed": "embed.", "blocks.0": "blocks.0.", "blocks.1": "blocks.1."}


class Kept:
    """Stands for a Monitor: a step that the test moves, and what was recorded of each."""

    def __init__(self) -> None:
        self.step_in_hand: int | None = 0
        self.values: dict[int, dict[str, float]] = {}
        self.num_calls = 0

    def record(self, step: int, values: Mapping[str, Any], /) -> None:
        assert step == self.step_in_hand, "a monitor takes the step in hand alone"
        assert values
        self.num_calls += 1
        for name, value in values.items():
            assert value.numel() == 1
            assert value.dtype == torch.float32
            assert len(name.encode()) <= 64
            self.values.setdefault(step, {})[name] = value.item()


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, microbatches: list[torch.Tensor], *, clip: float | None = None
) -> None:
    optimizer.zero_grad()
    for ids in microbatches:
        (loss_of(model(ids), ids) / len(microbatches)).backward()
    if clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()


def expected(model: Transformer, history: list[list[torch.Tensor]], *, clip: float | None = None) -> dict[str, float]:
    """All values of the last step of a history, without a hook, a fused call or torch's optimizer."""
    twin = copy.deepcopy(model)
    first = {name: np.zeros(p.shape) for name, p in twin.named_parameters()}
    second = {name: np.zeros(p.shape) for name, p in twin.named_parameters()}
    for number, microbatches in enumerate(history, start=1):
        names = [name for name, _ in twin.named_parameters()]
        passes = [
            [each.double().numpy() for each in torch.autograd.grad(loss_of(twin(ids), ids), list(twin.parameters()))]
            for ids in microbatches
        ]
        alone = [dict(zip(names, [each / len(passes) for each in found], strict=True)) for found in passes]
        whole = {name: sum(each[name] for each in alone) for name in names}
        length = math.sqrt(sum(float((gradient**2).sum()) for gradient in whole.values()))
        factor = 1.0 if clip is None else min(1.0, clip / (length + 1e-6))
        values: dict[str, float] = {}
        if number == len(history):
            seen = [twin.everything(ids) for ids in microbatches]
            for i in range(2):
                outputs = torch.stack([outputs[i] for outputs, _, _ in seen]).double()
                values[f"activation_rms/blocks.{i}"] = outputs.square().mean().sqrt().item()
                values[f"activation_max/blocks.{i}"] = outputs.abs().max().item()
                values[f"attention_logit_max/blocks.{i}"] = max(scores[i].max().item() for _, scores, _ in seen)
                heads = [max(scores[i][:, h].max().item() for _, scores, _ in seen) for h in range(HEADS)]
                values[f"attention_logit_head/blocks.{i}"] = heads.index(max(heads))
                values |= {f"attention_logit_max/blocks.{i}/head={h}": logit for h, logit in enumerate(heads)}
            logits = torch.stack([logits for _, _, logits in seen]).double()
            values["log_z"] = logits.exp().sum(-1).log().mean().item()
        with torch.no_grad():
            roots, ratios = {}, {}
            for name, parameter in twin.named_parameters():
                gradient = whole[name] * factor
                first[name] = 0.9 * first[name] + 0.1 * gradient
                second[name] = 0.95 * second[name] + 0.05 * gradient**2
                roots[name] = np.sqrt(second[name] / (1 - 0.95**number))
                ratios[name] = np.abs(first[name] / (1 - 0.9**number)) / (roots[name] + 1e-8)
                step = first[name] / (1 - 0.9**number) / (roots[name] + 1e-8)
                parameter.mul_(1 - 1e-3 * 0.1).sub_(torch.from_numpy(step) * 1e-3)
        for part, beginning in PARTS.items():
            own = [name for name in whole if name.startswith(beginning)]
            joined = np.concatenate([ratios[name].ravel() for name in own])
            rooted = np.concatenate([roots[name].ravel() for name in own])
            moved = torch.cat([p.detach().flatten() for n, p in twin.named_parameters() if n in own])
            square = sum(float((whole[name] ** 2).sum()) for name in own)
            values[f"local_grad_norm/{part}"] = max(
                math.sqrt(sum(float((each[name] ** 2).sum()) for name in own)) for each in alone
            )
            values[f"grad_norm/{part}"] = math.sqrt(square) * factor
            values[f"param_norm/{part}"] = moved.double().norm().item()
            values[f"update_ratio_rms/{part}"] = float(np.sqrt((joined**2).mean()))
            values[f"update_ratio_max/{part}"] = float(joined.max())
            values[f"epsilon_floor_share/{part}"] = float((rooted < 1e-7).mean())
    return values


def assert_close(found: Mapping[str, float], wanted: Mapping[str, float], *, within: float = 2e-4) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value, rel=within, abs=1e-6, nan_ok=True), name


def hooks_of(model: nn.Module) -> int:
    inside = sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks) + len(module._backward_hooks)
        for module in model.modules()
    )
    return inside + sum(len(p._backward_hooks or ()) for p in model.parameters())


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.mark.parametrize("variant", ["fused", "softmax", "grouped", "reentrant", "nonreentrant"])
def test_every_value_is_that_of_a_plain_computation(kept: Kept, variant: str) -> None:
    recompute = variant if "reentrant" in variant else ""
    model = Transformer(
        kind="softmax" if variant == "softmax" else "fused",
        key_heads=1 if variant == "grouped" else HEADS,
        recompute=recompute,
    )
    start = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), **ADAM)
    history = [[microbatch(10 * step + i) for i in range(2)] for step in range(4)]
    with watch(kept, model, optimizer, every=3) as watched:
        for step, microbatches in enumerate(history):
            kept.step_in_hand = step
            train_step(model, optimizer, microbatches, clip=0.5)
    assert kept.values.keys() == {0, 3}
    # Two forward and two backward passes, and the optimizer's step: each is told as soon as it is over. A reentrant
    # checkpoint is a backward pass within a backward pass.
    assert kept.num_calls == 2 * (2 + 2 * (3 if variant == "reentrant" else 1) + 1)
    start.recompute = ""
    assert_close(kept.values[0], expected(start, history[:1], clip=0.5))
    assert_close(kept.values[3], expected(start, history, clip=0.5))
    assert watched.notes == ()


def test_steps_that_are_not_sampled_have_no_hook_inside_and_change_nothing(kept: Kept) -> None:
    inside: list[int] = []

    class Counting(Transformer):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            inside.append(hooks_of(self))
            return super().forward(ids)

    runs = []
    for watched in (False, True):
        model = Counting()
        optimizer = torch.optim.AdamW(model.parameters(), **ADAM)
        handle = watch(kept, model, optimizer, every=2) if watched else None
        for step in range(4):
            kept.step_in_hand = step
            train_step(model, optimizer, [microbatch(step)])
        runs.append([parameter.detach().clone() for parameter in model.parameters()])
    assert handle is not None
    assert inside[:4] == [0, 0, 0, 0]
    assert inside[5] == inside[7] == 2
    assert min(inside[4], inside[6]) > 10
    assert hooks_of(model) == 2
    assert kept.values.keys() == {0, 2}
    assert all(torch.equal(one, two) for one, two in zip(*runs, strict=True))
    handle.remove()
    handle.remove()
    assert hooks_of(model) == 0
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks
    kept.step_in_hand = 4
    train_step(model, optimizer, [microbatch(4)])
    assert kept.values.keys() == {0, 2}


def test_a_pass_that_fails_leaves_nothing_behind(kept: Kept) -> None:
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), **ADAM)
    with watch(kept, model, optimizer, every=1):
        with pytest.raises(IndexError):
            model(torch.full((1, 3), 999))
        assert torch.overrides._get_current_function_mode_stack() == []
        before = hooks_of(model)
        train_step(model, optimizer, [microbatch(0)])
        assert hooks_of(model) < before  # those of the backward pass went with the step
    assert hooks_of(model) == 0
    assert_close(kept.values[0], expected(Transformer(), [[microbatch(0)]]))


def test_evaluation_and_passes_without_gradients_are_not_sampled(kept: Kept) -> None:
    model = Transformer()
    with watch(kept, model, every=1) as watched:
        with torch.no_grad():
            model(microbatch(0))
        model.eval()
        model(microbatch(0))
        kept.step_in_hand = None
        model.train()
        model(microbatch(0)).sum().backward()
        assert kept.values == {}
        kept.step_in_hand = 5
        model(microbatch(0)).sum().backward()
        alone = dict(kept.values[5])
        kept.step_in_hand = 6
        model(microbatch(0)).sum().backward()
        model.eval()
        model(microbatch(1, size=5))  # a look at validation data in the middle of a step
        model.train()
        with torch.no_grad():
            model(microbatch(2))
        model(microbatch(0)).sum().backward()
    assert kept.values[6] == pytest.approx(alone), "the same microbatch twice, and nothing of what came between"
    assert {"log_z", "activation_rms/blocks.0", "attention_logit_max/blocks.1"} <= alone.keys()
    assert watched.notes == ()


def test_frozen_and_unused_parameters_are_left_out_and_tied_ones_count_once(kept: Kept) -> None:
    model = Transformer()
    model.blocks[0].requires_grad_(False)
    model.unused = nn.Linear(3, 3)  # type: ignore[assignment]
    optimizer = torch.optim.AdamW(model.parameters(), **ADAM)
    with watch(kept, model, optimizer, every=1):
        train_step(model, optimizer, [microbatch(0)])
    for metric in ("grad_norm", "local_grad_norm", "param_norm", "update_ratio_rms"):
        parts = {name.partition("/")[2] for name in kept.values[0] if name.startswith(f"{metric}/")}
        assert parts == {"embed", "blocks.1"}
    assert model.embed.weight.grad is not None
    assert kept.values[0]["grad_norm/embed"] == pytest.approx(model.embed.weight.grad.norm().item(), rel=1e-5)
    assert kept.values[0]["param_norm/embed"] == pytest.approx(model.embed.weight.norm().item(), rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(kept: Kept, dtype: torch.dtype) -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(4, 4000, bias=False, dtype=dtype)
            self.two = nn.Linear(4000, 3, bias=False, dtype=dtype)
            nn.init.constant_(self.one.weight, 100.0)
            nn.init.constant_(self.two.weight, 0.0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.two(self.one(x))

    model = Wide()
    with watch(kept, model, torch.optim.SGD(model.parameters(), lr=0.0), every=1, step=lambda: 0):
        model(torch.ones(2, 4, dtype=dtype)).sum().backward()
    values = kept.values[0]
    # The squares alone are beyond float16, and their sum beyond what bfloat16 tells apart.
    assert values["activation_rms/one"] == pytest.approx(400.0, rel=1e-6)
    assert values["log_z"] == pytest.approx(math.log(3), rel=1e-6)
    assert values["local_grad_norm/two"] == pytest.approx(math.sqrt(12_000 * 800.0**2), rel=1e-6)


def test_nan_and_infinity_are_kept(kept: Kept) -> None:
    model = Transformer()
    with torch.no_grad():
        model.blocks[1].up.weight[0, 0] = math.nan  # type: ignore[union-attr, index]
    optimizer = torch.optim.AdamW(model.parameters(), **ADAM)
    with watch(kept, model, optimizer, every=1):
        train_step(model, optimizer, [microbatch(0)])
    values = kept.values[0]
    assert math.isfinite(values["activation_rms/blocks.0"])
    for name in ("activation_rms/blocks.1", "activation_max/blocks.1", "log_z", "grad_norm/embed"):
        assert math.isnan(values[name])
    assert math.isfinite(values["attention_logit_max/blocks.1"])


def test_a_step_that_a_loss_scaler_skips_is_seen_up_to_its_gradients(kept: Kept) -> None:
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), **ADAM)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120)
    with watch(kept, model, optimizer, every=1):
        for step in range(2):
            kept.step_in_hand = step
            optimizer.zero_grad()
            ids = microbatch(step)
            scaler.scale(loss_of(model(ids), ids) * (1e30 if step == 0 else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update(new_scale=4.0)
    assert not math.isfinite(kept.values[0]["local_grad_norm/embed"])
    assert "param_norm/embed" not in kept.values[0]
    assert "log_z" in kept.values[0]
    plain = expected(Transformer(), [[microbatch(1)]])
    assert kept.values[1]["grad_norm/embed"] == pytest.approx(plain["grad_norm/embed"], rel=1e-4)
    assert kept.values[1]["local_grad_norm/embed"] == pytest.approx(4 * plain["grad_norm/embed"], rel=1e-4)


def test_gradients_that_a_fused_optimizer_unscales_itself_are_told_unscaled(kept: Kept) -> None:
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True, **ADAM)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    ids = microbatch(0)
    with watch(kept, model, optimizer, every=1):
        scaler.scale(loss_of(model(ids), ids)).backward()
        scaler.step(optimizer)
    plain = expected(Transformer(), [[ids]])
    for part in PARTS:
        assert kept.values[0][f"grad_norm/{part}"] == pytest.approx(plain[f"grad_norm/{part}"], rel=1e-4)
        assert kept.values[0][f"local_grad_norm/{part}"] == pytest.approx(64 * plain[f"grad_norm/{part}"], rel=1e-4)


def test_several_optimizers_make_one_sample(kept: Kept) -> None:
    model = Transformer()
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    two = [torch.optim.AdamW(matrices, **ADAM), torch.optim.AdamW(others, **ADAM)]
    with watch(kept, model, two, every=1):
        ids = microbatch(0)
        loss_of(model(ids), ids).backward()
        for optimizer in two:
            optimizer.step()
    assert_close(kept.values[0], expected(Transformer(), [[ids]]))


def test_the_wrapper_of_a_framework_around_an_optimizer_comes_off(kept: Kept) -> None:
    class Wrapped(torch.optim.Optimizer):
        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            self.optimizer = optimizer

    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), **ADAM)
    with watch(kept, model, Wrapped(optimizer), every=1):
        train_step(model, optimizer, [microbatch(0)])
    assert_close(kept.values[0], expected(Transformer(), [[microbatch(0)]]))


def said(act: Callable[[], None]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        act()
    return [str(each.message) for each in caught]


def several_steps(kept: Kept, model: nn.Module, optimizer: torch.optim.Optimizer, **asked: Any) -> Watch:
    with watch(kept, model, optimizer, every=1, **asked) as watched:
        for step in range(3):
            kept.step_in_hand = step
            train_step(model, optimizer, [microbatch(step)])
    return watched


def test_what_cannot_be_seen_is_said_once(kept: Kept) -> None:
    model = Transformer(kind="by hand")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    notes = said(lambda: several_steps(kept, model, optimizer) and None)
    assert len(notes) == 2
    assert "no attention logit is visible (Attention)" in notes[0]
    assert "SGD holds no moments" in notes[1]
    assert not any(name.startswith(("attention", "update", "epsilon")) for name in kept.values[2])
    assert "grad_norm/blocks.1" in kept.values[2]

    class Losing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": self.inner(x).sum()}

    losing = Losing()

    def run_losing() -> None:
        with watch(kept, losing, every=1):
            for step in range(2):
                kept.step_in_hand = step
                losing(torch.ones(2, 3))["loss"].backward()

    (note,) = said(run_losing)
    assert "no logits are seen" in note


def test_logits_can_be_pointed_at(kept: Kept) -> None:
    model = nn.Linear(3, 5)
    with watch(kept, model, every=1, logits=lambda output: output * 0):
        model(torch.ones(2, 3)).sum().backward()
    assert kept.values[0]["log_z"] == pytest.approx(math.log(5))


def test_what_a_wrapper_of_torch_compile_hides_is_said_and_the_rest_is_seen(kept: Kept) -> None:
    plain = expected(Transformer(), [[microbatch(0)]])

    compilations: list[Any] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        compilations.append(graph)
        return graph

    def whole(model: Transformer) -> nn.Module:
        return torch.compile(model, backend=backend)  # type: ignore[return-value]

    def blocks(model: Transformer) -> nn.Module:
        for i in range(2):
            model.blocks[i] = torch.compile(model.blocks[i], backend=backend)  # type: ignore[assignment]
        return model

    def in_place(model: Transformer) -> nn.Module:
        model.compile(backend=backend)
        return model

    for wrap, hidden in (
        (whole, ("activation", "attention")),
        (blocks, ("attention",)),
        (in_place, ("activation", "attention", "log_z", "local")),
    ):
        torch._dynamo.reset()
        model = wrap(Transformer())
        optimizer = torch.optim.AdamW(model.parameters(), **ADAM)
        kept.values.clear()
        kept.step_in_hand = 0
        compilations.clear()

        def run(model: nn.Module = model, optimizer: torch.optim.Optimizer = optimizer) -> None:
            several_steps(kept, model, optimizer)

        (note,) = said(run)
        assert "torch.compile runs" in note
        assert_close(kept.values[0], {name: each for name, each in plain.items() if not name.startswith(hidden)})
        assert len(kept.values) == 3
        assert len(compilations) == 1, "hooks that come and go compile nothing again"


@pytest.mark.parametrize(("dim", "is_seen"), [(0, True), (1, True), (2, False)])
def test_a_sharded_vocabulary_has_no_log_z(dim: int, is_seen: bool) -> None:
    class Sharded(torch.Tensor):
        placements = (Shard(dim),)

    said_of: list[str] = []
    sample = Sample(0, parts_of(nn.Linear(2, 2)), said_of.append)
    sample.add_logits(torch.zeros(2, 3, 4).as_subclass(Sharded))
    assert ("log_z" in sample.forward_values()) == is_seen
    assert (said_of == []) == is_seen


def naive_logits(q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor | None, *, causal: bool, scale: float) -> float:
    most = -math.inf
    for place in np.ndindex(*q.shape[:-1]):
        head = place[-2] * k.shape[-3] // q.shape[-3]
        for j in range(k.shape[-2]):
            if causal and j > place[-1]:
                continue
            logit = float((q[place].double() * k[(*place[:-2], head, j)].double()).sum()) * scale
            if mask is not None:
                own = mask.expand(*q.shape[:-1], k.shape[-2])[(*place, j)]
                if own.dtype == torch.bool:
                    logit = logit if own else -math.inf
                else:
                    logit += float(own)
            most = max(most, logit)
    return most


@pytest.mark.parametrize("chunk", [1, 40, 1 << 24])
@pytest.mark.parametrize("kind", ["none", "causal", "bool", "added", "row", "grouped", "scaled"])
def test_the_largest_logit_of_a_fused_attention(monkeypatch: pytest.MonkeyPatch, chunk: int, kind: str) -> None:
    monkeypatch.setattr(watching_attention, "_CHUNK_NUMBERS", chunk)
    generator = torch.Generator().manual_seed(3)
    q = torch.randn(2, 4, 5, 6, generator=generator)
    k = torch.randn(2, 2 if kind == "grouped" else 4, 7, 6, generator=generator)
    mask = {
        "bool": torch.rand(2, 1, 5, 7, generator=generator) < 0.4,
        "added": torch.randn(5, 7, generator=generator) * 9,
        "row": torch.rand(2, 1, 1, 7, generator=generator) < 0.4,
    }.get(kind)
    scale = 0.125 if kind == "scaled" else 6**-0.5
    found: list[torch.Tensor] = []
    mode: Any = watching_attention.LogitWatch(found.append, lambda: False)
    with mode:
        nn.functional.scaled_dot_product_attention(
            q, k, k, attn_mask=mask, is_causal=kind == "causal", scale=scale if kind == "scaled" else None,
            enable_gqa=kind == "grouped",
        )  # fmt: skip
    (logit,) = found
    assert logit.item() == pytest.approx(naive_logits(q, k, mask, causal=kind == "causal", scale=scale), rel=1e-5)


@pytest.mark.parametrize(
    "kind", ["plain", "hidden", "added", "padded", "both", "three", "bias_k", "separate", "weights"]
)
def test_the_largest_logit_of_a_multi_head_attention(kind: str) -> None:
    torch.manual_seed(5)
    width, heads, size = 8, 2, 4
    attention = nn.MultiheadAttention(
        width, heads, batch_first=True, add_bias_kv=kind == "bias_k", kdim=5 if kind == "separate" else None
    )
    x, other = torch.randn(3, 4, width), torch.randn(3, 6, 5 if kind == "separate" else width)
    mask = padding = None
    if kind in ("hidden", "both"):
        mask = torch.rand(4, 6) < 0.3
    elif kind == "added":
        mask = torch.randn(4, 6) * 5
    elif kind == "three":
        mask = torch.rand(3 * heads, 4, 6) < 0.3
    if kind in ("padded", "both"):
        padding = torch.arange(6).expand(3, 6) > torch.tensor([[3], [5], [2]])
    if kind == "both":
        assert padding is not None
        padding = padding.contiguous()
    found: list[torch.Tensor] = []
    mode: Any = watching_attention.LogitWatch(found.append, lambda: True)
    value = torch.randn(3, 6, width)
    with mode:
        attention(
            x, other, value, attn_mask=mask, key_padding_mask=padding, need_weights=kind == "weights"
        )  # fmt: skip
    if kind == "separate":
        query_weight, key_weight = attention.q_proj_weight, attention.k_proj_weight
    else:
        query_weight, key_weight = attention.in_proj_weight[:width], attention.in_proj_weight[width : 2 * width]
    assert attention.in_proj_bias is not None
    q = (x @ query_weight.T + attention.in_proj_bias[:width]).detach()
    k = (other @ key_weight.T + attention.in_proj_bias[width : 2 * width]).detach()
    if kind == "bias_k":
        assert attention.bias_k is not None
        k = torch.cat([k, attention.bias_k.detach().expand(3, 1, width)], 1)
    logits = torch.einsum("blhs,bmhs->bhlm", q.unflatten(-1, (heads, size)), k.unflatten(-1, (heads, size))) / 2
    if mask is not None:
        own = mask.reshape(3, heads, 4, 6) if kind == "three" else mask
        logits = logits.masked_fill(own, -torch.inf) if own.dtype == torch.bool else logits + own
    if padding is not None:
        logits = logits.masked_fill(padding[:, None, None], -torch.inf)
    (logit,) = found
    assert logit.item() == pytest.approx(logits.max().item(), rel=1e-5)


def test_layers_of_torch_itself(kept: Kept) -> None:
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    optimizer = torch.optim.Adam(model.parameters())
    with watch(kept, model, optimizer, every=1) as watched:
        model(torch.randn(2, 5, 8)).square().sum().backward()
        optimizer.step()
    assert watched.notes == ()
    for i in range(3):
        for metric in ("activation_rms", "attention_logit_max", "grad_norm", "update_ratio_max", "param_norm"):
            assert math.isfinite(kept.values[0][f"{metric}/layers.{i}"])


def test_long_names_are_shortened_and_stay_apart(kept: Kept) -> None:
    model = nn.Module()
    inner = nn.ModuleDict({"a" * 70 + ending: nn.Linear(2, 2) for ending in ("x", "y")})
    inner["b" * 70 + "z"] = nn.ModuleDict({"b" * 80: nn.Linear(2, 2)})
    model.inner = inner
    model.forward = lambda x: inner["a" * 70 + "x"](inner["a" * 70 + "y"](inner["b" * 70 + "z"]["b" * 80](x)))  # type: ignore[method-assign, index]
    with watch(kept, model, torch.optim.SGD(model.parameters(), lr=0.1), every=1):
        model(torch.ones(1, 2)).sum().backward()
    names = [name for name in kept.values[0] if name.startswith("local_grad_norm/")]
    assert len(names) == 1
    model.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    kept.values.clear()
    with watch(kept, model, every=1):
        model(torch.ones(1, 2)).sum().backward()
    assert len([name for name in kept.values[0] if name.startswith("local_grad_norm/")]) == 3


@pytest.mark.parametrize("every", [0, -1, True, 1.5, "2"])
def test_a_rhythm_that_cannot_be_is_refused(kept: Kept, every: Any) -> None:
    with pytest.raises(UsageError, match="every"):
        watch(kept, nn.Linear(2, 2), every=every)


def test_what_is_no_model_or_optimizer_is_refused(kept: Kept) -> None:
    with pytest.raises(UsageError, match="cannot be watched"):
        watch(kept, "model")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="cannot be watched"):
        watch(kept, nn.Linear(2, 2), [nn.Linear(2, 2)])  # type: ignore[list-item]
