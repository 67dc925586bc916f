"""Hugging Face Trainer on a GuardedLoader: a checkpoint holds the loader's state, and a resumed run goes on from it.

    python examples/hf_trainer.py /tmp/hf --steps 10
    torchrun --standalone --nproc-per-node 2 examples/hf_trainer.py /tmp/hf --steps 24
    dataguard verify /tmp/hf/run

The second command goes on with two ranks where the first one stopped, in the middle of an epoch of six steps.
Three things are asked of a Trainer: `get_train_dataloader` gives the loader as it is, `ignore_data_skip` leaves it to
the loader to go on, and a callback writes its state into each checkpoint. Printed is what the Trainer logs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from texts import SEQ_LEN, manifest_of_python
from tiny import VOCABULARY
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from dataguard import Corpus, Geometry, Plan, Run
from dataguard.torch import ByteTransform, GuardedLoader, Monitor


class GuardedTrainer(Trainer):
    """A Trainer of a loader that reads its own rank's part, with its own workers."""

    def __init__(self, *args, loader: GuardedLoader, **settings) -> None:
        super().__init__(*args, **settings)
        self.loader = loader

    def get_train_dataloader(self) -> GuardedLoader:
        """The loader itself: Accelerate must not prepare it, it is sharded already."""
        return self.loader

    def get_batch_samples(self, *args) -> tuple[list, torch.Tensor | None]:
        """The microbatches of a step; where all of it is withheld, its loss is 0 and not 0 / 0."""
        microbatches, num_tokens = super().get_batch_samples(*args)
        return microbatches, None if num_tokens is None else torch.as_tensor(num_tokens).clamp(min=1)


class OnRecord(TrainerCallback):
    """Telemetry to the run, and the state of the loader to every checkpoint."""

    def __init__(self, loader: GuardedLoader, monitor: Monitor) -> None:
        self.loader = loader
        self.monitor = monitor

    def on_log(self, args, state, control, logs=None, **more) -> None:
        """What the Trainer logs of a step, by its own count of steps (`first_label=1` of the plan)."""
        if "loss" in (logs or {}):
            self.monitor.log(
                state.global_step, loss=logs["loss"], grad_norm=logs["grad_norm"], lr=logs["learning_rate"]
            )

    def on_save(self, args, state, control, **more) -> None:
        """Where the run stands: the same on every rank, so the first one writes it."""
        if state.is_world_process_zero:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            (folder / "loader.json").write_text(json.dumps(self.loader.state_dict()))


def main(out: Path, num_steps: int) -> None:
    """Train to a step, from the newest checkpoint where there is one."""
    arguments = TrainingArguments(
        output_dir=str(out / "checkpoints"),
        max_steps=num_steps,
        lr_scheduler_type="constant",
        ignore_data_skip=True,
        logging_steps=1,
        save_steps=4,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    arguments.gradient_accumulation_steps = 2 // arguments.world_size
    with arguments.main_process_first():
        manifest = manifest_of_python(out)
    run = Run.open(out / "run", plan=Plan(Corpus.open(manifest), seed=17, global_batch=8, first_label=1))
    loader = GuardedLoader(
        run,
        geometry=Geometry(world_size=arguments.world_size, microbatch_size=4),
        rank=arguments.process_index,
        transform=ByteTransform(SEQ_LEN),
        steps_per_epoch=6,
    )
    size = {"n_positions": SEQ_LEN, "n_embd": 32, "n_layer": 1, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, bos_token_id=None, eos_token_id=None, **size))
    on_record = OnRecord(loader, Monitor(run, rank=arguments.process_index))
    trainer = GuardedTrainer(model, arguments, loader=loader, callbacks=[on_record])
    # A checkpoint without loader.json was cut short by a kill; the one before it is whole.
    whole = sorted((out / "checkpoints").glob("*/loader.json"), key=lambda path: int(path.parent.name.split("-")[1]))
    if whole:
        loader.load_state_dict(json.loads(whole[-1].read_text()))
    trainer.train(resume_from_checkpoint=str(whole[-1].parent) if whole else None)
    loader.close()
    on_record.monitor.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=12)
    words = parser.parse_args()
    main(words.out, words.steps)
