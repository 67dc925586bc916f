"""One rank of a training run as a process of its own: ``python -m tests.cli.watched_rank WORDS``.

The words are a JSON object: run, rank, world_size, steps, ``pause`` (seconds a step), and ``stop_at``, a step at which
it stops itself, as a debugger or a sick machine would, until somebody lets it go on. It waits at the end until its
standard input is closed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

import numpy as np

from dataguard.core.address import Geometry
from dataguard.loader.loader import Loader
from dataguard.run.run import Run
from dataguard.run.telemetry import open_telemetry, telemetry_records


def main(words: dict[str, Any]) -> None:
    """Walk the steps and log each."""
    geometry = Geometry(world_size=words["world_size"], microbatch_size=2)
    run, rank = Run.open(words["run"]), words["rank"]
    with Loader(run, geometry=geometry, rank=rank, launch_id="one", steps=words["steps"], num_threads=0) as loader:
        writer = None
        for step in range(words["steps"]):
            loader.take_step()
            writer = writer or open_telemetry(run, 1, rank)
            values = np.array([3.0 - step / 1000, 0.5])
            writer.append(telemetry_records(step, ["loss", "grad_norm"], values, time_ns=time.time_ns()))
            if step == words.get("stop_at"):
                os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(words["pause"])
        sys.stdin.read()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
