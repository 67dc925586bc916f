"""Which delivered microbatches are kept themselves?

``none`` keeps nothing; ``all`` every microbatch; ``last:N`` those of the last N steps, older ones are removed once a
newer one stands; ``flagged`` those that hold a sample whose verdict is mask, substitute or halt, and
``flagged:RULE,RULE`` those in which one of the rules listed fired, whatever its action. Flags alone are no reason:
rules that only flag hit a third to a half of ordinary text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dataguard.errors import UsageError
from dataguard.gate.rules import Policy
from dataguard.gate.verdict import Verdict

__all__ = ["FLAGGED_BUDGET_BYTES", "StoreRule"]

FLAGGED_BUDGET_BYTES = 1 << 30
"""What ``flagged`` may take on disk, of each rank of an attempt, where nothing else is said."""
_ALLOWED = "none, flagged, flagged:RULE,RULE, last:N or all"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRule:
    """What is kept of what one rank hands over."""

    kind: Literal["none", "flagged", "last", "all"] = "none"
    num_steps: int = 0
    """Of ``last``."""
    rules: tuple[str, ...] = ()
    """Of ``flagged``: names of the policy's rules; empty for the gravest verdicts."""

    @classmethod
    def parse(cls, text: str | StoreRule) -> StoreRule:
        """As people write it.

        Raises
        ------
        UsageError
            It is none of them.

        Examples
        --------
        >>> StoreRule.parse("last:8")
        StoreRule(kind='last', num_steps=8, rules=())
        >>> str(StoreRule.parse("flagged:markup,too-long"))
        'flagged:markup,too-long'
        """
        if isinstance(text, StoreRule):
            return text
        kind, colon, rest = text.partition(":")
        if kind in {"none", "all"} and not colon:
            return cls(kind="none" if kind == "none" else "all")
        if kind == "last" and rest.isascii() and rest.isdigit() and int(rest) > 0:
            return cls(kind="last", num_steps=int(rest))
        if kind == "flagged":
            rules = tuple(name.strip() for name in rest.split(",")) if colon else ()
            if all(rules):
                return cls(kind="flagged", rules=tuple(dict.fromkeys(rules)))
        raise UsageError(f"the store cannot be told to keep {text!r}", allowed=_ALLOWED)

    def __str__(self) -> str:
        if self.kind == "last":
            return f"last:{self.num_steps}"
        return f"flagged:{','.join(self.rules)}" if self.rules else self.kind

    def bits(self, policy: Policy | None) -> int:
        """The rules listed as a sample's rule bits; 0 where none is.

        Raises
        ------
        UsageError
            ``flagged`` where nothing is judged, or a rule that the policy does not have.
        """
        if self.kind != "flagged":
            return 0
        if policy is None:
            raise UsageError(
                f"the store cannot keep what is {self}: no policy judges the samples of this attempt",
                allowed="none, last:N or all without a policy",
                todo="give a policy as well",
            )
        known = {rule.name: rule.bit for rule in policy.rules}
        unknown = [name for name in self.rules if name not in known]
        if unknown:
            raise UsageError(
                f"policy {policy.name} has no rule {', '.join(map(repr, unknown))}",
                allowed=_joined(known),
                todo="dataguard policy explain shows the rules of a policy",
            )
        return sum(1 << known[name] for name in self.rules)

    def wants(self, records: NDArray[np.void], bits: int) -> NDArray[np.bool_]:
        """Which samples are a reason to keep their microbatch: bool, one a record; of ``last``, all are.

        Parameters
        ----------
        records
            Index records.
        bits
            Of `bits`.
        """
        if self.kind != "flagged":
            return np.full(len(records), self.kind != "none")
        if self.rules:
            listed: NDArray[np.bool_] = (records["rules"] & np.uint64(bits)) != 0
            return listed
        grave: NDArray[np.bool_] = records["verdict"] >= Verdict.MASK
        return grave


def _joined(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "no rules over samples at all"
