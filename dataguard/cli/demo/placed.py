"""Which order of the corpus brings the odd shard neither too early nor too late, and when does who read it?

The shard lies wherever a seed's order puts it. Before it, a run needs some past that tells what is ordinary; after it,
batches to compare with; and the demo is to be short. So orders are drawn one after the other, of seeds made of the one
that was given, until one brings all of the shard to one rank, at once, within `FIRST_STEPS`. Nothing is moved in any
order.
"""

from __future__ import annotations

from pathlib import Path

from dataguard.cli.demo.answers import DemoShard
from dataguard.errors import AnswerNo

__all__ = ["FIRST_STEPS", "GLOBAL_BATCH", "NUM_STEPS", "placed"]

GLOBAL_BATCH = 48
NUM_STEPS = 180
"""Of the run on two ranks; ``train.py`` has the same."""
FIRST_STEPS = range(121, 142)
"""The first step that holds a record of the shard is one of these: of a shorter past the noise is not known well."""
_AT_ONCE = 30
"""So many of its records come within two steps: a model gets used to what comes slowly, and nothing spikes."""
_LAST_STEP = 154
_LANES = 2
_MOST_ORDERS = 1000
"""About one order in fifty will do."""


def placed(manifest: Path, shard: str, num_records: int, *, poisoned: bool, seed: int) -> tuple[int, int, DemoShard]:
    """The first seed whose order will do, how many were drawn, and where the shard lies in it.

    Parameters
    ----------
    manifest
        Of the corpus; it lists `shard`, and all of its `num_records` records are delivered.

    Raises
    ------
    AnswerNo
        None of a thousand orders will do.
    """
    import numpy as np

    from dataguard import Corpus, Plan

    corpus = Corpus.open(manifest)
    sources = [source.name for source in corpus.manifest.sources]
    number = [f"{sources[each.source]}/{each.path}" for each in corpus.manifest.shards].index(shard)
    positions = np.arange(GLOBAL_BATCH * NUM_STEPS, dtype=np.int64)
    for place in range(_MOST_ORDERS):
        drawn = seed * _MOST_ORDERS + place
        plan = Plan(corpus, seed=drawn, global_batch=GLOBAL_BATCH, lanes=_LANES, window_blocks=1)
        held = positions[plan.stream().samples(positions).shard == number]
        if len(held) != num_records:
            continue
        first, last = int(held[0]) // GLOBAL_BATCH, int(held[-1]) // GLOBAL_BATCH
        ranks = np.unique(held % _LANES)
        is_sudden = np.count_nonzero(held < (first + 2) * GLOBAL_BATCH) >= _AT_ONCE
        if len(ranks) == 1 and first in FIRST_STEPS and last <= _LAST_STEP and is_sudden:
            found = DemoShard(
                shard=shard, num_records=num_records, poisoned=poisoned, rank=int(ranks[0]), start=first, stop=last + 1
            )
            return drawn, place + 1, found
    raise AnswerNo(f"none of {_MOST_ORDERS:,} orders has the shard where the demo wants it")
