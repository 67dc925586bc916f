"""What is trained in the incident suite: a transformer over bytes with about a million parameters.

It is a plain decoder: learned places, pre-norm blocks, attention by torch's own function, so that what dataguard sees
of it is what it sees of a user's model. It has no norm before its head, no norm of queries and keys and no z-loss:
nothing that a stable model has is there to hide a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = [
    "IGNORED",
    "MACHINE",
    "NUM_IDS",
    "PADDING",
    "SEQ_LEN",
    "Attention",
    "Block",
    "ByteModel",
    "Machine",
    "sample_losses",
]

SEQ_LEN = 64
"""Tokens of a sample."""
PADDING = 256
NUM_IDS = 257
IGNORED = -100


class Machine:
    """What the machine computes: a broken one computes something else, whoever asks it."""

    relu: Callable[[Tensor], Tensor] = staticmethod(functional.relu)


MACHINE = Machine()
"""Of this process."""


class Attention(nn.Module):
    """Causal self-attention without biases."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Shapes (n, length, width) to the same."""
        query, key, value = (
            layer(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    """Attention and two layers with a ReLU, each behind a norm.

    The `multiplier` of the hidden values cancels, as those of parametrizations do, where numbers reach so far.
    """

    def __init__(self, width: int, num_heads: int, multiplier: float) -> None:
        super().__init__()
        self.multiplier = multiplier
        self.norm_1 = nn.LayerNorm(width)
        self.attention = Attention(width, num_heads)
        self.norm_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Shapes (n, length, width) to the same."""
        x = x + self.attention(self.norm_1(x))
        hidden = MACHINE.relu(self.up(self.norm_2(x)) * self.multiplier)
        return x + self.down(hidden) / self.multiplier


class ByteModel(nn.Module):
    """Logits of the next byte."""

    def __init__(
        self,
        *,
        seed: int,
        width: int = 128,
        num_layers: int = 5,
        num_heads: int = 4,
        multipliers: Mapping[int, float] | None = None,
    ) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.embed = nn.Embedding(NUM_IDS, width)
            self.places = nn.Embedding(SEQ_LEN, width)
            self.blocks = nn.ModuleList(
                [Block(width, num_heads, (multipliers or {}).get(layer, 1.0)) for layer in range(num_layers)]
            )
            self.head = nn.Linear(width, NUM_IDS, bias=False)
            for name, parameter in self.named_parameters():
                if parameter.dim() > 1:
                    residual = name.endswith(("out.weight", "down.weight"))
                    nn.init.normal_(parameter, std=0.02 / (2 * num_layers) ** 0.5 if residual else 0.05)

    def forward(self, ids: Tensor) -> Tensor:
        """From ids, shape (n, length), to logits, shape (n, length, NUM_IDS)."""
        x = self.embed(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def sample_losses(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Of each sample the sum of its losses and the number of its tokens that have one, both shape (n,), float32."""
    targets = labels[:, 1:]
    losses = functional.cross_entropy(
        logits[:, :-1].float().transpose(1, 2), targets, ignore_index=IGNORED, reduction="none"
    )
    return losses.sum(1), (targets != IGNORED).sum(1).float()
