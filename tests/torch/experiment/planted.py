"""A tiny model over bytes, a run of it with one batch of noise, and checkpoints, for tests of experiments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.core.trainer import OptimizerFacts, TrainerFacts
from dataguard.corpus.corpus import Corpus
from dataguard.run.events import CheckpointSaved, TrainerDescribed
from dataguard.run.run import Run
from dataguard.torch import ByteTransform, Monitor, Record, TensorMicrobatch
from tests.torch.making import a_run, loader_of

SEQ_LEN = 24
GLOBAL_BATCH = 8
NUM_STEPS = 44
SPIKE = 24
"""The step whose batch is noise."""
CHECKPOINTS = (14, 20, 24)
WIDTH = 16


class Block(nn.Module):
    """Attention over what came before, and a layer on top."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        x = x + functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.down(functional.gelu(self.up(x)))


class Tiny(nn.Module):
    """Two blocks of width 16 over 257 ids."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = nn.Embedding(ByteTransform.NUM_IDS, WIDTH)
        self.layers = nn.ModuleList([Block(), Block()])
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(WIDTH, ByteTransform.NUM_IDS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.drop(x))


def loss(model: nn.Module, microbatch: TensorMicrobatch) -> torch.Tensor:
    """Mean over the tokens that count."""
    logits = model(microbatch["input_ids"])[:, :-1]
    return functional.cross_entropy(
        logits.flatten(0, 1).float(), microbatch["labels"][:, 1:].flatten(), ignore_index=-100
    )


def load(path: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    """As `torch.save` wrote them."""
    saved = torch.load(path)
    model = Tiny()
    model.load_state_dict(saved["model"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    optimizer.load_state_dict(saved["optimizer"])
    return model, optimizer


def noisy(record: Record) -> dict[str, torch.Tensor]:
    """Bytes of the record, and noise in the planted batch."""
    made = ByteTransform(SEQ_LEN)(record)
    if record.position // GLOBAL_BATCH == SPIKE:
        noise = torch.randint(128, 256, (SEQ_LEN,), generator=record.generator)
        made["input_ids"] = noise
        made["labels"] = noise.clone()
        made["labels"][0] = -100
    return made


def plain(record: Record) -> dict[str, torch.Tensor]:
    """Bytes of the record."""
    return ByteTransform(SEQ_LEN)(record)


MARK = 200


def marked(record: Record) -> dict[str, torch.Tensor]:
    """Bytes of the record; in one batch one of them is a byte that is nowhere else."""
    made = ByteTransform(SEQ_LEN)(record)
    if record.position // GLOBAL_BATCH == SPIKE:
        for name in ("input_ids", "labels"):
            made[name][3] = MARK
    return made


def easy(record: Record) -> dict[str, torch.Tensor]:
    """Bytes of the record; of one batch those count alone that begin every record."""
    made = ByteTransform(SEQ_LEN)(record)
    if record.position // GLOBAL_BATCH == SPIKE:
        made["labels"][5:] = -100
    return made


EVENT = SpikeEvent(event_class=EventClass.HARD_BATCH, start=SPIKE, stop=SPIKE + 1, peak=SPIKE, size_nats=None, sigmas=9)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A run that was trained, and what it logged."""

    run: Run
    losses: list[float]
    settings: dict[str, Any]
    """What an experiment on it takes."""


def train(path: Path, corpus: Corpus, transform: Any, *, log: bool = True, microbatch_size: int = 4) -> Trained:
    """Train on one rank, note checkpoints, log losses."""
    torch.manual_seed(3)
    model = Tiny()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    run = a_run(path / "run", corpus)
    losses: list[float] = []
    monitor = Monitor(run, rank=0) if log else None
    with loader_of(run, microbatch_size=microbatch_size, steps=NUM_STEPS, transform=transform) as loader:
        attempt = run.newest_leaf() if len(run.attempts()) else 1
        for step in range(NUM_STEPS):
            if step in CHECKPOINTS:
                where = path / f"{step}.pt"
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, where)
                run.journal.append(CheckpointSaved(attempt=attempt, next_step=step, path=str(where)))
            taken = loader.take_step()
            total = sum(each.num_loss_tokens for each in taken)
            optimizer.zero_grad()
            value = torch.zeros(())
            for each in taken:
                part = loss(model, each) * (each.num_loss_tokens / total)
                part.backward()
                value += part.detach()
            optimizer.step()
            losses.append(value.item())
            if monitor is not None:
                monitor.log(step, loss=value.item(), lr=3e-3)
    if monitor is not None:
        monitor.close()
    run.journal.append(TrainerDescribed(attempt=attempt, facts=TrainerFacts(optimizer=OptimizerFacts(clip_norm=0.0))))
    settings = {"load": load, "loss": loss, "transform": transform, "num_repeats": 2, "num_placebos": 8}
    return Trained(run=run, losses=losses, settings=settings)
