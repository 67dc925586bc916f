"""Which shards should somebody look at, since rows of theirs could not be read?

Ranks write exceptions and never the journal. Whoever may write it (rank 0 when an attempt begins or ends, and the
command line) turns them into proposals: one a shard and attempt. A proposal has no effect until somebody acts on it.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from dataguard.run.begin import propose
from dataguard.run.events import Proposed
from dataguard.run.exceptions import read_exceptions
from dataguard.run.run import Run

__all__ = ["propose_unreadable"]


def propose_unreadable(run: Run) -> int:
    """Propose to quarantine every shard with unreadable rows, for each attempt once; how many proposals were new."""
    proposals = []
    tree = run.attempts()
    proposed = {
        (entry.event.attempt, entry.event.shard)
        for entry in run.read().entries
        if isinstance(entry.event, Proposed)
    }
    for number in tree.numbers:
        exceptions = read_exceptions(run.layout, number, range(tree.attempt(number).geometry.world_size))
        if not exceptions:
            continue
        stream = run.stream_of(number)
        shards = stream.samples(np.array(sorted(exceptions), dtype=np.int64)).shard
        for shard, count in sorted(Counter(shards.tolist()).items()):
            name = stream.manifest_set.shard_name(shard)
            if (number, name) in proposed:
                continue
            rows = "row" if count == 1 else "rows"
            proposals.append(
                Proposed(
                    proposal="quarantine",
                    attempt=number,
                    shard=name,
                    reason=f"{count:,} {rows} could not be read in attempt {number}",
                )
            )
    return len(propose(run, proposals))
