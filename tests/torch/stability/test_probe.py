"""C20: which layer goes first, in float32 and in the run's type, on a copy."""

from __future__ import annotations

import copy
import json
import math
import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import prune, spectral_norm

from dataguard.core.evidence import Told
from dataguard.errors import UsageError
from dataguard.torch.stability import probe
from dataguard.torch.stability.probe_report import Gone, Place, ProbeReport, Seen
from dataguard.torch.watching.watch import watch
from tests.twins.transformer import HEADS, WIDTH, Transformer, loss_of, microbatch

IDS = microbatch(0)


def loss(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    return loss_of(model(ids), ids)


def told(report: ProbeReport) -> tuple[str, str, str] | None:
    first = report.first_forward
    return None if first is None else (first.name, first.place.value, first.why)


# -- what is measured


@pytest.mark.parametrize("kind", ["fused", "softmax"])
@pytest.mark.parametrize("key_heads", [HEADS, 1])
def test_values_are_those_computed_step_by_step(kind: str, key_heads: int) -> None:
    model = Transformer(num_blocks=3, kind=kind, key_heads=key_heads)
    outputs, scores, logits = model.everything(IDS)
    report = probe(model, IDS, loss)
    seen = report.float32
    assert (report.run, report.run_dtype, report.how, report.number_type) == (None, None, "float32", Told.UNKNOWN)
    assert seen.finite
    layers = {each.name: each for each in seen.layers}
    for number, output in enumerate(outputs):
        layer = layers[f"blocks.{number}"]
        assert layer.rms == pytest.approx(output.square().mean().sqrt().item(), rel=1e-5)
        assert layer.max == pytest.approx(output.abs().max().item(), rel=1e-6)
        by_head = seen.attention[f"blocks.{number}.attention"]
        assert by_head == pytest.approx(scores[number].amax((0, 2, 3)).tolist(), rel=1e-5)
        assert len(by_head) == HEADS
    assert seen.loss == pytest.approx(loss_of(logits, IDS).item())
    fresh = copy.deepcopy(model)
    loss(fresh, IDS).backward()
    expected = {name: p.grad.norm().item() for name, p in fresh.named_parameters() if p.grad is not None}
    assert seen.parameter_gradient_norms == pytest.approx(expected, rel=1e-5)
    block = [each for name, each in expected.items() if name.startswith("blocks.1.")]
    assert seen.gradient_norms["blocks.1"] == pytest.approx(math.hypot(*block), rel=1e-5)
    assert list(seen.gradient_norms) == ["embed", "blocks.0", "blocks.1", "blocks.2"]


def test_layers_stand_in_the_order_in_which_they_ran() -> None:
    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last, self.first = nn.Linear(4, 1), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.first(x))

    model = Backwards()
    report = probe(model, torch.ones(1, 4), lambda model, x: model(x).sum())
    assert [each.name for each in report.float32.layers] == ["first", "last", ""]
    assert [each.order for each in report.float32.layers] == [0, 1, 2]
    for layer in (model.first, model.last):
        nn.init.constant_(layer.weight, math.nan)
    assert told(probe(model, torch.ones(1, 4), lambda model, x: model(x).sum())) == ("first", "activation", "nonfinite")


# -- number types


@pytest.mark.parametrize("how", ["autocast", "weights"])
def test_an_overflow_of_float16_is_found_where_it_begins(how: Any) -> None:
    model = Transformer(num_blocks=3)
    model.blocks[1].up.weight.data.mul_(3e6)  # type: ignore[union-attr, operator]
    half = probe(model, IDS, loss, run_dtype=torch.float16, how=how)
    assert half.how == how
    assert half.run is not None
    expected = "blocks.1.up" if how == "autocast" else None
    first = half.first_forward
    assert first is not None
    assert first.why == "nonfinite"
    if expected:
        assert first.name == expected
        assert half.run.layers[0].dtype == "float32"
        assert next(each for each in half.run.layers if each.name == expected).dtype == "float16"
    assert half.float32.finite
    assert half.float32.first_forward is not None
    assert (half.float32.first_forward.name, half.float32.first_forward.why) == ("blocks.1.up", "range")
    assert half.number_type is Told.YES
    assert f"activation of {first.name} goes first forward (nonfinite" in half.text
    brain = probe(model, IDS, loss, run_dtype=torch.bfloat16, how=how)
    assert brain.number_type is Told.NO, "bfloat16 has the range"
    assert told(brain) is None


def test_what_goes_in_float32_too_is_not_blamed_on_the_type() -> None:
    model = Transformer()
    model.blocks[1].attention.key.weight.data[0, 0] = math.nan  # type: ignore[union-attr, index]
    report = probe(model, IDS, loss, run_dtype=torch.bfloat16)
    assert report.number_type is Told.NO
    assert report.float32.first_forward is not None
    assert report.run is not None
    assert report.float32.first_forward.name == told(report)[0] == "blocks.1.attention.key"  # type: ignore[index]
    layers = {each.name: each for each in report.float32.layers}
    assert math.isnan(layers["blocks.1.attention.key"].max), "one NaN among finite values is not lost in a maximum"
    assert math.isfinite(layers["blocks.0"].max)
    assert not report.float32.finite, "also where the fused attention swallows the NaN and the loss does not show it"


def test_attention_logits_that_overflow_are_told_by_their_attention() -> None:
    model = Transformer(kind="softmax")
    for name in ("query", "key"):
        getattr(model.blocks[0].attention, name).weight.data.mul_(3e3)
    report = probe(model, IDS, loss, run_dtype=torch.float16)
    assert told(report) == ("blocks.0.attention", "attention_logits", "nonfinite")
    assert report.number_type is Told.YES
    assert max(report.float32.attention["blocks.0.attention"]) > 65_504
    assert math.isinf(max(report.run.attention["blocks.0.attention"]))  # type: ignore[union-attr]


def test_close_to_the_edge_is_told_as_range() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 1))
    nn.init.constant_(model[0].weight, 10_000.0)  # 40,000: finite in float16, and twice as much is not
    nn.init.constant_(model[1].weight, 1e-3)
    report = probe(model, torch.ones(1, 4), lambda model, x: model(x).sum() * 1e-3, run_dtype=torch.float16)
    assert told(report) == ("0", "activation", "range")
    assert report.number_type is Told.NO
    nn.init.constant_(model[0].weight, 8_000.0)
    assert told(probe(model, torch.ones(1, 4), lambda model, x: model(x).sum() * 1e-3, run_dtype=torch.float16)) is None


def test_parameters_in_the_runs_type_are_taken_as_they_are() -> None:
    model = Transformer().to(torch.bfloat16)
    report = probe(model, IDS, loss)
    assert (report.run_dtype, report.how) == ("bfloat16", "weights")
    assert report.float32.dtype == "float32"
    assert {each.dtype for each in report.float32.layers} == {"float32"}
    assert report.run is not None
    assert {each.dtype for each in report.run.layers} == {"bfloat16"}


def test_large_finite_values_have_a_finite_rms() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Identity())
    nn.init.constant_(model[0].weight, 1e30)
    report = probe(model, torch.ones(1, 4), lambda model, x: (model(x) * 1e-30).sum())
    assert report.float32.layers[0].rms == pytest.approx(4e30)
    assert report.float32.finite


# -- backward


class Root(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clamp(min=0).sqrt()


def test_the_first_that_goes_backward() -> None:
    """The root of 0 has an infinite slope: what is in front of it gets it, what is behind does not."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4, bias=False), Root(), nn.Linear(4, 1))
    nn.init.zeros_(model[1].weight)
    report = probe(model, torch.randn(2, 4), lambda model, x: model(x).square().sum())
    assert report.first_forward is None
    first = report.first_backward
    assert first is not None
    assert (first.name, first.place, first.why) == ("1", Place.GRADIENT, "nonfinite")
    assert not report.float32.finite
    assert math.isfinite(report.float32.parameter_gradient_norms["3.weight"])
    assert not math.isfinite(report.float32.parameter_gradient_norms["0.weight"])


def test_a_loss_scale_is_divided_out_and_can_overflow() -> None:
    model = Transformer()
    plain = probe(model, IDS, loss, run_dtype=torch.float16)
    scaled = probe(model, IDS, loss, run_dtype=torch.float16, loss_scale=1024.0)
    assert plain.run is not None
    assert scaled.run is not None
    assert scaled.run.gradient_norms == pytest.approx(plain.run.gradient_norms, rel=0.01)
    far = probe(model, IDS, loss, run_dtype=torch.float16, loss_scale=2.0**30)
    assert far.first_forward is None
    assert far.first_backward is not None
    assert far.first_backward.why == "nonfinite"
    assert far.number_type is Told.YES


def test_a_frozen_model_has_no_gradients() -> None:
    model = Transformer().requires_grad_(False)
    report = probe(model, IDS, loss)
    assert (report.float32.gradient_norms, report.float32.parameter_gradient_norms) == ({}, {})
    assert report.first_backward is None


# -- nothing changes


class Stateful(nn.Module):
    """Dropout draws, batch norm counts."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(24, 8)
        self.drop = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 24)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.drop(self.embed(ids)).transpose(1, 2)).transpose(1, 2))


class Recorder:
    """Cannot be copied, as a monitor with open files cannot."""

    step_in_hand = 0

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.recorded: list[str] = []

    def record(self, step: int, values: Any, /) -> None:
        self.recorded += values


@pytest.mark.parametrize("how", ["autocast", "weights"])
@pytest.mark.parametrize("training", [True, False])
def test_the_model_under_test_is_as_it_was(how: Any, training: bool) -> None:
    model = Stateful().train(training)
    model.drop.train(not training)  # a mode of its own
    model.norm.weight.requires_grad_(False)
    loss(model, IDS).backward()
    calls: list[str] = []
    model.head.register_forward_hook(lambda *_: calls.append("forward"))
    model.register_full_backward_hook(lambda *_: calls.append("backward"))
    model.embed.weight.register_hook(lambda grad: calls.append("gradient"))
    recorder = Recorder()
    watched = watch(recorder, model, every=1)  # type: ignore[arg-type]
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    before = {name: (id(each), each._version, each.detach().clone()) for name, each in tensors.items()}
    gradients = {name: (id(p.grad), None if p.grad is None else p.grad.clone()) for name, p in model.named_parameters()}
    hooks = {name: (dict(m._forward_hooks), dict(m._forward_pre_hooks)) for name, m in model.named_modules()}
    modes = [module.training for module in model.modules()]
    torch.manual_seed(5)
    state = torch.random.get_rng_state()

    probe(model, IDS, loss, run_dtype=torch.bfloat16, how=how)

    assert calls == []
    assert recorder.recorded == []
    assert torch.equal(torch.random.get_rng_state(), state)
    assert [module.training for module in model.modules()] == modes
    now = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, (identity, version, value) in before.items():
        assert (id(now[name]), now[name]._version) == (identity, version), name
        assert now[name].dtype == value.dtype
        assert torch.equal(now[name], value)
    for name, parameter in model.named_parameters():
        assert id(parameter.grad) == gradients[name][0]
        assert parameter.grad is None or torch.equal(parameter.grad, gradients[name][1])  # type: ignore[arg-type]
    assert not model.norm.weight.requires_grad
    assert model.head.weight is model.embed.weight
    assert {n: (dict(m._forward_hooks), dict(m._forward_pre_hooks)) for n, m in model.named_modules()} == hooks
    assert not torch.is_autocast_enabled("cpu")
    watched.remove()


def test_both_passes_begin_from_one_random_state() -> None:
    class Noise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Linear(1, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            drawn.append(torch.rand(1).item())
            return self.scale(x)

    drawn: list[float] = []
    torch.manual_seed(1)
    probe(Noise(), torch.ones(1, 1), lambda model, x: model(x).sum(), run_dtype=torch.bfloat16)
    torch.manual_seed(1)
    Noise()
    assert drawn == [torch.rand(1).item()] * 2


def test_an_exception_leaves_nothing_behind() -> None:
    model = Transformer()
    state = torch.random.get_rng_state()
    with pytest.raises(ZeroDivisionError):
        probe(model, IDS, lambda model, ids: model(ids).sum() / 0 if 1 // 0 else model(ids))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not any(module._forward_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_out_of_its_wrapper_and_with_torchs_own_hooks() -> None:
    model = Transformer()
    plain = probe(model, IDS, loss)
    assert probe(nn.DataParallel(model), IDS, loss).to_dict() == plain.to_dict()
    normed = spectral_norm(nn.Linear(4, 4))
    normed.eval()
    nn.init.constant_(normed.weight_orig, 100.0)
    report = probe(normed, torch.ones(1, 4), lambda model, x: model(x).sum())
    assert report.float32.layers[0].max < 100, "what its hook computes is computed"
    pruned = prune.l1_unstructured(nn.Linear(4, 4), "weight", amount=0.5)
    with pytest.raises(UsageError, match="a Linear cannot be copied"):
        probe(pruned, torch.ones(1, 4), lambda model, x: model(x).sum())


# -- the report


def test_the_report_is_json_also_where_nothing_is_finite() -> None:
    model = Transformer()
    model.embed.weight.data.fill_(math.inf)
    optimizer = torch.optim.AdamW(model.parameters())
    report = probe(model, IDS, loss, run_dtype=torch.float16, optimizer=optimizer)
    written = report.to_dict()
    again = json.loads(json.dumps(written, allow_nan=False))
    assert again == written
    assert again["first_forward"]["value"] == "inf"
    assert again["float32"]["loss"] == "nan"
    assert again["number_type"] == "no"
    assert again["optimizer"] == []
    assert set(again) == {
        *("float32", "run", "run_dtype", "how", "loss_scale", "number_type", "text", "optimizer"),
        *("first_forward", "first_backward"),
    }
    assert set(again["run"]) == set(Seen.__dataclass_fields__)
    assert set(again["first_forward"]) == set(Gone.__dataclass_fields__)


def test_what_the_optimizer_holds_is_told_by_block_and_not_moved() -> None:
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(3):
        loss(model, IDS).backward()
        optimizer.step()
        optimizer.zero_grad()
    for parameter in model.blocks[1].parameters():
        optimizer.state[parameter]["exp_avg_sq"].fill_(1e-20)
    before = copy.deepcopy(optimizer.state_dict())
    states = {each.name: each for each in probe(model, IDS, loss, optimizer=optimizer).optimizer}
    assert list(states) == ["embed", "blocks.0", "blocks.1"]
    assert states["blocks.1"].epsilon_floor_share == 1.0
    assert states["blocks.0"].epsilon_floor_share < 0.5
    assert states["blocks.1"].update_ratio_max > 100 * states["blocks.0"].update_ratio_max
    assert states["blocks.0"].update_ratio_rms == pytest.approx(1.0, rel=0.2), "three equal gradients"
    assert str(optimizer.state_dict()) == str(before)


def test_what_cannot_be() -> None:
    model = Transformer()
    with pytest.raises(UsageError, match="a run in"):
        probe(model, IDS, loss, run_dtype=torch.int8)
    with pytest.raises(UsageError, match="how"):
        probe(model, IDS, loss, how="both")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="loss scale"):
        probe(model, IDS, loss, loss_scale=0.0)
    with pytest.raises(UsageError, match="not one number"):
        probe(model, IDS, lambda model, ids: model(ids))
    assert WIDTH % HEADS == 0
