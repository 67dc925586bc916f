"""A loop of Hugging Face Accelerate on a GuardedLoader: `save_state` and `load_state` carry the loader's state.

    python examples/accelerate_loop.py /tmp/accelerate --steps 12
    accelerate launch --cpu --num_processes 2 examples/accelerate_loop.py /tmp/accelerate --steps 24
    dataguard verify /tmp/accelerate/run

The second command goes on with two ranks where the first one stopped. The loader is no DataLoader, so `prepare` leaves
it alone, and nothing is dispatched from rank 0: each rank reads its own part. Printed is each checkpoint.
"""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

import torch
from accelerate import Accelerator
from texts import SEQ_LEN, manifest_of_python
from tiny import ByteModel, sum_of_losses

from dataguard import Corpus, Geometry, Plan, Run
from dataguard.torch import ByteTransform, GuardedLoader


def main(out: Path, num_steps: int) -> None:
    """Train to a step, from the newest checkpoint where there is one."""
    accelerator = Accelerator(cpu=True)
    with accelerator.main_process_first():
        manifest = manifest_of_python(out)
    run = Run.open(out / "run", plan=Plan(Corpus.open(manifest), seed=17, global_batch=8))
    loader = GuardedLoader(
        run,
        geometry=Geometry(world_size=accelerator.num_processes, microbatch_size=4),
        rank=accelerator.process_index,
        transform=ByteTransform(SEQ_LEN),
    )
    model = ByteModel()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    accelerator.register_for_checkpointing(loader)
    checkpoints = out / "checkpoints"
    newest = max(checkpoints.glob("step-*"), default=None)
    if newest is not None:
        accelerator.load_state(newest)

    while loader.next_step < num_steps:
        microbatches = loader.take_step()
        num_tokens = torch.tensor(sum(microbatch.num_loss_tokens for microbatch in microbatches))
        # Wanted is the mean over the tokens of all ranks; where there are several, gradients become a mean over ranks.
        scale = accelerator.num_processes / accelerator.reduce(num_tokens).clamp(min=1)
        for microbatch in microbatches:
            last = microbatch is microbatches[-1]
            with contextlib.nullcontext() if last else accelerator.no_sync(model):
                loss = sum_of_losses(model(microbatch["input_ids"]), microbatch["labels"])
                accelerator.backward(loss * scale)
        optimizer.step()
        optimizer.zero_grad()
        if loader.next_step % 4 == 0:
            accelerator.save_state(checkpoints / "new")
            accelerator.wait_for_everyone()
            if accelerator.is_main_process:
                (checkpoints / "new").rename(checkpoints / f"step-{loader.next_step:06}")
            accelerator.print(f"{loader.next_step} steps are done")
    loader.close()
    accelerator.end_training()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=12)
    words = parser.parse_args()
    main(words.out, words.steps)
