"""Which shards does the policy of an attempt propose to quarantine, over the samples of all ranks?

Counted from the index, where every rank has written its verdicts, so nothing is lost with a process: for each shard the
samples that were judged, and those on which a rule fired that counts for a shard rule. It is asked when rank 0 ends an
attempt, and again when the next begins, since other ranks may have ended later; what stands already is not proposed
again. Where the policy says ``apply_at_next_attempt``, the proposal becomes a quarantine before the next one begins.

A verdict on a slot is about the first row judged in it: the planned one, or, where that was withheld by an event, the
substitute that was delivered. Where such a substitute was refused in turn, its shard is not recorded: not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataguard.corpus.arrow import numbers
from dataguard.errors import RunDamaged
from dataguard.gate.policy import Policy
from dataguard.gate.shards import ShardCounts, ShardVerdict, judge_shards
from dataguard.gate.verdict import Verdict
from dataguard.plan.slots import SlotStatus
from dataguard.run.begin import propose
from dataguard.run.events import Event, Proposed, Quarantined
from dataguard.run.index import Index
from dataguard.run.journal import JournalRead
from dataguard.run.policies import policy_of
from dataguard.run.run import Run

__all__ = ["apply_proposals", "judged_shards", "propose_shards"]

_COLUMNS = ("source", "shard", "status", "delivered_shard", "verdict", "rules", "event")


def propose_shards(run: Run) -> int:
    """Propose what the shard rules of the newest attempt say; how many proposals were new."""
    tree = run.attempts()
    if not len(tree):
        return 0
    number = tree.newest
    try:
        verdicts = [verdict for verdict in judged_shards(run, number) if verdict.fired]
    except RunDamaged:
        return 0  # verify tells it; what only advises must not keep a run from going on
    if not verdicts:
        return 0
    proposed = {
        (entry.event.attempt, entry.event.shard, entry.event.rule)
        for entry in run.read().entries
        if isinstance(entry.event, Proposed)
    }
    names = run.stream_of(number).manifest_set
    proposals = [
        Proposed(
            proposal="quarantine",
            attempt=number,
            shard=names.shard_name(verdict.shard),
            reason=f"rule {verdict.rule.name}: {verdict.num_counted:,} of {verdict.num_judged:,} samples judged in "
            f"attempt {number} ({verdict.share:.1%}); {verdict.rule.text}",
            rule=verdict.rule.name,
        )
        for verdict in verdicts
    ]
    return len(propose(run, [each for each in proposals if (each.attempt, each.shard, each.rule) not in proposed]))


def judged_shards(run: Run, attempt: int) -> tuple[ShardVerdict, ...]:
    """What the shard rules of an attempt's policy say of each shard, over all that is recorded of it.

    Raises
    ------
    RunDamaged
        The record cannot be trusted.
    """
    policy = policy_of(run, attempt)
    if policy is None or not policy.shard_rules:
        return ()
    counts = ShardCounts.total(_counts(run, attempt, policy), num_rules=len(policy.shard_rules))
    return judge_shards(policy, run.stream_of(attempt).source_names, counts)


def _counts(run: Run, attempt: int, policy: Policy) -> Iterator[ShardCounts]:
    num_ranks = run.attempts().attempt(attempt).geometry.world_size
    for table in Index(run.layout).tables(attempt, columns=_COLUMNS, num_ranks=num_ranks):
        columns = {name: numbers(table.column(name), null=-1 if name == "delivered_shard" else 0) for name in _COLUMNS}
        yield _counts_of(columns, policy)


def _counts_of(columns: dict[str, NDArray[Any]], policy: Policy) -> ShardCounts:
    """What the records of one file add."""
    status, verdict = columns["status"], columns["verdict"]
    shard = columns["shard"].astype(np.int64)
    drawn = status == SlotStatus.SUBSTITUTED
    refused = verdict > Verdict.FLAG
    # A substitute that was delivered is what was judged, but where the gate drew it: there it was the planned row.
    of_substitute = drawn & ~refused
    shard[of_substitute] = columns["delivered_shard"][of_substitute].astype(np.int64)
    known = (status == SlotStatus.LIVE) | (status == SlotStatus.REFUSED) | drawn
    known &= ~((columns["event"] != 0) & refused)
    shards, first, where = np.unique(shard[known], return_index=True, return_inverse=True)
    counted = np.zeros((len(shards), len(policy.shard_rules)), np.int64)
    rules = columns["rules"].astype(np.uint64)[known]
    for s, rule in enumerate(policy.shard_rules):
        counted[:, s] = np.bincount(where[(rules & np.uint64(rule.bits)) != 0], minlength=len(shards))
    return ShardCounts(
        shard=shards,
        source=columns["source"].astype(np.int32)[known][first],
        judged=np.bincount(where, minlength=len(shards)).astype(np.int64),
        counted=counted,
    )


def apply_proposals(run: Run) -> int:
    """Quarantine the shards of proposals whose rule says so, each once ever; how many were new.

    Whoever releases such a shard, or revokes the event, is not overruled: the proposal has been applied.
    """
    policies: dict[int, Policy | None] = {}
    count = 0
    for entry in run.read().entries:
        event = entry.event
        if not isinstance(event, Proposed) or not event.rule or event.shard is None:
            continue
        if event.attempt not in policies:
            policies[event.attempt] = policy_of(run, event.attempt)
        policy = policies[event.attempt]
        rule = None if policy is None else next((r for r in policy.shard_rules if r.name == event.rule), None)
        if rule is None or not rule.apply_at_next_attempt:
            continue
        quarantine = Quarantined(shard=event.shard, reason=event.reason, evidence=f"proposal of event {entry.number}")

        def make(read: JournalRead, quarantine: Quarantined = quarantine) -> Event:
            if any(isinstance(e.event, Quarantined) and e.event.evidence == quarantine.evidence for e in read.entries):
                raise _StandsError
            return quarantine

        try:
            run.journal.append(make)
            count += 1
        except _StandsError:
            continue
    return count


class _StandsError(Exception):
    """It stands already; never seen outside."""
