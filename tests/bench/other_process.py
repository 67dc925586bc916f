"""How does a benchmark put its question to a process that is not its own?

A peer may need packages that do not go with this project's, and a rank of a process group is a process by nature. So:

1. Where it needs one, an environment of its own is made in pytest's cache folder, once; later runs find it there. Where
   that fails, what asked for it is skipped with the reason.
2. The process is started. It imports what it needs and waits.
3. It is told words, in JSON by the line, and answers each of them so. What an answer gives as ``seconds`` and
   ``processor_seconds`` is added up; imports and the way of the words to it do not count.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.tree import TOP

__all__ = ["InstallationError", "OtherProcess", "environment", "python_with"]

CONSTRAINTS = TOP / ".ci" / "constraints.txt"
"""What keeps torch to the build that this project tests with."""


class InstallationError(Exception):
    """The environment could not be made."""


def python_with(config: pytest.Config, name: str, requirements: Sequence[str]) -> Path:
    """The Python of an environment in pytest's cache folder that holds these packages; skips where there is none."""
    try:
        return environment(config.cache.mkdir(name), requirements)  # type: ignore[union-attr]
    except InstallationError as reason:
        pytest.skip(str(reason))


def environment(folder: Path, requirements: Sequence[str]) -> Path:
    """The Python of an environment in `folder` that holds `requirements`, made if it is not there."""
    wanted = "\n".join(requirements)
    ready, python = folder / "ready", folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    if ready.is_file() and ready.read_text() == wanted:
        return python
    ready.unlink(missing_ok=True)
    try:
        venv.create(folder, clear=True, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise InstallationError(f"no environment for {requirements[0]}: {error}") from error
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*command, "--constraint", str(CONSTRAINTS), *requirements], capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise InstallationError(f"{requirements[0]} cannot be installed: {said[-1] if said else 'pip failed'}")
    ready.write_text(wanted)
    return python


class OtherProcess:
    """A warm process that is asked again and again.

    Parameters
    ----------
    command
        What is started.
    log
        Where its standard error goes.
    env
        Its environment. Default: this process's.
    """

    def __init__(self, command: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None) -> None:
        self.seconds = 0.0
        """On the wall, of all its answers so far."""
        self.processor_seconds = 0.0
        """Of all its answers so far."""
        self._log, self._stderr = log, log.open("w")
        self._process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, text=True, env=env
        )

    def ask(self, words: object) -> dict[str, Any]:
        """Tell it words and wait for its answer."""
        self.tell(words)
        return self.hear()

    def tell(self, words: object) -> None:
        """Tell it words; the answer is to be heard before the next."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended; its log says why
            self._process.stdin.write(json.dumps(words) + "\n")
            self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """Wait for its answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.close()
            raise RuntimeError(f"the other process has ended: {self._log.read_text()[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        self.seconds += answer.get("seconds", 0.0)
        self.processor_seconds += answer.get("processor_seconds", 0.0)
        return answer

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()
        self._stderr.close()
