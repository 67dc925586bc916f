"""How do commands that look back take a named stream instead of the run itself? One option, one way to open it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dataguard.cli import completing

if TYPE_CHECKING:
    from dataguard.run.run import Run

__all__ = ["opened", "stream_option"]

stream_option = click.option(
    "--stream",
    metavar="NAME",
    shell_complete=completing.streams,
    help="Of a named stream of the run; --attempt is then the number of an evaluation.",
)
"""``stream: str | None``."""


def opened(path: Path, stream: str | None) -> Run:
    """The run at a path, or the folder of one of its streams.

    Raises
    ------
    UsageError
        No run stands there, or it has no such stream.
    """
    from dataguard.run.run import Run

    run = Run.open(path)
    return run if stream is None else run.stream(stream).run
