"""One rank whose model is watched inside a wrapper: ``python -m tests.torch.watched INIT RANK WORLD_SIZE``.

It prints one JSON object: for DistributedDataParallel and for fully sharded parameters, what was recorded of one step.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from dataguard.torch.watching.watch import watch
from tests.twins.transformer import Transformer, loss_of, microbatch


class Kept:
    step_in_hand = 0

    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def record(self, step: int, values: Mapping[str, Any], /) -> None:
        self.values |= {name: value.item() for name, value in values.items()}


def step_of(model: nn.Module, rank: int) -> tuple[dict[str, float], list[str]]:
    """One step on this rank's two microbatches."""
    kept = Kept()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        with watch(kept, model, optimizer, every=1) as watched:
            for number in range(2):
                ids = microbatch(2 * rank + number)
                (loss_of(model(ids), ids) / 2).backward()
            optimizer.step()
    return kept.values, list(watched.notes)


def main(init: str, rank: int, world_size: int) -> None:
    """Both wrappers, one after the other."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{init}", rank=rank, world_size=world_size)
    reduced = step_of(DistributedDataParallel(Transformer()), rank)
    model = Transformer()
    model.head.weight = nn.Parameter(model.embed.weight.detach().clone())  # shards are not tied
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    sharded = step_of(model, rank)
    print(json.dumps({"reduced": reduced, "sharded": sharded}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
