"""A device for tests of values that are not there at once: the CPU, taken for one that answers when it is told to."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dataguard.torch.monitoring import values

__all__ = ["FakeDevice"]


class FakeDevice:
    """Every tensor of the CPU is fetched through it; `release` lets the oldest copies arrive."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.copies: list[_Copy] = []
        self.waited_for = 0
        """Copies that somebody waited for before they had arrived."""
        patch.setitem(values._COPIES, "cpu", self._copy)

    def _copy(self, tensor: torch.Tensor) -> _Copy:
        assert tensor.dtype == torch.float64
        assert not tensor.requires_grad
        self.copies.append(_Copy(self, tensor.clone()))
        return self.copies[-1]

    def release(self, count: int = 1_000_000) -> None:
        for copy in [copy for copy in self.copies if not copy.arrived][:count]:
            copy.arrived = True


class _Copy:
    def __init__(self, device: FakeDevice, tensor: torch.Tensor) -> None:
        self.device, self.tensor, self.arrived = device, tensor, False

    def ready(self) -> bool:
        return self.arrived

    def numbers(self) -> np.ndarray:
        self.device.waited_for += not self.arrived
        self.arrived = True
        return self.tensor.numpy()
