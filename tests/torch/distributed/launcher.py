"""Starts the processes of launches: it has imported everything once, and forks as many as are asked for each time.

Run as ``python -m tests.torch.distributed.launcher`` it reads launches, each a line of JSON: folder, world_size, jobs,
store, seconds. Each process leaves its answers (or its traceback) in a file of the folder. The line it prints holds the
exit codes; a process that is late is killed, and its code is null.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dataguard.core.permute_kernels import permute_bulk
from dataguard.score.text import score_text
from tests.torch.distributed.rank import main


def child(order: dict[str, Any], rank: int) -> int:
    """One process: what it is to exit with."""
    folder = Path(order["folder"])
    try:
        tell = (folder / f"{rank}.json").write_text
        main(rank, order["world_size"], order["store"], order["jobs"], lambda answers: tell(json.dumps(answers)))
    except BaseException:  # noqa: BLE001
        (folder / f"{rank}.err").write_text(traceback.format_exc())
        return 1
    return 0


def launch(order: dict[str, Any]) -> list[int | None]:
    """Exit codes of all processes of a launch."""
    pids = []
    for rank in range(order["world_size"]):
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os._exit(child(order, rank))
        pids.append(pid)
    codes: list[int | None] = [None] * len(pids)
    left = dict(enumerate(pids))
    deadline = time.monotonic() + order["seconds"]
    while left and time.monotonic() < deadline:
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


def load_kernels() -> None:
    """Once, and not in each process; they are serial, so a fork keeps them."""
    permute_bulk(np.array([100]), np.array([1], dtype=np.uint64), np.array([7]))
    score_text(pa.array(["a document"]))


if __name__ == "__main__":
    load_kernels()
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(launch(json.loads(line))), flush=True)
