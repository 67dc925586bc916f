"""What can be read off a model and its optimizer, truthfully, for `Monitor.describe` and preflight?

`describe` says what stands there and nothing else. What cannot be told from modules and parameter groups (what a
forward pass does with its own code, what a trainer does around it) stays unknown unless it is given:

- **Width and depth**: the token embedding's width, where the model has norms of that width; entries of the outermost
  lists of like modules.
- **QK-norm**: yes where every attention has a norm of its queries and of its keys among its modules, no for torch's own
  ``MultiheadAttention``, which has none. An attention of another make without such modules may still norm in its code:
  unknown.
- **Norm placement**: of torch's own encoder and decoder layers, which say it.
- **Standard deviations**: measured, and only where the model is said not to be trained yet. Of several weights the
  largest.
- **Optimizer**: class, betas, epsilon and weight decay of its parameter groups, where they agree; whether a group that
  decays holds embeddings, or what belongs to a norm.
- **Number types**: master weights are the type of the parameters that the optimizer updates, where the optimizer is one
  of torch's, which keep no copies; its state is that of its moments, which those make in the type of the parameter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import Optimizer

from dataguard.core.trainer import (
    ArchitectureFacts,
    CheckpointFacts,
    DataFacts,
    MonitoringFacts,
    OptimizerFacts,
    PlannedChange,
    PrecisionFacts,
    ScheduleFacts,
    TrainerFacts,
)
from dataguard.errors import UsageError
from dataguard.torch.stability.matching import roles_of
from dataguard.torch.watching.blocks import parts_of

__all__ = ["describe"]

FloatType = Literal["float32", "bfloat16", "float16"]

_TYPES: dict[torch.dtype, FloatType] = {
    torch.float32: "float32",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
}
_QK_NORMS = (
    ("q_norm", "k_norm"),
    ("query_norm", "key_norm"),
    ("q_layernorm", "k_layernorm"),
    ("norm_q", "norm_k"),
    ("ln_q", "ln_k"),
    ("q_ln", "k_ln"),
)
_LAYERS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


def describe(
    model: nn.Module,
    optimizer: Optimizer | Iterable[Optimizer] | None = None,
    *,
    untrained: bool = False,
    total_steps: int | None = None,
    warmup_steps: int | None = None,
    peak_lr: float | None = None,
    clip_norm: float | None = None,
    autocast: torch.dtype | Literal[False] | None = None,
    loss_scaling: bool | None = None,
    qk_clip: bool | None = None,
    z_loss: float | None = None,
    data: DataFacts | None = None,
    monitoring: MonitoringFacts | None = None,
    checkpoints: CheckpointFacts | None = None,
    changes: Iterable[PlannedChange] = (),
) -> TrainerFacts:
    """Say what a trainer is, as far as its model and optimizer show it and its author says the rest.

    Parameters
    ----------
    model
        Wrapped or not, on any device.
    optimizer
        One, or several that share the parameters.
    untrained
        Whether the weights are those that training begins with: their standard deviations are measured then.
    total_steps, warmup_steps, peak_lr, clip_norm, qk_clip, z_loss, loss_scaling
        As in `TrainerFacts`.
    autocast
        The type that forward passes are cast to; False where they run in the type of the parameters.
    data, monitoring, checkpoints, changes
        What is said of the rest.

    Returns
    -------
    TrainerFacts
        None wherever it is not known.

    Raises
    ------
    UsageError
        A number cannot be: a step below 0, more warm-up than steps, a rate or norm below 0.

    Examples
    --------
    >>> layer = nn.TransformerEncoderLayer(32, 4, batch_first=True, norm_first=True)
    >>> model = nn.ModuleDict({"embed": nn.Embedding(100, 32), "blocks": nn.TransformerEncoder(
    ...     layer, 2, enable_nested_tensor=False), "norm": nn.LayerNorm(32)})
    >>> optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    >>> facts = describe(model, optimizer, autocast=torch.bfloat16, warmup_steps=100)
    >>> facts.architecture.d_model, facts.architecture.num_layers, facts.architecture.norm_placement
    (32, 2, 'pre')
    >>> facts.optimizer.name, facts.optimizer.beta2, facts.optimizer.decays_embeddings_or_norms
    ('AdamW', 0.95, True)
    >>> facts.precision.compute, facts.precision.master_weights, facts.schedule.total_steps
    ('bfloat16', 'float32', None)
    """
    _check(total_steps=total_steps, warmup_steps=warmup_steps, peak_lr=peak_lr, clip_norm=clip_norm, z_loss=z_loss)
    if total_steps == 0:
        raise UsageError("a training of 0 steps cannot be", allowed="1 or more")
    if total_steps is not None and warmup_steps is not None and warmup_steps > total_steps:
        raise UsageError(f"{warmup_steps:,} steps of warm-up do not fit into {total_steps:,} steps")
    optimizers = _listed(optimizer)
    return TrainerFacts(
        architecture=_architecture(model, untrained=untrained, qk_clip=qk_clip, z_loss=z_loss),
        optimizer=_optimizer(model, optimizers, clip_norm),
        schedule=ScheduleFacts(total_steps=total_steps, warmup_steps=warmup_steps, peak_lr=peak_lr),
        precision=_precision(model, optimizers, autocast, loss_scaling=loss_scaling),
        data=data or DataFacts(),
        monitoring=monitoring or MonitoringFacts(),
        checkpoints=checkpoints or CheckpointFacts(),
        changes=tuple(changes),
    )


# -- the model


def _architecture(
    model: nn.Module, *, untrained: bool, qk_clip: bool | None, z_loss: float | None
) -> ArchitectureFacts:
    parts = parts_of(model)
    width = _width(model)
    lists = {name.rpartition(".")[0] for name in parts.blocks if name.rpartition(".")[2].isdecimal()}
    residual, embedding = _measured(model, width) if untrained and width is not None else (None, None)
    return ArchitectureFacts(
        d_model=width,
        num_layers=len(parts.blocks) if len(lists) == 1 else None,
        qk_norm=_qk_norm(parts.attentions.values()),
        qk_clip=qk_clip,
        residual_init_std=residual,
        embedding_init_std=embedding,
        z_loss=z_loss,
        norm_placement=_placement(model),
    )


def _width(model: nn.Module) -> int | None:
    """That of the largest embedding, where a norm of that width shows that it is the stream's."""
    embeddings = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    if not embeddings:
        return None
    width = max(embeddings, key=lambda module: module.num_embeddings).embedding_dim
    norms = {tuple(parameter.shape) for parameter in _norm_parameters(model)}
    return width if (width,) in norms else None


def _qk_norm(attentions: Iterable[nn.Module]) -> bool | None:
    told = [_qk_norm_of(module) for module in attentions]
    if told and all(told):
        return True
    return False if told and all(each is False for each in told) else None


def _qk_norm_of(attention: nn.Module) -> bool | None:
    for module in attention.modules():
        for names in _QK_NORMS:
            norms = [getattr(module, name, None) for name in names]
            if all(isinstance(norm, nn.Module) and not isinstance(norm, nn.Identity) for norm in norms):
                return True
    return False if type(attention) is nn.MultiheadAttention else None


def _placement(model: nn.Module) -> Literal["pre", "post"] | None:
    told = {module.norm_first for module in model.modules() if isinstance(module, _LAYERS)}
    return ("pre" if told.pop() else "post") if len(told) == 1 else None


def _measured(model: nn.Module, width: int) -> tuple[float | None, float | None]:
    """Standard deviations of what writes into the stream and of embeddings; the largest of each."""
    try:
        parts = roles_of(model, width, None, None)
    except UsageError:
        return None, None  # an attention whose heads are not told: what is for what cannot be said
    found: dict[str, list[float]] = {"residual": [], "embedding": []}
    for part in parts:
        if part.role not in found:
            continue
        if part.parameter.is_meta or hasattr(part.parameter, "to_local"):
            return None, None
        weight = part.parameter.detach().float()
        if part.padding_idx is not None:
            weight = torch.cat([weight[: part.padding_idx], weight[part.padding_idx + 1 :]])
        found[part.role].append(float(weight.std(correction=0)))
    return max(found["residual"], default=None), max(found["embedding"], default=None)


def _norm_parameters(model: nn.Module) -> Iterator[nn.Parameter]:
    for module in model.modules():
        if "norm" in type(module).__name__.lower():
            yield from module.parameters(recurse=False)


# -- the optimizer


def _optimizer(model: nn.Module, optimizers: list[Optimizer], clip_norm: float | None) -> OptimizerFacts:
    if not optimizers:
        return OptimizerFacts(clip_norm=clip_norm)
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    betas = _agreed(group["betas"] for group in groups if _is_pair(group.get("betas")))
    matrices = _matrices(model)
    return OptimizerFacts(
        name=" + ".join(dict.fromkeys(type(optimizer).__name__ for optimizer in optimizers)),
        clip_norm=clip_norm,
        beta1=None if betas is None else _number(betas[0]),
        beta2=None if betas is None else _number(betas[1]),
        epsilon=_number(_agreed(group["eps"] for group in groups if "eps" in group)),
        weight_decay=_number(
            _agreed(
                group["weight_decay"]
                for group in groups
                if "weight_decay" in group and any(id(each) in matrices for each in group["params"])
            )
        ),
        decays_embeddings_or_norms=_decays_others(model, groups),
    )


def _matrices(model: nn.Module) -> set[int]:
    """Parameters of two or more dimensions that are no embeddings."""
    spared = _spared(model)
    return {id(each) for each in model.parameters() if each.dim() >= 2 and id(each) not in spared}


def _spared(model: nn.Module) -> set[int]:
    """Embeddings, and what belongs to norms."""
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    return embeddings | {id(each) for each in _norm_parameters(model)}


def _decays_others(model: nn.Module, groups: list[dict[str, Any]]) -> bool | None:
    spared = _spared(model) & {id(each) for each in model.parameters() if each.requires_grad}
    decays = {id(each): group.get("weight_decay") for group in groups for each in group["params"]}
    if any(decays.get(each) for each in spared):
        return True
    # Flattened by a wrapper, or of an optimizer that has no such setting: nothing is shown.
    return False if spared and all(decays.get(each) is not None for each in spared) else None


# -- number types


def _precision(
    model: nn.Module,
    optimizers: list[Optimizer],
    autocast: torch.dtype | Literal[False] | None,
    *,
    loss_scaling: bool | None,
) -> PrecisionFacts:
    own = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    kept = _TYPES.get(next(iter(own))) if len(own) == 1 else None
    compute = kept if autocast is False else None if autocast is None else _TYPES.get(autocast)
    updated = [each for optimizer in optimizers for group in optimizer.param_groups for each in group["params"]]
    types = {parameter.dtype for parameter in updated}
    plain = bool(optimizers) and all(type(each).__module__.startswith("torch.optim") for each in optimizers)
    master = _TYPES.get(next(iter(types))) if plain and len(types) == 1 else None
    return PrecisionFacts(
        compute=compute,
        loss_scaling=loss_scaling,
        master_weights=master,
        optimizer_state=_state_type(optimizers, master if plain else None),
    )


def _state_type(optimizers: list[Optimizer], of_parameters: FloatType | None) -> FloatType | None:
    """Of the moments that are there; before the first step, what torch's optimizers make them in."""
    types = {
        value.dtype
        for optimizer in optimizers
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, torch.Tensor) and value.dim() > 0 and value.is_floating_point()
    }
    if not types:
        return of_parameters
    return _TYPES.get(next(iter(types))) if len(types) == 1 else None


# -- pieces


def _listed(optimizer: Optimizer | Iterable[Optimizer] | None) -> list[Optimizer]:
    if optimizer is None:
        return []
    return [optimizer] if isinstance(optimizer, Optimizer) else list(optimizer)


def _agreed(values: Iterable[Any]) -> Any:
    """The value that all give; None where there is none, or they differ."""
    listed = [tuple(map(float, value)) if isinstance(value, tuple | list) else float(value) for value in values]
    return listed[0] if listed and all(value == listed[0] for value in listed) else None


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2


def _check(**numbers: float | None) -> None:
    for name, value in numbers.items():
        if value is not None and not 0 <= value < float("inf"):
            raise UsageError(f"{name} {value!r} cannot be", allowed="a finite number of 0 or more")
