"""What can be looked up where the order of a run is given from outside?

The plan of such a run knows steps, positions and slots, and not which row stood where (`dataguard.plan.given`). So
places of a row are found in the index alone, and of a record only its structure can be held against the plan: that it
names the one source and shard there is, a row that exists, and a fate that somebody who moves nothing can give.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dataguard.errors import UsageError
from dataguard.plan.attempts import AttemptPlan
from dataguard.plan.given import SOURCE, row_kind
from dataguard.plan.plan import Plan
from dataguard.plan.slots import PADDING, SlotStatus
from dataguard.plan.stream import Stream
from dataguard.replay.answers import Fault, Placed
from dataguard.replay.lookup import Lookup
from dataguard.run.run import Run

__all__ = ["given_faults", "given_places", "not_kept", "not_rebuilt", "refuse_rebuilding"]

_FATES = [int(status) for status in (SlotStatus.LIVE, SlotStatus.REFUSED, SlotStatus.ENDED)]
_PADDING = [int(status) for status in PADDING]


def not_rebuilt(plan: Plan) -> str:
    """Why no sample of such a run is rebuilt by who has the run alone."""
    if row_kind(plan) == "ordinals":
        return "samples were not rebuilt: batches came without indices, so what of them the store has is all there is"
    return (
        "samples were not rebuilt: the order of this run is given from outside, and only Python with the data set can: "
        "dataguard.torch.guard(dataloader, RUN).replay(step)"
    )


def not_kept(stream: Stream) -> str:
    """Why a microbatch that the store does not have is not to be had."""
    if stream.manifest_set.shard_name(0) == f"{SOURCE}/ordinals":
        return "the store does not have it, and nothing can make a batch again that came without indices"
    return "the store does not have it, and only Python with the data set can make it again"


def refuse_rebuilding(run: Run) -> None:
    """UsageError where nothing can be rebuilt from plan and shards, since the order was given from outside."""
    if run.plan_document().root.form != "given":
        return
    found = "its batches came from a loader of the trainer's own, watched by dataguard.torch.guard()"
    todo = "what was recorded shows: dataguard inspect RUN --step N"
    if row_kind(run.plan) == "ordinals":
        found += ", without indices, and the store has nothing of this step"
        todo += "; guard(..., store='all') keeps batches themselves"
    else:
        todo = f"in Python, with the data set: guard(dataloader, RUN).replay(step); {todo}"
    raise UsageError("this run cannot be rebuilt here, so nothing was checked", found=found, todo=todo)


def given_faults(lookup: Lookup, attempt: AttemptPlan, records: NDArray[np.void], most: int) -> list[Fault]:
    """Records that a watched loader cannot have left: at most `most`."""
    stream = lookup.run.stream_of(attempt.number)
    steps = lookup.run.steps_of(attempt.number)
    shards = stream.manifest_set
    num_rows = np.array([shard.num_rows for manifest in shards.manifests for shard in manifest.shards], np.int64)
    shard = np.minimum(records["shard"].astype(np.int64), shards.num_shards - 1)
    wrong_shard = (records["shard"] >= shards.num_shards) | (records["source"] != 0)
    wrong_row = records["row"].astype(np.int64) >= num_rows[shard]
    wrong_fate = ~np.isin(records["status"], _FATES) | (records["delivered_shard"] >= 0) | (records["event"] != 0)
    starts = {step: steps.start_of(step) for step in np.unique(records["step"]).tolist()}
    first = np.array([starts[step] for step in records["step"].tolist()], np.int64)
    wrong_slot = records["position"].astype(np.int64) - first != records["slot"].astype(np.int64)
    told = (
        (wrong_shard, "names a source or shard that is not there"),
        (wrong_row, "names a row that is not there"),
        (wrong_fate, "was withheld, skipped or replaced, which a watched loader never is"),
        (wrong_slot, "stands in another slot than its position has"),
    )
    faults = []
    for i in np.flatnonzero(wrong_shard | wrong_row | wrong_fate | wrong_slot)[:most].tolist():
        record = records[i]
        what = "; ".join(text for wrong, text in told if wrong[i])
        faults.append(
            Fault(
                kind="plan",
                message=f"attempt {attempt.number}, step {lookup.run.label(int(record['step'])):,}, "
                f"position {int(record['position']):,} {what}",
            )
        )
    return faults


def given_places(lookup: Lookup, attempt: AttemptPlan, leaf: int, shard: int, row: int) -> Iterator[Placed]:
    """Every delivery of a row in an attempt, in the order of its record.

    ``epoch`` counts the deliveries of the row in that attempt before this one: whoever gives the order counts epochs.
    """
    run, number = lookup.run, attempt.number
    damage: list[str] = []
    found = [
        part[(part["shard"] == shard) & (part["row"] == row) & ~np.isin(part["status"], _PADDING)]
        for part in lookup.index.records(number, num_ranks=attempt.geometry.world_size, torn=[], damage=damage)
    ]
    steps = run.steps_of(number)
    mine = [record for part in found for record in part]
    mine.sort(key=lambda record: int(record["position"]))
    for epoch, record in enumerate(mine):
        step = int(record["step"])
        yield Placed(
            label=lookup.tree.label(number, step, lookup.complete, leaf),
            attempt=number,
            step=run.label(step),
            batch=run.label(steps.batch_index(int(record["position"]))),
            rank=int(record["rank"]),
            microbatch=int(record["microbatch"]),
            slot=int(record["slot"]),
            position=int(record["position"]),
            epoch=epoch,
            status=SlotStatus(int(record["status"])).name.lower(),
        )
