"""``dataguard log``: parse, read the journal, answer."""

from __future__ import annotations

from pathlib import Path

import click

from dataguard.cli import output
from dataguard.cli.options import json_option, run_argument
from dataguard.cli.streams import opened, stream_option
from dataguard.errors import AnswerNo

__all__ = ["log"]


@click.command()
@run_argument
@stream_option
@json_option
def log(run: Path, stream: str | None, as_json: bool) -> int:
    """List attempts, skips, quarantines: every event of the journal, one a line.

    Ends with 1 where the journal is damaged; what can be read of it is listed all the same.

    Examples: dataguard log RUN
    dataguard log RUN --stream valid-web --json
    """
    from dataguard.replay.log import read_log
    from dataguard.report.replay import render_log

    lines, problems = read_log(opened(run, stream))
    output.answer_lines(lines, render_log, json=as_json)
    for problem in problems:
        output.say(f"damaged: {problem}")
    return AnswerNo.exit_code if problems else 0
