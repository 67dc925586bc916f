"""What do hooks see while one microbatch goes forward and backward through a copy of a model?

Each module's output, each attention's logits and each gradient is noted once, in the order in which it was computed, as
two numbers: the root mean square and the largest magnitude, where NaN wins over everything. They stay on their device
until the end, so the order of the computation costs no wait.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from dataguard.torch.stability.probe_report import Gone, LayerSeen, Place, Seen
from dataguard.torch.watching.attention import LogitWatch
from dataguard.torch.watching.blocks import is_attention, parts_of
from dataguard.torch.watching.numbers import local
from dataguard.torch.watching.sample import first_tensor

__all__ = ["see"]


@dataclass(slots=True, kw_only=True, eq=False)
class _Noted:
    """One tensor, by its numbers."""

    name: str
    place: Place
    dtype: torch.dtype
    rms: torch.Tensor
    max: torch.Tensor


class _Eyes:
    """Hooks on a copy, and what they have noted."""

    def __init__(self, model: nn.Module) -> None:
        self.forward: dict[tuple[str, Place], _Noted] = {}
        self.backward: dict[tuple[str, Place], _Noted] = {}
        self.attention: dict[str, torch.Tensor] = {}
        self._stack: list[str] = []
        self._num_attentions = 0
        self._handles: list[RemovableHandle] = []
        for name, module in model.named_modules():
            attends = is_attention(name, module)
            self._handles.append(module.register_forward_pre_hook(self._entering(name, attends=attends)))
            self._handles.append(module.register_forward_hook(self._leaving(name, attends=attends), always_call=True))
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                hooked: Any = parameter
                self._handles.append(hooked.register_hook(self._gradient(name, Place.PARAMETER_GRADIENT)))

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def logits(self, logits: torch.Tensor) -> None:
        """Of each head of the attention that runs, the largest."""
        name = self._stack[-1] if self._stack else ""
        own = logits.reshape(-1)
        known = self.attention.get(name)
        self.attention[name] = own if known is None or known.shape != own.shape else torch.maximum(known, own)
        # -inf is a head to which everything is masked, and no fault.
        self.note(self.forward, name, Place.ATTENTION_LOGITS, own.masked_fill(own == -torch.inf, 0.0))

    def in_attention(self) -> bool:
        return self._num_attentions > 0

    def note(self, where: dict[tuple[str, Place], _Noted], name: str, place: Place, tensor: torch.Tensor) -> None:
        with torch.no_grad():
            held = local(tensor)
            if not held.numel():
                return
            rms, largest = (_norm(held) / math.sqrt(held.numel())).float(), held.abs().amax().float()
        known = where.get((name, place))
        if known is None:
            where[name, place] = _Noted(name=name, place=place, dtype=held.dtype, rms=rms, max=largest)
        else:  # maximum keeps NaN
            known.rms, known.max = torch.maximum(known.rms, rms), torch.maximum(known.max, largest)

    def _entering(self, name: str, *, attends: bool) -> Callable[..., None]:
        def entering(*_: Any) -> None:
            self._num_attentions += attends
            if attends:
                self._stack.append(name)

        return entering

    def _leaving(self, name: str, *, attends: bool) -> Callable[..., None]:
        def leaving(_: nn.Module, __: Any, output: Any) -> None:
            if attends:
                self._num_attentions -= 1
                self._stack.pop()
            tensor = first_tensor(output)
            if tensor is not None:
                self.note(self.forward, name, Place.ACTIVATION, tensor)
                if tensor.requires_grad:
                    hooked: Any = tensor
                    hooked.register_hook(self._gradient(name, Place.GRADIENT))

        return leaving

    def _gradient(self, name: str, place: Place) -> Callable[[torch.Tensor], None]:
        def given(gradient: torch.Tensor) -> None:
            self.note(self.backward, name, place, gradient)

        return given


def see(
    model: nn.Module,
    call: Callable[[nn.Module], torch.Tensor],
    *,
    dtype: torch.dtype,
    limit_dtype: torch.dtype,
    autocast: torch.dtype | None,
    loss_scale: float,
) -> Seen:
    """One pass over a copy, which is used up by it: gradients are left in it.

    Parameters
    ----------
    model
        The copy.
    call
        Gives the loss, one element.
    dtype
        What this pass is called.
    limit_dtype
        The type whose range values are held against where all are finite.
    autocast
        For the forward pass; None switches autocast off.
    loss_scale
        The loss is multiplied by it before the backward pass, and what is told of gradients divided.
    """
    device = next((each.device.type for each in model.parameters()), "cpu")
    eyes = _Eyes(model)
    try:
        with torch.enable_grad():
            mode = torch.autocast(device, autocast) if autocast else torch.autocast(device, enabled=False)
            with mode, LogitWatch(eyes.logits, eyes.in_attention, by_head=True):
                loss = call(model)
            eyes.note(eyes.forward, "", Place.LOSS, loss)
            with contextlib.nullcontext() if autocast else torch.autocast(device, enabled=False):
                if loss.requires_grad:
                    torch.autograd.backward(loss.float() * loss_scale)
    finally:
        eyes.remove()
    limit = torch.finfo(limit_dtype).max / 2
    numbers = _numbers(eyes)
    layers = [
        LayerSeen(
            name=noted.name,
            order=order,
            dtype=str(noted.dtype).removeprefix("torch."),
            rms=numbers[id(noted)][0],
            max=numbers[id(noted)][1],
        )
        for order, noted in enumerate(eyes.forward.values())
        if noted.place is Place.ACTIVATION
    ]
    norms = {
        id(parameter): (name, _norm(parameter.grad).item() / loss_scale)
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    by_block = {
        part: math.hypot(*(norms[id(each)][1] for each in held if id(each) in norms))
        for part, held in parts_of(model).parameters.items()
        if any(id(each) in norms for each in held)
    }
    return Seen(
        dtype=str(dtype).removeprefix("torch."),
        loss=loss.detach().float().item(),
        layers=tuple(layers),
        attention={name: tuple(logits.tolist()) for name, logits in eyes.attention.items()},
        gradient_norms=by_block,
        parameter_gradient_norms=dict(norms.values()),
        first_forward=_first(eyes.forward, numbers, limit),
        first_backward=_first(eyes.backward, numbers, limit),
    )


def _norm(tensor: torch.Tensor) -> torch.Tensor:
    """The L2 norm, in float64: squares of large float32 values are infinite in float32 though the values are not."""
    kind = torch.float32 if tensor.device.type == "mps" else torch.float64
    result: torch.Tensor = torch.linalg.vector_norm(local(tensor), dtype=kind)
    return result


def _numbers(eyes: _Eyes) -> dict[int, tuple[float, float]]:
    """All of them in one read of the device: by the id of what was noted, rms and largest."""
    noted = [*eyes.forward.values(), *eyes.backward.values()]
    if not noted:
        return {}
    device = noted[0].rms.device
    rows = torch.stack([torch.stack([each.rms.to(device), each.max.to(device)]) for each in noted]).tolist()
    return {id(each): (rms, largest) for each, (rms, largest) in zip(noted, rows, strict=True)}


def _first(
    noted: dict[tuple[str, Place], _Noted], numbers: dict[int, tuple[float, float]], limit: float
) -> Gone | None:
    """The first that is not finite; where all are, the first beyond the limit."""
    for why in ("nonfinite", "range"):
        for order, each in enumerate(noted.values()):
            largest = numbers[id(each)][1]
            if not math.isfinite(largest) if why == "nonfinite" else largest > limit:
                return Gone(name=each.name, place=each.place, why=why, value=largest, order=order)
    return None
