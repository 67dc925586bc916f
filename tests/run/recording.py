"""Records for the tests of the record: made up, but shaped like a run's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataguard.core.digests import sample_digest
from dataguard.plan.slots import SlotStatus
from dataguard.run.frames import FramesHeader
from dataguard.run.headline import encode
from dataguard.run.layout import Layout
from dataguard.run.records import HEADLINE_PREFIX, INDEX_RECORD, SIGNAL_PREFIX, conformed, index_record, rounded
from dataguard.run.telemetry import TelemetryWriter
from dataguard.run.writer import RankWriter

RUN_ID = "run-of-the-tests"
DIGESTS = {"plan": "ab" * 32, "attempt": "cd" * 32}
HEAD = (3, "ef" * 32)


def microbatch(
    step: int, microbatch: int = 0, *, rank: int = 0, size: int = 4, num_microbatches: int = 1, num_ranks: int = 1
) -> NDArray[np.void]:
    """One microbatch; which of its samples is withheld or substituted follows from the position."""
    records: NDArray[np.void] = np.zeros(size, INDEX_RECORD)
    slot = (rank * num_microbatches + microbatch) * size + np.arange(size)
    position = step * num_ranks * num_microbatches * size + slot
    records["step"], records["batch"], records["microbatch"] = step, step + 2, microbatch
    records["slot"], records["position"] = slot, position
    records["source"], records["shard"], records["row"] = position % 3, position * 7919 % 50, position * 104_729 % 5_003
    records["delivered_shard"] = records["delivered_row"] = -1
    records["length"] = 100 + position * 31 % 997
    for i, at in enumerate(position.tolist()):
        digest = sample_digest(str(at).encode())
        records["digest"][i] = np.void(digest[:8])
        if i == 0:
            records["microbatch_digest"][i] = np.void(digest)
        if at % 37 == 5:
            records["status"][i], records["digest"][i] = SlotStatus.UNREADABLE, np.void(bytes(8))
            records["event"][i] = 4
        elif at % 37 == 9:
            records["status"][i] = SlotStatus.SUBSTITUTED
            records["delivered_shard"][i], records["delivered_row"][i] = 3, at
    return records


HEADLINE = ("length_outlier", "byte_entropy", "dup_5gram_char_fraction", "byte_periodic_repeats", "nontext_fraction")
SIGNALS = ("length_bytes", "length_outlier", "byte_entropy", "byte_periodic_repeats")
JUDGED_RECORD = index_record(HEADLINE, SIGNALS)


def judged_microbatch(step: int, number: int = 0, **geometry: int) -> NDArray[np.void]:
    """The same with signals: each third sample is flagged, and keeps them; so does each tenth."""
    records = conformed(microbatch(step, number, **geometry), JUDGED_RECORD)
    position = records["position"].astype(np.int64)
    for i, name in enumerate(HEADLINE):
        records[HEADLINE_PREFIX + name] = encode(name, position * (i + 1) % 17 / 4)
    records["verdict"] = position % 3 == 1
    records["rules"] = np.where(position % 3 == 1, np.uint64(1) << (position % 64).astype(np.uint64), np.uint64(0))
    kept = (position % 3 == 1) | (position % 10 == 0)
    for i, name in enumerate(SIGNALS):
        values = np.where(kept, rounded(position * 1.37 / (i + 1)), np.float32(np.nan))
        records[SIGNAL_PREFIX + name] = values
    return records


def header(**changes: Any) -> FramesHeader:
    """A header of an index file for microbatches of 4."""
    facts: dict[str, Any] = {
        "records_per_frame": 4,
        "run_id": RUN_ID,
        "attempt": 1,
        "rank": 0,
        "first_step": 0,
        "digests": DIGESTS,
        "journal_head": HEAD,
        "created": "2026-01-02T03:04:05Z",
    }
    return FramesHeader.of(**{"kind": "index", **facts, **changes})


def open_writer(root: Path, *, attempt: int = 1, rank: int = 0, **changes: Any) -> RankWriter:
    """A rank's writer with the facts all tests share; seals on the calling thread unless told otherwise."""
    facts: dict[str, Any] = {
        "run_id": RUN_ID,
        "first_step": 0,
        "microbatch_size": 4,
        "digests": DIGESTS,
        "head": HEAD,
        "clock": lambda: "2026-01-02T03:04:05Z",
        "background": False,
    }
    return RankWriter.open(Layout(root), attempt=attempt, rank=rank, **{**facts, **changes})


def open_telemetry_writer(root: Path, *, attempt: int = 1, rank: int = 0, **changes: Any) -> TelemetryWriter:
    """A writer of telemetry with the facts all tests share."""
    facts: dict[str, Any] = {
        "run_id": RUN_ID,
        "first_step": 0,
        "digests": DIGESTS,
        "head": HEAD,
        "created": "2026-01-02T03:04:05Z",
    }
    return TelemetryWriter.open(Layout(root), attempt=attempt, rank=rank, **{**facts, **changes})


def record_run(
    root: Path, *, num_ranks: int, steps: range, num_microbatches: int = 1, size: int = 4, **changes: Any
) -> NDArray[np.void]:
    """Record a whole attempt, rank by rank; what was recorded, in the order (step, rank, microbatch, slot)."""
    from dataguard.run.index import merge
    from dataguard.run.records import with_rank

    close = changes.pop("close", {})
    parts = []
    for rank in range(num_ranks):
        writer = open_writer(root, rank=rank, first_step=steps.start, microbatch_size=size, **changes)
        for step in steps:
            for number in range(num_microbatches):
                records = microbatch(
                    step, number, rank=rank, size=size, num_microbatches=num_microbatches, num_ranks=num_ranks
                )
                writer.append(records)
                parts.append(with_rank(records, rank))
        writer.close(**close)
    return merge(parts)
