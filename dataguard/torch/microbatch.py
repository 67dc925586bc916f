"""What is a trainer handed?

A `TensorMicrobatch`: a dict of tensors, as every framework expects one, that also says which microbatch it is. Trainers
make copies of mappings as ``type(batch)({...})``; such a copy holds the tensors and knows its address no more, and says
so when it is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from dataguard.core.address import Address
from dataguard.core.microbatch import Microbatch

__all__ = ["TensorMicrobatch"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Facts:
    """What is known of it beside its tensors."""

    microbatch: Microbatch
    """Without the samples themselves."""
    num_loss_tokens: int | None


class TensorMicrobatch(dict[str, torch.Tensor]):
    """One microbatch as delivered: tensors by name, their first axis is the slot.

    >>> batch = TensorMicrobatch({"input_ids": torch.zeros(2, 3, dtype=torch.int64)})
    >>> batch["input_ids"].shape
    torch.Size([2, 3])
    >>> batch.address
    Traceback (most recent call last):
        ...
    AttributeError: this TensorMicrobatch was made of tensors alone and does not know its address; keep the one that \
the loader handed over, or move it with .to(device)
    """

    _facts: _Facts | None = None

    def __init__(self, tensors: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]] = ()) -> None:
        super().__init__(tensors)

    @classmethod
    def delivered(
        cls, tensors: Mapping[str, torch.Tensor], microbatch: Microbatch, *, num_loss_tokens: int | None
    ) -> Self:
        """Make one that knows what it is.

        Parameters
        ----------
        microbatch
            What the tensors were made of; its samples may be left out.
        num_loss_tokens
            Labels that count; None where it has no labels.
        """
        made = cls(tensors)
        made._facts = _Facts(microbatch=microbatch, num_loss_tokens=num_loss_tokens)
        return made

    def _known(self, name: str) -> _Facts:
        if self._facts is None:
            raise AttributeError(
                f"this TensorMicrobatch was made of tensors alone and does not know its {name}; keep the one that the "
                "loader handed over, or move it with .to(device)"
            )
        return self._facts

    # -- what it is

    @property
    def address(self) -> Address:
        """Step (counted from 0), rank and microbatch."""
        return self._known("address").microbatch.address

    @property
    def step(self) -> int:
        """Optimizer update, counted from 0; ``run.label(microbatch.step)`` is what the trainer calls it."""
        return self._known("step").microbatch.step

    @property
    def attempt(self) -> int:
        """The attempt that delivered it."""
        return self._known("attempt").microbatch.attempt

    @property
    def slots(self) -> range:
        """Slots of the global batch, half-open."""
        return self._known("slots").microbatch.slots

    @property
    def positions(self) -> NDArray[np.int64]:
        """Position of each slot in the stream, int64, shape (microbatch_size,)."""
        return self._known("positions").microbatch.positions

    @property
    def status(self) -> NDArray[np.uint8]:
        """`dataguard.plan.slots.SlotStatus` of each slot, uint8, shape (microbatch_size,)."""
        return self._known("status").microbatch.status

    @property
    def names(self) -> tuple[str, ...]:
        """``SOURCE/path`` of the planned shard of each slot."""
        return self._known("names").microbatch.names

    @property
    def rows(self) -> NDArray[np.int64]:
        """Planned row of each slot, int64, shape (microbatch_size,)."""
        return self._known("rows").microbatch.row

    @property
    def digest(self) -> bytes:
        """xxh3-128 over the tensors as delivered and over what they were made of, as the index has it."""
        return self._known("digest").microbatch.digest

    @property
    def num_loss_tokens(self) -> int:
        """Labels that count towards the loss; the whole batch's mean is a sum over the sum of these over all ranks.

        AttributeError where the microbatch has no labels.
        """
        counted = self._known("num_loss_tokens").num_loss_tokens
        if counted is None:
            raise AttributeError("this TensorMicrobatch has no labels, so what counts towards the loss is not known")
        return counted

    @property
    def all_masked(self) -> bool:
        """True where nothing counts towards the loss: a mean over its labels is NaN, a sum is 0."""
        facts = self._known("all_masked")
        if facts.num_loss_tokens is None:
            return facts.microbatch.all_masked
        return facts.num_loss_tokens == 0

    # -- where its tensors are

    def to(self, device: torch.device | str | int, *, non_blocking: bool = False) -> Self:
        """The same microbatch with its tensors on a device."""
        return self._with({name: tensor.to(device, non_blocking=non_blocking) for name, tensor in self.items()})

    def pin_memory(self) -> Self:
        """The same microbatch in page-locked memory, from where an accelerator copies without waiting."""
        return self._with({name: tensor.pin_memory() for name, tensor in self.items()})

    def _with(self, tensors: Mapping[str, torch.Tensor]) -> Self:
        made = type(self)(tensors)
        made.__dict__.update(self.__dict__)
        return made

    def __or__(self, other: Any) -> Any:
        """A copy with more tensors; it is still the same microbatch."""
        return self._with({**self, **other}) if isinstance(other, Mapping) else NotImplemented

    def copy(self) -> Self:
        """A shallow copy that knows what it is."""
        return self._with(self)
