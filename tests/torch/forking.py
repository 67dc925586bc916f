"""How do many launches of real ranks pay for one import of torch? A process that has imported all of it forks them.

Run as ``python -m tests.torch.forking`` it reads launches, each a line of JSON: module, folder, world_size, words,
seconds, first_to_fail. Each rank is a fork that calls ``module.main(words)`` with its rank, world_size and init (where
the ranks meet) added to the words; what it prints goes to files of the folder. The line it answers with holds the exit
codes; a rank that is late, or still there when `first_to_fail` has ended, is killed, and its code is null.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.architecture.tree import TOP
from tests.support.processes import environment

SECONDS = 120
"""No launch takes longer: whatever is still there then has hung."""

_NUMBERS = itertools.count()


class Launch(Protocol):
    """What each rank of a launch printed; a rank that fails, hangs or prints to standard error fails the test.

    Where one is to fail, the test fails if it does not, and the others are killed as soon as it has.
    """

    def __call__(
        self,
        module: str,
        folder: Path,
        world_size: int,
        *,
        patience_seconds: float = SECONDS,
        first_to_fail: int | None = None,
        **words: Any,
    ) -> list[str]: ...


@contextmanager
def forked_ranks() -> Iterator[Launch]:
    """Start the process that forks, and end it."""
    forker = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.torch.forking"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=TOP,
        env=environment(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo"),
        text=True,
    )
    stdin, stdout = forker.stdin, forker.stdout
    assert stdin is not None
    assert stdout is not None

    def launch(
        module: str,
        folder: Path,
        world_size: int,
        *,
        patience_seconds: float = SECONDS,
        first_to_fail: int | None = None,
        **words: Any,
    ) -> list[str]:
        folder = folder / f"ranks-{next(_NUMBERS)}"
        folder.mkdir()
        order = {
            "module": module,
            "folder": str(folder),
            "world_size": world_size,
            "words": words,
            "seconds": patience_seconds,
            "first_to_fail": first_to_fail,
        }
        stdin.write(json.dumps(order) + "\n")
        stdin.flush()
        codes = json.loads(stdout.readline())
        errors = [(folder / f"{rank}.err").read_text() for rank in range(world_size)]
        if first_to_fail is None:
            assert codes == [0] * world_size, errors
            assert errors == [""] * world_size
        else:
            assert codes[first_to_fail] == 1, (codes, errors)
        return [(folder / f"{rank}.out").read_text() for rank in range(world_size)]

    try:
        yield launch
    finally:
        stdin.close()
        stdout.close()
        assert forker.wait(SECONDS) == 0


def child(order: dict[str, Any], rank: int) -> int:
    """One rank: what it is to exit with."""
    folder = Path(order["folder"])
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / f"{rank}.{name}", os.O_WRONLY | os.O_CREAT, 0o644), number)
    try:
        words = {**order["words"], "rank": rank, "world_size": order["world_size"], "init": str(folder / "init")}
        importlib.import_module(order["module"]).main(words)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def fork(order: dict[str, Any]) -> list[int | None]:
    """Exit codes of all ranks of a launch."""
    importlib.import_module(order["module"])
    left: dict[int, int] = {}
    for rank in range(order["world_size"]):
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os._exit(child(order, rank))
        left[rank] = pid
    codes: list[int | None] = [None] * len(left)
    deadline = time.monotonic() + order["seconds"]
    awaited = left if order["first_to_fail"] is None else {order["first_to_fail"]}
    while any(rank in left for rank in awaited) and time.monotonic() < deadline:
        for rank, pid in list(left.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                codes[rank] = os.waitstatus_to_exitcode(status)
                del left[rank]
        time.sleep(0.005)
    for pid in left.values():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return codes


def load() -> None:
    """Once, and not in each rank: what optimizers import at their first use, and the kernel that loaders call."""
    import numpy as np

    from dataguard.core.permute_kernels import permute_bulk

    importlib.import_module("torch._dynamo")
    permute_bulk(np.array([100]), np.array([1], dtype=np.uint64), np.array([7]))  # serial, so a fork keeps it


if __name__ == "__main__":
    load()
    for line in sys.stdin:
        print(json.dumps(fork(json.loads(line))), flush=True)
