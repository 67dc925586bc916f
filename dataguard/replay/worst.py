"""Which samples come first, and which of a sample's rules is the one to look at?

Worst first is: the gravest verdict; then the number of rules that fired; then how far the furthest of them is beyond
its bounds. How far is a share from 0 (at the bound) to 1: of the way from the bound to the end of the signal's range,
and where the range has no end, 1 - bound / value. A rule of several conditions is as far beyond as the one that holds
by the least; conditions on a length only say which samples a rule is meant for. A bound on a robust z is not measured:
the record does not hold the profile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite

from dataguard.gate.bounds import Condition
from dataguard.gate.rules import Policy, Rule
from dataguard.gate.verdict import Skip

__all__ = ["Fired", "beyond", "fired_rules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """A rule that fired on a sample."""

    name: str
    verdict: int
    conditions: tuple[Condition, ...]
    """As they are for the sample's source; those on a length left out, where others stand beside them."""
    text: str
    """All its conditions, in words."""
    beyond: float
    """How far the sample is beyond the bounds: 0 to 1; 0 where that is not known."""


def fired_rules(
    policy: Policy, names: Iterable[str], source: str, signals: Mapping[str, float | None] | None
) -> tuple[Fired, ...]:
    """The rules of these names, the one to look at first in front: the gravest, of those the furthest beyond.

    Parameters
    ----------
    names
        Of rules that fired; names that the policy does not have are left out.
    source
        Of the sample.
    signals
        Its signals by name, as far as they are known.
    """
    wanted = set(names)
    found = [_fired(policy, rule, source, signals or {}) for rule in policy.rules if rule.name in wanted]
    return tuple(sorted(found, key=lambda each: (-each.verdict, -each.beyond)))


def _fired(policy: Policy, rule: Rule, source: str, signals: Mapping[str, float | None]) -> Fired:
    conditions = policy.conditions_of(rule, source)
    there = rule.conditions if isinstance(conditions, Skip) else conditions
    meant = tuple(each for each in there if not each.on_length) or there
    shares = [beyond(each, value) for each in meant if (value := signals.get(each.signal.name)) is not None]
    return Fired(
        name=rule.name,
        verdict=int(rule.verdict),
        conditions=meant,
        text=" and ".join(map(str, there)),
        beyond=min(shares, default=0.0),
    )


def beyond(condition: Condition, value: float) -> float:
    """How far a value for which a condition holds is beyond its bound, 0 to 1.

    >>> from dataguard.gate.bounds import condition_of
    >>> from dataguard.score.registry import spec_of
    >>> entropy = condition_of(spec_of("byte_entropy"), {"outside": (2.0, 7.0)})
    >>> beyond(entropy, 2.0), beyond(entropy, 0.5), beyond(entropy, 7.5)
    (0.0, 0.75, 0.5)
    >>> beyond(condition_of(spec_of("byte_periodic_repeats"), {"at_least": 32}), 128)
    0.75
    """
    if condition.outlier:
        return 0.0
    spec = condition.signal
    low, high = condition.low, condition.high
    if condition.inverted:
        shares = [
            _share(low, value, spec.low) if value <= low else 0.0,
            _share(high, value, spec.high) if value >= high else 0.0,
        ]
        return max(shares)
    above = _share(low, value, spec.high) if isfinite(low) else inf
    below = _share(high, value, spec.low) if isfinite(high) else inf
    least = min(above, below)
    return least if isfinite(least) else 0.0


def _share(bound: float, value: float, end: float) -> float:
    """The share of the way from a bound to the end of the range that a value has gone."""
    gone = abs(value - bound)
    if not gone:
        return 0.0
    way = abs(end - bound) if isfinite(end) else gone + max(abs(bound), 1.0)
    return min(1.0, gone / way) if way else 0.0
