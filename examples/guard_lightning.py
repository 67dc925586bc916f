"""A script of Lightning that exists already, with one line added: `guard` puts every batch on record.

    python examples/guard_lightning.py /tmp/guard-lightning --steps 12
    dataguard inspect /tmp/guard-lightning/run --step 7

The loader is torchdata's, which has a state: with Lightning's checkpoints goes that of the record, and a run that was
killed goes on, on record, where the checkpoint stands. Printed is the loss of each batch; two of them are a step.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from tiny import ByteModel, PythonText, sum_of_losses
from torch import Tensor
from torchdata.stateful_dataloader import StatefulDataLoader

from dataguard.torch import guard


class Module(lightning.LightningModule):
    """A byte model."""

    def __init__(self) -> None:
        super().__init__()
        self.model = ByteModel()

    def training_step(self, batch: dict[str, Tensor], index: int) -> Tensor:
        """The mean loss of a batch."""
        loss = sum_of_losses(self.model(batch["input_ids"]), batch["labels"]) / (batch["labels"] != -100).sum()
        self.print(f"batch {index}: loss {loss.item():.5f}")
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main(out: Path, num_steps: int) -> None:
    """Train to a step, from the newest checkpoint where there is one."""
    lightning.seed_everything(17, verbose=False)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=num_steps,
        accumulate_grad_batches=2,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ModelCheckpoint(out / "checkpoints", save_last=True, every_n_train_steps=4)],
    )
    loader = StatefulDataLoader(PythonText(), batch_size=4, shuffle=True)
    loader = guard(loader, out / "run", accumulate=2)  # the one line
    last = out / "checkpoints" / "last.ckpt"
    trainer.fit(Module(), loader, ckpt_path=last if last.exists() else None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=12)
    words = parser.parse_args()
    main(words.out, words.steps)
