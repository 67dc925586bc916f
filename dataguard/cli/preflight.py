"""``dataguard preflight``: parse, ask a run or a file of facts, say what passes."""

from __future__ import annotations

from pathlib import Path

import click

from dataguard.cli import output
from dataguard.cli.options import PATH, attempt_option, json_option
from dataguard.errors import UsageError

__all__ = ["preflight"]


@click.command()
@click.argument("subject", type=PATH, required=False, metavar="RUN|FILE.toml")
@click.option("--facts", type=PATH, help="Facts of the trainer beside those that the run's journal has, as TOML.")
@click.option("--strict", is_flag=True, help="What is not known fails as well.")
@click.option(
    "--rewind-steps", type=click.IntRange(min=0), default=200, show_default=True, help="How far a rewind goes back."
)
@click.option("--delay-steps", type=click.IntRange(min=0), help="Steps from the onset of an event to its being told.")
@click.option("--template", is_flag=True, help="Print a file of facts to fill in, and check nothing.")
@attempt_option
@json_option
def preflight(
    subject: Path | None,
    facts: Path | None,
    strict: bool,
    rewind_steps: int,
    delay_steps: int | None,
    template: bool,
    attempt: int | None,
    as_json: bool,
) -> int:
    """Hold a run, or what a file says of its trainer, against the hardening list.

    Ends with 1 where a point fails, and where nothing at all is known.

    Examples: dataguard preflight --template
    dataguard preflight trainer.toml
    dataguard preflight RUN --facts trainer.toml --strict
    """
    from dataguard.report.preflight import render_preflight
    from dataguard.run.run import Run
    from dataguard.triage.preflight import TEMPLATE, load_facts
    from dataguard.triage.preflight import preflight as check

    if template:
        if subject is not None or as_json:
            raise UsageError("--template stands alone", allowed="preflight --template, or preflight RUN|FILE.toml")
        output.write(TEMPLATE.encode())
        return 0
    if subject is None:
        raise UsageError("what is to be checked is not said", allowed="a run directory, or a TOML file of facts")
    if subject.is_file() and attempt is not None:
        raise UsageError("a file of facts has no attempts", todo="leave --attempt out, or name the run")
    asked = load_facts(subject) if subject.is_file() else Run.open(subject)
    answer = check(
        asked,
        of=str(subject),
        facts=None if facts is None else load_facts(facts),
        attempt=attempt,
        rewind_steps=rewind_steps,
        delay_steps=delay_steps,
    )
    output.answer(answer, render_preflight, json=as_json)
    checked = answer.num_pass + answer.num_fail
    return int(bool(answer.num_fail) or not checked or (strict and answer.num_not_known > 0))
