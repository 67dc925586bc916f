"""A training loop that exists already, with one line added: `guard` puts every batch on record and changes none.

    python examples/plain_loop.py /tmp/plain --steps 50
    torchrun --standalone --nproc-per-node 2 examples/plain_loop.py /tmp/plain-2 --steps 50
    dataguard inspect /tmp/plain/run --step 7

The loop is as loops are: a DistributedSampler with its `set_epoch`, workers that stay from epoch to epoch, a process a
rank. A batch holds what it held, in the same order; which rows that was, on each rank, the record says. Printed is the
loss of each step. A DataLoader cannot go on in the middle of an epoch: guard_lightning.py and train.py show what can.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import torch
import torch.distributed as dist
from tiny import ByteModel, PythonText, sum_of_losses
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from dataguard.torch import guard


def epochs(loader: DataLoader, sampler: DistributedSampler) -> Iterator[dict[str, Tensor]]:
    """Pass after pass, each in an order of its own."""
    for epoch in count():
        sampler.set_epoch(epoch)
        yield from loader


def main(out: Path, num_steps: int) -> None:
    """Train to a step."""
    alone = {} if dist.is_torchelastic_launched() else {"rank": 0, "world_size": 1, "store": dist.HashStore()}
    dist.init_process_group("gloo", **alone)
    data = PythonText(160)
    sampler = DistributedSampler(data, seed=17)
    batch_size = 8 // dist.get_world_size()
    loader = DataLoader(data, batch_size=batch_size, sampler=sampler, num_workers=1, persistent_workers=True)
    loader = guard(loader, out / "run")  # the one line
    model = DistributedDataParallel(ByteModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, batch in zip(range(num_steps), epochs(loader, sampler), strict=False):
        loss = sum_of_losses(model(batch["input_ids"]), batch["labels"]) / (batch["labels"] != -100).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.5f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=50)
    words = parser.parse_args()
    main(words.out, words.steps)
