"""What ``--experiment tests.torch.experiment.functions`` imports."""

from __future__ import annotations

from tests.torch.experiment.planted import load, loss
from tests.torch.experiment.planted import noisy as transform

__all__ = ["load", "loss", "transform"]
