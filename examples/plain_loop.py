"""A training loop that exists already, with one line added: `guard` puts every batch on record and changes none.

    python examples/plain_loop.py /tmp/plain --steps 20
    dataguard inspect /tmp/plain/run --step 7

A batch holds what it held, in the same order; which rows that was, the record says.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from tiny import ByteModel, PythonText, sum_of_losses
from torch.utils.data import DataLoader

from dataguard.torch import guard


def main(out: Path, num_steps: int) -> None:
    """Train to a step."""
    torch.manual_seed(17)
    loader = DataLoader(PythonText(), batch_size=8, shuffle=True, num_workers=1)
    loader = guard(loader, out / "run")  # the one line
    model = ByteModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, batch in zip(range(num_steps), loader, strict=False):
        loss = sum_of_losses(model(batch["input_ids"]), batch["labels"]) / (batch["labels"] != -100).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.5f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=20)
    words = parser.parse_args()
    main(words.out, words.steps)
