"""A shard of one repeated token sequence, read by one of two ranks."""

from __future__ import annotations

import random

from dataguard.core.evidence import Verdict
from dataguard.core.spikes import EventClass
from tests.incidents.incident import Incident, Played, Segment, clean
from tests.incidents.places import rank_named, shard_named
from tests.incidents.stage import BATCH, Settings

_BEFORE, _AFTER = 104, 40
_HALF = BATCH // 2


def _segments(generator: random.Random) -> list[Segment]:
    """Lane 0 reads the first half of the records, lane 1 the second: the shard lies in the second."""
    unit = bytes(generator.choice(range(33, 127)) for _ in range(4)).decode()
    records = [unit * 16] * 16
    steps = _BEFORE + len(records) // _HALF + _AFTER
    return [
        clean(generator, steps, batch=_HALF),
        clean(generator, _BEFORE, batch=_HALF),
        Segment(records, "repeated"),
        clean(generator, _AFTER, batch=_HALF),
    ]


def _place(played: Played) -> tuple[str, bool]:
    shard, is_shard = shard_named("repeated")(played)
    rank, is_rank = rank_named(1)(played)
    return f"{shard}, {rank}", is_shard and is_rank


INCIDENT = Incident(
    name="repeated_sequence",
    segments=_segments,
    settings=lambda seed: Settings(num_steps=_BEFORE + 4 + _AFTER - 2, world_size=2, lanes=2, watch_every=4, clip=None),
    classes=frozenset({EventClass.TRANSIENT_SPIKE, EventClass.LOSS_DIP}),
    verdicts=frozenset({Verdict.BAD_DATA}),
    place=_place,
    experiment=True,
)
