"""What becomes of a batch between the loader that gave it and the trainer that is handed it?

Its tensors are found, the digest of every sample is taken, the gate judges, and labels are masked where it says so.
The same for a batch that is made again: what is taken of both is compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dataguard.core.tensors import tensors_digest
from dataguard.gate.judged import Judged
from dataguard.plan.slots import SlotStatus
from dataguard.run.judging import Judge
from dataguard.torch.guarding.batch import find_tensors, is_one_sample, num_samples_of, rows_digest, sample_digests
from dataguard.torch.guarding.judge import (
    Naming,
    can_mask,
    judged_tokens,
    masked,
    masks_of,
    put,
    token_counts_of,
)
from dataguard.torch.tensors import named_tensors

__all__ = ["Taken", "take"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Taken:
    """A batch as it is handed over: judged, with masked labels, and with its digests. Arrays are of shape (n,)."""

    tensors: dict[str, torch.Tensor]
    rows: NDArray[np.int64]
    digests: list[bytes]
    digest: bytes
    made_of: bytes
    lengths: NDArray[np.int64]
    """Tokens that count, 0 where no ids were found."""
    status: NDArray[np.uint8]
    judged: Judged | None
    unmasked: bool
    """Something was to be masked, and the batch has no labels that could be."""


def take(
    batch: Any, rows: NDArray[np.int64] | None, *, judge: Judge | None, naming: Naming, whole: bool, first_row: int = 0
) -> Taken:
    """Find, judge, mask and digest the tensors of a batch.

    Parameters
    ----------
    rows
        Indices of its samples; None where it comes without, and rows are ordinals from `first_row` on.
    whole
        The batch is one sample; what comes without indices says so itself.
    """
    tensors = find_tensors(batch)
    tokens = naming.found(naming.tokens, tensors)
    if rows is None:
        num_samples = num_samples_of(tensors, tokens)
        whole = whole or is_one_sample(tensors, tokens)
        rows = np.arange(first_row, first_row + num_samples, dtype=np.int64)
    else:
        num_samples = len(rows)
    named = named_tensors(tensors)
    digests = sample_digests(named, num_samples, whole=whole)
    status = np.zeros(num_samples, np.uint8)
    judged, unmasked = None, False
    if judge is not None and num_samples:
        judged, lengths = judged_tokens(judge, tensors, naming, num_samples, whole=whole)
        masks = masks_of(judged)
        if masks:
            path = naming.found(naming.labels, tensors)
            if path is None or not can_mask(tensors[path], num_samples, whole=whole):
                unmasked = True
            else:
                ids = tensors[naming.require(naming.tokens, tensors, "")]
                new = masked(tensors[path], masks, ids, naming, whole=whole)
                put(batch, path, tensors[path], new)
                tensors[path] = find_tensors(batch)[path]
                named[path] = named_tensors({path: tensors[path]})[path]
                status[list(masks)] = SlotStatus.REFUSED
    else:
        lengths = token_counts_of(tensors, naming, num_samples, whole=whole)
    made_of = rows_digest(rows)
    return Taken(
        tensors=tensors,
        rows=rows,
        digests=digests,
        digest=tensors_digest(made_of, named),
        made_of=made_of,
        lengths=lengths,
        status=status,
        judged=judged,
        unmasked=unmasked,
    )
