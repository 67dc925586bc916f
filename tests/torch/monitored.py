"""One rank of a training run, as a process of its own: ``python -m tests.torch.monitored WORDS``.

The words are a JSON object: run, world_size, rank, steps; ``init`` (where the process group meets, if there is to be
one), ``hang_at`` (a step after which it says so and waits to be killed), ``close`` (whether the monitor is closed), and
``most_bytes`` (a limit on the size of files). It prints a line a step, and one with what went wrong.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
from typing import Any

import torch
import torch.distributed as dist

from dataguard.core.address import Geometry
from dataguard.errors import DataguardError
from dataguard.loader.loader import Loader
from dataguard.run.run import Run
from dataguard.torch.monitoring.monitor import Monitor


def loss_of(step: int, rank: int) -> float:
    """What a rank logs."""
    return 4.0 - step / 8 + rank / 64


def main(words: dict[str, Any]) -> None:
    """Walk the steps and log each."""
    torch.set_num_threads(1)
    if words.get("init"):
        dist.init_process_group(
            "gloo", init_method=f"file://{words['init']}", rank=words["rank"], world_size=words["world_size"]
        )
    if words.get("most_bytes"):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (words["most_bytes"], words["most_bytes"]))
    run = Run.open(words["run"])
    geometry = Geometry(world_size=words["world_size"], microbatch_size=2)
    loader = Loader(run, geometry=geometry, rank=words["rank"], launch_id="one", steps=words["steps"], num_threads=0)
    monitor = Monitor(run)
    # Before anything was delivered the rank is the group's; without one, nobody knows it yet.
    told = monitor.rank if words.get("init") else None
    for step in range(words["steps"]):
        taken = loader.take_step()
        try:
            for microbatch in taken:
                monitor.log_samples(microbatch, torch.full((2,), loss_of(step, words["rank"])))
            monitor.log(step, loss=torch.tensor(loss_of(step, words["rank"])), lr=0.1)
        except DataguardError as error:
            print(json.dumps({"error": type(error).__name__, "exit": error.exit_code, "text": str(error)}), flush=True)
            break
        print(json.dumps({"step": step, "rank": told}), flush=True)
        if step == words.get("hang_at"):
            time.sleep(300)
    if words.get("close", True):
        monitor.close()
        loader.close()
    if words.get("init"):
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
