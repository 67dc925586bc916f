"""A loop of Hugging Face Accelerate that exists already, with one line added: `guard` puts every batch on record.

    accelerate launch --cpu --num_processes 2 examples/guard_accelerate.py /tmp/guard-accelerate
    dataguard inspect /tmp/guard-accelerate/run --step 7

What Accelerate has prepared is guarded, so each rank's part of every batch is on record. Printed is the loss of each
step.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from tiny import ByteModel, PythonText, sum_of_losses
from torch.utils.data import DataLoader

from dataguard.torch import guard


def main(out: Path, num_steps: int) -> None:
    """Train for some steps."""
    accelerator = Accelerator(cpu=True)
    set_seed(17)
    model = ByteModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(PythonText(), batch_size=4, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    loader = guard(loader, out / "run")  # the one line: what Accelerate has prepared is guarded
    for step, batch in zip(range(num_steps), loader, strict=False):
        loss = sum_of_losses(model(batch["input_ids"]), batch["labels"]) / (batch["labels"] != -100).sum()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.print(f"step {step}: loss {loss.item():.5f}")
    accelerator.end_training()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=12)
    words = parser.parse_args()
    main(words.out, words.steps)
