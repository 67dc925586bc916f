"""How does a delivered microbatch read in the index?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dataguard.core.microbatch import Microbatch
from dataguard.plan.slots import SlotStatus
from dataguard.run.judging import Answers
from dataguard.run.records import INDEX_RECORD

__all__ = ["index_records"]

_STATUS = np.array(SlotStatus.SUBSTITUTED, dtype=np.uint8)


def index_records(
    microbatch: Microbatch, *, events: NDArray[np.int64], answers: Answers | None = None
) -> NDArray[np.void]:
    """One index record a slot, in slot order; the microbatch's digest stands on the first.

    Parameters
    ----------
    events
        Journal event that withholds the planned row of each slot, 0 where none does; shape (n,).
    answers
        What the gate said of the slots; None in an attempt without a policy.
    """
    size = len(microbatch)
    substituted = microbatch.status == _STATUS
    records: NDArray[np.void] = np.zeros(size, dtype=INDEX_RECORD if answers is None else answers.record)
    records["step"] = microbatch.address.step
    records["batch"] = microbatch.batch
    records["microbatch"] = microbatch.address.microbatch
    records["slot"] = np.arange(microbatch.slots.start, microbatch.slots.stop)
    records["position"] = microbatch.positions
    records["source"] = microbatch.source
    records["shard"] = microbatch.shard
    records["row"] = microbatch.row
    records["status"] = microbatch.status
    records["delivered_shard"] = records["delivered_row"] = -1
    if substituted.any():
        records["delivered_shard"][substituted] = microbatch.delivered_shard[substituted]
        records["delivered_row"][substituted] = microbatch.delivered_row[substituted]
    records["length"] = microbatch.lengths
    records["digest"] = np.frombuffer(b"".join(digest[:8] for digest in microbatch.digests), dtype="V8")
    records["event"] = events
    records["microbatch_digest"][0] = np.void(microbatch.digest)
    if answers is not None:
        answers.write(records)
    return records
