"""One process of a script that somebody already has, with one line more. Run as ``python -m ... WORDS`` (JSON).

Words: rank, world_size, store (of the process group; none for one process), and jobs: one after the other, each with
run, epochs, accumulate, batch_size, die_after (batches until it kills itself), bad rows and a policy's action. It
prints what it was handed in each of them, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

from dataguard.errors import DataguardError
from dataguard.gate.policy import read_policy
from dataguard.torch import guard
from tests.torch.guarded_data import Rows, rows_of

POLICY = '[[rules]]\nname = "periods"\nsignal = "token_periodic_repeats"\nat_least = 32\naction = "{}"'

LEFT: list[Any] = []


def train(words: dict[str, Any], rank: int, world_size: int) -> dict[str, Any]:
    """Train without a model."""
    data = Rows(30, bad=tuple(words.get("bad", ())))
    sampler = DistributedSampler(data, num_replicas=world_size, rank=rank, seed=4)
    size = words.get("batch_size", [4] * world_size)[rank]
    loader = DataLoader(data, batch_size=size, sampler=sampler, num_workers=words.get("workers", 0))
    policy = read_policy(POLICY.format(words["action"]), name="test") if "action" in words else None
    told: dict[str, Any] = {"handed": []}
    try:
        guarded = guard(
            loader, words["run"], accumulate=words.get("accumulate", 1), policy=policy, store=words.get("store")
        )
        LEFT.append(guarded)  # nobody closes it
        for epoch in range(words.get("epochs", 1)):
            sampler.set_epoch(epoch)
            for batch in guarded:
                told["handed"].append([str(guarded.address), rows_of(batch)])
                if words.get("die_after") == len(told["handed"]):
                    os.kill(os.getpid(), signal.SIGKILL)
                if world_size > 1:
                    dist.all_reduce(torch.ones(1))
        told["state"] = guarded.state_dict()
    except DataguardError as error:
        told |= {"kind": type(error).__name__, "error": str(error)}
    return told


def main(words: dict[str, Any]) -> list[dict[str, Any]]:
    """All jobs of this process."""
    torch.set_num_threads(1)
    world_size, rank = words.get("world_size", 1), words.get("rank", 0)
    if world_size > 1:
        dist.init_process_group(
            "gloo", init_method=words["store"], rank=rank, world_size=world_size, timeout=timedelta(seconds=60)
        )
    answers = []
    for job in words["jobs"]:
        answers.append(train(job, rank, world_size))
        if world_size > 1:
            dist.barrier()
    if world_size > 1:
        dist.destroy_process_group()
    return answers


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
