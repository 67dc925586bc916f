"""What is each weight of a transformer for, by the names that people give it?

`roles_of` takes a model apart into parts of weights, each with one role:

- ``embedding``: the weight of an ``nn.Embedding``; tied to the output head it stays one.
- ``query_key``: what makes queries and keys, alone or as part of a joint layer (`projections`).
- ``residual``: what writes into the residual stream: the last layer of an attention and of a feed-forward block, known
  by its name and by giving `d_model` numbers.
- ``other``: every other linear layer.
- ``bias``: of linear layers.

The rest (norms, convolutions, bare parameters that nothing tells the use of) is ``left`` as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from dataguard.torch.stability.projections import GROUPED, JOINT, PAIRS, is_transposed, pair_of, projections_of
from dataguard.torch.watching.blocks import is_attention

__all__ = ["Part", "Role", "roles_of"]

Role = Literal["embedding", "query_key", "residual", "other", "bias", "left"]

_RESIDUAL_ATTENTION = {"o_proj", "W_o", "w_o", "wo", "W_O", "WO", "wo_proj", "out_lin", "to_out", "linear_proj"}
_RESIDUAL_FEED_FORWARD = {"fc2", "lin2", "linear2", "w2", "down_proj", "down", "fc_out", "dense_4h_to_h", "linear_fc2"}
_RESIDUAL_BOTH = {"c_proj", "out_proj", "proj_out", "output_proj", "linear_out"}
_RESIDUAL = frozenset(_RESIDUAL_ATTENTION | _RESIDUAL_FEED_FORWARD | _RESIDUAL_BOTH)
_RESIDUAL_WITHIN = frozenset({"dense", "out", "proj", "output", "o"})
"""Names that other layers have as well: they count inside an attention, a feed-forward block or its output."""
_WITHIN = ("att", "mlp", "ffn", "feed_forward", "feedforward", "output")
_NEVER_WITHIN = frozenset(["pooler", "transform", "cls", "head", "lm_head", "classifier", "score"])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """Part of a parameter, with what it is for."""

    name: str
    """Of the parameter."""
    parameter: torch.Tensor
    role: Role
    axis: int = 0
    """The dimension that its outputs lie on."""
    rows: torch.Tensor | None = None
    """Which outputs; None where all."""
    padding_idx: int | None = None
    """The row of an embedding that stays zero."""


def roles_of(model: nn.Module, d_model: int, num_heads: int | None, num_kv_heads: int | None) -> list[Part]:
    """All parameters of a model, each (of tied ones the first) in one or several parts."""
    names = _first_names(model)
    found: dict[int, list[Part]] = {}

    def claim(parameter: torch.Tensor | None, role: Role, **more: Any) -> None:
        if parameter is not None and id(parameter) not in found:
            name = names[id(parameter)]
            found[id(parameter)] = [Part(name=name, parameter=parameter, role=role, **more)]

    for module in model.modules():  # first, so that a tied head counts as the embedding that it is
        if isinstance(module, nn.Embedding):
            claim(module.weight, "embedding", padding_idx=module.padding_idx)
    for path, module in model.named_modules():
        for parts in _query_key(module, path, names, num_heads, num_kv_heads):
            found.setdefault(id(parts[0].parameter), parts)
        if isinstance(module, nn.MultiheadAttention):
            claim(module.in_proj_bias, "bias")
    inner = _last_of_sequences(model, d_model)
    for path, module in model.named_modules():
        if not (isinstance(module, nn.Linear) or is_transposed(module)):
            continue
        weight: Any = module.weight
        axis = 1 if is_transposed(module) else 0
        writes = weight.shape[axis] == d_model and (path in inner or _is_residual(path))
        claim(weight, "residual" if writes else "other", axis=axis)
        bias: Any = module.bias
        claim(bias, "bias")
    for parameter in model.parameters():
        name = names[id(parameter)]
        if parameter.dim() == 3 and name.rpartition(".")[2] in _RESIDUAL and d_model in parameter.shape[1:]:
            # Experts as one tensor, of which each entry is a matrix.
            claim(parameter, "residual")
        claim(parameter, "left")
    return [part for parameter in model.parameters() for part in found[id(parameter)]]


def _first_names(model: nn.Module) -> dict[int, str]:
    return {id(parameter): name for name, parameter in model.named_parameters()}


def _query_key(
    module: nn.Module, path: str, names: dict[int, str], num_heads: int | None, num_kv_heads: int | None
) -> Iterator[list[Part]]:
    """The parts of the weights that make queries and keys in a module, by parameter."""
    if isinstance(module, nn.MultiheadAttention) or _joint(module, path) is not None:
        found = projections_of(module, num_heads=num_heads, num_kv_heads=num_kv_heads)
        query, key = found.query, found.key
        if query.weight is key.weight:
            name, axis = names[id(query.weight)], query.axis
            rows = torch.cat([query.rows.reshape(-1), key.rows.reshape(-1)])
            rest = torch.ones(query.weight.shape[axis], dtype=torch.bool)
            rest[rows] = False
            values = rest.nonzero()[:, 0]
            yield [
                Part(name=name, parameter=query.weight, role="query_key", axis=axis, rows=rows),
                Part(name=name, parameter=query.weight, role="other", axis=axis, rows=values),
            ]
            return
        assert isinstance(module, nn.MultiheadAttention)
        for parameter in (query.weight, key.weight):
            yield [Part(name=names[id(parameter)], parameter=parameter, role="query_key")]
        value: Any = module.v_proj_weight
        yield [Part(name=names[id(value)], parameter=value, role="other")]
        return
    pair = pair_of(module)
    for layer in pair or ():
        weight: Any = layer.weight
        axis = 1 if is_transposed(layer) else 0
        yield [Part(name=names[id(weight)], parameter=weight, role="query_key", axis=axis)]


def _joint(module: nn.Module, path: str) -> str | None:
    """The joint layer of queries, keys and values of a module that is an attention by name."""
    if not is_attention(path, module) or any(hasattr(module, name) for pair in PAIRS[:-1] for name in pair):
        return None
    return next((name for name in (*JOINT, *GROUPED) if isinstance(getattr(module, name, None), nn.Module)), None)


def _is_residual(path: str) -> bool:
    parts = path.split(".")
    if parts[-1] in _RESIDUAL:
        return True
    within = parts[:-1]
    return (
        parts[-1] in _RESIDUAL_WITHIN
        and any(mark in part.lower() for part in within for mark in _WITHIN)
        and not _NEVER_WITHIN.intersection(within)
    )


def _last_of_sequences(model: nn.Module, d_model: int) -> set[str]:
    """Layers that end a feed-forward block written as a Sequential: (d_model -> more), ..., (more -> d_model)."""
    found = set()
    for path, module in model.named_modules():
        if not isinstance(module, nn.Sequential):
            continue
        layers = [(name, each) for name, each in module.named_children() if isinstance(each, nn.Linear)]
        if len(layers) > 1 and layers[0][1].in_features == layers[-1][1].out_features == d_model:
            found.add(f"{path}.{layers[-1][0]}" if path else layers[-1][0])
    return found
