"""What was seen of one sampled step, and which values does it make?

A `Sample` takes what hooks give it, as tensors of one element on their device, and makes telemetry of it: by part of
the model, over all microbatches so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from dataguard.torch.watching.blocks import Parts, value_name
from dataguard.torch.watching.numbers import (
    adam_moments,
    joined_heads,
    joined_max,
    joined_norm,
    joined_rms,
    joined_sum,
    local,
    log_z,
    norm,
    ratio,
)

__all__ = ["MOST_HEADS", "Sample", "first_tensor", "logits_of"]

MOST_HEADS = 512
"""Heads of a model of which each has a value of its own unless somebody asks for more: 50 kB of telemetry a forward
pass. A model of 1.3 billion parameters has 384, one of 70 billion 5,120."""


def first_tensor(output: Any) -> torch.Tensor | None:
    """The first floating tensor in what a module gives: alone, in a tuple or list, or in a mapping.

    >>> first_tensor((None, torch.ones(2))).shape
    torch.Size([2])
    """
    if isinstance(output, torch.Tensor):
        return output if output.is_floating_point() and output.numel() else None
    parts: Iterator[Any] = iter(())
    if isinstance(output, Mapping):
        parts = iter(output.values())
    elif isinstance(output, tuple | list):
        parts = iter(output)
    return next((found for found in map(first_tensor, parts) if found is not None), None)


def logits_of(output: Any) -> torch.Tensor | None:
    """The logits in what a model gives: its ``logits``, else its first floating tensor of two or more dimensions.

    >>> logits_of({"loss": torch.tensor(2.0), "logits": torch.zeros(1, 3, 8)}).shape
    torch.Size([1, 3, 8])
    """
    named = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if named is None:
        several = output if isinstance(output, tuple | list) else (output,)
        named = next((each for each in several if isinstance(each, torch.Tensor) and each.dim() > 1), None)
    if not isinstance(named, torch.Tensor) or not named.is_floating_point() or named.dim() < 2 or not named.numel():
        return None
    return named


class Sample:
    """One sampled step."""

    def __init__(self, step: int, parts: Parts, say: Callable[[str], None], *, heads: bool | None = None) -> None:
        self.step = step
        """As the trainer calls it."""
        self.parts = parts
        self.num_optimizers = 0
        """How many have made their step."""
        self._say = say
        self._part_of = {id(parameter): part for part, held in parts.parameters.items() for parameter in held}
        self._activations: dict[str, tuple[list[torch.Tensor], list[torch.Tensor], list[int]]] = {}
        self._attention: dict[str, list[torch.Tensor]] = {}
        self._with_heads = heads
        self._heads: dict[str, list[torch.Tensor]] = {}
        self._log_z: list[torch.Tensor] = []
        self._num_places = 0
        self._pass: dict[int, torch.Tensor] = {}
        self._local: dict[str, torch.Tensor] = {}
        self._gradients: dict[int, torch.Tensor] = {}
        self._norms: dict[int, torch.Tensor] = {}
        self._ratios: dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]] = {}

    @property
    def has_attention(self) -> bool:
        """Whether any attention logit was seen."""
        return bool(self._attention)

    # -- the forward pass

    def add_activation(self, part: str, tensor: torch.Tensor) -> None:
        """What a block gave."""
        held = local(tensor)
        norms, largest, counts = self._activations.setdefault(part, ([], [], []))
        norms.append(norm(held))
        largest.append(held.abs().amax().float())
        counts.append(held.numel())

    def add_attention(self, part: str, logit: torch.Tensor) -> None:
        """The largest logit of an attention inside a block: of all, shape (), or of each head, shape (heads,)."""
        self._attention.setdefault(part, []).append(logit.amax())
        if self._with_heads is not False:
            self._heads.setdefault(part, []).append(logit)

    def add_logits(self, logits: torch.Tensor) -> None:
        """The logits that the model gave."""
        placements = getattr(logits, "placements", ())
        if any(each.is_partial() or each.is_shard(logits.dim() - 1) for each in placements):
            self._say("the vocabulary of the logits is sharded over ranks: there is no log_z without their speaking")
            return
        total, num_places = log_z(logits)
        self._log_z.append(total)
        self._num_places += num_places

    def forward_values(self) -> dict[str, torch.Tensor]:
        """Of all forward passes so far."""
        values: dict[str, torch.Tensor] = {}
        for part, (norms, largest, counts) in self._activations.items():
            values[value_name("activation_rms", part, values)] = joined_rms(norms, sum(counts))
            values[value_name("activation_max", part, values)] = joined_max(largest)
        for part, logits in self._attention.items():
            name = value_name("attention_logit_max", part, values) if part else "attention_logit_max"
            values[name] = joined_max(logits)
        values |= self._head_values(values)
        if self._log_z:
            values["log_z"] = joined_sum(self._log_z) / self._num_places
        return values

    def _head_values(self, taken: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Of each block the head with the largest logit, and each head's own where there are not too many."""
        known: dict[str, torch.Tensor] = {}
        for part, each in self._heads.items():
            if any(logit.dim() == 0 or logit.shape != each[0].shape for logit in each):
                self._say(
                    f"the heads of the attention in {part or 'the model'} cannot be told apart: its logits have no "
                    "dimension for them (batch, heads, queries, keys), or two attentions differ in their number"
                )
            else:
                known[part] = joined_heads(each)
        values: dict[str, torch.Tensor] = {}
        num_heads = sum(len(heads) for heads in known.values())
        if self._with_heads is None and num_heads > MOST_HEADS:
            self._say(
                f"{num_heads:,} heads are more than {MOST_HEADS}: of each block only the head with the largest logit "
                "is told, as attention_logit_head (all of them with heads=True)"
            )
        for part, heads in known.items():
            name = value_name("attention_logit_head", part, taken) if part else "attention_logit_head"
            values[name] = heads.argmax().float()
            if self._with_heads or num_heads <= MOST_HEADS:
                for head, logit in enumerate(heads.unbind()):
                    own = f"{part}/head={head}" if part else f"head={head}"
                    values[value_name("attention_logit_max", own, {**taken, **values})] = logit
        return values

    # -- the backward pass

    def add_local_gradient(self, parameter: int, gradient: torch.Tensor) -> None:
        """What one backward pass gives for a parameter (by its id) on this rank."""
        if gradient.numel() and not hasattr(gradient, "to_local"):
            self._pass[parameter] = norm(gradient)

    def backward_values(self) -> dict[str, torch.Tensor]:
        """Of all backward passes so far, the one that just ended included."""
        for name, value in self._by_part("local_grad_norm", self._pass).items():
            before = self._local.get(name)
            self._local[name] = value if before is None else joined_max([before, value])
        self._pass.clear()
        return dict(self._local)

    # -- the optimizer's step

    def add_gradients(self, optimizer: Optimizer) -> None:
        """The gradients that an optimizer is given."""
        scale = getattr(optimizer, "grad_scale", None)  # a loss scaler leaves this to optimizers that are fused
        for parameter, _ in self._own(optimizer):
            if parameter.grad is not None and local(parameter.grad).numel():
                given = norm(parameter.grad)
                self._gradients[id(parameter)] = given if scale is None else given / scale
                if hasattr(parameter.grad, "to_local"):
                    self._say("parameters are sharded over ranks: norms are of this rank's shards")

    def add_updates(self, optimizer: Optimizer) -> None:
        """The parameters that an optimizer has moved, and by what moments."""
        self.num_optimizers += 1
        seen = False
        for parameter, group in self._own(optimizer):
            if id(parameter) not in self._gradients:
                continue
            self._norms[id(parameter)] = norm(parameter)
            moments = adam_moments(optimizer.state.get(parameter, {}), group)
            if moments is not None:
                seen = True
                self._ratios[id(parameter)] = (*ratio(moments), moments.first.numel())
        if not seen and self._gradients:
            self._say(
                f"{type(optimizer).__name__} holds no moments as Adam does: there is no update ratio and no share at "
                "the epsilon floor"
            )

    def step_values(self) -> dict[str, torch.Tensor]:
        """Of the optimizer's step."""
        values = self._by_part("grad_norm", self._gradients)
        values |= self._by_part("param_norm", self._norms)
        for part, held in self.parts.parameters.items():
            own = [self._ratios[id(parameter)] for parameter in held if id(parameter) in self._ratios]
            if own:
                count = sum(each[3] for each in own)
                values[value_name("update_ratio_rms", part, values)] = joined_rms([each[0] for each in own], count)
                values[value_name("update_ratio_max", part, values)] = joined_max([each[1] for each in own])
                at_floor = joined_sum([each[2] for each in own])
                values[value_name("epsilon_floor_share", part, values)] = at_floor / count
        return values

    def _own(self, optimizer: Optimizer) -> Iterator[tuple[torch.Tensor, dict[str, Any]]]:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) in self._part_of:
                    yield parameter, group

    def _by_part(self, metric: str, norms: Mapping[int, torch.Tensor]) -> dict[str, torch.Tensor]:
        values: dict[str, torch.Tensor] = {}
        for part, held in self.parts.parameters.items():
            own = [norms[id(parameter)] for parameter in held if id(parameter) in norms]
            if own:
                values[value_name(metric, part, values)] = joined_norm(own)
        return values
