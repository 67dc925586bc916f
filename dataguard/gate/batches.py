"""Is something wrong with a global batch as a whole?

Batch rules bound the mean or the maximum of a signal over the samples of the *global* batch. Columns of all ranks are
put one behind the other, in any order: sums are exact (`math.fsum`), so no topology and no order changes the answer.
Withheld slots and padding leave all statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

import numpy as np
from numpy.typing import NDArray

from dataguard.gate.rules import BatchRule, Policy, matches
from dataguard.gate.verdict import Skip

__all__ = ["BatchVerdict", "judge_batch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchVerdict:
    """What one rule says of one global batch."""

    rule: BatchRule
    fired: bool
    skip: Skip | None
    """Why it was not evaluated; None where it was."""
    value: float | None
    """The mean or maximum that was bounded."""
    num_samples: int
    """Samples that it was taken over."""


def judge_batch(
    policy: Policy,
    source_names: Sequence[str],
    columns: Mapping[str, NDArray[np.int64] | NDArray[np.float64]],
    source: NDArray[np.int32],
    *,
    live: NDArray[np.bool_] | None = None,
) -> tuple[BatchVerdict, ...]:
    """What each batch rule of a policy says of a global batch.

    Parameters
    ----------
    policy, source_names
        The rules, and the sources by index.
    columns
        Signals of the samples of all ranks, each of shape (n,), in any order.
    source
        Index of each sample's source, -1 for padding; shape (n,).
    live
        Where a sample is trained on, shape (n,); everywhere where None.
    """
    counted = source >= 0 if live is None else (source >= 0) & live
    return tuple(_judge(policy, rule, source_names, columns, source, counted) for rule in policy.batch_rules)


def _judge(
    policy: Policy,
    rule: BatchRule,
    source_names: Sequence[str],
    columns: Mapping[str, NDArray[np.int64] | NDArray[np.float64]],
    source: NDArray[np.int32],
    counted: NDArray[np.bool_],
) -> BatchVerdict:
    looked_at = [matches(rule.sources, name) and not policy.is_off(rule.name, name) for name in source_names]
    own = counted & np.array([*looked_at, False])[source]
    num_samples = int(np.count_nonzero(own))
    column = columns.get(rule.condition.signal.name)
    skip = None
    if column is None:
        skip = Skip.NEED if rule.condition.signal.needs else Skip.KIND
    elif not num_samples:
        skip = Skip.SOURCE if counted.any() else Skip.PADDING
    if column is None or skip is not None:
        return BatchVerdict(rule=rule, fired=False, skip=skip, value=None, num_samples=num_samples)
    values = column[own].tolist()
    value = float(max(values)) if rule.of == "max" else fsum(values) / num_samples
    return BatchVerdict(rule=rule, fired=rule.condition.holds(value), skip=None, value=value, num_samples=num_samples)
