"""One rank of a gloo group in a benchmark: ``python -m tests.bench.rank_of_group RANK NUM_RANKS STORE``.

All processes make the groups of the first 1, 2, 4, ... of them; words say how many take part, and are told to those
alone (`tests.bench.other_process`):

- ``walk``: open a run that is new, take microbatches; the answer holds what it took from opening to the first one, what
  each of the others took of this process's processor, and the state.
- ``resume``: open the run again, load the state, take one; what that took.
- ``end``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from dataguard.core.address import Geometry
from dataguard.run.run import Run
from dataguard.torch import ByteTransform, GuardedLoader

SEQ_LEN = 1_024
MOST_SECONDS = 60.0


def opened(words: dict[str, Any], group: Any) -> GuardedLoader:
    """A loader at its first microbatch's edge."""
    loader = GuardedLoader(
        Run.open(words["run"]),
        geometry=Geometry(world_size=words["world_size"], microbatch_size=words["microbatch_size"]),
        data_parallel_group=group,
        transform=ByteTransform(SEQ_LEN),
        join_timeout_seconds=MOST_SECONDS,
    )
    if "state" in words:
        loader.load_state_dict(words["state"])
    return loader


def first(words: dict[str, Any], group: Any) -> tuple[GuardedLoader, Any, dict[str, float]]:
    """From nothing to the first microbatch: loader, iterator, and what it took."""
    began, processor = time.perf_counter(), time.process_time()
    loader = opened(words, group)
    microbatches = iter(loader)
    next(microbatches)
    took = {"seconds": time.perf_counter() - began, "processor_seconds": time.process_time() - processor}
    return loader, microbatches, took


def answer(words: dict[str, Any], group: Any) -> dict[str, Any]:
    """What is said to words."""
    loader, microbatches, took = first(words, group)
    with loader:
        if words["do"] == "resume":
            return {**took, "step": loader.next_step}
        number = words["num_microbatches"] - 1
        processor = time.process_time()
        for _ in range(number):
            next(microbatches)
        each = (time.process_time() - processor) / number
        return {**took, "of_a_microbatch": each, "state": loader.state_dict()}


def main(rank: int, num_ranks: int, store: str) -> None:
    """Meet the others and answer words from standard input on standard output."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    dist.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=num_ranks, timeout=timedelta(seconds=MOST_SECONDS)
    )
    sizes = [size for size in range(1, num_ranks + 1) if size & (size - 1) == 0]
    groups = {size: dist.new_group(list(range(size))) for size in sizes}
    print(json.dumps({"sizes": sizes}), file=out, flush=True)
    for line in sys.stdin:
        words = json.loads(line)
        if words["do"] == "end":
            break
        print(json.dumps(answer(words, groups[words["world_size"]])), file=out, flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
