"""The real command line, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.processes import environment


def dataguard(*words: str | Path, cwd: Path | None = None, code: int | None = 0, **env: str | None) -> Any:
    """Run one command; ``code`` is the exit code it must have, None for any."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "dataguard", *map(str, words)],
        cwd=cwd,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert code is None or done.returncode == code, f"{done.returncode}\n{done.stdout[-2000:]}\n{done.stderr}"
    return done


def lines_of(done: Any) -> list[Any]:
    """The JSON documents of an answer, one a line."""
    return [json.loads(line) for line in done.stdout.splitlines()]
