"""A script of Hugging Face Trainer that exists already, with one line added: `guard` puts every batch on record.

    python examples/guard_hf_trainer.py /tmp/guard-hf --steps 12
    dataguard inspect /tmp/guard-hf/run --step 7

A Trainer that resumes skips what it has trained on by making another loader of the guarded one's parts. That one would
be off the record, so it is refused, and `ignore_data_skip` is needed: the epoch begins anew, and the record says so.
Where it should go on in the middle of an epoch, hf_trainer.py shows how. Printed is what the Trainer logs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from texts import SEQ_LEN
from tiny import VOCABULARY, PythonText
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

from dataguard.torch import guard


def main(out: Path, num_steps: int) -> None:
    """Train to a step, from the newest checkpoint where there is one."""
    set_seed(17)
    size = {"n_positions": SEQ_LEN, "n_embd": 32, "n_layer": 1, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, bos_token_id=None, eos_token_id=None, **size))
    arguments = TrainingArguments(
        output_dir=str(out / "checkpoints"),
        max_steps=num_steps,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        logging_steps=1,
        save_steps=4,
        ignore_data_skip=True,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(model, arguments, train_dataset=PythonText())
    trainer.get_train_dataloader = lambda get=trainer.get_train_dataloader: guard(  # the one line
        get(), out / "run", accumulate=2, start_step=lambda: trainer.state.global_step, first_label=1
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(arguments.output_dir))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=12)
    words = parser.parse_args()
    main(words.out, words.steps)
