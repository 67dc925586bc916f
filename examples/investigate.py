"""A spike, investigated from Python: what was fed when it came, is that to blame, and what is to be done?

    python examples/investigate.py RUN                                  the most serious event of a run
    python examples/investigate.py RUN --step 121 --trainer train       ... at a step; tensors by `tokenize` of train.py
    python examples/investigate.py RUN --trainer train --experiment     ... replayed first, with its `load` and `loss`
    python examples/investigate.py RUN --attempt 1                      ... of the lineage of an attempt

RUN is any run with telemetry. Printed is a short story: the event, what stands out at it, the worst sample and when its
shard was read, the batch made again and compared bit for bit, the verdict with its reasons, and what to type.
`dataguard triage RUN` says it at length; here each line is a value of the API, for a notebook or for tools of your own.
Nothing is written into the run but what an experiment found.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

import polars as pl

from dataguard import Run
from dataguard.replay import Lookup, replay_step
from dataguard.report.tables import printable
from dataguard.torch import rebuild_tensors
from dataguard.torch.experiment import experiment
from dataguard.triage.localise import Localised, LocalisedSample
from dataguard.triage.triage import event_in_question, triage


def say(text: str) -> None:
    """Print, with what a terminal would act on spelled: names and texts are from data."""
    print(printable(text))


def text_of(run: Run, sample: LocalisedSample, attempt: int | None) -> str:
    """The beginning of what a sample held, as it was delivered."""
    _, rebuilt = replay_step(Lookup(run), sample.step, attempt=attempt, rank=sample.rank)
    microbatch = rebuilt[sample.microbatch].microbatch
    if microbatch.records is None:
        return "tokens, which have no text"
    return repr(microbatch.records[sample.slot - microbatch.slots.start][:60].decode(errors="replace"))


def steps_of_shard(run: Run, shard: str, attempt: int | None) -> list[int]:
    """Every step of a lineage whose batch was planned to hold a row of a shard: a query of the index."""
    index = run.index_frame(attempt=attempt, columns=["step", "shard"])
    return index.filter(pl.col("shard") == shard)["step"].unique().sort().to_list()


def tell_what_stands_out(run: Run, localised: Localised, attempt: int | None) -> None:
    """Signals, shards, and the worst sample."""
    say(f"data stand out: {localised.data}; ranks: {localised.pattern}")
    for signal in [each for each in localised.signals if each.stands_out][:3]:
        before = f"{signal.num_beyond_before} of {signal.num_samples_before} before"
        say(f"  {signal.signal} is {signal.side} in {signal.num_beyond} of {signal.num_samples} samples, in {before}")
    for shard in localised.shards[:3]:
        say(f"  {shard.name}: {shard.num_samples} samples, {shard.num_outlying} stand out")
    for worst in localised.samples[:1]:
        say(f"the worst sample: step {worst.step}, rank {worst.rank}, slot {worst.slot} = {worst.shard}:{worst.row}")
        for why in worst.why:
            say(f"  {why}")
        say(f"  {text_of(run, worst, attempt)}")
        held = steps_of_shard(run, worst.shard, attempt)
        say(f"  its shard was read in {len(held)} steps, the first is {held[0]}, the last {held[-1]}")


def main(path: Path, step: int | None, attempt: int | None, trainer_name: str | None, *, replay: bool) -> None:
    """Tell the story."""
    run = Run.open(path)
    trainer = import_module(trainer_name) if trainer_name else None
    tokenize = trainer.tokenize if trainer else None
    event = event_in_question(run, step=step, attempt=attempt)
    if replay and event is not None:
        given = {"load": trainer.load, "loss": trainer.loss, "transform": tokenize}
        experiment(run, event.peak, attempt=attempt, event=event, **given)

    answer = triage(run, step=step, attempt=attempt, note=False)
    if event is not None:
        size = "" if event.size_nats is None else f", {event.size_nats:+.2f} nats"
        say(f"the event: {event.event_class} in steps {event.start}:{event.stop}, highest at {event.peak}{size}")
    if answer.localised is not None:
        tell_what_stands_out(run, answer.localised, attempt)
    if event is not None:
        again = rebuild_tensors(run, event.peak, attempt=attempt, transform=tokenize)
        digests = ", ".join(each.digest.hex()[:16] for each in again.microbatches)
        say(f"step {event.peak} made again: {again.answer.status} {digests}")
    for each in answer.experiments:
        say(f"the experiment of step {each.step}: {each.outcome}, {each.summary}")

    diagnosis = answer.diagnosis
    say(f"the verdict: {diagnosis.verdict}, {diagnosis.summary}")
    for hypothesis, score in sorted(diagnosis.scores.items(), key=lambda each: -each[1]):
        say(f"  {hypothesis} {score:+}")
        for sign, texts in {"for": diagnosis.for_, "against": diagnosis.against}.items():
            for text in texts.get(hypothesis, ()):
                say(f"    {sign}: {text}")
    if diagnosis.next_check is not None:
        say(f"the cheapest check to do next: {diagnosis.next_check.name}, {diagnosis.next_check.how}")
    for command in answer.response.commands:
        say(f"$ {command.text}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--step", type=int)
    parser.add_argument("--attempt", type=int, help="whose lineage; the newest where none is given")
    parser.add_argument("--trainer", metavar="MODULE", help="has `tokenize`, and for --experiment `load` and `loss`")
    parser.add_argument("--experiment", action="store_true")
    words = parser.parse_args()
    if words.experiment and words.trainer is None:
        parser.error("--experiment needs --trainer")
    main(words.run, words.step, words.attempt, words.trainer, replay=words.experiment)
