"""How often did each rule fire, and was that more than the policy allows?

Every rule of a policy has an account of four numbers: on how many samples (batches, shards) it was evaluated, fired and
skipped, and why skipped. Accounts add up over batches, blocks and ranks in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dataguard.gate.judged import Judged
from dataguard.gate.rules import BatchRule, Policy, Rule, ShardRule
from dataguard.gate.verdict import Skip

__all__ = ["Account", "FailOn", "exceeds"]

FailOn = Literal["mask", "flag"]
"""Which rules may fail an audit: those that mask, substitute or halt, and shard rules; or flag rules as well."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Account:
    """What the R rules of a policy over samples did.

    >>> Account.empty(2).fired.tolist()
    [0, 0]
    """

    num_samples: int
    """Samples that were given, padding included."""
    evaluated: NDArray[np.int64]
    fired: NDArray[np.int64]
    skipped: NDArray[np.int64]
    """Shape (R,) each; evaluated + skipped is `num_samples`."""
    skipped_why: NDArray[np.int64]
    """By `Skip`, shape (R, len(Skip)); its rows sum to `skipped`."""
    by_verdict: NDArray[np.int64]
    """Samples of each `Verdict`, shape (5,); padding is no sample of any."""

    @staticmethod
    def empty(num_rules: int) -> Account:
        """Nothing yet."""
        none = np.zeros(num_rules, np.int64)
        return Account(
            num_samples=0,
            evaluated=none,
            fired=none,
            skipped=none,
            skipped_why=np.zeros((num_rules, len(Skip)), np.int64),
            by_verdict=np.zeros(5, np.int64),
        )

    @staticmethod
    def of(judged: Judged) -> Account:
        """Of some samples."""
        return Account(
            num_samples=len(judged),
            evaluated=judged.evaluated,
            fired=judged.fired,
            skipped=judged.skipped,
            skipped_why=judged.skipped_why,
            by_verdict=np.bincount(judged.verdict[judged.scored], minlength=5).astype(np.int64),
        )

    def __add__(self, other: Account) -> Account:
        return Account(
            num_samples=self.num_samples + other.num_samples,
            evaluated=self.evaluated + other.evaluated,
            fired=self.fired + other.fired,
            skipped=self.skipped + other.skipped,
            skipped_why=self.skipped_why + other.skipped_why,
            by_verdict=self.by_verdict + other.by_verdict,
        )

    def failing(self, policy: Policy, *, fail_on: FailOn = "mask") -> tuple[Rule, ...]:
        """The rules over samples that fired beyond their allowance, and by that fail an audit."""
        return tuple(
            rule
            for rule in policy.rules
            if (rule.action != "flag" or fail_on == "flag")
            and exceeds(rule, fired=int(self.fired[rule.bit]), evaluated=int(self.evaluated[rule.bit]))
        )


def exceeds(rule: Rule | BatchRule | ShardRule, *, fired: int, evaluated: int) -> bool:
    """Whether a rule fired beyond its allowance: on more than `max_fraction` of what it was evaluated on.

    >>> from dataguard.gate.policy import named_policy
    >>> rule = named_policy("olmo").rules[0]
    >>> exceeds(rule, fired=1, evaluated=1_000), exceeds(rule, fired=2, evaluated=1_000)
    (False, True)
    """
    return evaluated > 0 and fired / evaluated > rule.max_fraction
