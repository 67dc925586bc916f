"""How far is long work, how fast does it go, and how long will it take?

Shown on standard error while that is a terminal, and nowhere else: a log file gets the command's own sentences, not a
bar. Where decoration is not wanted (`decoration`) it is one line of text that is written over. The count may be given
from any thread; drawing is bounded to a few times a second whatever the rate of calls.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from dataguard.cli import decoration

if TYPE_CHECKING:
    import rich.progress

__all__ = ["Progress", "amount", "rate_of"]

_MEGABYTE = 1_000_000
_SECONDS_BETWEEN = 0.2


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
        self._drawn: _Drawn | None = None
        self.done: int | None = None
        """How many are done; None until that was told."""

    def __enter__(self) -> Self:
        if sys.stderr is not None and decoration.is_terminal(sys.stderr):
            made = _Bar if decoration.has_cursor(sys.stderr) else _Line
            self._drawn = made(self.title, self.unit, self.total)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn is not None:
            self._drawn.stop()

    def __call__(self, done: int, total: int | None = None) -> None:
        """Say that `done` of `total` (where it is known by now) are done, both absolute."""
        self.done, self.total = done, self.total if total is None else total
        if self._drawn is not None:
            self._drawn.update(done, self.total)

    def told(self, what: str) -> str | None:
        """How far it has come, as a sentence; None where nothing was told yet.

        >>> with Progress("scanning", unit="shards", total=4) as progress:
        ...     progress(3)
        >>> progress.told("scanned")
        '3 of 4 shards are scanned'
        """
        if self.done is None:
            return None
        if self.total is None:
            return f"{amount(self.done, self.unit)} are {what}"
        done = amount(self.done, self.unit) if self.unit == "bytes" else f"{self.done:,}"
        return f"{done} of {amount(self.total, self.unit)} are {what}"


class _Drawn(Protocol):
    """What shows progress to a person."""

    def update(self, done: int, total: int | None) -> None:
        """So much is done."""

    def stop(self) -> None:
        """Leave no trace."""


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


class _Line:
    """One line of plain text, written over a few times a second."""

    def __init__(self, title: str, unit: str, total: int | None) -> None:
        self._title = title
        self._unit = unit
        self._began = self._drawn_at = time.monotonic()
        self._lock = threading.Lock()
        self._width = 0

    def update(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        with self._lock:
            if now - self._drawn_at < _SECONDS_BETWEEN:
                return
            self._drawn_at = now
            whole = "" if total is None else f" of {amount(total, self._unit)}"
            speed = done / max(now - self._began, 1e-9)
            left = "" if total is None or not done else f" {(total - done) / speed:,.0f} s left"
            self._write(f"{self._title} {amount(done, self._unit)}{whole} {rate_of(speed, self._unit)}{left}")

    def stop(self) -> None:
        with self._lock:
            if self._width:
                self._write("")
                self._put("\r")

    def _write(self, text: str) -> None:
        text = text[: shutil.get_terminal_size().columns - 1]
        self._put("\r" + text.ljust(self._width))
        self._width = len(text)

    def _put(self, text: str) -> None:
        with suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()


class _Bar:
    """Rich's bar."""

    def __init__(self, title: str, unit: str, total: int | None) -> None:
        self._bar = _rich_bar()
        self._bar.start()
        self._task = self._bar.add_task(title, total=total, unit=unit)

    def update(self, done: int, total: int | None) -> None:
        self._bar.update(self._task, completed=done, total=total)

    def stop(self) -> None:
        self._bar.stop()


def _rich_bar() -> rich.progress.Progress:
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

    console = Console(
        file=sys.stderr, color_system=decoration.styles(sys.stderr), markup=False, highlight=False, emoji=False
    )
    title = TextColumn("{task.description}", markup=False)
    return Progress(
        title, BarColumn(bar_width=24), Done(), Rate(), TimeRemainingColumn(), console=console, transient=True
    )
