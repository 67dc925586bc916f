"""Train a small transformer over bytes on the corpus beside this file, with every batch on record.

    torchrun --standalone --nproc-per-node 2 train.py RUN --seed 7 --steps 180
    python train.py RUN --steps 220 --resume checkpoints/step-120.pt
    dataguard triage RUN --experiment train

The detector judges each step while it trains: events are printed, and all that it finds goes to alerts.jsonl. `load`
and `loss` are what a replay experiment needs of a trainer.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from dataguard import Corpus, Geometry, Plan, Run
from dataguard.torch import GuardedLoader, Monitor, Record, TensorMicrobatch
from dataguard.torch.describing import describe
from dataguard.triage.alerts import Alert

__all__ = ["load", "loss", "tokenize"]

SEQ_LEN, WIDTH, NUM_LAYERS, NUM_HEADS = 64, 64, 1, 4
PADDING = 256  # bytes are 0 to 255
GLOBAL_BATCH, LEARNING_RATE, WARMUP_STEPS, CHECKPOINT_STEPS = 48, 3e-3, 40, 10

torch.set_num_threads(1)  # for a model as small as this one thread is fastest


class Block(nn.Module):
    """Attention and a feed-forward block, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.feed_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        """From and to (n, length, WIDTH)."""
        n, length, _ = hidden.shape
        query, key, value = self.qkv(self.norm(hidden)).view(n, length, 3, NUM_HEADS, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.out(attended.transpose(1, 2).flatten(2))
        fed: Tensor = self.down(F.gelu(self.up(self.feed_norm(hidden))))
        return hidden + fed


class ByteModel(nn.Module):
    """A causal transformer over bytes: logits of the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(PADDING + 1, WIDTH), nn.Embedding(SEQ_LEN, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(NUM_LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, PADDING + 1)
        for weights in self.parameters():
            if weights.dim() > 1:
                nn.init.normal_(weights, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        """From ids (n, length) to logits (n, length, PADDING + 1)."""
        hidden = self.token(ids) + self.place.weight[: ids.shape[1]]
        logits: Tensor = self.head(self.norm(self.blocks(hidden)))
        return logits


def tokenize(record: Record) -> dict[str, Tensor]:
    """What a slot of a microbatch holds: the first bytes of its record. Nothing predicts the first one."""
    ids = torch.tensor(list(record.bytes[:SEQ_LEN]), dtype=torch.int64)
    labels, padding = ids.clone(), (0, SEQ_LEN - len(ids))
    labels[:1] = -100
    return {"input_ids": F.pad(ids, padding, value=PADDING), "labels": F.pad(labels, padding, value=-100)}


def sample_losses(model: nn.Module, microbatch: TensorMicrobatch) -> tuple[Tensor, Tensor]:
    """Of each sample, the sum of its losses and the number of its tokens that have one."""
    logits, labels = model(microbatch["input_ids"])[:, :-1], microbatch["labels"][:, 1:]
    losses = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-100, reduction="none")
    return losses.sum(1), (labels >= 0).sum(1)


def loss(model: nn.Module, microbatch: TensorMicrobatch) -> Tensor:
    """The mean over the tokens of a microbatch, as it is logged."""
    sums, counts = sample_losses(model, microbatch)
    return sums.sum() / counts.sum().clamp(min=1)


def load(checkpoint: Path | str | None) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Model and optimizer as a checkpoint has them, or as training begins."""
    model = ByteModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.1)
    if checkpoint is not None:
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    return model, optimizer


def tell(alert: Alert) -> None:
    """Print what event the detector found; rank 0 is asked."""
    if alert.event_class is not None:
        print(f"ALERT at step {alert.step}: {alert.text}", flush=True)


def main(path: str, seed: int, num_steps: int, resume: str | None) -> None:
    """Train up to a step, from a checkpoint where one is given."""
    if dist.is_torchelastic_launched():
        dist.init_process_group("gloo")
    else:  # one process on its own: the same code, with nobody to wait for
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())  # type: ignore[attr-defined]
    rank, world_size = dist.get_rank(), dist.get_world_size()
    # A lane for each of two ranks, and small windows: a rank reads the records of a shard close together.
    plan = Plan(Corpus.open("M.parquet"), seed=seed, global_batch=GLOBAL_BATCH, lanes=2, window_blocks=1)
    run = Run.open(path) if resume else Run.open(path, plan=plan, policy="default")
    geometry = Geometry(world_size=world_size, microbatch_size=GLOBAL_BATCH // world_size)
    loader = GuardedLoader(run, geometry=geometry, rank=rank, transform=tokenize)
    monitor = Monitor(run, rank=rank, loader=loader, detector=True, alerts=[tell, "alerts.jsonl"])
    torch.manual_seed(seed)
    model, optimizer = load(resume)
    if resume:
        saved = torch.load(resume)
        loader.load_state_dict(saved["loader"])
        monitor.load_state_dict(saved["monitor"])
    parallel = DistributedDataParallel(model)
    facts = describe(model, optimizer, untrained=not resume, warmup_steps=WARMUP_STEPS, clip_norm=1.0)

    while loader.next_step < num_steps:
        (microbatch,) = loader.take_step()
        if microbatch.step == 0:
            monitor.describe(facts)
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, (microbatch.step + 1) / WARMUP_STEPS)
        sums, counts = sample_losses(parallel, microbatch)
        num_tokens, all_tokens = counts.sum(), counts.sum().float()
        dist.all_reduce(all_tokens)  # the loss is a mean over the tokens of all ranks
        (sums.sum() * world_size / all_tokens.clamp(min=1)).backward()  # type: ignore[no-untyped-call]  # ranks are averaged
        grad_norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        own_loss = sums.detach().sum() / num_tokens.clamp(min=1)  # of this rank: a mean would hide the one that is ill
        monitor.log_samples(microbatch, (sums / counts.clamp(min=1)).detach())
        decision = monitor.log(microbatch.step, loss=own_loss, grad_norm=grad_norm, lr=group["lr"])
        optimizer.step()
        optimizer.zero_grad()
        if loader.next_step % CHECKPOINT_STEPS == 0 and rank == 0:
            checkpoint = Path("checkpoints", f"step-{loader.next_step}.pt").absolute()
            checkpoint.parent.mkdir(exist_ok=True)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "loader": loader.state_dict(), "monitor": monitor.state_dict()}, checkpoint)
            monitor.checkpoint(loader.next_step, checkpoint)
            if loader.next_step % (2 * CHECKPOINT_STEPS) == 0 and decision is not None:
                print(f"{loader.next_step:4} steps are done, loss {decision.loss:.3f}", flush=True)
    monitor.close()
    loader.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--steps", type=int, default=180)
    parser.add_argument("--resume", metavar="CHECKPOINT")
    arguments = parser.parse_args()
    main(arguments.run, arguments.seed, arguments.steps, arguments.resume)
