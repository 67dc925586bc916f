"""What does a notebook show of an audit: the verdict, the account, the rules that fired, the worst shards?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataguard.core.notebook import Listing, card

if TYPE_CHECKING:
    from dataguard.audit.documents import AuditSummary

__all__ = ["summary_html", "summary_text"]


def summary_text(summary: AuditSummary) -> str:
    """One line, whatever was found."""
    account = summary.account
    return (
        f"<AuditSummary {summary.verdict} policy={summary.policy!r} records={account.records:,} "
        f"scored={account.scored:,} withheld={summary.num_withheld:,} manifest={summary.manifest[:16]}>"
    )


def summary_html(summary: AuditSummary, *, title: str = "Audit") -> str:
    """A card of an audit's answer."""
    account, shards = summary.account, summary.shards
    facts: dict[str, object] = {
        "manifest": summary.manifest,
        "policy": f"{summary.policy} ({summary.policy_digest[:16]})",
        "looked at": "all of it" if summary.sample == "1" else f"a share of {summary.sample}",
        "records": account.records,
        "scored": account.scored,
        "rejected": account.rejected,
        "unreadable": account.unreadable,
        "to withhold": f"{summary.num_withheld:,}, of them whole shards {summary.num_withheld_shards:,}",
        "shards": f"{shards.total:,}, damaged {len(shards.damaged):,}, not reached {len(shards.unreachable):,}",
        "exit code": summary.exit_code,
    }
    fired = sorted((rule for rule in summary.rules if rule.fired), key=lambda rule: (not rule.failed, -rule.fired))
    rules = Listing(
        title="rules that fired",
        columns=("rule", "action", "when", "fired", "of", "beyond its allowance"),
        rows=(
            (rule.rule, rule.action, rule.text, rule.fired, rule.evaluated, "yes" if rule.failed else "no")
            for rule in fired
        ),
        num_rows=len(fired),
    )
    worst = Listing(
        title="worst shards",
        columns=("shard", "scored", "withheld", "rejected", "unreadable"),
        rows=(
            (each.shard, each.scored, each.withheld, each.rejected, each.unreadable) for each in summary.worst_shards
        ),
        num_rows=len(summary.worst_shards),
    )
    sources = Listing(
        title="sources",
        columns=("source", "kind", "shards", "records", "scored", "rejected", "unreadable"),
        rows=(
            (each.source, each.kind, each.num_shards, each.records, each.scored, each.rejected, each.unreadable)
            for each in summary.sources
        ),
        num_rows=len(summary.sources),
    )
    problems = summary.reasons + (() if account.balanced else ("the account does not add up",))
    return card(f"{title}: {summary.verdict}", facts, tables=(rules, worst, sources), problems=problems)
