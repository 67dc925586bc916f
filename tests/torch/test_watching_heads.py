"""Attention logits by head: which heads are told, how many of them, and what is said where they cannot be told."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn

from dataguard.torch.watching import sample
from dataguard.torch.watching.watch import watch
from tests.twins.transformer import HEADS, WIDTH, Transformer, loss_of, microbatch


class Kept:
    step_in_hand = 0

    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def record(self, step: int, values: Mapping[str, Any], /) -> None:
        self.values |= {name: value.item() for name, value in values.items() if name.startswith("attention")}


def one_pass(model: nn.Module, *inputs: torch.Tensor, **settings: Any) -> tuple[dict[str, float], tuple[str, ...]]:
    kept = Kept()
    with watch(kept, model, every=1, **settings) as watched:
        found = model(*inputs)
        (loss_of(found, inputs[0]) if isinstance(model, Transformer) else found.sum()).backward()
    return kept.values, watched.notes


@pytest.mark.parametrize("key_heads", [HEADS, 1])
def test_one_head_that_runs_away_is_named(key_heads: int) -> None:
    model = Transformer(key_heads=key_heads)
    with torch.no_grad():
        model.blocks[1].attention.query.weight[WIDTH // HEADS :] *= 300  # type: ignore[union-attr, index]
    values, notes = one_pass(model, microbatch(1))
    assert notes == ()
    assert values["attention_logit_head/blocks.1"] == 1
    assert values["attention_logit_max/blocks.1/head=1"] == values["attention_logit_max/blocks.1"]
    assert values["attention_logit_max/blocks.1"] > 10 * values["attention_logit_max/blocks.1/head=0"]


def test_a_head_that_is_nan_is_named() -> None:
    model = Transformer()
    with torch.no_grad():
        model.blocks[0].attention.query.weight[WIDTH // HEADS :] = math.nan  # type: ignore[union-attr, index]
    values, _ = one_pass(model, microbatch(1))
    assert values["attention_logit_head/blocks.0"] == 1
    assert math.isnan(values["attention_logit_max/blocks.0"])
    assert math.isnan(values["attention_logit_max/blocks.0/head=1"])
    assert math.isfinite(values["attention_logit_max/blocks.0/head=0"])


def test_of_many_heads_only_the_largest_of_a_block_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "MOST_HEADS", 2 * HEADS - 1)
    with pytest.warns(RuntimeWarning, match="4 heads are more than 3"):
        values, notes = one_pass(Transformer(), microbatch(1))
    assert values.keys() == {f"attention_logit_{what}/blocks.{i}" for what in ("max", "head") for i in range(2)}
    assert len(notes) == 1
    asked, notes = one_pass(Transformer(), microbatch(1), heads=True)
    assert len(asked) == 4 + 2 * HEADS
    assert notes == ()


def test_heads_can_be_left_out_and_the_blocks_stay_what_they_were() -> None:
    with_heads, _ = one_pass(Transformer(), microbatch(1))
    without, notes = one_pass(Transformer(), microbatch(1), heads=False)
    assert without.keys() == {"attention_logit_max/blocks.0", "attention_logit_max/blocks.1"}
    assert {name: with_heads[name] for name in without} == without
    assert notes == ()


class Flat(nn.Module):
    """Folds heads into the batch, as some models do: nobody can tell them apart then."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.ModuleDict({"query": nn.Linear(8, 8), "key": nn.Linear(8, 8)})
        self.attention.forward = self.attend  # type: ignore[method-assign]

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        query, key = (self.attention[name](x).unflatten(-1, (2, 4)).transpose(1, 2).flatten(0, 1)
                      for name in ("query", "key"))  # fmt: skip
        return (query @ key.transpose(-2, -1)).softmax(-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        attention: Any = self.attention
        return attention(x)


def test_heads_that_cannot_be_told_apart_are_said() -> None:
    with pytest.warns(RuntimeWarning, match="cannot be told apart"):
        values, notes = one_pass(Flat(), torch.randn(2, 3, 8))
    assert values.keys() == {"attention_logit_max/attention"}
    assert "the heads of the attention in attention" in notes[-1]
