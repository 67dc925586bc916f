"""Which rows of which weights make the queries and keys of which head?

Attentions are written in many ways. `projections_of` knows these, and refuses what it does not know rather than guess:

1. ``torch.nn.MultiheadAttention``, its joint weight or separate ones.
2. Two layers, by pairs of names (`PAIRS`): q_proj and k_proj, W_q and W_k, wq and wk, query and key, to_q and to_k, ...
3. One layer of queries, keys and values, one behind the other (`JOINT`): c_attn, qkv, qkv_proj, Wqkv, in_proj.
4. One layer in which each group of heads has its queries, key and value together (`GROUPED`): linear_qkv of Megatron,
   and the query_key_value of GPT-NeoX, BLOOM and Falcon.

A weight has the shape (out, in), as in ``nn.Linear``, or (in, out), as in the ``Conv1D`` of GPT-2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dataguard.errors import UsageError

__all__ = [
    "GROUPED",
    "JOINT",
    "PAIRS",
    "Projection",
    "Projections",
    "heads_of",
    "is_transposed",
    "pair_of",
    "projections_of",
    "projections_to",
]

PAIRS = (
    ("q_proj", "k_proj"),
    ("W_q", "W_k"),
    ("w_q", "w_k"),
    ("wq", "wk"),
    ("W_Q", "W_K"),
    ("WQ", "WK"),
    ("query", "key"),
    ("queries", "keys"),
    ("query_proj", "key_proj"),
    ("to_q", "to_k"),
    ("linear_q", "linear_k"),
    ("q_lin", "k_lin"),
    ("q", "k"),
)
JOINT = ("c_attn", "qkv", "qkv_proj", "Wqkv", "W_qkv", "w_qkv", "wqkv", "to_qkv", "in_proj", "attn_qkv")
GROUPED = ("linear_qkv", "query_key_value")
_GROUPED_OF = ("GPTNeoX", "Bloom", "Falcon", "Megatron")
"""Beginnings of the names of classes whose query_key_value is by groups; others have it one behind the other."""
_NUM_HEADS = ("num_heads", "n_heads", "n_head", "num_attention_heads", "nheads", "nhead", "heads")
_NUM_KV_HEADS = ("num_kv_heads", "n_kv_heads", "num_key_value_heads", "n_kv_head", "num_query_groups")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Projection:
    """The part of a layer that makes queries, or keys."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    rows: torch.Tensor
    """Shape (num_heads, width of a head): which outputs of the layer belong to each head."""
    axis: int
    """The dimension of the weight that the outputs lie on."""

    @property
    def num_heads(self) -> int:
        """Heads of this projection."""
        return self.rows.shape[0]

    @torch.no_grad()
    def scale_(self, factors: torch.Tensor) -> None:
        """Multiply what each head gives, shape (num_heads,); a head whose factor is 1 keeps every bit."""
        for head in (factors != 1).nonzero()[:, 0].tolist():
            rows, factor = self.rows[head], float(factors[head])
            for tensor, axis in ((self.weight, self.axis), (self.bias, 0)):
                if tensor is not None:
                    own = tensor.detach().index_select(axis, rows.to(tensor.device))
                    tensor.index_copy_(axis, rows.to(tensor.device), (own.double() * factor).to(tensor.dtype))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Projections:
    """Queries and keys of an attention."""

    query: Projection
    key: Projection
    layout: str
    """How they lie, for people."""

    @property
    def group(self) -> int:
        """How many heads share a head of keys."""
        return self.query.num_heads // self.key.num_heads


def is_transposed(module: nn.Module) -> bool:
    """Whether the weight of a layer has the shape (in, out): the Conv1D of GPT-2.

    >>> is_transposed(nn.Linear(2, 3))
    False
    """
    return type(module).__name__ == "Conv1D"


def pair_of(module: nn.Module) -> tuple[nn.Module, nn.Module] | None:
    """The two layers of a module that make its queries and keys, where it has such."""
    for names in PAIRS:
        query: Any = getattr(module, names[0], None)
        key: Any = getattr(module, names[1], None)
        if _is_layer(query) and _is_layer(key):
            return query, key
    return None


def projections_of(
    attention: nn.Module, *, num_heads: int | None = None, num_kv_heads: int | None = None
) -> Projections:
    """The projections of a module.

    Raises
    ------
    UsageError
        The layout is not known, or the numbers of heads are not, or do not fit.

    Examples
    --------
    >>> found = projections_of(nn.MultiheadAttention(8, 2))
    >>> found.layout, found.key.rows.tolist()
    ('in_proj_weight of MultiheadAttention', [[8, 9, 10, 11], [12, 13, 14, 15]])
    """
    heads, kv_heads = heads_of(attention, num_heads, num_kv_heads)
    kind = type(attention).__name__
    if isinstance(attention, nn.MultiheadAttention):
        return _of_multi_head(attention)
    pair = pair_of(attention)
    if pair is not None:
        given: list[Any] = [(each.weight, each.bias, is_transposed(each)) for each in pair]
        return projections_to(given[0], given[1], heads, kv_heads, f"two layers of {kind}")
    for name in (*JOINT, *GROUPED):
        layer: Any = getattr(attention, name, None)
        if not _is_layer(layer):
            continue
        grouped = name == "linear_qkv" or (name in GROUPED and kind.startswith(_GROUPED_OF))
        if name in GROUPED and not grouped:
            raise UsageError(
                f"the {name} of a {kind} can lie in two ways",
                allowed=f"a class whose name begins with {', '.join(_GROUPED_OF)}",
                todo="give the tensors of queries and keys themselves",
            )
        axis = 1 if is_transposed(layer) else 0
        parts = heads + 2 * kv_heads
        if layer.weight.shape[axis] % parts:
            raise _unfit(f"{name} of {kind}", layer.weight.shape[axis], f"{heads} heads and twice {kv_heads} of keys")
        queries, keys = _rows(heads, kv_heads, layer.weight.shape[axis] // parts, grouped=grouped)
        bias = getattr(layer, "bias", None)
        return Projections(
            query=Projection(weight=layer.weight, bias=bias, rows=queries, axis=axis),
            key=Projection(weight=layer.weight, bias=bias, rows=keys, axis=axis),
            layout=f"{name} of {kind}",
        )
    raise UsageError(
        f"the queries and keys of a {kind} are not known",
        found=", ".join(name for name, _ in attention.named_children()) or "a module without layers",
        allowed="MultiheadAttention; " + ", ".join("/".join(pair) for pair in PAIRS[:6]) + "; " + ", ".join(JOINT[:4]),
        todo="give the tensors themselves: (q_weight, k_weight)",
    )


def projections_to(
    query: tuple[torch.Tensor, torch.Tensor | None, bool],
    key: tuple[torch.Tensor, torch.Tensor | None, bool],
    num_heads: int,
    num_kv_heads: int,
    layout: str,
) -> Projections:
    """Of a weight, a bias and whether the weight has the shape (in, out), each for queries and keys."""
    made = []
    for (weight, bias, transposed), heads in ((query, num_heads), (key, num_kv_heads)):
        axis = 1 if transposed else 0
        if weight.dim() != 2 or weight.shape[axis] % heads:
            raise _unfit(layout, tuple(weight.shape), f"{heads} heads")
        rows = torch.arange(weight.shape[axis]).reshape(heads, -1)
        made.append(Projection(weight=weight, bias=bias, rows=rows, axis=axis))
    if made[0].rows.shape[1] != made[1].rows.shape[1]:
        raise _unfit(
            layout,
            f"queries {made[0].rows.shape[1]} wide and keys {made[1].rows.shape[1]}",
            f"{num_heads} heads and {num_kv_heads} of keys, equally wide",
        )
    return Projections(query=made[0], key=made[1], layout=layout)


def heads_of(attention: nn.Module, num_heads: int | None, num_kv_heads: int | None) -> tuple[int, int]:
    """How many heads an attention has, of queries and of keys: as given, as it says itself, as its config does."""
    heads = _told(attention, _NUM_HEADS, num_heads, "num_heads")
    if heads is None:
        raise UsageError(f"how many heads a {type(attention).__name__} has is not known", todo="give num_heads")
    kv_heads = _told(attention, _NUM_KV_HEADS, num_kv_heads, "num_kv_heads")
    kv_heads = heads if kv_heads is None else kv_heads
    if heads < 1 or kv_heads < 1 or heads % kv_heads:
        raise UsageError(
            f"{heads} heads cannot share {kv_heads} of keys", allowed="heads of keys that divide the heads"
        )
    return heads, kv_heads


def _told(attention: nn.Module, names: tuple[str, ...], given: int | None, what: str) -> int | None:
    config = getattr(attention, "config", None)
    found: int | None = None
    for holder in (attention, config):
        for name in names:
            value = getattr(holder, name, None)
            if found is None and isinstance(value, int) and not isinstance(value, bool):
                found = value
    if given is not None and found is not None and given != found:
        raise UsageError(
            f"{what} {given} is not what the {type(attention).__name__} says",
            found=str(found),
            todo=f"leave {what} out",
        )
    return given if given is not None else found


def _of_multi_head(attention: nn.MultiheadAttention) -> Projections:
    width, heads = attention.embed_dim, attention.num_heads
    kind = type(attention).__name__
    queries, keys = _rows(heads, heads, width // heads, grouped=False)
    bias: torch.Tensor | None = attention.in_proj_bias
    weight: Any = attention.in_proj_weight
    if weight is not None:
        return Projections(
            query=Projection(weight=weight, bias=bias, rows=queries, axis=0),
            key=Projection(weight=weight, bias=bias, rows=keys, axis=0),
            layout=f"in_proj_weight of {kind}",
        )
    # Separate weights share one bias, of which each has its third.
    query_bias, key_bias = (None, None) if bias is None else (bias.detach()[:width], bias.detach()[width : 2 * width])
    return projections_to(
        (attention.q_proj_weight, query_bias, False),
        (attention.k_proj_weight, key_bias, False),
        heads,
        heads,
        f"separate weights of {kind}",
    )


def _rows(heads: int, kv_heads: int, width: int, *, grouped: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs of a joint layer that belong to queries and keys, each of shape (heads, width)."""
    if not grouped:
        places = torch.arange((heads + kv_heads) * width).reshape(-1, width)
        return places[:heads], places[heads:]
    # (groups, queries of a group + its key + its value, width)
    each = torch.arange((heads + 2 * kv_heads) * width).reshape(kv_heads, heads // kv_heads + 2, width)
    return each[:, :-2].reshape(heads, width), each[:, -2]


def _is_layer(module: Any) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(module, nn.Module) and isinstance(weight, torch.Tensor) and weight.dim() == 2


def _unfit(layout: str, found: object, allowed: str) -> UsageError:
    return UsageError(f"the weights of {layout} do not fit the heads", found=str(found), allowed=allowed)
