"""How is a policy laid out so that rules over many samples are a few operations on arrays?

For one kind of sample, every rule becomes, by source, a *term*: a run of conditions that must all hold. Terms of all
sources lie one behind the other as arrays of bounds:

1. Each condition is one column of values (a robust z where it bounds outliers) and one closed interval.
2. A term holds where all of its conditions do; conditions on a length beside others say where it is meant to apply.
3. A rule fires where one of its terms holds that is the rule's for the sample's source. Where a source has none, the
   reason is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dataguard.core.robust import MAD_TO_SIGMA
from dataguard.core.signals import Need, Reference, SignalKind
from dataguard.gate.bounds import Condition
from dataguard.gate.rules import MAX_RULES, Policy, Rule
from dataguard.gate.verdict import Skip

__all__ = ["ReferenceProfile", "Table", "make_table"]

_WEIGHTS = (1 << np.arange(8, dtype=np.uint8))[None, :, None]
_ROWS = 1 << 12  # rows evaluated at once: the values of all conditions then fit a cache


class ReferenceProfile(Protocol):
    """What the gate asks of a reference profile."""

    def reference(self, source: str, signal: str) -> Reference | None:
        """Median and MAD of a signal over a source; None where the profile does not know it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """All terms of one kind, those of a rule side by side. S sources, R rules, T terms, C conditions.

    Where an axis counts sources, its last place is padding, which a source of -1 means.
    """

    signals: tuple[str, ...]
    """What the conditions read: names of columns."""
    column: NDArray[np.intp]
    """Index into `signals`, shape (C,)."""
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    inverted: NDArray[np.bool_]
    """Shapes (C, 1): a condition holds from `low` to `high`, or outside of that."""
    outliers: tuple[int, ...]
    """Conditions whose value is a robust z."""
    median: NDArray[np.float64]
    scale: NDArray[np.float64]
    """Shapes (C, S + 1): robust z = (x - median) / scale; of use for `outliers` only."""
    starts: NDArray[np.intp]
    """First condition of each term, shape (T,)."""
    further: tuple[tuple[int, int], ...]
    """(term, condition) of all others: few terms have any, and a reduction over all of them costs far more."""
    guards: tuple[tuple[int, int, tuple[int, ...]], ...]
    """(term, its rule, its conditions that say where it is meant to apply), for terms that have such."""
    applies: NDArray[np.bool_]
    """Whether a term is that of its rule for a source, shape (T, S + 1)."""
    rules: tuple[int, ...]
    """The rule of each term."""
    why: NDArray[np.int8]
    """-1 where a rule is evaluated for a source, else a `Skip`; shape (R, S + 1)."""

    def judge(
        self, columns: Mapping[str, NDArray[np.int64] | NDArray[np.float64]], source: NDArray[np.int32]
    ) -> tuple[NDArray[np.uint64], NDArray[np.int8]]:
        """The rules that fired as bits, shape (n,), and why each was not evaluated, shape (n, R).

        Parameters
        ----------
        columns
            All of `signals`, each of shape (n,).
        source
            Index of each sample's source, -1 for padding; shape (n,).
        """
        why = np.take(self.why, source, axis=1)  # axes: rule, row
        bits = np.zeros(len(source), np.uint64)
        if not len(self.starts):
            return bits, why.T
        for start in range(0, len(source), _ROWS):
            part = slice(start, start + _ROWS)
            holds, applies = self._holds(columns, part, source[part]), np.take(self.applies, source[part], axis=1)
            for term, rule, conditions in self.guards:
                meant = holds[list(conditions)].all(axis=0)
                why[rule, part][applies[term] & ~meant] = Skip.MINIMUM
            held = holds[self.starts]  # axes: term, row
            for term, condition in self.further:
                held[term] &= holds[condition]
            held &= applies
            bits[part] = _bits(held, self.rules)
        return bits, why.T

    def _holds(
        self, columns: Mapping[str, NDArray[np.int64] | NDArray[np.float64]], part: slice, source: NDArray[np.int32]
    ) -> NDArray[np.bool_]:
        """Where each condition holds: shape (C, rows)."""
        read = np.empty((len(self.signals), len(source)))
        for i, name in enumerate(self.signals):
            read[i] = columns[name][part]
        values = read[self.column]  # axes: condition, row
        for each in self.outliers:
            values[each] = (values[each] - self.median[each, source]) / self.scale[each, source]
        holds: NDArray[np.bool_] = (values >= self.low) & (values <= self.high)
        holds ^= self.inverted
        return holds


def _bits(held: NDArray[np.bool_], rules: Sequence[int]) -> NDArray[np.uint64]:
    """Rule bits of the terms that hold: terms and rows -> rows."""
    fired = np.zeros((MAX_RULES // 8, 8, held.shape[1]), np.uint8)  # axes: byte of the bits, bit of the byte, row
    by_bit = fired.reshape(MAX_RULES, -1)
    if len(set(rules)) == len(rules):
        by_bit[list(rules)] = held
    else:  # sources have terms of their own
        for term, rule in enumerate(rules):
            by_bit[rule] |= held[term]
    packed = np.bitwise_or.reduce(fired * _WEIGHTS, axis=1)  # axes: byte of the bits, row
    bits: NDArray[np.uint64] = np.ascontiguousarray(packed.T).view("<u8")[:, 0]
    return bits


def make_table(
    policy: Policy,
    kind: SignalKind,
    source_names: Sequence[str],
    *,
    profile: ReferenceProfile | None,
    lacking: frozenset[Need],
) -> Table:
    """The table of one kind.

    Parameters
    ----------
    policy
        Its rules over samples.
    kind
        Of the samples.
    source_names
        By index.
    profile
        Where outliers are measured, if there is one.
    lacking
        Needs of signals that are not there: rules that have one of them are skipped.
    """
    num_places = len(source_names) + 1
    why = np.full((len(policy.rules), num_places), Skip.PADDING, np.int8)
    conditions: list[Condition] = []
    starts: list[int] = []
    guards: list[tuple[int, int, tuple[int, ...]]] = []
    further: list[tuple[int, int]] = []
    applies: list[NDArray[np.bool_]] = []
    owners: list[int] = []
    references: dict[tuple[int, int], Reference] = {}  # (condition, source) -> of an outlier
    for rule in policy.rules:
        terms: dict[tuple[Condition, ...], int] = {}
        for s, name in enumerate(source_names):
            found = _conditions(policy, rule, name, kind, profile=profile, lacking=lacking)
            if isinstance(found, Skip):
                why[rule.bit, s] = found
                continue
            if found not in terms:
                terms[found] = len(starts)
                owners.append(rule.bit)
                further += [(len(starts), i) for i in range(len(conditions) + 1, len(conditions) + len(found))]
                guarding = [i for i, each in enumerate(found, len(conditions)) if each.on_length]
                if 0 < len(guarding) < len(found):
                    guards.append((len(starts), rule.bit, tuple(guarding)))
                starts.append(len(conditions))
                conditions += found
                applies.append(np.zeros(num_places, bool))
            term = terms[found]
            why[rule.bit, s] = -1
            applies[term][s] = True
            for i, each in enumerate(found, starts[term]):
                if each.outlier and profile is not None:
                    reference = profile.reference(name, each.signal.name)
                    assert reference is not None, "a rule without its reference is skipped"
                    references[i, s] = reference
    signals = tuple(dict.fromkeys(each.signal.name for each in conditions))
    median = np.zeros((len(conditions), num_places))
    scale = np.full(median.shape, np.inf)  # a MAD of 0 makes a z of 0
    for place, reference in references.items():
        median[place] = reference.median
        scale[place] = MAD_TO_SIGMA * reference.mad if reference.mad else np.inf
    return Table(
        signals=signals,
        column=np.array([signals.index(each.signal.name) for each in conditions], np.intp),
        low=np.array([[each.low] for each in conditions]),
        high=np.array([[each.high] for each in conditions]),
        inverted=np.array([[each.inverted] for each in conditions], bool),
        outliers=tuple(i for i, each in enumerate(conditions) if each.outlier),
        median=median,
        scale=scale,
        starts=np.array(starts, np.intp),
        guards=tuple(guards),
        applies=np.array(applies, bool),
        further=tuple(further),
        rules=tuple(owners),
        why=why,
    )


def _conditions(
    policy: Policy,
    rule: Rule,
    source: str,
    kind: SignalKind,
    *,
    profile: ReferenceProfile | None,
    lacking: frozenset[Need],
) -> tuple[Condition, ...] | Skip:
    if rule.kind != kind:
        return Skip.KIND
    found = policy.conditions_of(rule, source)
    if isinstance(found, Skip):
        return found
    if any(need in lacking for each in found for need in each.signal.needs):
        return Skip.NEED
    for each in found:
        if each.needs_profile:
            if profile is None:
                return Skip.NEED
            if profile.reference(source, each.signal.name) is None:
                return Skip.REFERENCE
    return found
