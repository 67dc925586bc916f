"""What did the gate say of some samples?

All reasons are kept, not the first: a bit for every rule that fired, and for every rule and sample whether it was
evaluated, and if not, why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dataguard.core.signals import SignalKind
from dataguard.gate.verdict import Skip, Verdict

__all__ = ["Judged"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Judged:
    """Verdicts over n samples, by the R rules of a policy over samples."""

    kind: SignalKind
    verdict: NDArray[np.uint8]
    """`Verdict` of each sample, shape (n,)."""
    rules: NDArray[np.uint64]
    """Bit i where rule i fired, from full precision; shape (n,)."""
    signals: Mapping[str, NDArray[np.int64] | NDArray[np.float64]]
    """All signals the policy asks for and the headline, each of shape (n,); what could not be had is missing."""
    why: NDArray[np.int8]
    """-1 where a rule was evaluated, else the `Skip` that says why not; shape (n, R)."""
    scored: NDArray[np.bool_]
    """Where there is a sample at all, and no padding; shape (n,)."""
    num_rules: int
    _spans: Mapping[int, NDArray[np.int64]] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.verdict)

    def part(self, start: int, stop: int) -> Judged:
        """The same of samples ``start:stop`` alone."""
        rows = slice(start, stop)
        return Judged(
            kind=self.kind,
            verdict=self.verdict[rows],
            rules=self.rules[rows],
            signals={name: values[rows] for name, values in self.signals.items()},
            why=self.why[rows],
            scored=self.scored[rows],
            num_rules=self.num_rules,
            _spans={i - start: spans for i, spans in self._spans.items() if start <= i < stop},
        )

    @cached_property
    def evaluated(self) -> NDArray[np.int64]:
        """Samples on which each rule was evaluated, int64, shape (R,)."""
        evaluated: NDArray[np.int64] = np.sum(self.why < 0, axis=0, dtype=np.int64)
        return evaluated

    @cached_property
    def skipped(self) -> NDArray[np.int64]:
        """Samples on which it was not; `evaluated` + `skipped` is n. int64, shape (R,)."""
        skipped: NDArray[np.int64] = np.subtract(len(self), self.evaluated)
        return skipped

    @cached_property
    def fired(self) -> NDArray[np.int64]:
        """Samples on which it fired, int64, shape (R,)."""
        return np.array([np.count_nonzero(self.fired_by(bit)) for bit in range(self.num_rules)], np.int64)

    @cached_property
    def skipped_why(self) -> NDArray[np.int64]:
        """Samples on which each rule was skipped, by reason: int64, shape (R, len(Skip)); sums to `skipped`."""
        return np.stack([np.count_nonzero(self.why == reason, axis=0) for reason in Skip], axis=1).astype(np.int64)

    def fired_by(self, bit: int) -> NDArray[np.bool_]:
        """Where rule `bit` fired, shape (n,)."""
        return (self.rules >> np.uint64(bit) & np.uint64(1)).astype(bool)

    def evaluated_by(self, bit: int) -> NDArray[np.bool_]:
        """Where rule `bit` was evaluated, shape (n,)."""
        return self.why[:, bit] < 0

    def spans(self, i: int) -> NDArray[np.int64] | None:
        """The token positions of sample i whose labels are to be masked, half-open, merged: int64, shape (k, 2).

        None where the sample is masked as a whole: a rule without a span asked for that as well, or it is text; and
        where nothing is masked.
        """
        return self._spans.get(i) if self.verdict[i] == Verdict.MASK else None
