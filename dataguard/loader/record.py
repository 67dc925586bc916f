"""How does a delivered microbatch read in the index?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dataguard.core.microbatch import Microbatch
from dataguard.loader.walk import Planned
from dataguard.plan.slots import SlotStatus
from dataguard.run.records import INDEX_RECORD

__all__ = ["index_records"]

_STATUS = np.array(SlotStatus.SUBSTITUTED, dtype=np.uint8)


def index_records(microbatch: Microbatch, planned: Planned) -> NDArray[np.void]:
    """One INDEX_RECORD a slot, in slot order; the microbatch's digest stands on the first."""
    size = len(microbatch)
    substituted = microbatch.status == _STATUS
    records = np.zeros(size, dtype=INDEX_RECORD)
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
    records["event"] = planned.slots.event
    records["microbatch_digest"][0] = np.void(microbatch.digest)
    return records
