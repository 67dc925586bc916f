"""One of the ranks that take a canary within training, as a process of its own (see tests.torch.forking).

The words: run, checkpoint, init, rank, world_size, sick (the rank of wrong gradients). It prints what it answered.
"""

from __future__ import annotations

import json
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


def main(words: dict[str, Any]) -> None:
    rank = words["rank"]
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
    print(json.dumps({"differs": answer.differs, "odd": answer.odd, "summary": answer.summary}), flush=True)
    dist.barrier()
    dist.destroy_process_group()
