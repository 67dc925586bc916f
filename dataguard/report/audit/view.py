"""What stands on the page of an audit? The facts of the answer, joined with what explains them.

`view_of` takes the answer, the policy and the content of the records it names, and gives what the templates need:
rules with their notes and reasons, records with their looks. No template decides anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataguard.audit.documents import (
    AuditSummary,
    DuplicateGroup,
    DuplicatesOf,
    MixtureOf,
    RuleAccount,
    RuleOfSource,
    SourceAccount,
    WorstRecord,
    WorstShard,
)
from dataguard.gate.rules import BatchRule, Policy, Rule, ShardRule
from dataguard.report.audit.records import Content, Place, Shown, shown_record
from dataguard.report.audit.steps import Step, explain_command, steps_of

__all__ = ["MOST_SOURCES", "NUM_EXAMPLES", "AuditView", "RecordView", "places_of", "rules_of_shards", "view_of"]

NUM_EXAMPLES = 2
"""Examples of a rule that are shown with their content; of the others there is the place alone."""

MOST_SOURCES = 40
"""Sources that are told at each rule: where they are more, those on which it fired most."""

_NUM_DAMAGED = 200
_NUM_DRIFTED = 100
_NUM_RULES_OF_SHARD = 3
_TITLES = {"pass": "Pass", "fail": "Fail", "nothing": "Nothing was checked"}
_WHY = {
    "kind": "of the other kind (text or tokens)",
    "source": "of sources that the rule is not for",
    "off": "of sources where a section of the policy switches it off",
    "need": "because what its signal needs was not given (for token ids: --vocab-size)",
    "reference": "because the profile does not know their source",
    "minimum": "too short, or too few, for the rule to say anything",
    "padding": "with nothing in them",
    "batch": "because an audit has no batches",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordView:
    """A record with what is known of it."""

    shard: str
    row: int
    unit: str
    """``row`` or ``window``."""
    verdict: str
    """Empty for an example of a rule."""
    rules: tuple[str, ...]
    values: tuple[tuple[str, float], ...]
    """(signal, value) of the rules that fired."""
    shows: tuple[Shown, ...]
    unseen: str
    """Why its content is not shown; empty where it is."""
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleView:
    """A rule."""

    account: RuleAccount
    state: str
    """``failed``, ``fired``, ``quiet`` or ``unused``."""
    note: str
    by_source: tuple[RuleOfSource, ...]
    """In their order; at most `MOST_SOURCES` of them."""
    num_more_sources: int
    why: tuple[tuple[str, int], ...]
    """Why it was skipped, and on how many."""
    examples: tuple[RecordView, ...]
    """With their content."""
    further: tuple[RecordView, ...]
    """By their place alone."""
    what: str
    """What it counts: ``records`` or ``shards``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceView:
    """A source."""

    account: SourceAccount
    mixed: MixtureOf
    copies: DuplicatesOf


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardView:
    """One of the worst shards."""

    shard: WorstShard
    rules: tuple[tuple[str, int, int], ...]
    """(rule, fired, evaluated) of those that fired most there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group of equal records."""

    group: DuplicateGroup
    shows: tuple[Shown, ...]
    unseen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditView:
    """The page."""

    title: str
    summary: AuditSummary
    steps: tuple[Step, ...]
    sources: tuple[SourceView, ...]
    rules: tuple[RuleView, ...]
    num_fired: int
    num_unused: int
    num_more_damaged: int
    worst_shards: tuple[ShardView, ...]
    worst_records: tuple[RecordView, ...]
    groups: tuple[GroupView, ...]
    policy_title: str
    policy_text: str
    asked: tuple[str, ...]
    has_weights: bool
    most_damaged: int = _NUM_DAMAGED
    most_drifted: int = _NUM_DRIFTED


def places_of(summary: AuditSummary) -> Iterator[Place]:
    """The records whose content the page shows."""
    for record in summary.worst_records:
        yield record.shard, record.row
    for rule in summary.rules:
        for example in rule.examples[:NUM_EXAMPLES]:
            yield example.shard, example.row
    for group in summary.duplicates.largest:
        yield group.shard, group.row


def rules_of_shards(path: Path, shards: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """From ``shards.parquet``: the rules that fired in some shards, with how often."""
    import pyarrow.parquet as pq

    wanted, found = set(shards), {}
    with pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False) as file:
        for batch in file.iter_batches(1 << 12, columns=["shard", "rules"], use_threads=False) if wanted else ():
            places = [i for i, shard in enumerate(batch.column("shard").to_pylist()) if shard in wanted]
            found.update({row["shard"]: row["rules"] for row in batch.take(places).to_pylist()})
    return found


def view_of(
    summary: AuditSummary,
    policy: Policy,
    asked: Sequence[str],
    contents: Mapping[Place, Content],
    rules_in: Mapping[str, Sequence[Mapping[str, Any]]],
) -> AuditView:
    """The page's facts.

    Parameters
    ----------
    summary
        The answer.
    policy
        That judged.
    asked
        What was audited, as it was typed.
    contents
        Of `places_of`.
    rules_in
        Of `rules_of_shards`.
    """
    looks = _Looks(summary, policy, contents)
    rules = tuple(_rule(rule, policy, looks) for rule in summary.rules)
    copies = {entry.source: entry for entry in summary.duplicates.by_source}
    return AuditView(
        title=_TITLES[summary.verdict],
        summary=summary,
        steps=steps_of(summary),
        sources=tuple(
            SourceView(account=account, mixed=mixed, copies=copies[account.source])
            for account, mixed in zip(summary.sources, summary.mixture.sources, strict=True)
        ),
        rules=rules,
        num_fired=sum(rule.account.fired > 0 for rule in rules),
        num_unused=sum(rule.state == "unused" for rule in rules),
        num_more_damaged=max(len(summary.shards.damaged) - _NUM_DAMAGED, 0),
        worst_shards=tuple(
            ShardView(shard=shard, rules=_most_fired(rules_in.get(shard.shard, ()))) for shard in summary.worst_shards
        ),
        worst_records=tuple(looks.worst(record) for record in summary.worst_records),
        groups=tuple(looks.group(group) for group in summary.duplicates.largest),
        policy_title=policy.title,
        policy_text=policy.text,
        asked=tuple(asked),
        has_weights=any(entry.weight is not None for entry in summary.mixture.sources),
    )


class _Looks:
    """Records of the answer, with their content."""

    def __init__(self, summary: AuditSummary, policy: Policy, contents: Mapping[Place, Content]) -> None:
        self._summary, self._policy, self._contents = summary, policy, contents
        self._kinds = {source.source: source.kind for source in summary.sources}

    def worst(self, record: WorstRecord) -> RecordView:
        """One of the worst records: the values of all signals that its rules are over."""
        fired = [rule for rule in self._policy.rules if rule.name in record.rules]
        names = dict.fromkeys(each.signal.name for rule in fired for each in rule.conditions)
        values = tuple((name, record.signals[name]) for name in names if name in record.signals)
        return self._record(record.shard, record.row, record.rules, values, verdict=record.verdict)

    def example(self, rule: RuleAccount, number: int) -> RecordView:
        """An example of a rule; from `NUM_EXAMPLES` on without its content."""
        example = rule.examples[number]
        values = tuple(example.values.items())
        return self._record(example.shard, example.row, (rule.rule,), values, seen=number < NUM_EXAMPLES)

    def group(self, group: DuplicateGroup) -> GroupView:
        """A group of equal records."""
        shows, unseen = self._seen((group.shard, group.row), ())
        return GroupView(group=group, shows=shows, unseen=unseen)

    def _record(
        self,
        shard: str,
        row: int,
        rules: tuple[str, ...],
        values: tuple[tuple[str, float], ...],
        *,
        verdict: str = "",
        seen: bool = True,
    ) -> RecordView:
        kind = self._kinds[shard.partition("/")[0]]
        shows, unseen = self._seen((shard, row), rules) if seen else ((), "")
        summary = self._summary
        return RecordView(
            shard=shard,
            row=row,
            unit="row" if kind == "text" else "window",
            verdict=verdict,
            rules=rules,
            values=values,
            shows=shows,
            unseen=unseen,
            command=explain_command(
                summary.policy, shard, row, kind=kind, seq_len=summary.seq_len, vocab_size=summary.vocab_size
            ),
        )

    def _seen(self, place: Place, rules: Sequence[str]) -> tuple[tuple[Shown, ...], str]:
        content = self._contents[place]
        if isinstance(content, str):
            return (), content
        source = place[0].partition("/")[0]
        return tuple(shown_record(content, rules, source, self._policy, vocab_size=self._summary.vocab_size)), ""


def _rule(account: RuleAccount, policy: Policy, looks: _Looks) -> RuleView:
    every: tuple[Rule | BatchRule | ShardRule, ...] = (*policy.rules, *policy.batch_rules, *policy.shard_rules)
    notes = {rule.name: rule.note for rule in every}
    examples = [looks.example(account, number) for number in range(len(account.examples))]
    state = "failed" if account.failed else "fired" if account.fired else "quiet" if account.evaluated else "unused"
    return RuleView(
        account=account,
        state=state,
        note=notes.get(account.rule, ""),
        by_source=_told_sources(account.by_source),
        num_more_sources=max(len(account.by_source) - MOST_SOURCES, 0),
        why=tuple((_WHY.get(reason, reason), number) for reason, number in account.skipped_why.items()),
        examples=tuple(examples[:NUM_EXAMPLES]),
        further=tuple(examples[NUM_EXAMPLES:]),
        what="shards" if account.scope == "shard" else "records",
    )


def _told_sources(by_source: Sequence[RuleOfSource]) -> tuple[RuleOfSource, ...]:
    order = sorted(range(len(by_source)), key=lambda i: (-by_source[i].fired, -by_source[i].evaluated, i))
    return tuple(by_source[i] for i in sorted(order[:MOST_SOURCES]))


def _most_fired(rules: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, int, int], ...]:
    order = sorted(rules, key=lambda entry: (-entry["fired"] / max(entry["evaluated"], 1), entry["rule"]))
    return tuple((entry["rule"], entry["fired"], entry["evaluated"]) for entry in order[:_NUM_RULES_OF_SHARD])
