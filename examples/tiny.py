"""What examples train: a transformer over the bytes of `texts`, and how a text becomes ids and labels."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from texts import SEQ_LEN, pieces_of_python
from torch import Tensor, nn
from torch.utils.data import Dataset

from dataguard.torch.stability import QKNormAttention, init_transformer_weights

PAD, VOCABULARY = 256, 257


def encode(content: bytes) -> dict[str, Tensor]:
    """Bytes as ids. Nothing predicts the first one, so it has no label; nor has padding."""
    ids = torch.tensor(list(content[:SEQ_LEN]), dtype=torch.int64)
    labels = torch.cat([torch.full((min(1, len(ids)),), -100), ids[1:]])
    padding = (0, SEQ_LEN - len(ids))
    return {"input_ids": F.pad(ids, padding, value=PAD), "labels": F.pad(labels, padding, value=-100)}


class PythonText(Dataset):
    """The pieces as a data set like anybody's, for loaders that exist already."""

    def __init__(self, number: int = 800) -> None:
        self.pieces = [piece.encode() for piece in pieces_of_python(number)]

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return encode(self.pieces[index])


def sum_of_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Summed over the tokens that have a label: 0 where none has, and not NaN. A model's guess is of the next token."""
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="sum")


class Block(nn.Module):
    """Attention whose queries and keys are normalised, and a feed-forward block, each behind a norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.feed_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = QKNormAttention(width, num_heads=4)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.norm(hidden), is_causal=True)
        return hidden + self.down(F.gelu(self.up(self.feed_norm(hidden))))


class ByteModel(nn.Module):
    """A causal transformer over bytes: logits of the next one."""

    def __init__(self, width: int = 32, num_layers: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.token = nn.Embedding(VOCABULARY, width)
        self.place = nn.Embedding(SEQ_LEN, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(num_layers)])
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, VOCABULARY)
        init_transformer_weights(self, num_layers=num_layers, d_model=width)

    def forward(self, input_ids: Tensor) -> Tensor:
        """From ids (n, length) to logits (n, length, VOCABULARY)."""
        hidden = self.token(input_ids) + self.place(torch.arange(input_ids.shape[1]))
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden))
