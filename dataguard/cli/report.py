"""``dataguard report``: one self-contained page of what lies in a folder, an audit's or a run's.

Exit codes: 0 where the page is written, whatever it says; 2 where the folder is neither; 3 where an audit is not
complete, or something is damaged (of a run the page is written all the same, and says what); 4 where the page cannot be
written.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from dataguard.cli import output
from dataguard.cli.looks import opened_tokenizer, tokenizer_option
from dataguard.cli.options import PATH, attempt_option, json_option, out_option, root_option
from dataguard.errors import InputError, UsageError

if TYPE_CHECKING:
    from dataguard.report.written import ReportWritten

__all__ = ["report"]


@click.command()
@click.argument("folder", metavar="RUN|DIR", type=PATH)
@out_option("The page to write; an older page of dataguard there is replaced.")
@attempt_option
@click.option(
    "--step", type=click.IntRange(min=0), help="Of a run: show this step rank by rank, also where no event holds it."
)
@tokenizer_option
@root_option
@json_option
def report(
    folder: Path,
    out: Path,
    attempt: int | None,
    step: int | None,
    tokenizer: Path | None,
    roots: dict[str, str],
    as_json: bool,
) -> int:
    """Write one self-contained page of a run directory, or of the folder of an audit.

    Of a run: loss and gradient norm with events, skips and attempts; what every rank was fed around the events, the
    samples with previews; signals over time, withheld samples, the mixture; verdict, evidence, journal. Nothing is
    written into the run. Of an audit: verdict, account, rules, distributions, worst shards and records.

    Records are read from the corpus once more; where it has moved, --root NAME=PATH says where to. Ends with 3 where
    something of the run is damaged, so that something may be missing; the page says what.

    Examples: dataguard report RUN -o run.html; dataguard report AUDIT -o audit.html
    """
    from dataguard.audit.folder import AuditFolder
    from dataguard.report.written import render_report
    from dataguard.run.atomic import publish
    from dataguard.run.layout import Layout

    _require_replaceable(out)
    is_run = Layout(folder).journal.is_dir() and AuditFolder(folder).read_header() is None
    if is_run:
        content, answer = _of_run(folder, attempt, step, tokenizer, roots)
    elif (attempt, step, tokenizer) != (None, None, None):
        raise UsageError(f"{folder} is no run directory", todo="leave out --attempt, --step and --tokenizer")
    else:
        content, answer = _of_audit(folder, roots)
    publish(out, content, tmp=out.parent)
    written = msgspec.structs.replace(answer, path=str(out), size_bytes=len(content))
    output.answer(written, render_report, json=as_json)
    return InputError.exit_code if written.damage else 0


def _require_replaceable(out: Path) -> None:
    """Refuse to write over what is no page of ours, before anything is gathered."""
    from dataguard.report.html import PAGE_START
    from dataguard.run.atomic import write_failed

    if out.exists() and not out.is_file():
        raise UsageError(f"{out} is there, and is no file", allowed="a file, such as run.html")
    try:
        with out.open("rb") as file:
            begins = file.read(len(PAGE_START))
    except FileNotFoundError:
        return
    except OSError as error:
        raise write_failed(out, error) from error
    if begins != PAGE_START:
        raise UsageError(f"{out} is there already, and is no page of dataguard", todo="give another name with -o")


def _of_audit(folder: Path, roots: dict[str, str]) -> tuple[bytes, ReportWritten]:
    from dataguard.report.audit.page import page_of_folder
    from dataguard.report.written import ReportWritten

    content, summary = page_of_folder(folder, roots)
    return content, ReportWritten(path="", size_bytes=0, of="audit", folder=str(folder), verdict=summary.verdict)


def _of_run(
    folder: Path, attempt: int | None, step: int | None, tokenizer: Path | None, roots: dict[str, str]
) -> tuple[bytes, ReportWritten]:
    from dataguard.report.run.gathering import gather_run
    from dataguard.report.run.page import page_of_run
    from dataguard.report.written import ReportWritten
    from dataguard.run.run import Run

    run = Run.open(folder)
    places = {name: str(root) for name, root in roots.items()} or None
    opened = opened_tokenizer(run, tokenizer)
    gathered = gather_run(run, attempt=attempt, step=step, roots=places, tokenizer=opened)
    facts = gathered.facts
    written = ReportWritten(
        path="",
        size_bytes=0,
        of="run",
        folder=str(folder),
        verdict=None if facts.triage is None else facts.triage.diagnosis.verdict.value,
        attempt=facts.attempt,
        num_events=None if facts.triage is None else len(facts.events),
        damage=gathered.damage,
    )
    return page_of_run(facts), written
