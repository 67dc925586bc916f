"""How far is long work, how fast does it go, and how long will it take?

Shown on standard error while that is a terminal, and nowhere else: a log file gets the command's own sentences, not a
bar. The count may be given from any thread; drawing is bounded to a few times a second whatever the rate of calls.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import rich.progress

__all__ = ["Progress", "amount", "rate_of"]

_MEGABYTE = 1_000_000


class Progress:
    """A context manager, and the callable that long work reports to.

    >>> with Progress("scanning", unit="shards", total=4) as progress:
    ...     progress(2)
    ...     progress(4)
    """

    def __init__(self, title: str, *, unit: str, total: int | None = None) -> None:
        self.title = title
        self.unit = unit
        self.total = total
        self._bar: rich.progress.Progress | None = None
        self._task: rich.progress.TaskID | None = None

    def __enter__(self) -> Self:
        if sys.stderr is not None and sys.stderr.isatty():
            self._bar = _bar()
            self._bar.start()
            self._task = self._bar.add_task(self.title, total=self.total, unit=self.unit)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, total: int | None = None) -> None:
        """Say that `done` of `total` (where it is known by now) are done, both absolute."""
        if self._bar is not None and self._task is not None:
            if total is None:
                self._bar.update(self._task, completed=done)
            else:
                self._bar.update(self._task, completed=done, total=total)


def amount(number: float, unit: str) -> str:
    """A count with its unit, as people read it.

    >>> amount(1_234_567, "rows"), amount(1_234_567, "bytes")
    ('1,234,567 rows', '1.2 MB')
    """
    if unit == "bytes":
        return f"{number / _MEGABYTE:,.1f} MB"
    return f"{number:,.0f} {unit}"


def rate_of(speed: float | None, unit: str) -> str:
    """A rate with its unit; empty where it is not known yet.

    >>> rate_of(812.4, "rows"), rate_of(None, "rows")
    ('812 rows/s', '')
    """
    return "" if speed is None else f"{amount(speed, unit)}/s"


def _bar() -> rich.progress.Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Done(ProgressColumn):
        def render(self, task: Task) -> Text:
            unit = task.fields["unit"]
            whole = "" if task.total is None else f" of {amount(task.total, unit)}"
            return Text(amount(task.completed, unit) + whole)

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(rate_of(task.finished_speed or task.speed, task.fields["unit"]))

    console = Console(file=sys.stderr, markup=False, highlight=False, emoji=False)
    title = TextColumn("{task.description}", markup=False)
    return Progress(
        title, BarColumn(bar_width=24), Done(), Rate(), TimeRemainingColumn(), console=console, transient=True
    )
