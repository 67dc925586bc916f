"""What is read off a model and its optimizer: what stands there, and nothing where nothing shows it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from dataguard.core.trainer import CheckpointFacts, PlannedChange, TrainerFacts
from dataguard.errors import UsageError
from dataguard.torch.describing import describe
from dataguard.torch.stability import QKNormAttention, init_transformer_weights
from dataguard.triage.preflight import preflight
from tests.twins.transformer import Transformer

WIDTH, LAYERS = 64, 3


class Block(nn.Module):
    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = attention
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)


class Model(nn.Module):
    def __init__(self, make: Any) -> None:
        super().__init__()
        self.embed = nn.Embedding(512, WIDTH)
        self.blocks = nn.ModuleList(Block(make()) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 512, bias=False)
        self.head.weight = self.embed.weight


def normed() -> Model:
    return Model(lambda: QKNormAttention(WIDTH, 4))


def grouped(model: nn.Module, decay: float = 0.1) -> list[dict[str, Any]]:
    """Matrices decay, embeddings and norms do not."""
    spared = {id(model.embed.weight), *(id(p) for p in model.parameters() if p.dim() < 2)}  # type: ignore[union-attr]
    held = list(model.parameters())
    return [
        {"params": [p for p in held if id(p) not in spared], "weight_decay": decay},
        {"params": [p for p in held if id(p) in spared], "weight_decay": 0.0},
    ]


def test_the_model() -> None:
    facts = describe(normed()).architecture
    assert (facts.d_model, facts.num_layers, facts.qk_norm) == (WIDTH, LAYERS, True)
    # Not said, not known: nothing was measured, and norms of unknown blocks may stand anywhere.
    assert (facts.residual_init_std, facts.embedding_init_std, facts.norm_placement) == (None, None, None)
    assert (facts.z_loss, facts.qk_clip) == (None, None)


def test_an_attention_of_another_make_may_norm_in_its_code() -> None:
    assert describe(Transformer()).architecture.qk_norm is None
    torch_own = Model(lambda: nn.MultiheadAttention(WIDTH, 4))
    assert describe(torch_own).architecture.qk_norm is False
    mixed = normed()
    mixed.blocks[1].attention = nn.MultiheadAttention(WIDTH, 4)
    assert describe(mixed).architecture.qk_norm is None


@pytest.mark.parametrize("first", [True, False])
def test_norm_placement_of_layers_that_say_it(first: bool) -> None:
    layers = nn.ModuleList(nn.TransformerEncoderLayer(32, 2, norm_first=first) for _ in range(2))
    assert describe(layers).architecture.norm_placement == ("pre" if first else "post")
    layers.append(nn.TransformerEncoderLayer(32, 2, norm_first=not first))
    assert describe(layers).architecture.norm_placement is None


def test_standard_deviations_are_measured_before_training_and_hold_the_point_of_the_list() -> None:
    torch.manual_seed(0)
    model = normed()
    init_transformer_weights(model, num_layers=LAYERS, d_model=WIDTH)
    facts = describe(model, untrained=True)
    assert facts.architecture.residual_init_std == pytest.approx(0.02 / math.sqrt(2 * LAYERS), rel=0.05)
    assert facts.architecture.embedding_init_std == pytest.approx(WIDTH**-0.5, rel=0.05)
    states = {point.name: point.state for point in preflight(facts).points}
    assert (states["residual_init"], states["embedding_init"], states["qk_norm"]) == ("pass", "pass", "pass")
    # One projection as the seed's own code would have it, and one embedding as torch makes it.
    with torch.no_grad():
        model.blocks[2].down.weight.normal_(std=(2 * LAYERS) ** -0.5)
        model.embed.weight.normal_()
    states = {point.name: point.state for point in preflight(describe(model, untrained=True)).points}
    assert (states["residual_init"], states["embedding_init"]) == ("fail", "fail")


def test_the_optimizer() -> None:
    model = normed()
    groups = grouped(model)
    facts = describe(model, torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-7), clip_norm=1.0).optimizer
    assert (facts.name, facts.beta1, facts.beta2, facts.epsilon) == ("AdamW", 0.9, 0.95, 1e-7)
    assert (facts.weight_decay, facts.decays_embeddings_or_norms, facts.clip_norm) == (0.1, False, 1.0)
    careless = describe(model, torch.optim.AdamW(model.parameters(), weight_decay=0.1)).optimizer
    assert careless.decays_embeddings_or_norms is True
    one_norm = [{"params": [model.norm.weight], "weight_decay": 0.1}]
    assert describe(model, torch.optim.AdamW(one_norm)).optimizer.decays_embeddings_or_norms is True
    one_norm[0]["weight_decay"] = 0.0  # and of the others nothing is known
    assert describe(model, torch.optim.AdamW(one_norm)).optimizer.decays_embeddings_or_norms is None
    nothing = describe(model, torch.optim.AdamW(model.parameters(), weight_decay=0.0)).optimizer
    assert (nothing.weight_decay, nothing.decays_embeddings_or_norms) == (0.0, False)


def test_what_groups_or_optimizers_do_not_agree_in_is_not_known() -> None:
    model = normed()
    groups = grouped(model)
    groups[0]["eps"], groups[1]["eps"] = 1e-8, 1e-6
    halves = [
        {"params": groups[0]["params"][:3], "weight_decay": 0.1},
        {"params": groups[0]["params"][3:], "weight_decay": 0.2},
    ]
    assert describe(model, torch.optim.AdamW(groups)).optimizer.epsilon is None
    assert describe(model, torch.optim.AdamW(halves)).optimizer.weight_decay is None
    both = [torch.optim.SGD(groups[0]["params"], lr=0.1), torch.optim.AdamW(groups[1]["params"])]
    facts = describe(model, both).optimizer
    assert (facts.name, facts.beta1) == ("SGD + AdamW", 0.9)
    sgd = describe(model, torch.optim.SGD(model.parameters(), lr=0.1)).optimizer
    assert (sgd.beta1, sgd.epsilon) == (None, None)
    # A wrapper that flattens parameters shows no embeddings: nothing is said of them.
    flat = torch.optim.AdamW([nn.Parameter(torch.zeros(10))])
    assert describe(model, flat).optimizer.decays_embeddings_or_norms is None


def test_number_types() -> None:
    model = normed()
    optimizer = torch.optim.AdamW(model.parameters())
    facts = describe(model, optimizer, autocast=torch.bfloat16, loss_scaling=False).precision
    assert (facts.compute, facts.master_weights, facts.optimizer_state) == ("bfloat16", "float32", "float32")
    assert describe(model, optimizer).precision.compute is None
    assert describe(model, optimizer, autocast=False).precision.compute == "float32"
    assert describe(model).precision.master_weights is None
    low = normed().bfloat16()
    pure = describe(low, torch.optim.AdamW(low.parameters()), autocast=False).precision
    assert (pure.compute, pure.master_weights, pure.optimizer_state) == ("bfloat16", "bfloat16", "bfloat16")

    class WithCopies(torch.optim.AdamW):
        """An optimizer of somebody's own: it may keep copies in float32."""

    assert describe(low, WithCopies(low.parameters())).precision.master_weights is None
    for moments in (torch.zeros(3), torch.zeros(3, dtype=torch.bfloat16)):
        own = WithCopies(low.parameters())
        own.state[next(low.parameters())] = {"exp_avg": moments, "step": torch.tensor(1.0)}
        expected = "float32" if moments.dtype == torch.float32 else "bfloat16"
        assert describe(low, own).precision.optimizer_state == expected


def test_what_is_said_goes_along_and_what_cannot_be_is_refused() -> None:
    change = PlannedChange(step=40, what="lr / 3")
    facts = describe(
        normed(),
        total_steps=100,
        warmup_steps=1,
        peak_lr=1e-3,
        qk_clip=False,
        z_loss=1e-4,
        checkpoints=CheckpointFacts(every_steps=10),
        changes=[change],
    )
    assert isinstance(facts, TrainerFacts)
    assert (facts.schedule.total_steps, facts.checkpoints.every_steps, facts.changes) == (100, 10, (change,))
    for wrong in (
        {"total_steps": 0},
        {"warmup_steps": -1},
        {"peak_lr": math.nan},
        {"total_steps": 5, "warmup_steps": 6},
    ):
        with pytest.raises(UsageError):
            describe(normed(), **wrong)  # type: ignore[arg-type]


def test_a_wrapped_model_and_one_without_blocks_or_embeddings() -> None:
    model = normed()
    wrapped = nn.Module()
    wrapped.module = model
    assert describe(wrapped).architecture == describe(model).architecture
    bare = describe(nn.Linear(4, 4), untrained=True)
    assert bare.architecture.d_model is None
    assert bare.architecture.num_layers is None
    assert bare.architecture.qk_norm is None
