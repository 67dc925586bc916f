"""C9: at the beginning logits have a standard deviation of 1, and the residual stream is the same at every depth."""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from dataguard.errors import UsageError
from dataguard.torch.stability import QKNormAttention, init_transformer_weights
from tests.twins import transformer as twin

WIDTH, HEADS, VOCABULARY = 64, 4, 96
IDS = torch.randint(0, VOCABULARY, (4, 24), generator=torch.Generator().manual_seed(7))


class Block(nn.Module):
    """Norms first; the attention and the names of its feed-forward layers are a test's choice."""

    def __init__(self, attention: nn.Module, up: str = "up_proj", down: str = "down_proj") -> None:
        super().__init__()
        self.attention = attention
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.names = up, down
        setattr(self, up, nn.Linear(WIDTH, 4 * WIDTH))
        setattr(self, down, nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norms[0](x)
        attention: Any = self.attention
        if isinstance(attention, nn.MultiheadAttention):
            x = x + attention(normed, normed, normed)[0]
        else:
            x = x + attention(normed)
        up, down = (getattr(self, name) for name in self.names)
        return x + down(functional.gelu(up(self.norms[1](x))))


class Plain(nn.Module):
    """Grouped queries without any norm, under one of the common spellings."""

    def __init__(self, q: str, k: str, v: str, o: str, *, kv_heads: int = HEADS) -> None:
        super().__init__()
        self.names = q, k, v, o
        size = WIDTH // HEADS * kv_heads
        for name, out in zip(self.names, (WIDTH, size, size, WIDTH), strict=True):
            setattr(self, name, nn.Linear(WIDTH, out, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (getattr(self, n)(x).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for n in self.names[:3])
        k, v = (each.repeat_interleave(HEADS // k.shape[1], 1) for each in (k, v))
        mixed = functional.scaled_dot_product_attention(q, k, v)
        return getattr(self, self.names[3])(mixed.transpose(1, 2).flatten(-2))


class Model(nn.Module):
    def __init__(self, blocks: list[nn.Module], *, tied: bool = False) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)  # before the embedding, which it may be tied to
        self.embed = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.layers = nn.ModuleList(blocks)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(functional.layer_norm(x, (WIDTH,)))


class Logits(TorchFunctionMode):
    """All attention logits that are made, of torch's fused attention and of its MultiheadAttention."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[torch.Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.scaled_dot_product_attention:
            q, k = args[:2] if len(args) > 1 else (kwargs["query"], kwargs["key"])
            k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
            self.found.append(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]))
        if func is functional.multi_head_attention_forward:
            q, k, _, width, heads, weight, bias = args[:7]
            projected = functional.linear(q, weight, bias)
            q, k = (each.unflatten(-1, (heads, -1)).permute(1, 2, 0, 3) for each in projected.split(width, -1)[:2])
            self.found.append(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]))
        return func(*args, **(kwargs or {}))


def logit_stds(model: nn.Module, call: Any = None) -> list[float]:
    """Of each attention, in order."""
    model.train()
    with Logits() as logits:
        model(IDS) if call is None else call()
    assert logits.found
    return [each.detach().std().item() for each in logits.found]


KINDS: dict[str, Any] = {
    "QKNormAttention": lambda: Block(QKNormAttention(WIDTH, HEADS, num_kv_heads=2)),
    "MultiheadAttention": lambda: Block(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True), "linear1", "linear2"),
    "TransformerEncoderLayer": lambda: nn.TransformerEncoderLayer(
        WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
    ),
    "W_q": lambda: Block(Plain("W_q", "W_k", "W_v", "W_o"), "fc1", "fc2"),
    "wq": lambda: Block(Plain("wq", "wk", "wv", "wo", kv_heads=2), "w1", "w2"),
    "q_proj": lambda: Block(Plain("q_proj", "k_proj", "v_proj", "o_proj", kv_heads=1)),
    "query": lambda: Block(Plain("query", "key", "value", "out"), "c_fc", "c_proj"),
    "q_lin": lambda: Block(Plain("q_lin", "k_lin", "v_lin", "out_lin"), "lin1", "lin2"),
    "to_q": lambda: Block(Plain("to_q", "to_k", "to_v", "to_out"), "dense_h_to_4h", "dense_4h_to_h"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_logits_have_a_standard_deviation_of_one(kind: str) -> None:
    torch.manual_seed(0)
    model = Model([KINDS[kind]() for _ in range(3)])
    for parameter in model.layers.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(20)  # whatever they were
    account = init_transformer_weights(model, num_layers=3, d_model=WIDTH)
    stds = logit_stds(model)
    assert len(stds) == 3
    assert all(0.8 < std < 1.2 for std in stds), stds
    assert len(account.names("residual")) == 6, account.names("residual")
    assert account.notes == ()


@pytest.mark.parametrize("kind", KINDS)
def test_the_residual_stream_is_the_same_at_every_depth(kind: str) -> None:
    """The mean square that 2 L writes add to the embedding's is the same for 2 blocks as for 48."""
    added = []
    for depth in (2, 12, 48):
        torch.manual_seed(1)
        model = Model([KINDS[kind]() for _ in range(depth)])
        init_transformer_weights(model, num_layers=depth, d_model=WIDTH, std=0.1)
        with torch.no_grad():
            begin = x = model.embed(IDS.clamp(min=1))
            for layer in model.layers:
                x = layer(x)
        added.append(float((x - begin).square().mean()))
        assert x.square().mean().sqrt().item() < 1, "O(1) behind the last block"
    assert max(added) < 2 * min(added), added


def test_standard_deviations_are_those_of_the_page() -> None:
    torch.manual_seed(2)
    model = Model([Block(QKNormAttention(WIDTH, HEADS, bias=True)) for _ in range(8)], tied=True)
    account = init_transformer_weights(model, num_layers=8, d_model=WIDTH)
    expected = {"q_proj": WIDTH**-0.5, "v_proj": 0.02, "o_proj": 0.02 / 4, "down_proj": 0.02 / 4, "up_proj": 0.02}
    for name, parameter in model.named_parameters():
        for beginning, std in expected.items():
            if f".{beginning}.weight" in name:
                assert parameter.std().item() == pytest.approx(std, rel=0.05), name
        if name.endswith("bias"):
            assert parameter.abs().max() == 0
        if "norm" in name and "weight" in name:
            assert torch.equal(parameter, torch.ones_like(parameter))
    assert account.names("embedding") == ("head.weight",), "tied: one weight, and an embedding"
    assert model.embed.weight[1:].norm(dim=-1).mean().item() == pytest.approx(1.0, rel=0.05)
    assert model.embed.weight[0].abs().max() == 0, "the padding row stays zero"
    assert {part.name for part in account.parts} == {name for name, _ in model.named_parameters()}
    assert sum(part.num_numbers for part in account.parts) == sum(each.numel() for each in model.parameters())
    assert str(account).splitlines()[1] == "query_key: 16 (0.125), layers.0.attention.q_proj.weight, ..."


def test_what_the_seed_prints_is_far_off() -> None:
    """d_k**-0.25 gives logits far from 1 (362 at a width of 4,096 and heads of 128), and (2 L)**-0.5 is fifty times
    too large."""
    torch.manual_seed(3)
    attention = Plain("q_proj", "k_proj", "v_proj", "o_proj")
    for layer in (attention.q_proj, attention.k_proj):
        nn.init.normal_(layer.weight, std=(WIDTH // HEADS) ** -0.25)
    x = functional.layer_norm(torch.randn(4, 24, WIDTH), (WIDTH,))
    (std,) = logit_stds(attention, lambda: attention(x))
    assert std == pytest.approx(WIDTH / (WIDTH / HEADS) ** 0.5, rel=0.1)
    assert pytest.approx(362, abs=0.1) == 4096 / 128**0.5
    assert pytest.approx(50) == (2 * 24) ** -0.5 / (0.02 / (2 * 24) ** 0.5)


def test_a_sequential_block_and_a_head_called_out() -> None:
    class Written(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(VOCABULARY, WIDTH)
            self.attn = nn.ModuleList([Plain("query", "key", "value", "proj") for _ in range(2)])
            self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
            self.conv = nn.Conv1d(3, 3, 3)
            self.out = nn.Linear(WIDTH, VOCABULARY)

    model = Written()
    conv = model.conv.weight.detach().clone()
    account = init_transformer_weights(model, num_layers=2, d_model=WIDTH)
    assert account.names("residual") == ("attn.0.proj.weight", "attn.1.proj.weight", "mlp.2.weight")
    assert "out.weight" in account.names("other")
    assert torch.equal(conv, model.conv.weight)
    assert account.notes == (
        "3 weights write into the residual stream, and 4 were expected of 2 layers",
        "left as they were: conv.weight",
    )


def test_the_twin_of_the_tests() -> None:
    model = twin.Transformer(num_blocks=4)
    account = init_transformer_weights(model, num_layers=4, d_model=twin.WIDTH)
    assert len(account.names("query_key")) == 8
    assert len(account.names("residual")) == 8
    assert account.names("embedding") == ("embed.weight",)


def test_nothing_found_is_refused_before_anything_changes() -> None:
    model = nn.ModuleDict({"embed": nn.Embedding(8, 4), "first": nn.Linear(4, 4), "second": nn.Linear(4, 4)})
    before = [each.detach().clone() for each in model.parameters()]
    with pytest.raises(UsageError, match="no weight was found for: query_key, residual") as raised:
        init_transformer_weights(model, num_layers=1, d_model=4)
    assert "found: first.weight, second.weight" in str(raised.value)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))
    account = init_transformer_weights(model, num_layers=1, d_model=4, expect=["embedding"])
    assert account.names("other") == ("first.weight", "second.weight")
    with pytest.raises(UsageError, match="no weight was found for: residual"):
        # The width is not that of this model, so nothing writes into a stream so wide.
        init_transformer_weights(Model([KINDS["q_proj"]()]), num_layers=1, d_model=WIDTH + 1)
    nowhere = Model([KINDS["q_proj"]()]).to("meta")
    with pytest.raises(UsageError, match="meta device"):
        init_transformer_weights(nowhere, num_layers=1, d_model=WIDTH)
    for words in ({"num_layers": 0, "d_model": 4}, {"num_layers": 1, "d_model": 4, "std": math.nan}):
        with pytest.raises(UsageError, match="cannot be"):
            init_transformer_weights(model, **words)  # type: ignore[arg-type]


def test_a_generator_makes_it_again_and_leaves_torchs_own() -> None:
    made = []
    state = torch.random.get_rng_state()
    for _ in range(2):
        with torch.random.fork_rng():
            model = Model([KINDS["W_q"]()])
        init_transformer_weights(model, num_layers=1, d_model=WIDTH, generator=torch.Generator().manual_seed(3))
        made.append([each.detach().clone() for each in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*made, strict=True))
    assert torch.equal(torch.random.get_rng_state(), state)


# -- real models


@pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")
def test_gpt2_whose_weights_lie_the_other_way() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=32, n_embd=WIDTH, n_layer=3, n_head=HEADS, resid_pdrop=0, attn_pdrop=0
    )
    torch.manual_seed(4)
    model = GPT2LMHeadModel(config)
    account = init_transformer_weights(model, num_layers=3, d_model=WIDTH)
    assert account.names("embedding") == ("transformer.wte.weight", "transformer.wpe.weight")
    assert account.names("query_key") == tuple(f"transformer.h.{i}.attn.c_attn.weight" for i in range(3))
    assert len(account.names("residual")) == 6
    weight = model.transformer.h[0].attn.c_attn.weight
    assert weight[:, : 2 * WIDTH].std().item() == pytest.approx(WIDTH**-0.5, rel=0.05)
    assert weight[:, 2 * WIDTH :].std().item() == pytest.approx(0.02, rel=0.05)
    assert all(0.8 < std < 1.2 for std in logit_stds(model))


@pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")
def test_llama_with_grouped_queries() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=3,
        num_attention_heads=HEADS,
        num_key_value_heads=2,
    )
    torch.manual_seed(5)
    model = LlamaForCausalLM(config)
    account = init_transformer_weights(model, num_layers=3, d_model=WIDTH)
    assert len(account.names("query_key")) == 6
    assert account.names("residual")[:2] == (
        "model.layers.0.self_attn.o_proj.weight",
        "model.layers.0.mlp.down_proj.weight",
    )
    assert "lm_head.weight" in account.names("other")
    assert all(0.8 < std < 1.2 for std in logit_stds(model))
