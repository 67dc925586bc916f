"""A consumer that is killed, over and over: what `test_sigkill` runs in a process of its own.

The warm process forks one child an attempt. The child walks a loader and writes each microbatch it was handed into a
delivery log outside the run directory, before it takes the next. The parent lets it deliver something, waits a random
number of microseconds, sends SIGKILL, and has the next child go on from the first step the log does not hold whole.

Usage: python dying_consumer.py RUN MANIFEST LOG NUM_KILLS SEED
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from dataguard import Corpus, Geometry, Loader, Plan, Run

GEOMETRY = Geometry(world_size=1, microbatch_size=2)
NUM_MICROBATCHES = 2


def consume(run: Run, log: int, from_step: int | None) -> None:
    """Deliver until killed."""
    for microbatch in Loader(run, geometry=GEOMETRY, from_step=from_step, num_threads=2, prefetch=4):
        line = f"{microbatch.attempt} {microbatch.step} {microbatch.address.microbatch} {microbatch.digest.hex()}\n"
        os.write(log, line.encode())


def next_step(path: Path) -> int | None:
    """First step that the delivery log does not hold whole; None before the first delivery."""
    lines = [line.split() for line in path.read_text().splitlines()]
    if not lines:
        return None
    _, step, microbatch, _ = lines[-1]
    return int(step) + (int(microbatch) == NUM_MICROBATCHES - 1)


def main() -> None:
    """Kill NUM_KILLS children."""
    run_path, manifest, log_path = (Path(argument) for argument in sys.argv[1:4])
    num_kills, seed = int(sys.argv[4]), int(sys.argv[5])
    draw = random.Random(seed)
    corpus = Corpus.open(manifest)
    plan = Plan(corpus, seed=5, global_batch=4)
    plan.stream(bulk=True).samples(np.arange(4))  # compiled once, here, for all children
    log_path.touch()
    for _ in range(num_kills):
        run = Run.open(run_path, plan)
        size = log_path.stat().st_size
        from_step = next_step(log_path)
        pid = os.fork()
        if pid == 0:
            consume(run, os.open(log_path, os.O_WRONLY | os.O_APPEND), from_step)
            os._exit(1)  # an endless loader never ends
        deadline = time.monotonic() + 60
        while log_path.stat().st_size == size:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended or time.monotonic() > deadline:
                sys.exit(f"the consumer delivered nothing (status {status})")
            time.sleep(0.0005)
        time.sleep(draw.randrange(20_000) / 1e6)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
