"""When does a condition hold, and can it hold at all?

Every condition is made an interval with closed ends over float64: ``above 0.2`` begins at the next number after 0.2.
`outside` and `outlier_mad` hold outside of their interval (``inverted``). A signal's own range then says what a
condition can do: hold for some values, for none, or for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor, inf, isinf, nextafter
from typing import Any

from dataguard.core.signals import SignalSpec

__all__ = ["Condition", "Interval", "condition_of", "domain_of", "number"]

_LENGTHS = frozenset({"length_bytes", "length_chars", "length_words", "length_lines", "length_tokens"})


_MOST_WRITTEN_OUT = 1e15


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Numbers from `low` to `high`, both among them.

    >>> Interval(low=0.0, high=1.0).meet(Interval(low=0.5, high=2.0))
    Interval(low=0.5, high=1.0)
    """

    low: float
    high: float

    @property
    def empty(self) -> bool:
        """Whether no number is in it."""
        return self.low > self.high

    def meet(self, other: Interval) -> Interval:
        """The numbers of both."""
        return Interval(low=max(self.low, other.low), high=min(self.high, other.high))

    def whole(self) -> Interval:
        """From the first to the last integer in it."""
        low = self.low if isinf(self.low) else float(ceil(self.low))
        high = self.high if isinf(self.high) else float(floor(self.high))
        return Interval(low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One signal with its bounds.

    >>> from dataguard.score.registry import spec_of
    >>> print(condition_of(spec_of("byte_entropy"), {"outside": (2.0, 7.2)}))
    byte_entropy below 2 or above 7.2
    """

    signal: SignalSpec
    low: float
    """Least value inside, float64."""
    high: float
    """Greatest value inside, float64."""
    inverted: bool
    """Whether it holds outside of ``low..high`` instead of inside."""
    outlier: bool
    """Whether not the value is bounded but its robust z against the profile."""
    text: str
    """In words, without the signal's name."""
    lower: float | None
    """The bound from below as written, where there is one: what a span must reach to count."""

    def __str__(self) -> str:
        return f"{self.signal.name} {self.text}"

    def holds(self, value: float) -> bool:
        """Whether it holds for a value (a robust z where `outlier`)."""
        return (self.low <= value <= self.high) != self.inverted

    @property
    def needs_profile(self) -> bool:
        """Whether it is measured against a reference profile."""
        return self.outlier or "profile" in self.signal.needs

    @property
    def on_length(self) -> bool:
        """Whether it bounds a length: beside others it says which samples a rule is meant for."""
        return self.signal.name in _LENGTHS and not self.outlier

    def possible(self) -> tuple[Interval, ...]:
        """The values of the signal for which it holds, as disjoint intervals; none where it never does."""
        domain = domain_of(self.signal)
        if self.outlier:
            return (domain,)
        inside = Interval(low=self.low, high=self.high)
        pieces = (
            (
                Interval(low=-inf, high=nextafter(self.low, -inf)),
                Interval(low=nextafter(self.high, inf), high=inf),
            )
            if self.inverted
            else (inside,)
        )
        met = [piece.meet(domain) for piece in pieces]
        if self.signal.whole:
            met = [piece.whole() for piece in met]
        return tuple(piece for piece in met if not piece.empty)

    def always(self) -> bool:
        """Whether it holds for every value that the signal can have."""
        if self.outlier:
            return False
        pieces = self.possible()
        if self.signal.whole and len(pieces) == 2 and pieces[0].high + 1 >= pieces[1].low:  # no integer lies between
            pieces = (Interval(low=pieces[0].low, high=pieces[1].high),)
        return pieces == (domain_of(self.signal),)


def domain_of(spec: SignalSpec) -> Interval:
    """The values that a signal can have, as far as its range says."""
    high = spec.high if spec.high_reached or isinf(spec.high) else nextafter(spec.high, -inf)
    return Interval(low=spec.low, high=high)


def condition_of(spec: SignalSpec, bounds: Mapping[str, Any]) -> Condition:
    """A condition of the bounds as written: keys of BOUND_KEYS, of which `outside` and `outlier_mad` stand alone."""
    if "outlier_mad" in bounds:
        most = float(bounds["outlier_mad"])
        text = f"more than {number(most)} MADs from the median of its source"
        return Condition(signal=spec, low=-most, high=most, inverted=True, outlier=True, text=text, lower=None)
    if "outside" in bounds:
        low, high = map(float, bounds["outside"])
        text = f"below {number(low)} or above {number(high)}"
        return Condition(signal=spec, low=low, high=high, inverted=True, outlier=False, text=text, lower=None)
    low, high = -inf, inf
    words = []
    for key, value in bounds.items():
        words.append(f"{key.replace('_', ' ')} {number(value)}")
        if key == "at_least":
            low = max(low, value)
        elif key == "above":
            low = max(low, nextafter(value, inf))
        elif key == "at_most":
            high = min(high, value)
        else:
            high = min(high, nextafter(value, -inf))
    given = [bounds[key] for key in ("at_least", "above") if key in bounds]
    return Condition(
        signal=spec,
        low=low,
        high=high,
        inverted=False,
        outlier=False,
        text=" and ".join(words),
        lower=max(given) if given else None,
    )


def number(value: float) -> str:
    """A bound as people write it.

    >>> number(100_000.0), number(0.16), number(1e300)
    ('100,000', '0.16', '1e+300')
    """
    return f"{value:,.0f}" if abs(value) < _MOST_WRITTEN_OUT and value == int(value) else repr(float(value))
