"""Train a small transformer over bytes with every batch on record; kill it, and go on with as many ranks as you like.

    torchrun --standalone --nproc-per-node 2 examples/train.py /tmp/train --steps 40
    python examples/train.py /tmp/train --steps 80
    dataguard verify /tmp/train/run

The loss of a step is the mean over the tokens of all its microbatches on all ranks.
"""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

import torch
import torch.distributed as dist
from tiny import ByteModel, encode, manifest_of_python, sum_of_losses
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from dataguard import Corpus, Geometry, Plan, Run
from dataguard.torch import GuardedLoader, Monitor, Record


def tokenize(record: Record) -> dict[str, Tensor]:
    """What a slot of a microbatch holds, made from the record that is planned there."""
    return encode(record.bytes)


def main(out: Path, num_steps: int) -> None:
    """Train to a step, from the checkpoint where there is one."""
    alone = {} if dist.is_torchelastic_launched() else {"rank": 0, "world_size": 1, "store": dist.HashStore()}
    dist.init_process_group("gloo", **alone)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        manifest_of_python(out)
    dist.barrier()
    run = Run.open(out / "run", plan=Plan(Corpus.open(out / "M.parquet"), seed=17, global_batch=16))
    geometry = Geometry(world_size=world_size, microbatch_size=4)
    loader = GuardedLoader(run, geometry=geometry, rank=rank, transform=tokenize, num_workers=1)
    monitor = Monitor(run, rank=rank)

    model = DistributedDataParallel(ByteModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    checkpoint = out / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])

    totals = torch.zeros(2, dtype=torch.float64)  # of this step: the sum of its losses, and the tokens that have one
    for microbatch in loader:
        step_ends = loader.next_step > microbatch.step
        with contextlib.nullcontext() if step_ends else model.no_sync():
            loss = sum_of_losses(model(microbatch["input_ids"]), microbatch["labels"])
            loss.backward()  # of a sum: an all-masked microbatch adds 0 where a mean would be NaN
        totals += torch.tensor([loss.item(), microbatch.num_loss_tokens])
        if not step_ends:
            continue
        dist.all_reduce(totals)
        num_tokens = max(1.0, totals[1].item())
        for parameter in model.parameters():  # DDP took the mean over ranks of sums; wanted is the mean over tokens
            parameter.grad *= world_size / num_tokens
        grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss = totals[0].item() / num_tokens
        monitor.log(run.label(microbatch.step), loss=loss, grad_norm=grad_norm, lr=1e-3)
        totals.zero_()
        if rank == 0 and loader.next_step % 5 == 0:
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "loader": loader.state_dict()}, out / "checkpoint.new")
            (out / "checkpoint.new").replace(checkpoint)
            print(f"{loader.next_step} steps are done, loss {loss:.3f}", flush=True)
        if loader.next_step == num_steps:
            break
    loader.close()
    monitor.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=40)
    arguments = parser.parse_args()
    main(arguments.out, arguments.steps)
