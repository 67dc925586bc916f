"""``dataguard seal`` and ``dataguard compact``: parse, tidy the record of ended attempts, answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dataguard.cli import output
from dataguard.cli.interrupts import going_on
from dataguard.cli.options import json_option, run_argument
from dataguard.errors import AnswerNo

if TYPE_CHECKING:
    from dataguard.run.tidy import TidiedAttempt

__all__ = ["compact", "seal"]


@click.command()
@run_argument
@json_option
def seal(run: Path, as_json: bool) -> int:
    """Turn the hot frames of ended attempts into Parquet. Torn tails are dropped and reported.

    Ends with 1 where frames are damaged; they stay as they are.

    Examples: dataguard seal RUN
    """
    from dataguard.run.run import Run
    from dataguard.run.tidy import seal_run

    return _answer(seal_run(Run.open(run)), as_json, "sealed")


@click.command()
@run_argument
@json_option
def compact(run: Path, as_json: bool) -> int:
    """Merge the sealed files of all ranks of ended attempts, for quick answers.

    Ends with 1 where a record is damaged; it stays as it is.

    Examples: dataguard compact RUN
    """
    from dataguard.run.run import Run
    from dataguard.run.tidy import compact_run

    return _answer(compact_run(Run.open(run)), as_json, "compacted")


def _answer(done: Iterator[TidiedAttempt], as_json: bool, what: str) -> int:
    from dataguard.report.loader import render_tidied

    damaged, num_done = False, 0

    def each() -> Iterator[TidiedAttempt]:
        nonlocal damaged, num_done
        for attempt in done:
            num_done += 1
            damaged = damaged or (bool(attempt.problems) and not attempt.live)
            yield attempt

    with going_on(
        "the same command goes on with those that are left", found=lambda: f"{num_done:,} attempts are {what}"
    ):
        output.answer_lines(each(), render_tidied, json=as_json)
    return AnswerNo.exit_code if damaged else 0
