"""With which weights does a transformer begin, so that neither its logits nor its residual stream stand out?

For what comes out of a norm (root mean square 1), as in every block that norms first:

1. **Queries and keys**: standard deviation fan_in**-0.5. Each query and key has components of size 1, so a logit
   q.k / sqrt(d) has a standard deviation of 1, whatever the width. (The d_k**-0.25 of the second seed document gives
   362 at a width of 4,096 with heads of 128: it forgets that a component is itself a sum over the fan-in.)
2. **What writes into the residual stream**: std / sqrt(2 * num_layers), .02 over it by default, so that 2 L writes
   together add what one would. (Without the .02 it is fifty times too large.)
3. **Embeddings**: d_model**-0.5, rows of length 1. A padding row stays zero.
4. **Every other linear layer**: std. **Biases of linear layers**: 0. The rest stays as it is.

Which weight is what is found by `matching`; what was found is handed back, and a model in which something was not found
at all is refused before anything is changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import get_args

import torch
from torch import nn

from dataguard.errors import UsageError
from dataguard.torch.stability.matching import Part, Role, roles_of

__all__ = ["InitAccount", "Initialised", "init_transformer_weights"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Initialised:
    """What was done with one parameter, or a part of one."""

    name: str
    """Of the parameter; of tied ones the first."""
    role: Role
    std: float | None
    """What it was drawn with; 0 where it was put to zero, None where it was left."""
    num_numbers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InitAccount:
    """What a model was initialised with."""

    parts: tuple[Initialised, ...]
    """In the model's order. A joint layer of queries, keys and values has two."""
    notes: tuple[str, ...]
    """What looks odd, for people."""

    def names(self, role: Role) -> tuple[str, ...]:
        """The parameters that have a role."""
        return tuple(part.name for part in self.parts if part.role == role)

    def __str__(self) -> str:
        lines = []
        for role in get_args(Role):
            own = [part for part in self.parts if part.role == role]
            if own:
                stds = sorted({part.std for part in own if part.std is not None})
                told = ", ".join(f"{std:.3g}" for std in stds) or "as they were"
                lines.append(f"{role}: {len(own)} ({told}), {own[0].name}{', ...' if len(own) > 1 else ''}")
        return "\n".join([*lines, *self.notes])


@torch.no_grad()
def init_transformer_weights(
    model: nn.Module,
    *,
    num_layers: int,
    d_model: int,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    std: float = 0.02,
    expect: Collection[Role] = ("embedding", "query_key", "residual"),
    generator: torch.Generator | None = None,
) -> InitAccount:
    """Initialise a transformer of any make, in place.

    Source: GPT-2 (residual scaling, .02), and the second seed document (row C9) with its standard deviations mended.

    Parameters
    ----------
    model
        On any device but meta. Frozen parameters are initialised as well.
    num_layers, d_model
        Blocks, and the width of the residual stream.
    num_heads, num_kv_heads
        For attentions with a joint layer that do not say themselves.
    std
        Of linear layers, and over sqrt(2 * num_layers) of those that write into the stream.
    expect
        Roles of which at least one weight has to be found. Take one out for a model that has none.
    generator
        Draws the numbers. Default: torch's own.

    Returns
    -------
    InitAccount
        Each parameter, what it was taken for, and the standard deviation it has now.

    Raises
    ------
    UsageError
        Numbers cannot be; nothing was found of an expected role; weights are on the meta device, or sharded. Nothing
        was changed then.

    Examples
    --------
    >>> block = nn.TransformerEncoderLayer(64, 4, batch_first=True, norm_first=True)
    >>> model = nn.ModuleDict({"embed": nn.Embedding(100, 64), "blocks": nn.ModuleList([block])})
    >>> account = init_transformer_weights(model, num_layers=1, d_model=64)
    >>> account.names("residual")
    ('blocks.0.self_attn.out_proj.weight', 'blocks.0.linear2.weight')
    """
    if min(num_layers, d_model) < 1 or not 0 < std < float("inf"):
        raise UsageError(
            f"num_layers {num_layers}, d_model {d_model}, std {std} cannot be", allowed="numbers above 0, all of them"
        )
    parts = roles_of(model, d_model, num_heads, num_kv_heads)
    for part in parts:
        if part.parameter.is_meta or hasattr(part.parameter, "to_local"):
            raise UsageError(f"{part.name} is on the meta device or sharded", todo="initialise before, on real tensors")
    missing = [role for role in expect if not any(part.role == role for part in parts)]
    if missing:
        linear = [part.name for part in parts if part.role == "other"]
        raise UsageError(
            f"no weight was found for: {', '.join(missing)}",
            found=", ".join(linear[:8]) or "no linear layer at all",
            allowed="names as most transformers have them (dataguard.torch.stability.matching)",
            todo="check d_model, or take out of expect what this model has none of",
        )
    stds = {"query_key": None, "embedding": d_model**-0.5, "residual": std / (2 * num_layers) ** 0.5, "other": std}
    done = [_initialised(part, stds.get(part.role), generator) for part in parts]
    return InitAccount(parts=tuple(done), notes=_notes(parts, num_layers))


def _initialised(part: Part, std: float | None, generator: torch.Generator | None) -> Initialised:
    parameter, rows = part.parameter, part.rows
    num_numbers = parameter.numel()
    if rows is not None:
        num_numbers = len(rows) * parameter.numel() // parameter.shape[part.axis]
    if part.role == "left":
        return Initialised(name=part.name, role=part.role, std=None, num_numbers=num_numbers)
    if part.role == "bias":
        parameter.zero_()
        return Initialised(name=part.name, role=part.role, std=0.0, num_numbers=num_numbers)
    if std is None:
        std = float(parameter.shape[1 - part.axis]) ** -0.5
    shape = list(parameter.shape)
    if rows is not None:
        shape[part.axis] = len(rows)
    drawn = torch.empty(shape, dtype=torch.float32, device=parameter.device).normal_(0.0, std, generator=generator)
    drawn = drawn.to(parameter.dtype)
    if rows is None:
        parameter.copy_(drawn)
    else:
        parameter.index_copy_(part.axis, rows.to(parameter.device), drawn)
    if part.padding_idx is not None:
        parameter[part.padding_idx].zero_()
    return Initialised(name=part.name, role=part.role, std=std, num_numbers=num_numbers)


def _notes(parts: list[Part], num_layers: int) -> tuple[str, ...]:
    notes = []
    counts = Counter(part.role for part in parts)
    if counts["residual"] and counts["residual"] < 2 * num_layers:
        notes.append(
            f"{counts['residual']} weights write into the residual stream, and {2 * num_layers} were expected of "
            f"{num_layers} layers"
        )
    left = [part.name for part in parts if part.role == "left" and part.parameter.dim() > 1]
    if left:
        notes.append(f"left as they were: {', '.join(left[:8])}{', ...' if len(left) > 8 else ''}")
    return tuple(notes)
