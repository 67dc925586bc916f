"""Which signals are held against the background, on which scale, and on which side?

Signals of the registry that differ in what they see: of families that see the same (lines and paragraphs, n-grams of
2 to 10 words) one or two, since each comparison makes all others weaker. One more is made from two counts: bytes a
character. For a model that reads bytes that is what *fertility* is for one that reads the tokens of a tokenizer: how
many tokens it takes to say a character. It carries its name.

Counts and ratios without an upper bound are judged by their logarithm, so that a tail that falls as a power is
exponential there (`chances`); fractions and entropies as they are. A fraction that no ordinary text has (encoded, not
text) can stand out upwards alone; the others to both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dataguard.core.signals import SignalKind
from dataguard.score.registry import SIGNALS, select

__all__ = ["BYTES_A_CHARACTER", "MEASURES", "Measure", "Side", "measured", "needed_signals"]

Side = Literal["high", "low"]

BYTES_A_CHARACTER = "fertility_bytes_per_char"
"""UTF-8 bytes / characters: tokens a character of whoever reads bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One number of a sample that is compared."""

    name: str
    kind: SignalKind
    unit: str
    sides: tuple[Side, ...]
    logarithm: bool = False
    made_of: tuple[str, str] | None = None
    """Numerator and denominator, where it is no signal of the registry."""

    def scaled(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values on the scale on which they are judged."""
        scaled: NDArray[np.float64] = np.log1p(np.maximum(values, 0.0)) if self.logarithm else values
        return scaled


_BOTH: tuple[Side, ...] = ("high", "low")
_HIGH: tuple[Side, ...] = ("high",)


def _signal(name: str, *sides: Side, logarithm: bool = False) -> Measure:
    spec = SIGNALS[name]
    return Measure(name=name, kind=spec.kind, unit=spec.unit, sides=sides, logarithm=logarithm)


MEASURES: tuple[Measure, ...] = (
    _signal("length_bytes", *_BOTH, logarithm=True),
    _signal("longest_word_chars", "high", logarithm=True),
    _signal("byte_entropy", *_BOTH),
    _signal("word_entropy", "low"),
    _signal("nontext_fraction", "high"),
    _signal("byte_periodic_repeats", "high", logarithm=True),
    _signal("dup_line_char_fraction", "high"),
    _signal("top_2gram_char_fraction", "high"),
    _signal("dup_5gram_char_fraction", "high"),
    _signal("digit_fraction", "high"),
    _signal("markup_fraction", "high"),
    _signal("encoded_fraction", "high"),
    _signal("alpha_word_fraction", "low"),
    _signal("symbol_word_ratio", "high", logarithm=True),
    Measure(
        name=BYTES_A_CHARACTER,
        kind="text",
        unit="bytes a character",
        sides=_BOTH,
        logarithm=True,
        made_of=("length_bytes", "length_chars"),
    ),
    _signal("mean_word_chars", *_BOTH, logarithm=True),
    _signal("distinct_tokens", *_BOTH, logarithm=True),
    _signal("token_entropy", *_BOTH),
    _signal("token_dup_ngram_fraction", *_BOTH),
    _signal("token_periodic_repeats", "high", logarithm=True),
    _signal("token_periodic_fraction", "high"),
    _signal("out_of_vocabulary", "high", logarithm=True),
)
"""What is compared, text before tokens, in the registry's order."""


def needed_signals(kind: SignalKind, *, with_vocabulary: bool) -> tuple[str, ...]:
    """The signals of the registry that the measures of a kind are made of.

    >>> "length_chars" in needed_signals("text", with_vocabulary=False)
    True
    """
    wanted = set()
    for measure in MEASURES:
        if measure.kind == kind:
            wanted |= set(measure.made_of or (measure.name,))
    if not with_vocabulary:
        wanted.discard("out_of_vocabulary")
    return tuple(spec.name for spec in select(wanted, kind))


def measured(signals: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    """Every measure that the signals given allow, shape as theirs: NaN where a signal is NaN, or there is nothing to
    divide by.

    >>> measured({"length_bytes": np.array([4.0]), "length_chars": np.array([2.0])})["fertility_bytes_per_char"]
    array([2.])
    """
    found = {}
    for measure in MEASURES:
        if measure.made_of is None:
            if measure.name in signals:
                found[measure.name] = signals[measure.name].astype(np.float64)
            continue
        above, below = (signals.get(name) for name in measure.made_of)
        if above is not None and below is not None:
            ratio = np.full(above.shape, np.nan)
            np.divide(above, below, out=ratio, where=below > 0)
            found[measure.name] = ratio
    return found
