"""What does one rank feed to one forward pass, and what is its digest?

A microbatch without torch (FORMATS.md) is, for form ``document``, the records' bytes in slot order with a mask bit
each; for form ``window``, an integer array of shape (microbatch_size, seq_len) and a loss mask of the same shape. A
slot that delivers nothing is an empty record (or a row of zeros), masked. The loader and a rebuild both come through
`assemble`, so what was delivered and what is rebuilt are the same bytes by construction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataguard.core.address import Address
from dataguard.core.digests import canonical_tokens, microbatch_digest, sample_digest

__all__ = ["NOTHING", "Microbatch", "assemble"]

NOTHING = bytes(16)
"""The digest of a slot that delivers nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Microbatch:
    """One microbatch as delivered or rebuilt, slots in order.

    All arrays have shape (microbatch_size,) but for `ids` and `mask` of windows, which add an axis of seq_len.
    """

    address: Address
    attempt: int
    batch: int
    """Index of the global batch in the grid that ignores skips."""
    slots: range
    """Slots of the global batch that it holds, half-open."""
    positions: NDArray[np.int64]
    status: NDArray[np.uint8]
    """plan.slots.SlotStatus of each slot."""
    source: NDArray[np.int64]
    shard: NDArray[np.int64]
    """The planned shard, numbered through the attempt's manifests."""
    row: NDArray[np.int64]
    delivered_shard: NDArray[np.int64]
    """What was delivered: the planned one, a substitute, or -1 for nothing."""
    delivered_row: NDArray[np.int64]
    names: tuple[str, ...]
    """``SOURCE/path`` of each planned shard."""
    records: tuple[bytes, ...] | None
    """Form document: the records' bytes."""
    ids: NDArray[Any] | None
    """Form window: int32 (int64 where ids need it), shape (microbatch_size, seq_len)."""
    mask: NDArray[np.bool_]
    """True where it counts, False where nothing is delivered or the gate masks what is.
    Shape (microbatch_size,) for documents, (microbatch_size, seq_len) for windows."""
    lengths: NDArray[np.int64]
    """Bytes of a document, tokens of a window; 0 where nothing is delivered."""
    digests: tuple[bytes, ...]
    """xxh3-128 of each sample's canonical bytes; NOTHING where nothing is delivered."""
    digest: bytes
    """xxh3-128 over slot order, mask and canonical bytes."""

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def step(self) -> int:
        """Optimizer update, 0-based."""
        return self.address.step

    @property
    def all_masked(self) -> bool:
        """True where no slot counts: a mean over its loss tokens would be NaN."""
        return not bool(self.mask.any())


def assemble(
    *,
    address: Address,
    attempt: int,
    batch: int,
    slots: range,
    positions: NDArray[np.int64],
    status: NDArray[np.uint8],
    source: NDArray[np.int64],
    shard: NDArray[np.int64],
    row: NDArray[np.int64],
    delivered_shard: NDArray[np.int64],
    delivered_row: NDArray[np.int64],
    names: Sequence[str],
    contents: Sequence[bytes | NDArray[Any] | None],
    seq_len: int | None = None,
    dtype: np.dtype[Any] | None = None,
    masked: Mapping[int, NDArray[np.int64] | None] | None = None,
) -> Microbatch:
    """Put the contents of the slots together: bytes for documents, ids for windows, None where nothing is delivered.

    `seq_len` and `dtype` are given for windows and left out for documents. `masked` says, by place, what is delivered
    and does not count: spans of positions, half-open, shape (k, 2), or None for all of the sample.
    """
    present = np.array([content is not None for content in contents], dtype=np.bool_)
    records: tuple[bytes, ...] | None = None
    ids: NDArray[Any] | None = None
    if seq_len is None:
        records = tuple(b"" if content is None else bytes(content) for content in contents)
        mask = present.copy()
        lengths = np.array([len(record) for record in records], dtype=np.int64)
        canonical: Sequence[bytes] = records
    else:
        ids = np.zeros((len(contents), seq_len), dtype=dtype)
        for i, content in enumerate(contents):
            if content is not None:
                ids[i] = content
        mask = np.repeat(present[:, None], seq_len, axis=1)
        lengths = np.where(present, seq_len, 0).astype(np.int64)
        canonical = [
            canonical_tokens(line) if there else b"" for line, there in zip(ids, present.tolist(), strict=True)
        ]
    for place, spans in (masked or {}).items():
        if spans is None:
            mask[place] = False
        else:
            for start, stop in spans.tolist():
                mask[place, start:stop] = False
    return Microbatch(
        address=address,
        attempt=attempt,
        batch=batch,
        slots=slots,
        positions=positions,
        status=status,
        source=source,
        shard=shard,
        row=row,
        delivered_shard=delivered_shard,
        delivered_row=delivered_row,
        names=tuple(names),
        records=records,
        ids=ids,
        mask=mask,
        lengths=lengths,
        # Taken here, where the canonical bytes are at hand: by the threads that read ahead, not at hand-over.
        digests=tuple(
            sample_digest(content) if there else NOTHING
            for content, there in zip(canonical, present.tolist(), strict=True)
        ),
        digest=microbatch_digest(canonical, [row.tobytes() for row in mask.view(np.uint8)]),
    )
