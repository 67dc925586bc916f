"""Training curves as they might be, with nothing in them that would be an event."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def noise(num: int, *, seed: int, kind: str = "normal", memory: float = 0.0) -> NDArray[np.float64]:
    """Noise with the scale of a standard normal: ``normal``, ``laplace``, ``t4``; with lag-one correlation `memory`."""
    rng = np.random.default_rng(seed)
    if kind == "normal":
        drawn = rng.standard_normal(num)
    elif kind == "laplace":
        drawn = rng.laplace(size=num) / np.sqrt(2)
    else:
        drawn = rng.standard_t(4, num) / np.sqrt(2)
    if memory:
        for i in range(1, num):
            drawn[i] = memory * drawn[i - 1] + np.sqrt(1 - memory**2) * drawn[i]
    return drawn


def trend(num: int, *, start: float = 11.0, floor: float = 2.5) -> NDArray[np.float64]:
    """A loss that falls as a power of the step, steeply at first."""
    return floor + (start - floor) * (1 + np.arange(num) / 10.0) ** -0.55


def curve(
    num: int, *, seed: int, sigma: float = 0.03, kind: str = "normal", memory: float = 0.0
) -> NDArray[np.float64]:
    """A quiet training curve."""
    return trend(num) + sigma * noise(num, seed=seed, kind=kind, memory=memory)
