"""Is a shard as a whole one that should not be trained on?

Every rank (and every block of an audit) counts, by shard, the samples it judged and those that count for each shard
rule. Counts add up in any order; whoever has them all (rank 0, the command line) judges the shards. The answer is a
proposal: nothing is withheld before an attempt that says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataguard.gate.judged import Judged
from dataguard.gate.rules import Policy, ShardRule, matches
from dataguard.gate.verdict import Skip

__all__ = ["ShardCounts", "ShardVerdict", "judge_shards", "shard_counts"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShardCounts:
    """Counts of k shards, for the S shard rules of a policy."""

    shard: NDArray[np.int64]
    """Numbers of the shards, rising; shape (k,)."""
    source: NDArray[np.int32]
    """Index of the source of each, shape (k,)."""
    judged: NDArray[np.int64]
    """Samples that were judged, shape (k,)."""
    counted: NDArray[np.int64]
    """Of them, those that count for each shard rule; shape (k, S)."""

    @staticmethod
    def total(parts: Iterable[ShardCounts], *, num_rules: int) -> ShardCounts:
        """The sum of counts of disjoint samples; `num_rules` is S.

        >>> one = ShardCounts(shard=np.array([3]), source=np.array([0], np.int32), judged=np.array([10]),
        ...                   counted=np.array([[1]]))
        >>> ShardCounts.total([one, one], num_rules=1).judged.tolist()
        [20]
        """
        every = list(parts)
        if not every:
            none = np.zeros(0, np.int64)
            return ShardCounts(
                shard=none, source=none.astype(np.int32), judged=none, counted=np.zeros((0, num_rules), np.int64)
            )
        shard, first, where = np.unique(
            np.concatenate([part.shard for part in every]), return_index=True, return_inverse=True
        )
        judged = np.zeros(len(shard), np.int64)
        np.add.at(judged, where, np.concatenate([part.judged for part in every]))
        counted = np.zeros((len(shard), num_rules), np.int64)
        np.add.at(counted, where, np.concatenate([part.counted for part in every]))
        source = np.concatenate([part.source for part in every])[first]
        return ShardCounts(shard=shard, source=source, judged=judged, counted=counted)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardVerdict:
    """What one rule says of one shard."""

    rule: ShardRule
    shard: int
    fired: bool
    skip: Skip | None
    """Why it was not evaluated (`MINIMUM`: too few of its samples were seen so far); None where it was."""
    num_judged: int
    num_counted: int

    @property
    def share(self) -> float:
        """Share of the judged samples that count; 0 where none was judged."""
        return self.num_counted / self.num_judged if self.num_judged else 0.0


def shard_counts(policy: Policy, judged: Judged, shard: NDArray[np.int64], source: NDArray[np.int32]) -> ShardCounts:
    """What the shard rules of a policy count of some samples.

    Parameters
    ----------
    policy
        The one that judged them.
    judged
        n samples.
    shard, source
        Where each comes from, shape (n,); those of source -1 are padding and count nowhere.
    """
    real = (np.asarray(source) >= 0) & judged.scored
    shards, first, where = np.unique(np.asarray(shard, np.int64)[real], return_index=True, return_inverse=True)
    counted = np.zeros((len(shards), len(policy.shard_rules)), np.int64)
    for s, rule in enumerate(policy.shard_rules):
        counts = (judged.rules[real] & np.uint64(rule.bits)) != 0
        counted[:, s] = np.bincount(where[counts], minlength=len(shards))
    return ShardCounts(
        shard=shards,
        source=np.asarray(source, np.int32)[real][first],
        judged=np.bincount(where, minlength=len(shards)).astype(np.int64),
        counted=counted,
    )


def judge_shards(policy: Policy, source_names: Sequence[str], counts: ShardCounts) -> tuple[ShardVerdict, ...]:
    """What each shard rule says of each shard, by rule and shard number."""
    verdicts = []
    for s, rule in enumerate(policy.shard_rules):
        for k, shard in enumerate(counts.shard.tolist()):
            name = source_names[counts.source[k]]
            num_judged, num_counted = int(counts.judged[k]), int(counts.counted[k, s])
            skip = None
            if not matches(rule.sources, name):
                skip = Skip.SOURCE
            elif policy.is_off(rule.name, name):
                skip = Skip.OFF
            elif num_judged < rule.min_samples:
                skip = Skip.MINIMUM
            fired = skip is None and num_counted / num_judged >= rule.low
            verdicts.append(
                ShardVerdict(
                    rule=rule, shard=shard, fired=fired, skip=skip, num_judged=num_judged, num_counted=num_counted
                )
            )
    return tuple(verdicts)
