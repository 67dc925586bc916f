"""``dataguard seen``: parse, count what a checkpoint was trained on, answer."""

from __future__ import annotations

from pathlib import Path

import click

from dataguard.cli import output
from dataguard.cli.options import PATH, attempt_option, json_option, run_argument
from dataguard.errors import UsageError

__all__ = ["seen"]


@click.command()
@run_argument
@click.option(
    "--step", type=click.IntRange(min=0), help="The step that the checkpoint goes on with; all before it counts."
)
@click.option("--rows", "rows_file", type=PATH, help="Write every delivered row to this Parquet file.")
@attempt_option
@json_option
def seen(run: Path, step: int | None, rows_file: Path | None, attempt: int | None, as_json: bool) -> None:
    """Count what a checkpoint of a step was trained on: epochs, samples, bytes or tokens, by source and shard.

    Examples: dataguard seen RUN --step 17
    dataguard seen RUN --step 17 --rows SEEN.parquet
    """
    from dataguard.replay.lookup import Lookup
    from dataguard.replay.seen import seen_before, write_rows
    from dataguard.report.replay import render_seen
    from dataguard.run.run import Run

    if step is None:
        raise UsageError("a checkpoint of which step?", todo="give --step N")
    answer, rows = seen_before(Lookup(Run.open(run)), step, attempt=attempt)
    if rows_file is not None:
        write_rows(rows, rows_file)
        output.say(f"{rows_file} written: {rows.height:,} rows")
    output.answer(answer, render_seen, json=as_json)
