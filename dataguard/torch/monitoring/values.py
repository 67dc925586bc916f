"""How does a value that a trainer logs become a number, without the device being waited for?

Numbers, NumPy scalars and tensors on the CPU are read at once (tensors without their graph). What lies on a CUDA device
is copied into page-locked memory behind the work that computes it, all values of a call in one copy; an event tells
when it is there, and until then nobody waits. Tensors on other devices have no such copy and are read at once, which
waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, SupportsFloat

import numpy as np
import torch
from numpy.typing import NDArray

from dataguard.errors import UsageError

__all__ = ["Later", "Taken", "Value", "take", "take_samples"]

Value = float | SupportsFloat | np.ndarray[Any, Any] | torch.Tensor
"""One number: a Python or NumPy number, or an array or tensor of one element."""


class Later(Protocol):
    """Numbers that are on their way from a device."""

    def ready(self) -> bool:
        """Whether they are there; never waits."""

    def numbers(self) -> NDArray[np.float64]:
        """The numbers, shape (n,); waits until they are there."""


class _FromCuda:
    """Numbers of a CUDA device on their way into page-locked memory."""

    __slots__ = ("_event", "_host")

    def __init__(self, tensor: torch.Tensor) -> None:
        with torch.cuda.device(tensor.device):
            self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._host.copy_(tensor, non_blocking=True)
            make_event: Callable[[], Any] = torch.cuda.Event
            self._event = make_event()
            self._event.record()

    def ready(self) -> bool:
        there: bool = self._event.query()
        return there

    def numbers(self) -> NDArray[np.float64]:
        self._event.synchronize()
        return self._host.numpy()


_COPIES: dict[str, Callable[[torch.Tensor], Later]] = {"cuda": _FromCuda}
"""How float64 numbers, shape (n,), are fetched without waiting, by type of device."""


@dataclass(slots=True, kw_only=True, eq=False)
class Taken:
    """Numbers of one call, some of them perhaps still on their way."""

    names: list[str]
    """One a number."""
    numbers: NDArray[np.float64]
    """Shape (n,); NaN where a number is still on its way."""
    coming: list[tuple[list[int], Later]] = field(default_factory=list)
    """Places of the numbers that are, and where they come from."""

    def with_number(self, name: str, number: float) -> Taken:
        """The same with one more number at the end."""
        return Taken(names=[*self.names, name], numbers=np.append(self.numbers, number), coming=self.coming)

    def ready(self) -> bool:
        """Whether all are there, or can be had without waiting."""
        return all(later.ready() for _, later in self.coming)

    def settle(self) -> NDArray[np.float64]:
        """All numbers; waits for those on their way."""
        for places, later in self.coming:
            self.numbers[places] = later.numbers()
        self.coming.clear()
        return self.numbers


def take(values: Mapping[str, Value | None]) -> Taken:
    """Take one number a name; a value of None is left out.

    Raises
    ------
    UsageError
        A value is no number, or not just one.

    >>> taken = take({"loss": torch.tensor(2.5, requires_grad=True), "lr": 1e-3, "skipped": None})
    >>> taken.names, taken.settle().tolist()
    (['loss', 'lr'], [2.5, 0.001])
    """
    names: list[str] = []
    numbers: list[float] = []
    devices: dict[torch.device, tuple[list[int], list[torch.Tensor]]] = {}
    for name, value in values.items():
        if value is None:
            continue
        names.append(name)
        if type(value) is float:
            numbers.append(value)
        elif isinstance(value, torch.Tensor):
            tensor = _local(name, value)
            if tensor.numel() != 1:
                raise _not_one(name, tuple(tensor.shape))
            if tensor.device.type in _COPIES:
                places, tensors = devices.setdefault(tensor.device, ([], []))
                places.append(len(numbers))
                tensors.append(tensor)
                numbers.append(np.nan)
            else:
                numbers.append(float(tensor.item()))
        else:
            numbers.append(_number(name, value))
    coming: list[tuple[list[int], Later]] = []
    for places, tensors in devices.values():
        with torch.no_grad():
            together = torch.stack([tensor.reshape(()).to(torch.float64) for tensor in tensors])
        coming.append((places, _COPIES[together.device.type](together)))
    return Taken(names=names, numbers=np.array(numbers, np.float64), coming=coming)


def take_samples(name: str, losses: Any, num_samples: int) -> Taken:
    """Take one number a sample, shape (num_samples,).

    Raises
    ------
    UsageError
        It has another shape, or holds no numbers.

    >>> take_samples("loss", torch.tensor([1.5, 2.5]), 2).settle().tolist()
    [1.5, 2.5]
    """
    if isinstance(losses, torch.Tensor):
        losses = _local(name, losses)
        shape = tuple(losses.shape)
    else:
        try:
            losses = np.asarray(losses)
        except ValueError as error:
            raise UsageError(f"{name} of samples cannot be read: {error}") from error
        if losses.dtype.kind not in "biuf":
            raise UsageError(f"{name} of samples cannot be of type {losses.dtype}", allowed="real numbers")
        shape = losses.shape
    if shape != (num_samples,):
        raise UsageError(
            f"{name} of samples has shape {shape}, and the microbatch holds {num_samples:,} slots",
            allowed=f"shape ({num_samples},): one value a slot, padding included",
            todo="reduce over tokens alone, e.g. cross_entropy(..., reduction='none').view(slots, -1).mean(1)",
        )
    names = [name] * num_samples
    if not isinstance(losses, torch.Tensor):
        return Taken(names=names, numbers=losses.astype(np.float64))
    copy = _COPIES.get(losses.device.type)
    if copy is None:
        return Taken(names=names, numbers=np.array(losses.tolist(), np.float64))
    with torch.no_grad():
        later = copy(losses.to(torch.float64))
    return Taken(names=names, numbers=np.full(num_samples, np.nan), coming=[(list(range(num_samples)), later)])


def _local(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as this rank holds it."""
    placements = getattr(tensor, "placements", None)
    if placements is not None:
        if not all(placement.is_replicate() for placement in placements):
            raise UsageError(
                f"{name} is a DTensor of which this rank holds a part alone: {tuple(placements)}",
                allowed="a replicated DTensor, or a plain tensor",
                todo=f"log {name}.full_tensor(), called on every rank (it is collective)",
            )
        of_mesh: Any = tensor
        tensor = of_mesh.to_local()
    if tensor.is_complex() or tensor.is_meta:
        what = "complex numbers" if tensor.is_complex() else "no data: it lies on the meta device"
        raise UsageError(f"{name} holds {what}", allowed="real numbers")
    return tensor


def _number(name: str, value: Any) -> float:
    if isinstance(value, np.ndarray):
        if value.size != 1:
            raise _not_one(name, value.shape)
        value = value.reshape(())[()]
    real = hasattr(value, "__float__") and not isinstance(value, complex | np.complexfloating | str | bytes)
    if not real:
        raise UsageError(
            f"{name} cannot be logged: a {type(value).__name__} is no number",
            allowed="a real number, or an array or tensor of one element",
        )
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError) as error:
        raise UsageError(f"{name} cannot be logged: {error}", allowed="a real number") from error


def _not_one(name: str, shape: tuple[int, ...]) -> UsageError:
    return UsageError(
        f"{name} cannot be logged: it has shape {shape}",
        allowed="one number: a tensor of one element",
        todo=f"reduce it first, e.g. {name}.mean(); losses of samples go to log_samples",
    )
