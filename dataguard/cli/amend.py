"""``dataguard skip | quarantine | release | revoke``: parse, amend the run, say what changes."""

from __future__ import annotations

from pathlib import Path

import click

from dataguard.cli import completing, output
from dataguard.cli.options import (
    PATH,
    SPAN,
    attempt_option,
    dry_run_option,
    json_option,
    reason_option,
    run_argument,
)

__all__ = ["quarantine", "release", "revoke", "skip"]

_maybe_reason = click.option("--reason", default="", metavar="TEXT", help="Why; it stands in the journal.")
_evidence = click.option("--evidence", metavar="TEXT", help="What shows it: a path, a digest, a sentence.")


@click.command()
@run_argument
@click.argument("span", type=SPAN, metavar="START:STOP")
@reason_option
@click.option("--batches", is_flag=True, help="START:STOP counts batches, not steps.")
@attempt_option
@dry_run_option
@json_option
def skip(
    run: Path,
    span: tuple[int, int],
    reason: str,
    batches: bool,
    attempt: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Leave steps START:STOP of a lineage untrained, from the next attempt on.

    Examples: dataguard skip RUN 40:45 --reason "spike at step 42" --dry-run
    dataguard skip RUN 40:45 --reason "spike at step 42"
    """
    from dataguard.report.amend import render_amended
    from dataguard.run import amend
    from dataguard.run.run import Run

    start, stop = span
    answer = amend.skip(Run.open(run), start, stop, reason=reason, batches=batches, attempt=attempt, dry_run=dry_run)
    output.answer(answer, render_amended, json=as_json)


@click.command()
@run_argument
@click.argument("record", metavar="SHARD[:ROW]", required=False, shell_complete=completing.records)
@click.option("--withhold", type=PATH, help="A file of shards and rows instead (Parquet, CSV or JSON lines).")
@reason_option
@_evidence
@dry_run_option
@json_option
def quarantine(
    run: Path,
    record: str | None,
    withhold: Path | None,
    reason: str,
    evidence: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Withhold a shard, a record, or a list of them, from the next attempt on.

    Examples: dataguard quarantine RUN web/a.jsonl.zst --reason "damaged"
    dataguard quarantine RUN web/a.jsonl.zst:17 --reason "a wall of digits"
    dataguard quarantine RUN --withhold AUDIT/withhold.parquet --reason "audit" --dry-run
    """
    from dataguard.report.amend import render_amended
    from dataguard.run import amend
    from dataguard.run.run import Run

    answer = amend.quarantine(
        Run.open(run), record, withhold_file=withhold, reason=reason, evidence=evidence, dry_run=dry_run
    )
    output.answer(answer, render_amended, json=as_json)


@click.command()
@run_argument
@click.argument("record", metavar="SHARD[:ROW]", shell_complete=completing.records)
@_maybe_reason
@dry_run_option
@json_option
def release(run: Path, record: str, reason: str, dry_run: bool, as_json: bool) -> None:
    """Deliver a quarantined shard or record again, from the next attempt on.

    Examples: dataguard release RUN web/a.jsonl.zst --reason "mended"
    """
    from dataguard.report.amend import render_amended
    from dataguard.run import amend
    from dataguard.run.run import Run

    output.answer(amend.release(Run.open(run), record, reason=reason, dry_run=dry_run), render_amended, json=as_json)


@click.command()
@run_argument
@click.argument("event", type=click.IntRange(min=1), shell_complete=completing.events)
@_maybe_reason
@dry_run_option
@json_option
def revoke(run: Path, event: int, reason: str, dry_run: bool, as_json: bool) -> None:
    """Take a skip, quarantine, release or revocation back, from the next attempt on.

    Examples: dataguard log RUN
    dataguard revoke RUN 3 --reason "wrong step"
    """
    from dataguard.report.amend import render_amended
    from dataguard.run import amend
    from dataguard.run.run import Run

    output.answer(amend.revoke(Run.open(run), event, reason=reason, dry_run=dry_run), render_amended, json=as_json)
