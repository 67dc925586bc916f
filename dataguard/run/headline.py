"""How does a headline signal fit into one byte, and what does the byte say?

The index keeps five signals of every sample, one byte each (`dataguard.score.registry.HEADLINE`). Byte 0 says that
there is no value: nothing was judged, or the signal had not what it needs. The other 255 are levels 0..254 of a scale:

* *linear*: level k is ``low + k * (high - low) / 254``; what lies beyond an end is told as that end.
* *logarithmic*: level 0 is exactly 0, and level k above it is ``low * (high / low) ** ((k - 1) / 253)``, so that
  neighbours differ by one ratio; what lies below `low` and is not 0 is told as `low`, beyond `high` as `high`.

A value becomes its nearest level; what is not 0 never becomes a logarithmic 0. Thresholds are never compared with a
byte: verdicts and rules are stored beside it, from full precision. A change of any scale is a new `SCALES_VERSION`,
which every file that holds such bytes names.

>>> scale_of("byte_entropy").resolution
'steps of 0.0315 bits'
>>> decode("byte_entropy", encode("byte_entropy", np.array([4.5, np.nan, 99.0]))).round(2).tolist()
[4.5, nan, 8.0]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dataguard.errors import UnknownSignal

__all__ = ["SCALES_VERSION", "Scale", "decode", "encode", "encode_columns", "scale_of"]

SCALES_VERSION = 1
"""Of the scales below, all of them together."""

_TOP = 254


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How the values of one signal lie on 255 levels.

    >>> Scale(kind="linear", low=0, high=1, unit="fraction").levels()[[0, 127, 254]].tolist()
    [0.0, 0.5, 1.0]
    """

    kind: Literal["linear", "logarithmic"]
    low: float
    """Level 0 of a linear scale, level 1 of a logarithmic one."""
    high: float
    """Level 254."""
    unit: str

    def levels(self) -> NDArray[np.float64]:
        """What each of the 255 levels stands for: float64, shape (255,)."""
        if self.kind == "linear":
            return np.linspace(self.low, self.high, _TOP + 1)
        above = self.low * (self.high / self.low) ** (np.arange(_TOP) / (_TOP - 1))
        return np.concatenate([[0.0], above])

    @property
    def resolution(self) -> str:
        """How far neighbouring levels lie apart, for people."""
        if self.kind == "linear":
            return f"steps of {(self.high - self.low) / _TOP:.3g} {self.unit}"
        ratio = (self.high / self.low) ** (1 / (_TOP - 1))
        return f"steps of {ratio - 1:.1%}, from {self.low:g} {self.unit} on"


def _linear(low: float, high: float, unit: str) -> Scale:
    return Scale(kind="linear", low=low, high=high, unit=unit)


def _logarithmic(low: float, high: float, unit: str) -> Scale:
    return Scale(kind="logarithmic", low=low, high=high, unit=unit)


_COUNT = float(1 << 28)

_SCALES: dict[str, Scale] = {
    "length_outlier": _linear(-16, 16, "sigmas"),
    "byte_entropy": _linear(0, 8, "bits"),
    "dup_5gram_char_fraction": _linear(0, 1, "fraction"),
    "byte_periodic_repeats": _logarithmic(1, _COUNT, "repeats"),
    "nontext_fraction": _logarithmic(2.0**-14, 1, "fraction"),
    "length_tokens": _logarithmic(1, _COUNT, "tokens"),
    "token_entropy": _linear(0, 20, "bits"),
    "token_dup_ngram_fraction": _linear(0, 1, "fraction"),
    "token_periodic_repeats": _logarithmic(1, _COUNT, "repeats"),
    "out_of_vocabulary": _logarithmic(1, _COUNT, "tokens"),
}
_LEVELS = {name: scale.levels() for name, scale in _SCALES.items()}
_VALUES = {name: np.concatenate([[np.nan], levels]) for name, levels in _LEVELS.items()}
# Between two levels the nearer one counts; half way up. Above a logarithmic 0 lies no middle: all of it is level 1.
_MIDDLES = {name: (levels[1:] + levels[:-1]) / 2 for name, levels in _LEVELS.items()}
for _name, _scale in _SCALES.items():
    if _scale.kind == "logarithmic":
        _MIDDLES[_name][0] = np.nextafter(0, 1)


def scale_of(signal: str) -> Scale:
    """The scale of a headline signal; UnknownSignal for any other."""
    if signal not in _SCALES:
        raise UnknownSignal(f"signal {signal!r} has no scale", allowed=", ".join(_SCALES))
    return _SCALES[signal]


def encode(signal: str, values: ArrayLike) -> NDArray[np.uint8]:
    """The byte of each value; 0 for NaN. Shape as given, uint8."""
    exact = np.asarray(values, dtype=np.float64)
    return encode_columns([signal], exact.reshape(-1, 1)).reshape(exact.shape)


def encode_columns(signals: Sequence[str], values: NDArray[np.float64]) -> NDArray[np.uint8]:
    """The same of several signals at once: one column each, shape (n, signals).

    >>> encode_columns(["out_of_vocabulary", "length_tokens"], np.array([[0.0, 1.0], [np.nan, 1.0]])).tolist()
    [[1, 2], [0, 2]]
    """
    bytes_ = np.empty(values.shape, np.uint8)
    for column, signal in enumerate(signals):
        scale_of(signal)
        bytes_[:, column] = _MIDDLES[signal].searchsorted(values[:, column], "right")
    bytes_ += 1
    bytes_[np.isnan(values)] = 0
    return bytes_


def decode(signal: str, bytes_: ArrayLike) -> NDArray[np.float64]:
    """What each byte says; NaN for 0. Shape as given, float64.

    >>> decode("out_of_vocabulary", [0, 1, 2]).tolist()
    [nan, 0.0, 1.0]
    """
    scale_of(signal)
    values: NDArray[np.float64] = _VALUES[signal][np.asarray(bytes_, dtype=np.uint8)]
    return values
