"""Functions of a trainer whose transform has a name of its own: it is found by what the attempt recorded."""

from __future__ import annotations

from tests.torch.experiment.planted import load, loss, noisy

__all__ = ["load", "loss", "noisy"]
