"""The real command line, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.commanding import Commands
from tests.support.processes import environment

_COMMANDS = Commands()
_PATIENCE_SECONDS = 300


def dataguard(
    *words: str | Path, cwd: Path | None = None, code: int | None = 0, fresh: bool = False, **env: str | None
) -> Any:
    """Run one command; ``code`` is the exit code it must have, None for any.

    Its process is a fork of one that has imported the large libraries, where none is asked to be `fresh`.
    """
    given, variables = [*map(str, words)], environment(**env)
    if not fresh and _COMMANDS.fits(variables):
        done = _COMMANDS.run(given, cwd=cwd, variables=variables, seconds=_PATIENCE_SECONDS)
    else:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "dataguard", *given],
            cwd=cwd,
            env=variables,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
    assert "Traceback" not in done.stderr, done.stderr
    assert code is None or done.returncode == code, f"{done.returncode}\n{done.stdout[-2000:]}\n{done.stderr}"
    return done


def lines_of(done: Any) -> list[Any]:
    """The JSON documents of an answer, one a line."""
    return [json.loads(line) for line in done.stdout.splitlines()]
