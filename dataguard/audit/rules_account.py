"""What did each rule do? Its account, by source and by shard, with examples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dataguard.audit.documents import Example, RuleAccount, RuleInShard, RuleOfSource
from dataguard.audit.outputs import Names
from dataguard.audit.tally import Tally
from dataguard.audit.worst import Worst
from dataguard.core.manifest import Manifest
from dataguard.gate.account import exceeds
from dataguard.gate.rules import BatchRule, Policy, Rule, ShardRule
from dataguard.gate.shards import ShardVerdict
from dataguard.gate.verdict import Skip

__all__ = ["rule_accounts"]

_NUM_SHARDS = 5


def rule_accounts(
    policy: Policy,
    manifest: Manifest,
    names: Names,
    tally: Tally,
    worst: Worst,
    shard_verdicts: Sequence[ShardVerdict],
    *,
    fail_on_flag: bool,
) -> tuple[RuleAccount, ...]:
    """The account of every rule of a policy: those over samples, then over batches, then over shards."""
    accounts = [_of_samples(rule, manifest, names, tally, worst, fail_on_flag=fail_on_flag) for rule in policy.rules]
    accounts += [_of_batches(rule, num_scored=int(tally.scored.sum())) for rule in policy.batch_rules]
    accounts += [
        _of_shards(rule, names, [verdict for verdict in shard_verdicts if verdict.rule is rule])
        for rule in policy.shard_rules
    ]
    return tuple(accounts)


def _of_samples(
    rule: Rule, manifest: Manifest, names: Names, tally: Tally, worst: Worst, *, fail_on_flag: bool
) -> RuleAccount:
    bit = rule.bit
    by_source = tuple(_of_source(rule, i, manifest, names, tally) for i in range(len(manifest.sources)))
    evaluated, fired = int(tally.evaluated[:, bit].sum()), int(tally.fired[:, bit].sum())
    why = tally.skipped_why[:, bit].sum(axis=0)
    is_tokens = rule.kind == "tokens"
    return RuleAccount(
        rule=rule.name,
        signal=", ".join(dict.fromkeys(condition.signal.name for condition in rule.conditions)),
        action=rule.action,
        evaluated=evaluated,
        fired=fired,
        skipped=int(why.sum()),
        skipped_why=_reasons(why.tolist()),
        scope="sample",
        text=rule.text,
        share_of_records=_share(fired, evaluated),
        share_of_bytes=_share(int(tally.fired_bytes[:, bit].sum()), int(tally.evaluated_bytes[:, bit].sum())),
        share_of_tokens=_share(int(tally.fired_tokens[:, bit].sum()), int(tally.evaluated_tokens[:, bit].sum()))
        if is_tokens
        else None,
        max_fraction=rule.max_fraction,
        failed=(rule.action != "flag" or fail_on_flag) and exceeds(rule, fired=fired, evaluated=evaluated),
        by_source=by_source,
        worst_shards=_worst_shards(bit, names, tally),
        examples=tuple(
            Example(
                shard=names.shards[kept.shard],
                row=kept.row,
                digest=kept.digest.hex(),
                values={
                    condition.signal.name: kept.signals[condition.signal.name]
                    for condition in rule.conditions
                    if condition.signal.name in kept.signals
                },
            )
            for kept in worst.examples[bit]
        ),
    )


def _of_source(rule: Rule, source: int, manifest: Manifest, names: Names, tally: Tally) -> RuleOfSource:
    bit, shards = rule.bit, manifest.shards_of(source)
    span = slice(shards.start, shards.stop)
    evaluated, fired = int(tally.evaluated[span, bit].sum()), int(tally.fired[span, bit].sum())
    is_tokens = rule.kind == "tokens"
    return RuleOfSource(
        source=names.sources[source],
        evaluated=evaluated,
        fired=fired,
        skipped=int(tally.skipped_why[source, bit].sum()),
        share_of_records=_share(fired, evaluated),
        share_of_bytes=_share(int(tally.fired_bytes[source, bit]), int(tally.evaluated_bytes[source, bit])),
        share_of_tokens=_share(int(tally.fired_tokens[source, bit]), int(tally.evaluated_tokens[source, bit]))
        if is_tokens
        else None,
    )


def _worst_shards(bit: int, names: Names, tally: Tally) -> tuple[RuleInShard, ...]:
    fired, evaluated = tally.fired[:, bit], tally.evaluated[:, bit]
    share = fired / np.maximum(evaluated, 1)
    order = np.lexsort((np.arange(len(fired)), -fired, -share))[:_NUM_SHARDS]
    return tuple(
        RuleInShard(
            shard=names.shards[i], evaluated=int(evaluated[i]), fired=int(fired[i]), share_of_records=float(share[i])
        )
        for i in order.tolist()
        if fired[i]
    )


def _of_batches(rule: BatchRule, *, num_scored: int) -> RuleAccount:
    """An audit knows no batches: the rule is skipped on everything, and says so."""
    return RuleAccount(
        rule=rule.name,
        signal=rule.condition.signal.name,
        action=rule.action,
        evaluated=0,
        fired=0,
        skipped=num_scored,
        skipped_why={"batch": num_scored} if num_scored else {},
        scope="batch",
        text=rule.text,
        share_of_records=0.0,
        share_of_bytes=0.0,
        share_of_tokens=None,
        max_fraction=rule.max_fraction,
        failed=False,
        by_source=(),
        worst_shards=(),
        examples=(),
    )


def _of_shards(rule: ShardRule, names: Names, verdicts: Sequence[ShardVerdict]) -> RuleAccount:
    """Over shards: `evaluated`, `fired` and `skipped` count shards of which records were scored."""
    judged = [verdict for verdict in verdicts if verdict.skip is None]
    fired = [verdict for verdict in judged if verdict.fired]
    why = [sum(verdict.skip == reason for verdict in verdicts) for reason in Skip]
    return RuleAccount(
        rule=rule.name,
        signal="share of samples",
        action=rule.action,
        evaluated=len(judged),
        fired=len(fired),
        skipped=len(verdicts) - len(judged),
        skipped_why=_reasons(why),
        scope="shard",
        text=rule.text,
        share_of_records=_share(len(fired), len(judged)),
        share_of_bytes=0.0,
        share_of_tokens=None,
        max_fraction=rule.max_fraction,
        failed=exceeds(rule, fired=len(fired), evaluated=len(judged)),
        by_source=(),
        worst_shards=tuple(
            RuleInShard(
                shard=names.shards[verdict.shard],
                evaluated=verdict.num_judged,
                fired=verdict.num_counted,
                share_of_records=verdict.share,
            )
            for verdict in sorted(fired, key=lambda verdict: (-verdict.share, verdict.shard))[:_NUM_SHARDS]
        ),
        examples=(),
    )


def _reasons(counts: Sequence[int]) -> dict[str, int]:
    return {reason.name.lower(): count for reason, count in zip(Skip, counts, strict=True) if count}


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
