"""A small transformer whose every inner number can be asked for, computed step by step without any fused call."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, VOCABULARY = 16, 2, 24


class Attention(nn.Module):
    """Causal self-attention; `kind` says by which call, `key_heads` how many heads share keys."""

    def __init__(self, kind: str = "fused", key_heads: int = HEADS) -> None:
        super().__init__()
        self.kind = kind
        self.key_heads = key_heads
        size = WIDTH // HEADS
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, size * key_heads)
        self.value = nn.Linear(WIDTH, size * key_heads)
        self.out = nn.Linear(WIDTH, WIDTH)

    def parts(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        size = WIDTH // HEADS
        heads = [
            layer(x).unflatten(-1, (count, size)).transpose(1, 2)
            for layer, count in ((self.query, HEADS), (self.key, self.key_heads), (self.value, self.key_heads))
        ]
        return heads[0], heads[1], heads[2]

    def scores(self, x: torch.Tensor) -> torch.Tensor:
        """The pre-softmax logits, -inf where masked."""
        query, key, _ = self.parts(x)
        key = key.repeat_interleave(HEADS // self.key_heads, 1)
        scores = query @ key.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        return scores.masked_fill(hidden, -torch.inf)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.parts(x)
        if self.kind == "fused":
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        else:
            scores = self.scores(x)
            if self.kind == "softmax":
                weights = scores.softmax(-1)
            else:  # by hand: nothing of torch's own to be seen
                weights = scores.sub(scores.amax(-1, keepdim=True)).exp()
                weights = weights / weights.sum(-1, keepdim=True)
            mixed = weights @ value.repeat_interleave(HEADS // self.key_heads, 1)
        return self.out(mixed.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    def __init__(self, kind: str, key_heads: int) -> None:
        super().__init__()
        self.attention = Attention(kind, key_heads)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.down(functional.gelu(self.up(x)))


class Transformer(nn.Module):
    """Embedding, blocks, a tied head."""

    def __init__(
        self, *, seed: int = 0, num_blocks: int = 2, kind: str = "fused", key_heads: int = HEADS, recompute: str = ""
    ) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.embed = nn.Embedding(VOCABULARY, WIDTH)
            self.blocks = nn.ModuleList([Block(kind, key_heads) for _ in range(num_blocks)])
            self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight
        self.recompute = recompute

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.recompute == "reentrant") if self.recompute else block(x)
        return self.head(x)

    def everything(self, ids: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
        """What each block gives, the attention logits of each, and the logits."""
        x = self.embed(ids)
        outputs, scores = [], []
        for block in self.blocks:
            scores.append(block.attention.scores(block.norm(x)))  # type: ignore[union-attr, operator]
            x = block(x)
            outputs.append(x)
        return outputs, scores, self.head(x)


def microbatch(seed: int, *, size: int = 2, length: int = 7) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCABULARY, (size, length), generator=generator)


def loss_of(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
