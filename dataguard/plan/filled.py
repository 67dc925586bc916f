"""What do planned slots become once their contents are there?

The loader fills them as it reads ahead, a rebuild when it looks back: both through this one function, so what was
delivered and what is rebuilt cannot differ by how they were put together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataguard.core.address import Address
from dataguard.core.manifest import ManifestSet
from dataguard.core.microbatch import Microbatch, assemble
from dataguard.plan.slots import PlannedSlots

__all__ = ["fill_slots"]


def fill_slots(
    slots: PlannedSlots,
    contents: Sequence[bytes | NDArray[Any] | None],
    *,
    address: Address,
    attempt: int,
    batch: int,
    manifests: ManifestSet,
    seq_len: int | None,
    dtype: np.dtype[Any],
    masked: Mapping[int, NDArray[np.int64] | None] | None = None,
) -> Microbatch:
    """Make the microbatch of some slots.

    Parameters
    ----------
    slots
        Of one microbatch, in order; what the environment decided is written over what was planned.
    contents
        A record's bytes or a window's ids for each slot, None where it delivers nothing.
    address, attempt, batch
        Where it stands.
    manifests
        What shards are numbered through.
    seq_len
        Tokens of a window; None for documents.
    dtype
        Of windows as delivered.
    masked
        By place: what is delivered and does not count, as `assemble` takes it.
    """
    return assemble(
        address=address,
        attempt=attempt,
        batch=batch,
        slots=range(int(slots.slot[0]), int(slots.slot[-1]) + 1),
        positions=slots.position,
        status=slots.status,
        source=slots.source.astype(np.int64),
        shard=slots.shard,
        row=slots.row,
        delivered_shard=slots.delivered_shard,
        delivered_row=slots.delivered_row,
        names=[manifests.shard_name(shard) for shard in slots.shard.tolist()],
        contents=contents,
        seq_len=seq_len,
        dtype=dtype,
        masked=masked,
    )
