"""Which transforms come with the loader?

Two, so that a run can begin before anybody has written one: windows of token shards as they are, and documents as the
bytes of their text. Labels stand at the same place as the inputs (models shift them themselves); the first is ignored,
since nothing predicts it, so counting labels gives the same number before and after the shift. A padding slot attends
to its first place, or a softmax over nothing would be NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from dataguard.errors import UsageError
from dataguard.torch.record import Record

__all__ = ["IGNORE_INDEX", "ByteTransform", "WindowTransform", "settings_of"]

IGNORE_INDEX = -100
"""What a label is that does not count: what ``torch.nn.functional.cross_entropy`` passes over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowTransform:
    """Windows of tokens: input_ids, labels and attention_mask, all int64, shape (seq_len,)."""

    ignore_index: int = IGNORE_INDEX

    def __call__(self, record: Record) -> dict[str, torch.Tensor]:
        """Make the tensors of one window."""
        ids = record.ids
        labels = ids.clone()
        attention = torch.ones_like(ids)
        if record.is_padding:
            labels[:] = self.ignore_index
            attention[1:] = 0
        else:
            labels[0] = self.ignore_index
        return {"input_ids": ids, "labels": labels, "attention_mask": attention}


@dataclass(frozen=True, slots=True)
class ByteTransform:
    """Documents as the bytes of their text: ids 0 to 255, then one `END`, cut and padded to `seq_len`.

    input_ids, labels and attention_mask, all int64, shape (seq_len,). A document that is longer is cut, and has no end.
    """

    seq_len: int
    """Tokens of a sample, at least 1."""
    ignore_index: int = IGNORE_INDEX

    END = 256
    """Ends a document, and pads behind it."""
    NUM_IDS = 257

    def __post_init__(self) -> None:
        if self.seq_len < 1:
            raise UsageError(f"seq_len {self.seq_len} cannot be", allowed="at least 1")

    def __call__(self, record: Record) -> dict[str, torch.Tensor]:
        """Make the tensors of one document."""
        content = record.bytes[: self.seq_len]
        length = 1 if record.is_padding else min(self.seq_len, len(content) + 1)
        ids = torch.full((self.seq_len,), self.END, dtype=torch.int64)
        if content:
            ids[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        labels = ids.clone()
        labels[0] = self.ignore_index
        labels[length:] = self.ignore_index
        attention = torch.zeros_like(ids)
        attention[:length] = 1
        return {"input_ids": ids, "labels": labels, "attention_mask": attention}


def settings_of(transform: Callable[..., Any]) -> dict[str, str]:
    """What a transform of dataguard has to be told to be made again, beside the ignored label; recorded with its name.

    >>> settings_of(ByteTransform(512))
    {'seq_len': '512'}
    """
    return {"seq_len": str(transform.seq_len)} if isinstance(transform, ByteTransform) else {}
