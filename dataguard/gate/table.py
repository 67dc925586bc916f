"""How is a policy laid out so that rules over many samples are a few operations on arrays?

For one kind of sample, every rule becomes, by source, a *term*: a run of conditions that must all hold. Terms of all
sources lie one behind the other as arrays of bounds:

1. Each condition is one column of values (a robust z where it bounds outliers) and one closed interval.
2. A term holds where all of its conditions do; conditions on a length beside others say where it is meant to apply.
3. ``term[source, rule]`` picks a rule's term for a sample, ``why[source, rule]`` says -1, or why it is not evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dataguard.core.signals import Need, Reference, SignalKind
from dataguard.gate.bounds import Condition
from dataguard.gate.rules import Policy, Rule
from dataguard.gate.verdict import Skip

__all__ = ["ReferenceProfile", "Table", "make_table"]

_MAD_TO_SIGMA = 1.4826
_ROWS = 1 << 14  # rows evaluated at once: the values of all conditions then fit a cache


class ReferenceProfile(Protocol):
    """What the gate asks of a reference profile."""

    def reference(self, source: str, signal: str) -> Reference | None:
        """Median and MAD of a signal over a source; None where the profile does not know it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """All terms of one kind. S sources, R rules of the policy, T terms, C conditions."""

    signals: tuple[str, ...]
    """What the conditions read: names of columns."""
    column: NDArray[np.intp]
    """Index into `signals`, shape (C,)."""
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    inverted: NDArray[np.bool_]
    free: NDArray[np.bool_]
    """Where a condition is none of those that say where a rule is meant to apply, shape (C,)."""
    outliers: tuple[int, ...]
    """Conditions whose value is a robust z."""
    median: NDArray[np.float64]
    scale: NDArray[np.float64]
    """Shapes (S + 1, C): robust z = (x - median) / scale; of use for `outliers` only."""
    starts: NDArray[np.intp]
    """First condition of each term, shape (T,)."""
    term: NDArray[np.intp]
    """Shape (S + 1, R); row -1 is padding. 0 where there is none."""
    why: NDArray[np.int8]
    """Shape (S + 1, R)."""

    def judge(
        self, columns: Mapping[str, NDArray[np.int64] | NDArray[np.float64]], source: NDArray[np.int32]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int8]]:
        """Where each rule fired, and why it was not evaluated: both of shape (n, R).

        Parameters
        ----------
        columns
            All of `signals`, each of shape (n,).
        source
            Index of each sample's source, -1 for padding; shape (n,).
        """
        num_rows, num_rules = len(source), self.why.shape[1]
        fired = np.zeros((num_rows, num_rules), bool)
        why = self.why[source]
        if not len(self.starts):
            return fired, why
        for start in range(0, num_rows, _ROWS):
            part = slice(start, start + _ROWS)
            own = source[part]
            held, meant = self._terms([columns[name][part] for name in self.signals], own)
            picked = self.term[own]
            evaluated = why[part] < 0
            within = np.take_along_axis(meant, picked, axis=1)
            fired[part] = np.take_along_axis(held, picked, axis=1) & evaluated
            why[part][evaluated & ~within] = Skip.MINIMUM
        return fired, why

    def _terms(
        self, columns: Sequence[NDArray[np.int64] | NDArray[np.float64]], source: NDArray[np.int32]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Where each term holds, and where it is meant to apply: both of shape (rows, T)."""
        read = np.stack(columns, axis=1, dtype=np.float64, casting="unsafe")  # axes: row, signal
        values = read[:, self.column]  # axes: row, condition
        for each in self.outliers:
            values[:, each] = (values[:, each] - self.median[source, each]) / self.scale[source, each]
        holds = ((values >= self.low) & (values <= self.high)) ^ self.inverted
        return (
            np.logical_and.reduceat(holds, self.starts, axis=1),
            np.logical_and.reduceat(holds | self.free, self.starts, axis=1),
        )


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
    shape = (len(source_names) + 1, len(policy.rules))
    term = np.zeros(shape, np.intp)
    why = np.full(shape, Skip.PADDING, np.int8)
    conditions: list[Condition] = []
    free: list[bool] = []
    starts: list[int] = []
    known: dict[tuple[int, tuple[Condition, ...]], int] = {}
    references: dict[tuple[int, int], Reference] = {}  # (source, condition) -> of an outlier
    for rule in policy.rules:
        for s, name in enumerate(source_names):
            found = _conditions(policy, rule, name, kind, profile=profile, lacking=lacking)
            if isinstance(found, Skip):
                why[s, rule.bit] = found
                continue
            if (rule.bit, found) not in known:
                known[rule.bit, found] = len(starts)
                starts.append(len(conditions))
                conditions += found
                meant = any(not each.on_length for each in found)
                free += [not (meant and each.on_length) for each in found]
            which = known[rule.bit, found]
            term[s, rule.bit], why[s, rule.bit] = which, -1
            for i, each in enumerate(found, starts[which]):
                if each.outlier and profile is not None:
                    reference = profile.reference(name, each.signal.name)
                    assert reference is not None, "a rule without its reference is skipped"
                    references[s, i] = reference
    signals = tuple(dict.fromkeys(each.signal.name for each in conditions))
    median = np.zeros((shape[0], len(conditions)))
    scale = np.full(median.shape, np.inf)  # a MAD of 0 makes a z of 0
    for (s, i), reference in references.items():
        median[s, i] = reference.median
        scale[s, i] = _MAD_TO_SIGMA * reference.mad if reference.mad else np.inf
    return Table(
        signals=signals,
        column=np.array([signals.index(each.signal.name) for each in conditions], np.intp),
        low=np.array([each.low for each in conditions]),
        high=np.array([each.high for each in conditions]),
        inverted=np.array([each.inverted for each in conditions], bool),
        free=np.array(free, bool),
        outliers=tuple(i for i, each in enumerate(conditions) if each.outlier),
        median=median,
        scale=scale,
        starts=np.array(starts, np.intp),
        term=term,
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
