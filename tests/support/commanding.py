"""How do many commands pay for one import of numba, NumPy and pyarrow? A process that has imported them forks them.

Run as ``python -W error -m tests.support.commanding`` it reads commands, each a line of JSON: words, cwd, environment,
out and err (files), seconds. Each is a process of its own that runs the package as ``python -m dataguard`` does, from
its first module on: no module of dataguard is imported before the fork. The line it is answered with is its exit code,
null where it was late and is killed.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.architecture.tree import TOP
from tests.support.processes import environment

READ_AT_START = ("NUMBA", "PYTHON", "OMP", "OPENBLAS", "MKL", "LC_", "LANG", "LD_", "MALLOC", "ARROW", "TZ")
"""Variables that begin so are read as an interpreter or a library starts: with others a command needs a new one."""


class Commands:
    """Commands of one test process, forked from a process that is started at the first of them."""

    def __init__(self) -> None:
        self._forker: subprocess.Popen[str] | None = None
        self._environment: dict[str, str] = {}

    def fits(self, variables: dict[str, str]) -> bool:
        """Whether a command with this environment may be a fork."""
        if self._forker is None:
            self._start()
        return _read_at_start(variables) == _read_at_start(self._environment)

    def run(
        self, words: list[str], *, cwd: Path | None, variables: dict[str, str], seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """Run one command to its end.

        Raises
        ------
        subprocess.TimeoutExpired
            It was late, and is killed.
        """
        with TemporaryDirectory() as name:
            out, err = Path(name, "out"), Path(name, "err")
            order = {
                "words": words,
                "cwd": str(cwd or Path.cwd()),
                "environment": variables,
                "out": str(out),
                "err": str(err),
                "seconds": seconds,
            }
            code = self._ask(order)
            if code is None:
                raise subprocess.TimeoutExpired(words, seconds, out.read_bytes(), err.read_bytes())
            return subprocess.CompletedProcess(words, code, out.read_text(), err.read_text())

    def close(self) -> None:
        """End the process that forks."""
        forker, self._forker = self._forker, None
        if forker is not None:
            assert forker.stdin is not None
            assert forker.stdout is not None
            forker.stdin.close()
            forker.stdout.close()
            forker.wait()

    def _start(self) -> None:
        self._environment = environment()
        self._forker = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.support.commanding"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=TOP,
            env=self._environment,
            text=True,
        )
        atexit.register(self.close)

    def _ask(self, order: dict[str, Any]) -> int | None:
        assert self._forker is not None, "it was asked whether the environment fits"
        assert self._forker.stdin is not None
        assert self._forker.stdout is not None
        try:
            self._forker.stdin.write(json.dumps(order) + "\n")
            self._forker.stdin.flush()
            answer: int | None = json.loads(self._forker.stdout.readline())
        except BaseException:  # an answer that was not waited for is not taken for the next one's
            self._forker.kill()
            self.close()
            raise
        return answer


def _read_at_start(variables: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith(READ_AT_START)}


# ---- in that process ----


def load() -> None:
    """What every process of dataguard that computes would import, and what numba does at its first function."""
    import numba
    import numpy as np
    import pyarrow as pa

    numba.njit(lambda x: x + 1)(1)
    assert pa.array(np.zeros(1)).nbytes == 8
    assert not any(name.partition(".")[0] == "dataguard" for name in sys.modules)


def child(order: dict[str, Any]) -> int:
    """The command: what it exits with."""
    for number, path, how in (
        (0, os.devnull, os.O_RDONLY),
        (1, order["out"], os.O_WRONLY),
        (2, order["err"], os.O_WRONLY),
    ):
        opened = os.open(path, how | os.O_CREAT, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.path[0] = str(Path.cwd())
    sys.argv = ["dataguard", *order["words"]]
    code: object = 0
    try:
        runpy.run_module("dataguard", run_name="__main__", alter_sys=True)
    except SystemExit as error:
        code = error.code
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code or 0


def fork(order: dict[str, Any]) -> int | None:
    """Its exit code, as `subprocess` gives it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = child(order)
        finally:
            os._exit(code)
    deadline = time.monotonic() + order["seconds"]
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return None
        time.sleep(0.005)


if __name__ == "__main__":
    load()
    for line in sys.stdin:
        answer = json.dumps(fork(json.loads(line)))
        print(answer, flush=True)
