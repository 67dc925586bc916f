"""Train a small transformer over bytes with every batch on record; kill it, and go on with as many ranks as you like.

    torchrun --standalone --nproc-per-node 2 examples/train.py /tmp/train --steps 40
    python examples/train.py /tmp/train --steps 80
    dataguard verify /tmp/train/run
    cd examples; dataguard triage /tmp/train/run --step 42 --experiment train

The second command goes on with one rank where a kill, or its last step, left the two. Printed is each checkpoint.
The loss of a step is the mean over the tokens of all its microbatches on all ranks. A step whose gradient is out of all
bounds, or whose loss is no number, is skipped by all ranks together.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from texts import manifest_of_python
from tiny import ByteModel, encode, sum_of_losses
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from dataguard import Corpus, Geometry, Plan, Run
from dataguard.torch import GuardedLoader, Monitor, Record, TensorMicrobatch, describe
from dataguard.torch.stability import GradientHistory, peak_learning_rate, train_step, z_loss

LEARNING_RATE = peak_learning_rate(32, c=1.7e-2)


def tokenize(record: Record) -> dict[str, Tensor]:
    """What a slot of a microbatch holds, made from the record that is planned there."""
    return encode(record.bytes)


def loss_of(model: nn.Module, microbatch: TensorMicrobatch) -> Tensor:
    """Summed over the tokens that have a label, as `train_step` asks; the z-loss keeps the logits from drifting."""
    logits, labels = model(microbatch["input_ids"]), microbatch["labels"]
    drift = z_loss(logits[:, :-1], labels[:, 1:], weight=1e-5)
    return sum_of_losses(logits, labels) + microbatch.num_loss_tokens * drift


def loss(model: nn.Module, microbatch: TensorMicrobatch) -> Tensor:
    """The mean of the same, as it is logged and as a replay experiment asks."""
    return loss_of(model, microbatch) / max(1, microbatch.num_loss_tokens)


def load(checkpoint: Path | str | None) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Model and optimizer as a checkpoint has them, or as training begins."""
    model = ByteModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    if checkpoint is not None:
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    return model, optimizer


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
    monitor = Monitor(run, rank=rank, detector=True)

    newest = out / "newest.pt"  # of the checkpoints, each of which stays for a replay
    plain, optimizer = load(newest if newest.exists() else None)
    history = GradientHistory()
    if newest.exists():
        saved = torch.load(newest)
        history.load_state_dict(saved["history"])
        loader.load_state_dict(saved["loader"])
        monitor.load_state_dict(saved["monitor"])
    model = DistributedDataParallel(plain)
    monitor.watch(model, optimizer, every=10)

    while loader.next_step < num_steps:
        microbatches = loader.take_step()
        step = microbatches[0].step
        if step == 0:
            monitor.describe(
                describe(plain, optimizer, untrained=True, peak_lr=LEARNING_RATE, clip_norm=1.0, z_loss=1e-5)
            )
        result = train_step(model, optimizer, microbatches, loss_of, history=history)
        values = result.recorded() | {"global_loss": result.loss, "lr": LEARNING_RATE}
        monitor.log(run.label(step), **values)  # its own loss: a mean would hide the rank that is ill
        if loader.next_step % 5 == 0:
            state = {"model": plain.state_dict(), "optimizer": optimizer.state_dict(), "history": history.state_dict()}
            state |= {"loader": loader.state_dict(), "monitor": monitor.state_dict()}
        if rank == 0 and loader.next_step % 5 == 0:
            checkpoint = out / f"step-{loader.next_step}.pt"
            torch.save(state, checkpoint)
            (out / "newest.new").unlink(missing_ok=True)
            (out / "newest.new").symlink_to(checkpoint.name)
            (out / "newest.new").replace(newest)  # at once, whenever it is killed
            monitor.checkpoint(run.label(loader.next_step), checkpoint.absolute())
            told = result.reason if result.loss is None else f"loss {result.loss:.3f}"
            print(f"{loader.next_step} steps are done, {told}", flush=True)
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
