"""``dataguard verify``: parse, check a run, answer."""

from __future__ import annotations

from pathlib import Path

import click

from dataguard.cli import output
from dataguard.cli.interrupts import ONLY_READ, going_on
from dataguard.cli.options import attempt_option, cache_dir_option, json_option, root_option, run_argument
from dataguard.cli.streams import opened, stream_option
from dataguard.errors import AnswerNo

__all__ = ["verify"]


@click.command()
@run_argument
@click.option("--data/--no-data", default=True, show_default=True, help="Rebuild every step and compare digests.")
@stream_option
@attempt_option
@root_option
@cache_dir_option
@json_option
def verify(
    run: Path, data: bool, stream: str | None, attempt: int | None, roots: dict[str, Path], as_json: bool
) -> int:
    """Check that journal, index, plan and data agree: exactly once, digests, gaps.

    Ends with 0 where all of it does, a torn tail included; 1 where something does not, or nothing could be checked.

    Examples: dataguard verify RUN
    dataguard verify RUN --no-data
    dataguard verify RUN --attempt 2 --root web=/mnt/copy/web
    """
    from dataguard.replay.lookup import Lookup
    from dataguard.replay.verify import verify_run
    from dataguard.report.replay import render_verify

    where = {name: str(root) for name, root in roots.items()}
    with (
        output.progress("verifying", unit="steps") as shown,
        going_on(ONLY_READ, found=lambda: shown.told("verified")),
    ):
        answer = verify_run(Lookup(opened(run, stream)), attempt=attempt, data=data, roots=where, progress=shown)
    output.answer(answer, render_verify, json=as_json)
    return 0 if answer.ok else AnswerNo.exit_code
