"""What was delivered along the newest lineage of a run, as its index says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dataguard.plan.attempts import AttemptPlan
from dataguard.run.index import Index
from dataguard.run.run import Run

Sample = tuple[int, int, int, int, int, int, bytes]
"""Step, slot, position, shard, row, status, digest."""


def lineage(path: Path) -> tuple[AttemptPlan, ...]:
    """The attempts that lead to the newest, root first."""
    return Run.open(path).attempts().lineage()


def _records(path: Path) -> Iterator[np.void]:
    chain = lineage(path)
    ends = [attempt.fork_step for attempt in chain[1:]]
    for i, attempt in enumerate(chain):
        for records in Index(Run.open(path).layout).records(attempt.number, num_ranks=attempt.geometry.world_size):
            yield from (record for record in records if i == len(ends) or record["step"] < ends[i])


def delivered(path: Path) -> list[Sample]:
    """Every sample that is live, in order of step and slot."""
    fields = ("step", "slot", "position", "shard", "row", "status")
    return sorted(
        (*(int(record[name]) for name in fields), record["digest"].tobytes())  # type: ignore[misc]
        for record in _records(path)
    )


def tensors(path: Path) -> dict[tuple[int, int], bytes]:
    """The digest of each live microbatch, by its step and first slot."""
    return {
        (int(record["step"]), int(record["slot"])): record["microbatch_digest"].tobytes()
        for record in _records(path)
        if any(record["microbatch_digest"].tobytes())
    }
