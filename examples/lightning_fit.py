"""Lightning's Trainer on a GuardedLoader: its checkpoints hold the loader's state without a line of ours.

    python examples/lightning_fit.py /tmp/lightning --steps 12
    torchrun --standalone --nproc-per-node 2 examples/lightning_fit.py /tmp/lightning-2 --steps 12
    dataguard verify /tmp/lightning/run

Lightning keeps the state of rank 0 alone, which is enough: a loader's state is about the run, not about a rank. It asks
for a length, or it would take a microbatch ahead of each step and lose it in a checkpoint: `steps_per_epoch` gives one.
The loader is made in `train_dataloader`, where the process group stands. Printed is the loss of each step.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from texts import SEQ_LEN, manifest_of_python
from tiny import ByteModel, sum_of_losses
from torch import Tensor

from dataguard import Corpus, Geometry, Plan, Run
from dataguard.torch import ByteTransform, GuardedLoader, Monitor


class Module(lightning.LightningModule):
    """A byte model whose loss is the mean over all tokens of a step, on all ranks and in all microbatches."""

    def __init__(self, out: Path) -> None:
        super().__init__()
        self.model = ByteModel()
        self.out = out
        self.totals = [0.0, 0]

    def prepare_data(self) -> None:
        """Lightning calls this on one process, and has the others wait."""
        manifest_of_python(self.out)

    def train_dataloader(self) -> GuardedLoader:
        """The part of this rank."""
        run = Run.open(self.out / "run", plan=Plan(Corpus.open(self.out / "M.parquet"), seed=17, global_batch=8))
        geometry = Geometry(world_size=self.trainer.world_size, microbatch_size=4)
        self.loader = GuardedLoader(run, geometry=geometry, transform=ByteTransform(SEQ_LEN), steps_per_epoch=6)
        self.monitor = Monitor(run, loader=self.loader)
        return self.loader

    def training_step(self, microbatch, index: int) -> Tensor:
        """The sum of losses; `on_before_optimizer_step` divides by the tokens of the whole step."""
        loss = sum_of_losses(self.model(microbatch["input_ids"]), microbatch["labels"])
        self.totals[0] += loss.item()
        self.totals[1] += microbatch.num_loss_tokens
        return loss

    def on_before_optimizer_step(self, optimizer) -> None:
        """Lightning took the mean over microbatches and ranks; wanted is the mean over tokens."""
        total_loss, num_tokens = self.trainer.strategy.reduce(torch.tensor(self.totals), reduce_op="sum").tolist()
        self.totals = [0.0, 0]
        for parameter in self.parameters():
            parameter.grad *= self.trainer.accumulate_grad_batches * self.trainer.world_size / max(1, num_tokens)
        loss = total_loss / max(1, num_tokens)
        self.monitor.log(self.trainer.global_step, loss=loss)
        self.print(f"step {self.trainer.global_step}: loss {loss:.5f}")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main(out: Path, num_steps: int) -> None:
    """Train to a step, from the newest checkpoint where there is one."""
    num_ranks = int(os.environ.get("WORLD_SIZE", "1"))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=num_ranks,
        strategy="ddp" if num_ranks > 1 else "auto",
        max_steps=num_steps,
        accumulate_grad_batches=2 // num_ranks,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ModelCheckpoint(out / "checkpoints", save_last=True, every_n_train_steps=4)],
    )
    module = Module(out)
    last = out / "checkpoints" / "last.ckpt"
    trainer.fit(module, ckpt_path=last if last.exists() else None)
    module.loader.close()
    module.monitor.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=12)
    words = parser.parse_args()
    main(words.out, words.steps)
