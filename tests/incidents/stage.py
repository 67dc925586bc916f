"""What does one incident run on: its folders, its settings, the fault, and a warm start that all of them share?

A run is a few hundred steps from a model that was trained a little already, so that a curve of some length exists
before anything goes wrong. The warm start is trained once for a seed and kept; two processes that want it at once wait
for each other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from filelock import FileLock
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from dataguard.core.trainer import TrainerFacts
from tests.incidents.corpus import prose
from tests.incidents.model import IGNORED, PADDING, SEQ_LEN, ByteModel, sample_losses

if TYPE_CHECKING:
    from tests.incidents.training import Training

__all__ = ["BATCH", "LR", "Fault", "Settings", "Stage", "constant", "encode_bytes", "warm_start"]

BATCH = 8
"""Samples of a global batch."""
LR = 2e-3
"""At which this model trains well."""
WARM_STEPS = 400


def constant(lr: float) -> Callable[[int], float]:
    """A rate that never changes."""
    return lambda _: lr


class Fault:
    """What is wrong with a trainer or its machine. This one: nothing. Steps count from 0."""

    def before_step(self, training: Training, step: int) -> None:
        """Before anything of a step was done, its data not yet asked for."""

    def forward(self, step: int) -> AbstractContextManager[object]:
        """What the forward pass of a step runs in."""
        return nullcontext()

    def on_gradients(self, training: Training, step: int) -> None:
        """When this rank's own gradients are there, before ranks are reduced."""

    def after_update(self, training: Training, step: int) -> None:
        """After the optimizer's step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a run is trained."""

    num_steps: int
    lr: Callable[[int], float] = field(default_factory=lambda: constant(LR))
    """Of a step, from 0."""
    start: Literal["warm", "weights", "scratch"] = "warm"
    """From model and optimizer of the warm start, from its model alone, or from nothing."""
    clip: float | None = 1.0
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    optimizer: Callable[..., Optimizer] = AdamW
    model: Callable[..., ByteModel] = ByteModel
    world_size: int = 1
    lanes: int = 1
    checkpoint_every: int = 20
    watch_every: int = 10
    canary_every: int = 0
    """Steps after which all ranks compare a canary; 0 for never."""
    facts: TrainerFacts = field(default_factory=TrainerFacts)
    """Beyond what follows from the above."""
    fault: Fault = field(default_factory=Fault)
    timeout_seconds: float = 120.0
    """How long ranks wait for one another."""
    run_dtype: torch.dtype | None = None
    """What a replay computes in, where it is not float32."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The folders of one incident."""

    folder: Path
    seed: int
    warm: Path
    """The warm start."""

    @property
    def manifest(self) -> Path:
        """Of the corpus."""
        return self.folder / "M.parquet"

    @property
    def run(self) -> Path:
        """The run directory."""
        return self.folder / "run"

    def checkpoint(self, next_step: int) -> Path:
        """Where a checkpoint is kept."""
        return self.folder / "checkpoints" / f"{next_step:06d}.pt"

    def trainee(self, settings: Settings) -> tuple[ByteModel, Optimizer]:
        """Model and optimizer as they begin."""
        model = settings.model(seed=self.seed)
        optimizer = settings.optimizer(
            model.parameters(), lr=LR, betas=settings.betas, eps=settings.eps, weight_decay=0.1
        )
        if settings.start != "scratch":
            saved = torch.load(self.warm)
            model.load_state_dict(saved["model"])
            if settings.start == "warm":
                _load_state(optimizer, saved["optimizer"])
        return model, optimizer

    def load(self, path: str | Path, settings: Settings) -> tuple[nn.Module, Optimizer]:
        """Model and optimizer as a checkpoint has them."""
        saved = torch.load(path)
        model, optimizer = self.trainee(settings)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        return model, optimizer


def _load_state(optimizer: Optimizer, saved: dict[str, object]) -> None:
    """Moments from a state, settings as they are."""
    own = optimizer.state_dict()
    optimizer.load_state_dict({"state": saved["state"], "param_groups": own["param_groups"]})


def encode_bytes(content: bytes) -> dict[str, Tensor]:
    """A document as ids and labels, shape (SEQ_LEN,): its bytes, cut and padded."""
    content = content[:SEQ_LEN]
    ids = torch.full((SEQ_LEN,), PADDING)
    if content:
        ids[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    labels = ids.clone()
    labels[0] = IGNORED
    labels[len(content) :] = IGNORED
    return {"input_ids": ids, "labels": labels}


def warm_start(folder: Path, seed: int, *, num_steps: int = WARM_STEPS) -> Path:
    """The warm start of a seed, trained where it is not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"warm-{seed}-{num_steps}.pt"
    with FileLock(f"{path}.lock"):
        if not path.exists():
            model = _train_warm(seed, num_steps)
            torch.save(model, f"{path}.new")
            Path(f"{path}.new").replace(path)
    return path


def _train_warm(seed: int, num_steps: int) -> dict[str, object]:
    generator = random.Random(f"warm {seed}")
    model = ByteModel(seed=seed)
    optimizer = AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    for step in range(num_steps):
        optimizer.param_groups[0]["lr"] = LR * min(1.0, (step + 1) / 40)
        samples = [encode_bytes(text.encode()) for text in prose(generator, BATCH)]
        ids, labels = (torch.stack([sample[name] for sample in samples]) for name in ("input_ids", "labels"))
        sums, counts = sample_losses(model(ids), labels)
        (sums.sum() / counts.sum()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
