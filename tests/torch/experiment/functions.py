"""What ``--experiment tests.torch.experiment.functions`` imports."""

from __future__ import annotations

from tests.torch.experiment.planted import load, loss, noisy

transform = noisy
"""For ``canary --transform``."""

__all__ = ["load", "loss", "noisy", "transform"]
