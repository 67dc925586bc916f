"""Ranks as processes of their own, all begun at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from tests.architecture.tree import TOP


def environment(**changes: str | None) -> dict[str, str]:
    """This process's environment, with some variables set or (None) taken out."""
    merged = {**os.environ, "COLUMNS": None, "PYTHONPATH": str(TOP), **changes}
    return {name: value for name, value in merged.items() if value is not None}


def launch(ranks: list[dict[str, Any]], *, env: dict[str, str] | None = None, timeout: float = 120) -> list[Any]:
    """Start a process for each; what each of them says, in order. Nobody hangs: a late one fails the test."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.support.rank", json.dumps(words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment() if env is None else env,
            text=True,
        )
        for words in ranks
    ]
    answers = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=timeout)
            assert process.returncode == 0, err
            assert err == ""
            answers.append(json.loads(out))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return answers
