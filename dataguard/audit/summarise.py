"""Is the answer yes, no, or nothing, and does the account balance?

- *Nothing* was checked where no rule was evaluated on any record: that is never a pass.
- A rule *failed* where it fired beyond its allowance (gate.account.exceeds) and its action counts: always for mask,
  substitute and halt, and for rules over shards; for flag only where it was asked for.
- Damaged input outranks both: what could not be read was not judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import msgspec
import numpy as np
from numpy.typing import NDArray

from dataguard.audit.against import OverlapReasons, overlap_reasons
from dataguard.audit.damage import damaged_shards
from dataguard.audit.documents import (
    AuditSummary,
    DamagedShard,
    Drift,
    RuleAccount,
    ShardsFound,
    SourceAccount,
    Totals,
    WorstRecord,
    WorstShard,
)
from dataguard.audit.drift import drift_of, drift_told
from dataguard.audit.duplicates_account import DuplicatesTally
from dataguard.audit.folder import AuditHeader
from dataguard.audit.job import Job
from dataguard.audit.mixture import mixture_of, parse_weights
from dataguard.audit.outputs import Names
from dataguard.audit.overlap_documents import Overlap
from dataguard.audit.parts import Problem
from dataguard.audit.rules_account import rule_accounts
from dataguard.audit.tally import Tally
from dataguard.audit.tasks import num_samples as samples_of_blocks
from dataguard.audit.worst import Worst
from dataguard.core.manifest import Manifest
from dataguard.corpus.manifest_format import ManifestHeader
from dataguard.corpus.manifest_read import NamedFinding
from dataguard.errors import AnswerNo, InputError
from dataguard.gate.gate import Gate
from dataguard.gate.rules import Policy
from dataguard.gate.shards import ShardVerdict
from dataguard.score.profile import Profile

__all__ = ["NUM_SHARDS", "Facts", "summarise"]

NUM_SHARDS = 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Facts:
    """All that an answer is made of."""

    header: AuditHeader
    manifest: Manifest
    manifest_header: ManifestHeader
    job: Job
    policy: Policy
    names: Names
    gate: Gate
    tally: Tally
    worst: Worst
    shard_verdicts: tuple[ShardVerdict, ...]
    duplicates: DuplicatesTally
    profile: Profile
    """Of this audit."""
    reference: Profile
    """What outliers were judged by."""
    profile_given: bool
    baseline: Profile | None
    num_samples: NDArray[np.int64]
    num_rejected: NDArray[np.int64]
    num_unreadable: NDArray[np.int64]
    problems: Sequence[Problem]
    findings: Sequence[NamedFinding]
    unreachable: Sequence[tuple[str, str]]
    num_withheld: int
    num_withheld_shards: int
    overlap: Overlap | None = None
    """What is in evaluation data too; None where it was not held against any."""


def summarise(facts: Facts) -> AuditSummary:
    """The answer."""
    sources = _sources(facts)
    unbalanced = _unbalanced(facts)
    totals = _totals(facts, sources, balanced=not unbalanced)
    damaged = damaged_shards(facts.manifest, facts.findings, facts.problems)
    unreachable = tuple(
        DamagedShard(shard=path, reason=reason, codes=(), effect="excluded") for path, reason in facts.unreachable
    )
    rules = rule_accounts(
        facts.policy,
        facts.manifest,
        facts.names,
        facts.tally,
        facts.worst,
        facts.shard_verdicts,
        fail_on_flag="flag" in facts.header.fail_on,
    )
    drift = None
    if facts.baseline is not None:
        drift = drift_of(facts.profile, facts.baseline, sample=Fraction(facts.header.sample))
    shared = overlap_reasons(facts.overlap, fail="overlap" in facts.header.fail_on)
    verdict, exit_code, reasons = _verdict(
        facts, rules, damaged, unreachable, [*unbalanced, *shared.broken], drift, shared
    )
    weights = parse_weights(facts.header.weights, facts.names.sources)
    withheld_bytes = dict(zip(facts.names.sources, facts.tally.withheld_bytes.tolist(), strict=True))
    mixture = mixture_of(sources, withheld_bytes, weights)
    remarks = [
        *(drift_told(drift) if drift is not None else ()),
        *shared.remarks,
        *([facts.policy.warning] if facts.policy.warning else ()),
        *(f"policy {facts.policy.name}, {problem.told()}" for problem in facts.gate.remarks),
        *_idle(rules),
    ]
    return AuditSummary(
        verdict=verdict,  # type: ignore[arg-type]
        account=totals,
        shards=ShardsFound(
            total=len(facts.manifest.shards),
            damaged=damaged,
            unreachable=unreachable,
            ignored_files=facts.manifest_header.ignored_files,
        ),
        rules=rules,
        exit_code=exit_code,
        reasons=tuple(reasons),
        policy=facts.policy.name,
        policy_digest=facts.policy.digest,
        remarks=tuple(remarks),
        profile=facts.reference.digest,
        profile_given=facts.profile_given,
        manifest=facts.manifest.digest,
        sample=facts.header.sample,
        seq_len=facts.header.seq_len,
        vocab_size=facts.header.vocab_size,
        signals=facts.header.signals,
        num_withheld=facts.num_withheld,
        num_withheld_shards=facts.num_withheld_shards,
        sources=sources,
        worst_shards=_worst_shards(facts),
        worst_records=_worst_records(facts),
        duplicates=facts.duplicates.account(facts.names, facts.tally.blank),
        mixture=mixture,
        drift=drift,
        overlap=facts.overlap or msgspec.UNSET,
    )


_MOST_NAMED = 5
"""Idle rules that are named for one reason; more are counted."""


def _idle(rules: Sequence[RuleAccount]) -> list[str]:
    """Rules that had nothing to judge; those that lack something are told by the gate."""
    told = {"need", "reference"}
    idle = [rule for rule in rules if rule.skipped and not rule.evaluated and told.isdisjoint(rule.skipped_why)]
    if not idle:
        return []
    by_reason: dict[str, list[str]] = {}
    for rule in idle:
        by_reason.setdefault(_skipped(rule), []).append(rule.rule)
    # A corpus of tokens leaves all rules over text idle: their names are in the table, and here how many they are.
    named = ", ".join(
        f"{len(names):,} rules ({reason})"
        if len(names) > _MOST_NAMED
        else ", ".join(f"{name} ({reason})" for name in names)
        for reason, names in by_reason.items()
    )
    return [f"{len(idle):,} of {len(rules):,} rules were evaluated on nothing: {named}"]


_WHY = {
    "kind": "for another kind of source",
    "source": "for other sources",
    "off": "switched off",
    "minimum": "every sample is too short",
    "padding": "no sample counts",
    "batch": "an audit has no batches",
}


def _skipped(rule: RuleAccount) -> str:
    if rule.scope == "shard" and "minimum" in rule.skipped_why:
        return "too few samples in every shard"
    return " and ".join(_WHY[why] for why in rule.skipped_why)


def _by_source(facts: Facts, counts: NDArray[np.int64]) -> list[int]:
    """Counts of shards, added up by source."""
    sums = []
    for i in range(len(facts.manifest.sources)):
        shards = facts.manifest.shards_of(i)
        sums.append(int(counts[shards.start : shards.stop].sum()))
    return sums


def _sources(facts: Facts) -> tuple[SourceAccount, ...]:
    tally, manifest = facts.tally, facts.manifest
    records, rejected = _by_source(facts, facts.num_samples), _by_source(facts, facts.num_rejected)
    unreadable, scored = _by_source(facts, facts.num_unreadable), _by_source(facts, tally.scored)
    accounts = []
    for i, source in enumerate(manifest.sources):
        shards = manifest.shards_of(i)
        verdicts = tally.verdicts[shards.start : shards.stop].sum(axis=0)
        accounts.append(
            SourceAccount(
                source=source.name,
                kind=source.kind,
                num_shards=len(shards),
                records=records[i],
                scored=scored[i],
                rejected=rejected[i],
                unreadable=unreadable[i],
                content_bytes=int(tally.content_bytes[i]),
                tokens=int(tally.tokens[i]),
                blank=int(tally.blank[i]),
                verdicts=dict(zip(facts.names.verdicts, verdicts.tolist(), strict=True)),
                withheld=int(verdicts[tally.withheld_verdicts].sum()),
            )
        )
    return tuple(accounts)


def _unbalanced(facts: Facts) -> list[str]:
    """Shards whose account does not add up, in words: a fault of dataguard, or of whoever changed its files."""
    told = facts.tally.scored + facts.num_rejected + facts.num_unreadable
    wrong = np.flatnonzero(told != facts.num_samples).tolist()
    return [
        f"the account of shard {facts.names.shards[i]} does not balance: {facts.num_samples[i]:,} records, "
        f"{facts.tally.scored[i]:,} scored, {facts.num_rejected[i]:,} rejected, {facts.num_unreadable[i]:,} unreadable"
        for i in wrong[:5]
    ] + _missing(facts)


def _missing(facts: Facts) -> list[str]:
    """Records of the manifest that no part speaks of, where the whole corpus was looked at."""
    if not facts.job.sample.is_all:
        return []
    there, seen = _corpus_records(facts), int(facts.num_samples.sum())
    return [] if there == seen else [f"the manifest has {there:,} records, and {seen:,} were looked at"]


def _corpus_records(facts: Facts) -> int:
    return int(samples_of_blocks(facts.manifest, seq_len=facts.job.seq_len).sum())


def _totals(facts: Facts, sources: Sequence[SourceAccount], *, balanced: bool) -> Totals:
    records = int(facts.num_samples.sum())
    return Totals(
        records=records,
        scored=sum(source.scored for source in sources),
        rejected=sum(source.rejected for source in sources),
        unreadable=sum(source.unreadable for source in sources),
        balanced=balanced,
        not_sampled=_corpus_records(facts) - records,
        content_bytes=sum(source.content_bytes for source in sources),
        tokens=sum(source.tokens for source in sources),
        ignored_lines=facts.manifest_header.ignored_lines,
        rejected_by_code={
            code: int(number)
            for code, number in zip(
                facts.manifest.codes,
                np.bincount(facts.manifest.rejected["code"], minlength=len(facts.manifest.codes)).tolist(),
                strict=True,
            )
        },
    )


def _verdict(
    facts: Facts,
    rules: Sequence[RuleAccount],
    damaged: Sequence[DamagedShard],
    unreachable: Sequence[DamagedShard],
    unbalanced: Sequence[str],
    drift: Drift | None,
    shared: OverlapReasons,
) -> tuple[str, int, list[str]]:
    reasons = list(unbalanced)
    if damaged:
        reasons.append(f"{len(damaged):,} of {len(facts.manifest.shards):,} shards are damaged")
    if unreachable:
        reasons.append(f"{len(unreachable):,} paths were not reached")
    failed = [
        f"rule {rule.rule} fired on {rule.fired:,} of {rule.evaluated:,} "
        f"({rule.share_of_records:.4%}), allowed is {rule.max_fraction:.4%}"
        for rule in rules
        if rule.failed
    ]
    if drift is not None and drift.drifted and "drift" in facts.header.fail_on:
        failed.append("the corpus has drifted from the baseline")
    failed += shared.failed
    nothing = not any(rule.evaluated for rule in rules if rule.scope == "sample")
    if nothing:
        scored = int(facts.tally.scored.sum())
        what = "no rule was evaluated on any record" if scored else "no record was scored"
        return "nothing", InputError.exit_code, [*reasons, f"nothing was checked: {what}"]
    broken = bool(damaged or unreachable or unbalanced)
    code = InputError.exit_code if broken else AnswerNo.exit_code if failed else 0
    return "fail" if code else "pass", code, [*reasons, *failed]


def _worst_shards(facts: Facts) -> tuple[WorstShard, ...]:
    tally = facts.tally
    proposed: dict[int, list[str]] = {}
    for verdict in facts.shard_verdicts:
        if verdict.fired:
            proposed.setdefault(verdict.shard, []).append(verdict.rule.name)
    withheld = tally.verdicts[:, tally.withheld_verdicts].sum(axis=1)
    odd = tally.verdicts[:, 1:].sum(axis=1)
    scored = np.maximum(tally.scored, 1)
    is_proposed = np.isin(np.arange(len(scored)), list(proposed))
    # the last key counts most: shards to withhold as a whole, then by the share withheld, then by the share that is odd
    order = np.lexsort((np.arange(len(scored)), -odd / scored, -withheld / scored, ~is_proposed))
    chosen = [i for i in order[:NUM_SHARDS].tolist() if odd[i] or is_proposed[i]]
    return tuple(
        WorstShard(
            shard=facts.names.shards[i],
            scored=int(tally.scored[i]),
            rejected=int(facts.num_rejected[i]),
            unreadable=int(facts.num_unreadable[i]),
            withheld=int(withheld[i]),
            verdicts=dict(zip(facts.names.verdicts, tally.verdicts[i].tolist(), strict=True)),
            proposed=tuple(proposed.get(i, ())),
        )
        for i in chosen
    )


def _worst_records(facts: Facts) -> tuple[WorstRecord, ...]:
    return tuple(
        WorstRecord(
            shard=facts.names.shards[kept.shard],
            row=kept.row,
            digest=kept.digest.hex(),
            verdict=facts.names.verdicts[kept.verdict],
            rules=facts.names.fired(kept.rules),
            signals=kept.signals,
        )
        for kept in facts.worst.records
    )
