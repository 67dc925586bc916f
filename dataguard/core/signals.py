"""What is a signal, as a value: its name, unit, range, version and what it needs?

A signal is one number a scorer gives for a sample. Its definition is written once (SCORES.md) and carried here, so that
a policy, a table heading and a stored column all speak of the same thing. The version changes when the definition does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dataguard.core.robust import MAD_TO_SIGMA

__all__ = ["Need", "Reference", "SignalKind", "SignalSpec", "robust_z"]

SignalKind = Literal["text", "tokens"]
"""What it is computed from: the bytes of a record, or the ids of a token sample."""

Need = Literal["profile", "vocab_size", "text_bytes"]
"""What it needs beside the sample: a reference profile, the vocabulary's size, the bytes the tokens came from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalSpec:
    """One signal, as it is defined.

    >>> spec = SignalSpec(name="byte_entropy", kind="text", unit="bits", low=0.0, high=8.0, definition="-sum p log2 p")
    >>> spec.holds(8.0), spec.holds(8.1)
    (True, False)
    """

    name: str
    kind: SignalKind
    unit: str
    """``bytes``, ``characters``, ``words``, ``lines``, ``tokens``, ``bits``, ``fraction``, ``count`` or ``ratio``."""
    low: float
    """The least value any input gives; -inf where there is none."""
    high: float
    """The bound no input exceeds; inf where there is none."""
    definition: str
    high_reached: bool = True
    """Whether some input reaches `high`; False for [0, 1) ranges."""
    whole: bool = False
    """Whether every value is an integer: such a column is int64, every other float64."""
    empty: float = 0.0
    """The value of the empty input."""
    needs: tuple[Need, ...] = ()
    version: int = 1
    scorer: str = ""
    """Who computes it, where it is not part of the kernels that compute many at once: ``file:function`` of the score
    room. The function is given what its kind is made of, uint8 bytes or int64 ids, flat, and int64 offsets of shape
    (n + 1,); it gives a column of `dtype`, shape (n,). It may be called from several threads."""

    @property
    def dtype(self) -> np.dtype[np.int64] | np.dtype[np.float64]:
        """int64 for whole signals, float64 for the others."""
        return np.dtype(np.int64) if self.whole else np.dtype(np.float64)

    def holds(self, value: float) -> bool:
        """Whether a sample could have this value, as far as the range says."""
        return self.low <= value and (value <= self.high if self.high_reached else value < self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Median and median absolute deviation of one signal over one source, taken from a reference profile."""

    median: float
    mad: float


def robust_z(values: NDArray[np.number], reference: Reference) -> NDArray[np.float64]:
    """(x - median) / (1.4826 * MAD) of each value; 0 where the MAD is 0. Shape as given, float64.

    >>> robust_z(np.array([1.0, 4.0]), Reference(median=1.0, mad=2.0)).round(4).tolist()
    [0.0, 1.0117]
    """
    centred: NDArray[np.float64] = np.asarray(values, dtype=np.float64) - reference.median
    if reference.mad == 0:
        return np.zeros_like(centred)
    z: NDArray[np.float64] = centred / (MAD_TO_SIGMA * reference.mad)
    return z
