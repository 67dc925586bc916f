"""What does an audit say to people, on a terminal? The summary, as text and tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dataguard.report.tables import printable, table

if TYPE_CHECKING:
    from rich.table import Table

    from dataguard.audit.documents import AuditSummary, Drift
    from dataguard.audit.overlap_documents import Overlap

__all__ = ["render_audit"]

_FEW = 10
_MOST_DAMAGED = 200
_WORDS = {"pass": "PASS", "fail": "FAIL", "nothing": "NOTHING CHECKED"}


def render_audit(summary: AuditSummary) -> Iterator[str | Table]:
    """What ``audit`` says."""
    account = summary.account
    yield f"{_WORDS[summary.verdict]}  policy {summary.policy}"
    yield from (f"  {printable(reason)}" for reason in summary.reasons)
    yield (
        f"{account.records:,} records = {account.scored:,} scored + {account.rejected:,} rejected + "
        f"{account.unreadable:,} unreadable{'' if account.balanced else '  THIS DOES NOT BALANCE'}"
    )
    if account.rejected_by_code:
        counts = ", ".join(f"{number:,} {code}" for code, number in account.rejected_by_code.items())
        yield f"rejected: {counts}"
    if summary.sample != "1":
        yield f"a sample of {summary.sample}: {account.not_sampled:,} records were not looked at"
    yield from (printable(remark) for remark in summary.remarks)
    yield from _damaged(summary)
    yield ""
    yield _rules(summary)
    yield ""
    yield _sources(summary)
    yield from (printable(remark) for remark in summary.mixture.remarks)
    if summary.worst_shards:
        yield ""
        yield _worst(summary)
    duplicates = summary.duplicates
    yield ""
    yield (
        f"{duplicates.copies:,} of {duplicates.records:,} records ({duplicates.share_of_records:.2%}) are copies of an "
        f"earlier one; {duplicates.blank:,} are blank"
    )
    if summary.overlap:
        yield from _overlap(summary.overlap)
    if summary.drift is not None:
        yield from _drift(summary.drift)
    shards = f", {summary.num_withheld_shards:,} of them whole shards" if summary.num_withheld_shards else ""
    yield f"to withhold: {summary.num_withheld:,} entries{shards}"


def _damaged(summary: AuditSummary) -> Iterator[str]:
    for title, shards in (("damaged", summary.shards.damaged), ("not reached", summary.shards.unreachable)):
        if shards:
            yield f"{title}: {len(shards):,}"
            yield from (f"  {printable(shard.shard)}: {printable(shard.reason)}" for shard in shards[:_MOST_DAMAGED])
            if len(shards) > _MOST_DAMAGED:
                yield f"  and {len(shards) - _MOST_DAMAGED:,} more (summary.json names all)"

    if summary.shards.ignored_files:
        counts = ", ".join(f"{number:,} {reason}" for reason, number in summary.shards.ignored_files.items())
        yield f"files that are no shards: {counts}"


def _rules(summary: AuditSummary) -> Table:
    rows = [
        (
            rule.rule,
            rule.action,
            rule.evaluated,
            rule.fired,
            f"{rule.share_of_records:.3%}",
            rule.skipped,
            "FAILED" if rule.failed else "",
        )
        for rule in summary.rules
    ]
    headings = ("rule", "action", "evaluated", "fired", "share", "skipped", "")
    return table(headings, rows, right=("evaluated", "fired", "share", "skipped"))


def _sources(summary: AuditSummary) -> Table:
    copies = {entry.source: entry for entry in summary.duplicates.by_source}
    rows = [
        (
            source.source,
            source.kind,
            source.records,
            source.scored,
            source.rejected,
            source.unreadable,
            f"{mixed.share_of_bytes:.2%}",
            "-" if mixed.weight is None else f"{mixed.weight:.2%}",
            source.withheld,
            f"{copies[source.source].share_of_records:.2%}",
        )
        for source, mixed in zip(summary.sources, summary.mixture.sources, strict=True)
    ]
    headings = (
        "source", "kind", "records", "scored", "rejected", "unreadable", "of bytes", "asked for", "withheld", "copies",
    )  # fmt: skip
    return table(headings, rows, right=headings[2:])


def _worst(summary: AuditSummary) -> Table:
    rows = [
        (
            shard.shard,
            shard.scored,
            shard.withheld,
            shard.verdicts["flag"],
            ", ".join(shard.proposed) or "-",
        )
        for shard in summary.worst_shards[:_FEW]
    ]
    headings = ("worst shards", "scored", "withheld", "flagged", "proposed by")
    return table(headings, rows, right=("scored", "withheld", "flagged"))


def _overlap(overlap: Overlap) -> Iterator[str | Table]:
    yield (
        f"in the evaluation data, too: {overlap.records:,} records ({overlap.share_of_records:.2%}); of the evaluation "
        f"data {overlap.evaluation_records:,} records are in the corpus (compared: {overlap.compared})"
    )
    headings = ("evaluation source", "against", "records", "compared", "in the corpus", "share")
    rows = [
        (each.source, each.against, each.records, each.compared, each.overlapping, f"{each.share_of_records:.2%}")
        for each in overlap.evaluation
    ]
    yield table(headings, rows, right=headings[2:])
    yield from (
        f"  {printable(pair.source)} has {pair.records:,} records of {printable(pair.evaluation_source)}, which has "
        f"{pair.evaluation_records:,} of its"
        for pair in overlap.by_source[:_FEW]
    )
    yield from (
        f"  {printable(each.shard)} of {printable(each.against)}: {printable(each.reason)}" for each in overlap.unread
    )


def _drift(drift: Drift) -> Iterator[str | Table]:
    odd = [source for source in drift.sources if source.state != "same"]
    num_moved = len(drift.signals)
    yield f"drift: {num_moved:,} of {drift.num_compared:,} signals moved, {len(odd):,} sources changed"
    yield from (
        f"  source {printable(source.source)} {source.state}: {source.records_then:,} records, now "
        f"{source.records_now:,}; {source.share_then:.2%} of all, now {source.share_now:.2%}"
        for source in odd[:_FEW]
    )
    yield from (
        f"  {printable(signal.source)} {signal.signal} {signal.state}: median {signal.median_then:g}, now "
        f"{signal.median_now:g} (PSI {signal.psi:.2f})"
        for signal in drift.signals[:_FEW]
    )
