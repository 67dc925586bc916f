"""A command in a process of its own that stands still where a test wants it, until a signal comes.

``python -m tests.support.held MODULE:NAME COUNT - WORDS`` runs ``dataguard WORDS``. At its COUNT-th call the function
writes ``held`` to standard error and waits: in the main thread for the signal that ends the command, in another one for
the main thread to have it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.support.processes import environment

PATIENCE_SECONDS = 60
MARKER = "held"


def replace(target: str, make: Callable[[Any], Any]) -> None:
    """Put another function in the place of ``module:name`` (or ``module:Class.name``), made of it."""
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    owner: Any = import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    setattr(owner, name, make(getattr(owner, name)))


def holding(inner: Any, count: int, told: threading.Event) -> Any:
    """The function, whose `count`-th call waits."""
    lock, calls = threading.Lock(), 0

    def waits(*args: Any, **named: Any) -> Any:
        nonlocal calls
        with lock:
            calls += 1
            mine = calls
        if mine == count:
            tell(MARKER)
            assert told.wait(PATIENCE_SECONDS), "no signal came"
        return inner(*args, **named)

    return waits


def never_ending(inner: Any) -> Any:
    """The function, which says that it has begun and then takes longer than anybody waits."""

    def waits(*args: Any, **named: Any) -> Any:
        tell("cleaning up")
        threading.Event().wait(2 * PATIENCE_SECONDS)
        return inner(*args, **named)

    return waits


def tell(text: str) -> None:
    """Write a line to standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


@contextmanager
def held(target: str, count: int, *words: str | Path, cwd: Path, cleanup: str = "-") -> Iterator[subprocess.Popen[str]]:
    """A command that stands still there; it is in a process group of its own, and gone when the block ends.

    With `cleanup` that function never ends.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.held", target, str(count), cleanup, *map(str, words)],
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert process.stderr is not None
    try:
        said = []
        for line in process.stderr:
            if line == f"{MARKER}\n":
                break
            said.append(line)
        else:
            raise AssertionError(f"{target} was never called {count} times:\n{''.join(said)}")
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def interrupt(process: subprocess.Popen[str], number: int = signal.SIGINT) -> str:
    """Send the signal to the whole group, as a terminal does; what the command said of it, once it has ended."""
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert "Traceback" not in err, err
    assert process.returncode == 130, err
    assert out == ""
    return err


def main() -> int:
    """The process."""
    target, count, cleanup, *words = sys.argv[1:]
    from dataguard.cli import interrupts
    from dataguard.cli.main import main as command

    told = threading.Event()
    heed = interrupts._Heeds.__call__

    def heeds(self: Any, number: int, frame: Any) -> None:
        told.set()
        heed(self, number, frame)

    interrupts._Heeds.__call__ = heeds  # type: ignore[method-assign]
    replace(target, lambda inner: holding(inner, int(count), told))
    if cleanup != "-":
        replace(cleanup, never_ending)
    return command(words)


if __name__ == "__main__":
    sys.exit(main())
