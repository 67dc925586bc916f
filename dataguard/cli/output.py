"""How does a command answer?

Facts go to standard output, through `answer` or `answer_lines`: JSON where a script asked for it, text for people, both
from the same document. Everything else (what is being done, progress, warnings, errors) goes to standard error, through
`say` and `progress`.

What comes from data may hold anything: control characters, terminal escapes, directional overrides. Nothing of that
kind ever reaches a terminal raw: `printable` shows it escaped, and both ways out apply it once more.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import StringIO
from typing import IO, TYPE_CHECKING, Any, TextIO, TypeAlias, TypeVar

from dataguard.cli import decoration
from dataguard.errors import WriteFailed
from dataguard.report.tables import printable, table

if TYPE_CHECKING:
    import msgspec
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from dataguard.cli.progress import Progress

    Document = TypeVar("Document", bound=msgspec.Struct)

__all__ = [
    "Rendered",
    "abandon",
    "answer",
    "answer_lines",
    "finish",
    "flush",
    "prepare",
    "printable",
    "progress",
    "reader_gone",
    "say",
    "table",
    "tell",
    "write",
]

Rendered: TypeAlias = "str | RenderableType | Iterable[str | RenderableType]"
"""What a renderer may give: a text, a rich renderable (see `table`), or several of them, one below the other."""

_PIPED_COLUMNS = 10_000  # nothing is cut or wrapped where a program reads


def answer(document: Document, render: Callable[[Document], Rendered], *, json: bool = False) -> None:
    """Write the one answer of a command to standard output.

    Parameters
    ----------
    document
        The facts: one document of ``schemas/``.
    render
        Makes text or renderables of the document, for people.
    json
        Write the document itself instead, as one JSON document on one line.
    """
    if json:
        _write_json([document])
    else:
        _show(render(document))


def answer_lines(documents: Iterable[Document], render: Callable[[Document], Rendered], *, json: bool = False) -> None:
    """Write an answer of many like documents, each as soon as it is there: a line of JSON each, or its rendering."""
    if json:
        _write_json(documents)
    else:
        for document in documents:
            _show(render(document))


def write(content: bytes) -> None:
    """Write an answer that is JSON already (UTF-8) to standard output as it is, behind what was written before."""
    stdout = _stdout()
    raw = getattr(stdout, "buffer", None)
    if raw is None:
        stdout.write(content.decode())
    else:
        stdout.flush()
        raw.write(content)


def say(text: str) -> None:
    """Tell a person, on standard error, what is done or was found on the way."""
    tell(text)


def tell(text: str) -> None:
    """Write text to standard error, made printable; silent where standard error is closed or nobody reads it."""
    if text and sys.stderr is not None:
        try:
            sys.stderr.write(printable(text, keep_lines=True).rstrip("\n") + "\n")
            sys.stderr.flush()
        except OSError:
            return  # there is no place left where this could be told; the exit code still stands


@contextmanager
def progress(title: str, *, unit: str, total: int | None = None) -> Iterator[Progress]:
    """Show how far long work is, with its rate and the time left, while standard error is a terminal.

    Parameters
    ----------
    title
        What is done, e.g. ``scanning``.
    unit
        What is counted: ``bytes`` are shown in MB, anything else as numbers with the unit behind them.
    total
        How many there will be, where that is known.

    Yields
    ------
    Progress
        A callable: ``progress(done, total=None)``, both absolute counts, from any thread.
    """
    from dataguard.cli.progress import Progress

    with Progress(title, unit=unit, total=total) as shown:
        yield shown


# ---------------------------------------------------------------------------------------------------------------------
# The streams themselves
# ---------------------------------------------------------------------------------------------------------------------


def prepare() -> None:
    """Let no text fail on a terminal that cannot show it: what the encoding lacks is shown escaped."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def flush() -> None:
    """Hand everything written to standard output to the system; raises as a write does."""
    if sys.stdout is not None:
        sys.stdout.flush()


def reader_gone() -> bool:
    """Whether standard output or standard error is a pipe whose reader has gone."""
    poll = select.poll()
    for number in (1, 2):
        poll.register(number, 0)
    try:
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except OSError:
        return False


def abandon() -> None:
    """Let the interpreter's own flush at exit go nowhere, so that it does not fail (and tell so) once more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for number in (1, 2):
            if number == 1 or reader_gone():
                os.dup2(nowhere, number)
    finally:
        os.close(nowhere)


def finish() -> None:
    """Flush once more after a failure, or abandon what cannot be written: the exit code already says so."""
    try:
        flush()
    except OSError:
        abandon()


def _stdout() -> TextIO:
    if sys.stdout is None:
        raise WriteFailed("standard output is closed, so nothing can be answered")
    return sys.stdout


def _write_json(documents: Iterable[msgspec.Struct]) -> None:
    import msgspec

    encoder = msgspec.json.Encoder()
    for document in documents:
        write(encoder.encode(document) + b"\n")


def _show(rendered: Rendered) -> None:
    if isinstance(rendered, str):
        _stdout().write(printable(rendered, keep_lines=True).rstrip("\n") + "\n")
    elif hasattr(rendered, "__rich_console__") or hasattr(rendered, "__rich__"):
        _show_rich(rendered)
    else:
        for part in rendered:
            _show(part)


def _show_rich(rendered: Any) -> None:
    stdout = _stdout()
    if decoration.is_terminal(stdout):
        _console(stdout, width=None).print(_Printable(rendered))
        return
    text = StringIO()
    _console(text, width=None if decoration.asked_width() else _PIPED_COLUMNS).print(_Printable(rendered))
    stdout.writelines(line.rstrip() + "\n" for line in text.getvalue().splitlines())


def _console(file: IO[str], *, width: int | None) -> Console:
    from rich.console import Console

    colors = decoration.styles(_stdout())
    # Told outright: rich would ask the environment, where more than one variable makes a terminal of a pipe.
    return Console(
        file=file,
        width=width,
        color_system=colors,
        force_terminal=colors is not None,
        markup=False,
        highlight=False,
        emoji=False,
    )


class _Printable:
    """A renderable whose segments are made printable, whatever its renderer forgot."""

    def __init__(self, renderable: Any) -> None:
        self.renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        for text, style, control in console.render(self.renderable, options):
            yield Segment(text if control else printable(text, keep_lines=True), style, control)
