"""One rank that shows a row to the others: ``python -m tests.bench.gathering_rank INIT RANK NUM_RANKS COUNT``.

It prints the seconds of one gather, wall clock and processor.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import torch
import torch.distributed as dist

from dataguard.torch.monitoring.gathering import Gathering


def main(init: str, rank: int, num_ranks: int, count: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{init}", rank=rank, world_size=num_ranks)
    gathering = Gathering(None, rank=rank, world_size=num_ranks)
    row = np.zeros(8)
    gathering.gather(row)
    began, processor = time.perf_counter(), time.process_time()
    for _ in range(count):
        gathering.gather(row)
    took = {"seconds": time.perf_counter() - began, "processor_seconds": time.process_time() - processor}
    print(json.dumps({name: each / count for name, each in took.items()}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
