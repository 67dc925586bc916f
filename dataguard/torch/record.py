"""What does a transform see of one slot?

A `Record`: the bytes of a document or the ids of a window, where they come from, and a generator of random numbers that
is seeded by the position in the stream. Position and not rank or worker: whatever delivers the slot, with however many
ranks, draws the same numbers, and so does a replay.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dataguard.core.address import Address
from dataguard.core.keys import derive_key
from dataguard.errors import UsageError

__all__ = ["Record"]

Content = bytes | NDArray[Any]
"""A document, or the ids of a window."""


class Record:
    """One slot of a microbatch, before it is made into tensors.

    A slot that delivers nothing (withheld, skipped, past the end) is an empty record whose `is_padding` is True; what
    is made of it keeps the microbatch's shape, and its labels are masked whatever they are.

    Parameters
    ----------
    content
        A document's bytes, or a window's ids, shape (seq_len,).
    mask
        What counts towards the loss: a bool for a document, shape (seq_len,) for a window.
    seed
        Of the run.
    read_fields
        Reads the record's other fields.
    """

    __slots__ = (
        "_content",
        "_generator",
        "_mask",
        "_read_fields",
        "_run_seed",
        "address",
        "is_padding",
        "position",
        "row",
        "shard",
        "slot",
        "source",
    )

    def __init__(
        self,
        content: Content,
        *,
        mask: NDArray[np.bool_],
        address: Address,
        slot: int,
        position: int,
        source: str,
        shard: str,
        row: int,
        is_padding: bool,
        seed: int,
        read_fields: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._content = content
        self._mask = mask
        self._read_fields = read_fields
        self._generator: torch.Generator | None = None
        self._run_seed = seed
        self.address = address
        """Step (counted from 0), rank and microbatch."""
        self.slot = slot
        """Place in the global batch."""
        self.position = position
        """Place in the stream."""
        self.source = source
        """Name of its source."""
        self.shard = shard
        """``SOURCE/path`` of what is delivered (of a padding slot: of what was planned)."""
        self.row = row
        """Stored row of what is delivered; of a window its number in the shard."""
        self.is_padding = is_padding
        """Whether the slot delivers nothing."""

    @property
    def bytes(self) -> builtins.bytes:
        """The document's bytes, as its shard has them; empty for a padding slot."""
        if not isinstance(self._content, builtins.bytes):
            raise UsageError(
                "a window of tokens has no text", allowed="record.ids", todo="decode the ids with their tokenizer"
            )
        return self._content

    @property
    def text(self) -> str:
        """The document as text; what is no UTF-8 in it becomes U+FFFD (`bytes` has it as it is)."""
        return self.bytes.decode("utf-8", "replace")

    @property
    def ids(self) -> torch.Tensor:
        """The window's ids, int64, shape (seq_len,), yours to change; zeros for a padding slot."""
        if isinstance(self._content, builtins.bytes):
            raise UsageError("a document has no ids yet", allowed="record.text or record.bytes")
        return torch.from_numpy(self._content.astype(np.int64))

    @property
    def mask(self) -> torch.Tensor:
        """True where it counts towards the loss, bool: shape (seq_len,) for a window, () for a document.

        The loader masks labels by it after the transform; a transform need not.
        """
        return torch.from_numpy(np.array(self._mask, dtype=np.bool_))

    @property
    def fields(self) -> Mapping[str, Any]:
        """The record's other fields, as its shard has them; empty for a padding slot and for windows.

        They are read when they are asked for, a whole block at a time, which costs a second look at the shard.

        Raises
        ------
        ShardDamaged
            They cannot be read.
        """
        return {} if self.is_padding else self._read_fields()

    @property
    def seed(self) -> int:
        """Seed of `generator`, 64 bits, for generators of another kind."""
        return derive_key("transform", self._run_seed, self.position)

    @property
    def generator(self) -> torch.Generator:
        """Random numbers of this slot, on the CPU: the same whoever delivers it, and again at a replay."""
        if self._generator is None:
            self._generator = torch.Generator()
            self._generator.manual_seed(self.seed)
        return self._generator

    def __repr__(self) -> str:
        what = "padding" if self.is_padding else f"{self.shard} row {self.row:,}"
        return f"<Record {self.address}, slot {self.slot}: {what}>"
