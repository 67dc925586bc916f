"""How are the rows of an embedding kept from drifting away?

Rows of rare tokens are moved seldom and far, and nothing pulls them back. After the optimizer's step, rows longer than
a radius are put back onto it.

The radius is chosen, never assumed. At the usual initialisation (standard deviation d_model**-0.5) rows are 1 long on
the average, so a radius of 1 clips *half the rows at init*, which is not stability but another parametrisation. Look at
the lengths of a healthy model and take a multiple of the longest. Where the embedding is tied to the output head, its
rows are the weights of the logits as well: a radius then bounds them too, and one chosen for the input alone holds the
output back.
"""

from __future__ import annotations

import math
import warnings

import torch
from torch import nn

from dataguard.errors import UsageError

__all__ = ["clip_embedding_norm_"]

_SHOWN = 8


@torch.no_grad()
def clip_embedding_norm_(embedding: nn.Embedding | torch.Tensor, max_norm: float) -> int:
    """Bring rows that are longer than a radius back onto it, in place; call it behind the optimizer's step.

    Source: the second seed document (row C10), with its radius made an argument.

    Parameters
    ----------
    embedding
        The embedding, or its weight, shape (num_rows, width), a floating type. Norms are taken in float32.
    max_norm
        The radius, above 0. See above for what 1 does.

    Returns
    -------
    int
        How many rows were clipped. Rows within the radius (by the precision of their type) keep every bit; rows of zero
        (``padding_idx``) stay zero.

    Raises
    ------
    UsageError
        The radius cannot be, or there are no rows.

    Warns
    -----
    RuntimeWarning
        Rows hold NaN or infinity, and which. They are left as they are: clipped they would look mended.

    Examples
    --------
    >>> embedding = nn.Embedding.from_pretrained(torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]]))
    >>> clip_embedding_norm_(embedding, 2.0), embedding.weight
    (1, Parameter containing:
    tensor([[1.2000, 1.6000],
            [0.3000, 0.4000],
            [0.0000, 0.0000]]))
    """
    weight = embedding.weight if isinstance(embedding, nn.Embedding) else embedding
    if isinstance(max_norm, bool) or not isinstance(max_norm, int | float) or not 0 < max_norm < math.inf:
        raise UsageError(f"a radius of {max_norm!r} cannot be", allowed="a finite number above 0")
    if weight.dim() != 2 or not weight.is_floating_point():
        raise UsageError(
            f"an embedding of type {weight.dtype} and shape {tuple(weight.shape)}", allowed="floating, (rows, width)"
        )
    norms = torch.linalg.vector_norm(weight, dim=-1, keepdim=True, dtype=torch.float32)
    finite = norms.isfinite()
    # What rounding leaves of a row that was put onto the radius is not beyond it.
    slack = torch.finfo(weight.dtype).eps + 4 * torch.finfo(torch.float32).eps
    beyond = finite & (norms > max_norm * (1 + slack))
    factors = torch.where(beyond, max_norm / norms, 1.0)
    weight.copy_(torch.where(beyond, weight.float() * factors, weight.float()).to(weight.dtype))
    num_clipped, num_finite = torch.stack([beyond.sum(), finite.sum()]).tolist()
    if num_finite < len(weight):
        bad = (~finite[:, 0]).nonzero()[:, 0].tolist()
        shown = ", ".join(map(str, bad[:_SHOWN])) + (", ..." if len(bad) > _SHOWN else "")
        warnings.warn(f"{len(bad):,} rows of an embedding hold NaN or infinity: {shown}", RuntimeWarning, stacklevel=2)
    return int(num_clipped)
