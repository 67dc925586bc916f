"""What is the story without training, in seconds and without torch?

A damaged shard is found, a run is rehearsed, a step is looked at and rebuilt, a stretch is skipped and a shard
quarantined, the run is resumed with another world size, and everything is verified.
"""

from __future__ import annotations

import msgspec

from dataguard.cli.demo.damaged import DamagedCorpus
from dataguard.cli.demo.stage import NotAsTold, Stage

__all__ = ["tell_rehearsed"]

_SPIKE_STEP = 42
_LOOKED_AT_STEP = 17


def tell_rehearsed(stage: Stage, corpus: DamagedCorpus, seed: int) -> None:
    """Tell it in the stage's folder, where the corpus lies.

    Raises
    ------
    NotAsTold
        Something ended otherwise.
    """
    before, after = corpus.damaged_bytes
    stage.tell(f"In {stage.folder} there are now, taken from Python's own library,")
    stage.tell(f"  code/  {corpus.num_files:,} source files as JSON lines, compressed with zstd")
    stage.tell(f"  docs/  {corpus.num_strings:,} documentation strings as Parquet")
    stage.tell(f"and {corpus.damaged} was cut from {before:,} to {after:,} bytes, as a broken copy would be.\n")

    def run(*words: str, expected: int = 0, why: str = "") -> None:
        stage.run("dataguard", *words, expected=expected, why=why)

    step, spike = str(_LOOKED_AT_STEP), str(_SPIKE_STEP)
    why = "What data is there? The damaged shard is found and named; the rest goes on."
    run("manifest", "build", *corpus.sources, "-o", "M.parquet", expected=3, why=why)
    run("manifest", "show", "M.parquet")
    made_of = ["--seed", str(seed), "--global-batch", "16", "--world-size", "4", "--microbatch-size", "2"]
    why = "What will my run be fed? Four ranks walk the loader, without a trainer."
    run("rehearse", "M.parquet", "--run", "RUN", *made_of, "--steps", "60", why=why)
    run("inspect", "RUN", "--step", step, why=f"What was every rank fed at step {step}?")
    why = "Rebuild it from plan and shards, and compare every digest with what was recorded."
    run("replay", "RUN", "--step", step, "-o", "OUT", why=why)

    shard, row = _first_record(stage.ask("dataguard", "replay", "RUN", "--step", step))
    run("where", "RUN", f"{shard}:{row}", why=f"When was record {row} of {shard} trained on?")
    run("seen", "RUN", "--step", step, why=f"What is a checkpoint of step {step} made of?")

    why = f"Suppose the loss rose at step {spike}. Skip the steps around it, and withhold the shard."
    run("skip", "RUN", "40:45", "--reason", f"loss spike at step {spike}", why=why)
    run("quarantine", "RUN", shard, "--reason", f"odd text at step {spike}")
    why = "Rewind to step 35 and go on with two ranks: the stream stays where it is."
    run("rehearse", "--run", "RUN", "--from-step", "35", "--steps", "30", "--world-size", "2", why=why)
    why = f"Step {spike} now holds the batch that comes after the skipped ones ..."
    run("inspect", "RUN", "--step", spike, why=why)
    why = "... and is rebuilt as exactly as the one before the rewind:"
    run("replay", "RUN", "--step", spike, "-o", "OUT2", why=why)
    run("replay", "RUN", "--step", spike, "--attempt", "1", "-o", "OUT3")
    run("log", "RUN", why="What happened to this run?")
    run("verify", "RUN", why="Do journal, index, plan and data agree?")


def _first_record(replayed: bytes) -> tuple[str, int]:
    """Shard and row of the first sample of a replayed step."""
    for microbatch in msgspec.json.decode(replayed)["microbatches"]:
        for sample in microbatch["samples"]:
            if sample["shard"] is not None:
                return sample["shard"], sample["row"]
    raise NotAsTold("the replayed step holds no sample")
