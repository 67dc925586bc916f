"""``dataguard where``: parse, find every place of a record, answer."""

from __future__ import annotations

from pathlib import Path

import click

from dataguard.cli import completing, output
from dataguard.cli.options import SHARD_ROW, attempt_option, json_option, run_argument
from dataguard.cli.streams import opened, stream_option
from dataguard.errors import UsageError

__all__ = ["where"]


@click.command()
@run_argument
@click.argument("record", type=SHARD_ROW, metavar="SHARD:ROW", shell_complete=completing.records)
@click.option("--until", type=click.IntRange(min=0), help="First step not searched.  [default: the end of the epoch]")
@stream_option
@attempt_option
@json_option
def where(
    run: Path, record: tuple[str, int | None], until: int | None, stream: str | None, attempt: int | None, as_json: bool
) -> None:
    """List every step, delivered and planned, that holds a record.

    Examples: dataguard where RUN web/a.jsonl.zst:17
    dataguard where RUN web/a.jsonl.zst:17 --until 20000 --json
    """
    from dataguard.replay.lookup import Lookup
    from dataguard.replay.where import where_record
    from dataguard.report.replay import render_where

    shard, row = record
    if row is None:
        raise UsageError(f"which row of {shard}?", allowed="SHARD:ROW", todo=f"e.g. {shard}:0")
    answer = where_record(Lookup(opened(run, stream)), shard, row, attempt=attempt, until=until)
    output.answer(answer, render_where, json=as_json)
