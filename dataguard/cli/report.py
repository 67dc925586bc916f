"""``dataguard report``: one self-contained page of what lies in a folder.

Exit codes: 0 where the page is written, whatever it says; 2 where the folder is no audit's; 3 where the audit is not
complete or damaged; 4 where the page cannot be written.
"""

from __future__ import annotations

from pathlib import Path

import click

from dataguard.cli import output
from dataguard.cli.options import PATH, json_option, out_option, root_option
from dataguard.errors import UsageError

__all__ = ["report"]


@click.command()
@click.argument("folder", metavar="DIR", type=PATH)
@out_option("The page to write; an older page of dataguard there is replaced.")
@root_option
@json_option
def report(folder: Path, out: Path, roots: dict[str, str], as_json: bool) -> None:
    """Write one self-contained page: verdict, account, rules, distributions, worst shards and records.

    DIR is the folder of an audit. Records are read from the corpus once more; where it has moved, --root NAME=PATH says
    where to. Pages of runs come with a later version.

    Example: dataguard report AUDIT -o audit.html
    """
    from dataguard.report.audit.page import page_of_folder
    from dataguard.report.html import PAGE_START
    from dataguard.report.written import ReportWritten, render_report
    from dataguard.run.atomic import publish, write_failed

    if out.exists() and not out.is_file():
        raise UsageError(f"{out} is there, and is no file", allowed="a file, such as audit.html")
    content, summary = page_of_folder(folder, roots)
    try:
        with out.open("rb") as file:
            begins = file.read(len(PAGE_START))
    except FileNotFoundError:
        begins = PAGE_START
    except OSError as error:
        raise write_failed(out, error) from error
    if begins != PAGE_START:
        raise UsageError(f"{out} is there already, and is no page of dataguard", todo="give another name with -o")
    publish(out, content, tmp=out.parent)
    answer = ReportWritten(
        path=str(out), size_bytes=len(content), of="audit", folder=str(folder), verdict=summary.verdict
    )
    output.answer(answer, render_report, json=as_json)
