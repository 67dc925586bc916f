"""What is the loss of a global batch from one state, and its gradient? And how is that state trained on?

One process plays all ranks, one after the other: the gradient of a step is that of the mean over the loss tokens of its
global batch. Whoever calls hands over copies; the random states of torch, NumPy and Python are put back afterwards.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xxhash
from torch import nn
from torch.optim import Optimizer

from dataguard.core.keys import derive_key
from dataguard.errors import UsageError
from dataguard.torch.experiment.answers import Measured, spelled
from dataguard.torch.microbatch import TensorMicrobatch
from dataguard.torch.tensors import named_tensors
from dataguard.torch.watching.blocks import parts_of

__all__ = [
    "Batch",
    "Load",
    "Loss",
    "Trainee",
    "Update",
    "casts_by_itself",
    "keyed_randomness",
    "loaded",
    "loss_of",
    "measure",
    "reduced",
    "state_digest",
]

Load = Callable[[str], tuple[nn.Module, Optimizer]]
"""Gives model and optimizer as a checkpoint has them: on their device, in the mode they train in."""
Loss = Callable[[nn.Module, TensorMicrobatch], torch.Tensor]
"""The mean over the loss tokens of one microbatch, a scalar with its history: what the trainer backpropagates, before
any division by the number of microbatches or any loss scaling."""
Update = Callable[[nn.Module, Optimizer, int], None]
"""What the trainer does once the gradients of a step (in its labels) are there: clip, set the rate, step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One global batch, as it was delivered."""

    step: int
    """In the trainer's labels."""
    microbatches: tuple[TensorMicrobatch, ...]
    """Of all ranks (or those that were sampled), those with anything to learn from."""
    digest: str


@dataclass(slots=True, kw_only=True)
class Trainee:
    """A model and its optimizer, copied for one replay."""

    model: nn.Module
    optimizer: Optimizer

    def copy(self) -> Trainee:
        """Another one that shares nothing with it."""
        model, optimizer = copy.deepcopy((self.model, self.optimizer))
        return Trainee(model=model, optimizer=optimizer)


def loaded(load: Load, path: str) -> Trainee:
    """What `load` gives, copied: whatever is done to it leaves the one under test alone.

    Raises
    ------
    UsageError
        It gives something else than a model and its optimizer.
    """
    given = load(path)
    if not (
        isinstance(given, tuple)
        and len(given) == 2
        and isinstance(given[0], nn.Module)
        and isinstance(given[1], Optimizer)
    ):
        raise UsageError(
            f"load({path!r}) gave no model and optimizer",
            found=type(given).__name__,
            allowed="(model, optimizer): a torch.nn.Module and a torch.optim.Optimizer",
        )
    return Trainee(model=given[0], optimizer=given[1]).copy()


def loss_of(loss: Loss, model: nn.Module, microbatch: TensorMicrobatch) -> torch.Tensor:
    """The loss of one microbatch, on the model's device; UsageError where it is no scalar tensor."""
    device = next((each.device for each in model.parameters()), torch.device("cpu"))
    value = loss(model, microbatch.to(device))
    if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.is_floating_point():
        raise UsageError(
            "loss(model, microbatch) gave no scalar",
            found=f"{tuple(value.shape)}, {value.dtype}" if isinstance(value, torch.Tensor) else type(value).__name__,
            allowed="a tensor of one floating-point number: the mean over the microbatch's loss tokens",
        )
    return value.reshape(())


def measure(
    model: nn.Module,
    batch: Batch,
    loss: Loss,
    *,
    backward: bool = True,
    layers: dict[str, float] | None = None,
    dtype: torch.dtype | None = None,
) -> Measured:
    """Loss (in nats) and gradient norm of a global batch; the gradients stay in the model.

    Parameters
    ----------
    backward
        Without it the gradient norm is 0 and nothing is left in the model.
    layers
        Gradient norms by layer are put here.
    dtype
        Under autocast of this type.
    """
    for parameter in model.parameters():
        parameter.grad = None
    total = 0.0
    for microbatch, weight in zip(batch.microbatches, _weights(batch.microbatches), strict=True):
        with torch.set_grad_enabled(backward), reduced(model, dtype):
            value = loss_of(loss, model, microbatch)
        if backward:
            if not value.requires_grad:
                raise UsageError(
                    "loss(model, microbatch) has no gradient", todo="return it as computed, without .detach()"
                )
            (value * weight).backward()  # type: ignore[no-untyped-call]
        total += value.item() * weight
    norm = 0.0
    if backward:
        for layer, parameters in parts_of(model).parameters.items():
            squares = [float(each.grad.detach().double().norm()) ** 2 for each in parameters if each.grad is not None]
            norm += sum(squares)
            if layers is not None:
                layers[layer] = math.sqrt(sum(squares)) if math.isfinite(sum(squares)) else sum(squares)
    return Measured(loss=spelled(total), grad_norm=spelled(math.sqrt(norm) if math.isfinite(norm) else norm))


def _weights(microbatches: tuple[TensorMicrobatch, ...]) -> list[float]:
    """What each microbatch's mean counts in the mean over the tokens of all."""
    counts = [_loss_tokens(each) for each in microbatches]
    if any(count is None for count in counts):
        return [1 / len(counts)] * len(counts)
    total = sum(count or 0 for count in counts)
    return [(count or 0) / total for count in counts]


def _loss_tokens(microbatch: TensorMicrobatch) -> int | None:
    try:
        return microbatch.num_loss_tokens
    except AttributeError:  # it has no labels: each counts the same
        return None


def reduced(model: nn.Module, dtype: torch.dtype | None) -> AbstractContextManager[Any]:
    """Autocast of the run's number type, where parameters are of a finer one."""
    parameter = next(model.parameters(), None)
    if dtype is None or parameter is None or dtype.itemsize >= parameter.dtype.itemsize:
        return nullcontext()
    return torch.autocast(parameter.device.type, dtype=dtype)


def casts_by_itself(model: nn.Module, batch: Batch, loss: Loss) -> bool:
    """Whether modules of a float32 model give coarser numbers: `loss` sets an autocast of its own."""
    seen: set[torch.dtype] = set()

    def look(_module: nn.Module, _inputs: Any, output: Any) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        seen.update(each.dtype for each in outputs if isinstance(each, torch.Tensor) and each.is_floating_point())

    handles = [module.register_forward_hook(look) for module in model.modules()]
    try:
        with torch.no_grad():
            loss_of(loss, model, batch.microbatches[0])
    finally:
        for handle in handles:
            handle.remove()
    return any(dtype.itemsize < 4 for dtype in seen)


def state_digest(trainee: Trainee) -> str:
    """xxh3-128 over names, types, shapes and bytes of parameters, buffers and the optimizer's state."""
    state = xxhash.xxh3_128(b"dataguard-state-1")
    for name, tensor in sorted(_tensors("model", trainee.model.state_dict())):
        _add(state, name, tensor)
    for name, tensor in sorted(_tensors("optimizer", trainee.optimizer.state_dict())):
        _add(state, name, tensor)
    return state.hexdigest()


def _add(state: Any, name: str, tensor: torch.Tensor) -> None:
    for key, named in named_tensors({name: tensor}).items():
        state.update(f"{len(key)} {key} {named.dtype} {named.shape}\n".encode())
        state.update(named.data)


def _tensors(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _tensors(f"{name}.{key}", each)
    elif isinstance(value, list | tuple):
        for i, each in enumerate(value):
            yield from _tensors(f"{name}.{i}", each)


@contextmanager
def keyed_randomness(purpose: str, *parts: int | str) -> Iterator[None]:
    """Random numbers of torch, NumPy and Python drawn from a key, so that two nodes draw the same; put back after."""
    key = derive_key(purpose, *parts)
    python, numpy = random.getstate(), np.random.get_state()  # noqa: TID251, NPY002 - put back as they were
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(key % 2**63)
        random.seed(key)
        np.random.seed(key % 2**32)  # noqa: TID251, NPY002 - what a loss draws from is the global state
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: TID251, NPY002
