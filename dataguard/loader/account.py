"""What did the gate say of all that was handed over, over all ranks, rule by rule?

Rules over samples are counted where samples are judged and added up over ranks. Rules over batches need the whole
global batch, which no rank of a training run holds: here, where all ranks live in one process, they are judged, with
the signals of what is trained on, and what they say is proposed. Rules over shards are judged over the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dataguard.gate.account import Account
from dataguard.gate.batches import BatchVerdict
from dataguard.gate.rules import BatchRule
from dataguard.gate.verdict import Skip, Verdict
from dataguard.loader.answers import GateAnswer, RuleAnswer
from dataguard.loader.loader import Loader
from dataguard.loader.shard_proposals import judged_shards
from dataguard.loader.worst import worst_recorded
from dataguard.run.begin import propose
from dataguard.run.events import Proposed
from dataguard.run.run import Run

__all__ = ["GateAccount"]

_MOST_POSITIONS = 256


@dataclass(slots=True)
class _BatchRule:
    """What one rule over batches said so far."""

    rule: BatchRule
    evaluated: int = 0
    fired: list[tuple[int, BatchVerdict, tuple[int, ...]]] = field(default_factory=list)
    """Step (from 0), verdict, positions of the batch."""
    skipped: dict[Skip, int] = field(default_factory=dict)


def _told(counts: NDArray[np.int64]) -> dict[str, int]:
    """Counts by reason, those that are not 0."""
    return {why.name.lower(): count for why, count in zip(Skip, counts.tolist(), strict=True) if count}


class GateAccount:
    """The account of one attempt whose ranks all live in this process."""

    def __init__(self, loaders: Sequence[Loader]) -> None:
        self._loaders = loaders
        self._batches: dict[str, _BatchRule] = {}

    def step(self, step: int) -> None:
        """Judge the global batch of a step that every rank was handed."""
        judge = self._loaders[0].judge
        if judge is None or not judge.policy.batch_rules:
            return
        parts = [part for loader in self._loaders for part in loader.batch_parts]
        source = np.concatenate([part.source for part in parts])
        live = np.concatenate([part.live for part in parts])
        columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in judge.signals}
        positions = np.sort(np.concatenate([part.positions for part in parts]))
        for verdict in judge.gate.judge_batch(columns, source, live=live):
            account = self._batches.setdefault(verdict.rule.name, _BatchRule(rule=verdict.rule))
            if verdict.skip is not None:
                account.skipped[verdict.skip] = account.skipped.get(verdict.skip, 0) + 1
                continue
            account.evaluated += 1
            if verdict.fired:
                few = positions[:_MOST_POSITIONS] if len(positions) <= _MOST_POSITIONS else positions[:0]
                account.fired.append((step, verdict, tuple(few.tolist())))

    def propose(self, run: Run) -> None:
        """Propose to skip the batches on which a rule fired that says so; for when the record is closed."""
        attempt = self._loaders[0].attempt
        assert attempt is not None
        propose(
            run,
            [
                Proposed(
                    proposal="skip",
                    attempt=attempt.number,
                    positions=positions,
                    reason=f"step {run.label(step):,}: {verdict.rule.of} {verdict.rule.condition.signal.name} "
                    f"{verdict.value:.4g} over {verdict.num_samples:,} samples; {verdict.rule.text}",
                    rule=verdict.rule.name,
                )
                for account in self._batches.values()
                if account.rule.action == "propose_skip"
                for step, verdict, positions in account.fired
            ],
        )

    def answer(self, run: Run, halted: str | None) -> GateAnswer | None:
        """The closing account; None for an attempt without a policy."""
        judge, attempt = self._loaders[0].judge, self._loaders[0].attempt
        if judge is None or attempt is None:
            return None
        policy = judge.policy
        total = Account.empty(len(policy.rules))
        for loader in self._loaders:
            total += loader.account
        rules = [
            RuleAnswer(
                rule=rule.name,
                scope="sample",
                signal=", ".join(dict.fromkeys(condition.signal.name for condition in rule.conditions)),
                action=rule.action,
                evaluated=int(total.evaluated[rule.bit]),
                fired=int(total.fired[rule.bit]),
                skipped=int(total.skipped[rule.bit]),
                skipped_why=_told(total.skipped_why[rule.bit]),
            )
            for rule in policy.rules
        ]
        for batch_rule in policy.batch_rules:
            account = self._batches.get(batch_rule.name, _BatchRule(rule=batch_rule))
            rules.append(
                RuleAnswer(
                    rule=batch_rule.name,
                    scope="batch",
                    signal=batch_rule.condition.signal.name,
                    action=batch_rule.action,
                    evaluated=account.evaluated,
                    fired=len(account.fired),
                    skipped=sum(account.skipped.values()),
                    skipped_why={why.name.lower(): n for why, n in account.skipped.items()},
                )
            )
        shards = judged_shards(run, attempt.number)
        for shard_rule in policy.shard_rules:
            own = [verdict for verdict in shards if verdict.rule.name == shard_rule.name]
            skips = [verdict.skip for verdict in own if verdict.skip is not None]
            rules.append(
                RuleAnswer(
                    rule=shard_rule.name,
                    scope="shard",
                    signal=", ".join(shard_rule.counts),
                    action=shard_rule.action,
                    evaluated=len(own) - len(skips),
                    fired=sum(verdict.fired for verdict in own),
                    skipped=len(skips),
                    skipped_why={why.name.lower(): skips.count(why) for why in dict.fromkeys(skips)},
                )
            )
        return GateAnswer(
            policy=policy.name,
            policy_digest=policy.digest,
            profile=attempt.profile,
            vocab_size=attempt.vocab_size,
            verdicts={verdict.name.lower(): int(n) for verdict, n in zip(Verdict, total.by_verdict, strict=True)},
            rules=tuple(rules),
            worst=worst_recorded(run, attempt.number, policy),
            halted=halted,
        )
