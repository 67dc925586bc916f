"""``dataguard watch``: parse, look again and again, show.

Three ways to show one look, of the same facts: drawn over itself on a terminal that may be drawn on; one line a change
anywhere else; one line of JSON a look. Whatever ends it (Ctrl-C, SIGTERM, an error) leaves the terminal as it was, with
the last view standing; so does Ctrl-Z, until it goes on.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from dataguard.cli import decoration, interrupts, output
from dataguard.cli.options import PositiveNumber, json_option, run_argument

if TYPE_CHECKING:
    from dataguard.triage.watching import WatchAnswer

__all__ = ["watch"]


@click.command()
@run_argument
@click.option(
    "--every", type=PositiveNumber(), default=2.0, show_default=True, metavar="SECONDS", help="How often to look."
)
@click.option("--once", is_flag=True, help="Look once, show everything plainly, and end.")
@click.option(
    "--until", type=click.IntRange(min=0), metavar="STEP", help="End once every rank was handed all of this step."
)
@json_option
def watch(run: Path, every: float, until: int | None, once: bool, as_json: bool) -> int:
    """Follow a run that is under way: pace, loss, events, and the ranks that are behind.

    Nothing is written into the run, and only what is new is read at each look. A run that does not stand yet is waited
    for (but with --once), and so is the next attempt of one that ended. On a pipe it prints a line for each change;
    with --json one document a look.

    Ends by Ctrl-C, with 130 as every command does. A stalled run is shown as one and ends nothing.

    Examples: dataguard watch RUN
    dataguard watch RUN --once
    dataguard watch RUN --json --until 1000 | jq -c .signals
    """
    from dataguard.run.run import Run
    from dataguard.triage.watching import Watcher

    if once:
        Run.open(run)  # says what to do where none stands
    watcher = Watcher(run)
    try:
        with _shown(once=once, as_json=as_json) as show:
            while True:
                answer = watcher.look(now_seconds=time.time(), is_last=once)  # noqa: TID251 - handed down from here
                show(answer)
                if once or (until is not None and answer.complete is not None and answer.complete >= until):
                    return 0
                time.sleep(every)
    except KeyboardInterrupt:
        return interrupts.EXIT_CODE  # how a viewer ends: nothing was interrupted that could be gone on with


@contextmanager
def _shown(*, once: bool, as_json: bool) -> Iterator[Callable[[WatchAnswer], None]]:
    """What shows one look."""
    from dataguard.report.watch import render_watch

    is_ascii = not (sys.stdout and (sys.stdout.encoding or "").lower().startswith("utf"))
    if as_json or once:

        def show(answer: WatchAnswer) -> None:
            output.answer(answer, lambda each: render_watch(each, is_ascii=is_ascii), json=as_json)
            output.flush()

        yield show
    elif sys.stdout is not None and decoration.has_cursor(sys.stdout):
        with _drawn(is_ascii=is_ascii) as draw:
            yield draw
    else:
        yield _Lines()


class _Lines:
    """A line for each look that differs from the one shown before, and one for each piece of news."""

    def __init__(self) -> None:
        self._last: WatchAnswer | None = None

    def __call__(self, answer: WatchAnswer) -> None:
        from dataguard.report.watch import line_of, news_of

        news = news_of(self._last, answer)
        if self._last is None or news or _facts(answer) != _facts(self._last):
            output.answer(answer, lambda each: [line_of(each), *news])
            output.flush()
            self._last = answer


def _facts(answer: WatchAnswer) -> tuple[object, ...]:
    """What must differ for a line of its own: ages and rates differ at every look."""
    attempt = None if answer.attempt is None else answer.attempt.number
    signals = tuple((each.name, each.step, each.value) for each in answer.signals)
    behind = tuple((each.rank, each.step) for each in answer.behind)
    return answer.state, attempt, answer.step, answer.complete, signals, behind, answer.exceptions, answer.let_go


@contextmanager
def _drawn(*, is_ascii: bool) -> Iterator[Callable[[WatchAnswer], None]]:
    """Draw each look over the one before."""
    from rich.console import Console
    from rich.live import Live

    from dataguard.report.watch import render_watch

    colors = decoration.styles(sys.stdout)
    console = Console(
        file=sys.stdout, color_system=colors, force_terminal=True, markup=False, highlight=False, emoji=False
    )
    live = Live(
        console=console,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
        vertical_overflow="ellipsis",
    )
    with live, _stoppable():
        yield lambda answer: live.update(render_watch(answer, is_ascii=is_ascii), refresh=True)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Ctrl-Z gives the cursor back to the shell, and takes it again when the command goes on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        os.write(1, b"\x1b[?25h")
        os.kill(os.getpid(), signal.SIGSTOP)
        os.write(1, b"\x1b[?25l")

    before = signal.signal(signal.SIGTSTP, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, before)
