"""Four gloo ranks that take a canary within training: ``python -m tests.torch.canary.canary_ranks WORDS``.

The words are a JSON object: run, checkpoint, init, world_size, sick (the rank of wrong gradients), seconds. All is
imported once and the ranks are forked. A line for each rank: what it answered.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dataguard.run.run import Run
from dataguard.torch.canary import compare_ranks, take
from tests.torch.experiment.planted import load, loss, noisy


def corrupt(model: nn.Module) -> None:
    """Gradients of one layer come out a little too large, finite, and equally so every time."""
    weight = model.get_submodule("layers.1.down").weight
    assert isinstance(weight, torch.Tensor)
    weight.register_hook(lambda gradient: gradient * 1.0001)


def main(words: dict[str, Any], rank: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{words['init']}", rank=rank, world_size=words["world_size"])
    run = Run.open(words["run"])
    model, optimizer = load(words["checkpoint"])
    wrapped = DistributedDataParallel(model)

    def loss_here(copied: nn.Module, microbatch: Any) -> torch.Tensor:
        if rank == words["sick"]:
            corrupt(copied)
        return loss(copied, microbatch)

    record = take(run, 3, model=wrapped, optimizer=optimizer, loss=loss_here, transform=noisy, rank=rank, num_repeats=2)
    answer = compare_ranks(run, record)
    line = json.dumps({"rank": rank, "differs": answer.differs, "odd": answer.odd, "summary": answer.summary})
    os.write(1, f"{line}\n".encode())
    dist.barrier()
    dist.destroy_process_group()


def child(words: dict[str, Any], rank: int) -> int:
    try:
        main(words, rank)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        return 1
    return 0


def launch(words: dict[str, Any]) -> int:
    """Fork the ranks and wait for them; 0 where all of them ended well."""
    pids = set()
    for rank in range(words["world_size"]):
        pid = os.fork()
        if pid == 0:
            os._exit(child(words, rank))
        pids.add(pid)
    failed = 0
    deadline = time.monotonic() + words["seconds"]
    while pids and time.monotonic() < deadline:
        for pid in list(pids):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                pids.discard(pid)
                failed += status != 0
        time.sleep(0.01)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return failed + len(pids)


if __name__ == "__main__":
    sys.exit(launch(json.loads(sys.argv[1])))
