"""Which records show best what a rule found, and which are the worst of all?

A bounded number of each, kept while the records go by. Which ones they are is a function of the records: the furthest
beyond the bound first, of equals the first in the corpus.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataguard.audit.reading import Run
from dataguard.gate.bounds import Condition
from dataguard.gate.judged import Judged
from dataguard.gate.rules import Policy, Rule

__all__ = ["NUM_EXAMPLES", "NUM_RECORDS", "Kept", "Worst"]

NUM_EXAMPLES = 5
NUM_RECORDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A record as it is kept."""

    rank: tuple[float, ...]
    """The least comes first."""
    shard: int
    row: int
    digest: bytes
    verdict: int
    rules: int
    signals: dict[str, int | float] = field(hash=False)


class Worst:
    """The worst records, and examples of every rule over samples."""

    def __init__(self, policy: Policy) -> None:
        self.records: list[Kept] = []
        self.examples: tuple[list[Kept], ...] = tuple([] for _ in policy.rules)
        self._rules = policy.rules

    def see(self, run: Run, judged: Judged) -> None:
        """Keep what is worse than what was kept."""
        fired = np.flatnonzero(judged.rules)
        if not len(fired):
            return
        verdict, num_rules = judged.verdict[fired].astype(np.int64), np.bitwise_count(judged.rules[fired])
        self._keep(self.records, NUM_RECORDS, run, judged, fired, [-verdict, -num_rules.astype(np.int64)])
        for rule in self._rules:
            which = fired[judged.fired_by(rule.bit)[fired]]
            if len(which):
                beyond = _beyond(rule, judged, which)
                self._keep(self.examples[rule.bit], NUM_EXAMPLES, run, judged, which, [-beyond])

    def _keep(
        self, kept: list[Kept], most: int, run: Run, judged: Judged, which: NDArray[np.intp], ranks: list[NDArray[Any]]
    ) -> None:
        order = np.lexsort((np.arange(len(which)), *reversed(ranks)))[:most]
        for place in order.tolist():
            rank = tuple(float(each[place]) for each in ranks)
            if len(kept) == most and rank >= kept[-1].rank:
                return  # records come in the order of the corpus, so an equal one is a later one
            i = int(which[place])
            kept.append(
                Kept(
                    rank=rank,
                    shard=int(run.shard[i]),
                    row=int(run.row[i]),
                    digest=run.digests[i].tobytes(),
                    verdict=int(judged.verdict[i]),
                    rules=int(judged.rules[i]),
                    signals={name: values[i].item() for name, values in judged.signals.items()},
                )
            )
            kept.sort(key=operator.attrgetter("rank", "shard", "row"))
            del kept[most:]


def _beyond(rule: Rule, judged: Judged, which: NDArray[np.intp]) -> NDArray[np.float64]:
    """How far each record is beyond the rule's first bound that is not on a length, the furthest the greatest."""
    condition = next((each for each in rule.conditions if not each.on_length), rule.conditions[0])
    return _distance(condition, np.asarray(judged.signals[condition.signal.name], np.float64)[which])


def _distance(condition: Condition, values: NDArray[np.float64]) -> NDArray[np.float64]:
    if condition.outlier:
        return values
    if condition.inverted:
        return np.maximum(condition.low - values, values - condition.high)
    return values if np.isfinite(condition.low) else -values
