"""Which sample of an attempt is the worst, by what is recorded of it?

The gravest verdict, then the most rules that fired, then the earliest: what somebody will want to look at first.
"""

from __future__ import annotations

import numpy as np

from dataguard.corpus.arrow import numbers
from dataguard.gate.rules import Policy
from dataguard.gate.verdict import Verdict
from dataguard.loader.answers import WorstSample
from dataguard.run.index import Index
from dataguard.run.run import Run

__all__ = ["worst_recorded"]

_COLUMNS = ("step", "rank", "slot", "shard", "row", "verdict", "rules")
_MORE_THAN_RULES = 100


def worst_recorded(run: Run, attempt: int, policy: Policy) -> WorstSample | None:
    """The worst sample of an attempt; None where all of them pass.

    Raises
    ------
    RunDamaged
        The record cannot be trusted.
    """
    worst: tuple[int, int, int] | None = None
    found: dict[str, int] = {}
    num_ranks = run.attempts().attempt(attempt).geometry.world_size
    for table in Index(run.layout).tables(attempt, columns=_COLUMNS, num_ranks=num_ranks):
        columns = {name: numbers(table.column(name)) for name in _COLUMNS}
        odd = np.flatnonzero(columns["verdict"])
        if not len(odd):
            continue
        num_fired = np.bitwise_count(columns["rules"][odd].astype(np.uint64)).astype(np.int64)
        gravity = columns["verdict"][odd].astype(np.int64) * _MORE_THAN_RULES + num_fired
        own = odd[np.lexsort((columns["slot"][odd], columns["step"][odd], -gravity))[0]]
        key = (-int(gravity.max()), int(columns["step"][own]), int(columns["slot"][own]))
        if worst is None or key < worst:
            worst, found = key, {name: int(values[own]) for name, values in columns.items()}
    if worst is None:
        return None
    return WorstSample(
        step=run.label(found["step"]),
        rank=found["rank"],
        slot=found["slot"],
        shard=run.stream_of(attempt).manifest_set.shard_name(found["shard"]),
        row=found["row"],
        verdict=Verdict(found["verdict"]).name.lower(),
        rules=tuple(rule.name for rule in policy.rules if found["rules"] >> rule.bit & 1),
    )
