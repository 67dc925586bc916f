"""What happens at Ctrl-C, and who says how to go on?

1. `heeded` takes SIGINT and SIGTERM for a command: the first one raises KeyboardInterrupt, so that everything under way
   cleans up behind itself; a second one, while that is going on, ends the process at once.
2. A command that does long work wraps it in `going_on`, with what is done by then and how to go on; what is raised from
   there is `Interrupted`, which carries both to `failures`.
3. Whatever says nothing of its own ends with what holds for every command: a file is written whole or not at all.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from dataguard.cli import decoration
from dataguard.errors import DataguardError

__all__ = ["EXIT_CODE", "ONLY_READ", "SAME_AGAIN", "Interrupted", "going_on", "heeded"]

EXIT_CODE = 130

SAME_AGAIN = "the same command can be given again: what it writes, it writes whole or not at all"
"""How to go on where a command has nothing of its own to say."""

ONLY_READ = "nothing was changed: the same command begins again"
"""How to go on where a command only reads."""

Said = str | Callable[[], str | None] | None
"""A sentence, or what finds it out once it is needed."""


class Interrupted(KeyboardInterrupt):
    """The work was interrupted; what is done by then, and how to go on."""

    def __init__(self, *, found: str | None, todo: str | None) -> None:
        super().__init__("interrupted")
        self.found = found
        self.todo = todo


@contextmanager
def going_on(todo: Said, *, found: Said = None) -> Iterator[None]:
    """Say `found` and `todo` where the work of this block is interrupted; what is said further in counts first.

    >>> try:
    ...     with going_on("give the same command again", found=lambda: "3 of 10 shards are scanned"):
    ...         raise KeyboardInterrupt
    ... except Interrupted as stop:
    ...     print(stop.found, "-", stop.todo)
    3 of 10 shards are scanned - give the same command again
    """
    try:
        yield
    except Interrupted:
        raise
    except KeyboardInterrupt as stop:
        raise Interrupted(found=_said(found), todo=_said(todo)) from stop


def _said(what: Said) -> str | None:
    if what is None or isinstance(what, str):
        return what
    try:
        return what()
    except (DataguardError, OSError):
        return None  # what cannot be found out now is not said


@contextmanager
def heeded() -> Iterator[None]:
    """SIGINT and SIGTERM interrupt the block, as `KeyboardInterrupt`; a second one ends the process at once.

    A signal that whoever started the process has it ignore (``nohup``, a shell's background) stays ignored. Outside of
    the main thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = {
        signal.SIGINT: (signal.default_int_handler, signal.SIG_DFL),
        signal.SIGTERM: (signal.SIG_DFL,),
    }
    heeds = _Heeds()
    before = {}
    for number, usual in ours.items():
        if signal.getsignal(number) in usual:
            before[number] = signal.signal(number, heeds)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Heeds:
    """The handler of one command: knows whether it was told already."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._is_told = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a fork of this process: it dies of the signal, as if nobody heeded it
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        if self._is_told:
            _end_at_once()
        self._is_told = True
        raise KeyboardInterrupt


def _end_at_once() -> None:
    """End this process and those it started with `multiprocessing`, whatever they are at."""
    processes = sys.modules.get("multiprocessing.process")  # absent where nobody started any
    for child in processes.active_children() if processes is not None else ():
        with suppress(Exception):
            child.kill()
    if sys.stderr is not None and decoration.has_cursor(sys.stderr):
        with suppress(OSError):
            os.write(2, b"\x1b[?25h")  # a bar has hidden the cursor
    os._exit(EXIT_CODE)
