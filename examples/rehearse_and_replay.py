"""From shards to a run on two ranks, and one of its steps rebuilt exactly. No framework, no trainer.

    python examples/rehearse_and_replay.py /tmp/example

The folder does not exist yet; everything is written there. Printed is each microbatch of a step as it was made again,
with its digest beside the one that was recorded, and every record with its address.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dataguard import Corpus, Geometry, Loader, Plan, Run
from dataguard.corpus import build_manifest_file
from dataguard.replay import Rebuilder

NUM_STEPS = 10
LOOKED_AT_STEP = 6


def write_shards(folder: Path) -> None:
    """Two small shards of made-up records, as JSON lines."""
    folder.mkdir(parents=True)
    for shard in range(2):
        records = [{"text": f"record {row} of shard {shard}"} for row in range(100)]
        (folder / f"part-{shard}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def main(folder: Path) -> None:
    """Write shards, build a manifest, walk a run as two ranks would, rebuild a step and compare."""
    write_shards(folder / "web")
    result, _ = build_manifest_file([f"web={folder / 'web'}"], folder / "M.parquet")
    print(f"manifest {result.manifest.digest[:16]} holds {int(result.manifest.num_deliverable.sum())} samples")

    corpus = Corpus.open(folder / "M.parquet")
    run = Run.open(folder / "run", plan=Plan(corpus, seed=17, global_batch=8))

    delivered: dict[str, bytes] = {}
    geometry = Geometry(world_size=2, microbatch_size=2)
    for rank in range(geometry.world_size):  # in training, each rank is a process of its own
        with Loader(run, geometry=geometry, rank=rank, steps=NUM_STEPS, launch_id="example") as loader:
            for microbatch in loader:
                delivered[str(microbatch.address)] = microbatch.digest
    print(f"{len(delivered)} microbatches were delivered and recorded")

    num_equal = 0
    for rebuilt in Rebuilder(run, attempt=1).step(LOOKED_AT_STEP):
        microbatch = rebuilt.microbatch
        equal = microbatch.digest == delivered[str(microbatch.address)]
        num_equal += equal
        print(f"{microbatch.address}: {microbatch.digest.hex()} {'exact' if equal else 'DIFFERS'}")
        for slot, name, row, record in zip(
            microbatch.slots, microbatch.names, microbatch.row, microbatch.records or (), strict=True
        ):
            print(f"  slot {slot}: {name}:{row} = {record.decode()!r}")
    print(f"{num_equal} microbatches of step {LOOKED_AT_STEP} are exact")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
