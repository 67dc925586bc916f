"""What does an amendment change for the attempts to come, said before it is written and after?

An `Amended` value is what `skip`, `quarantine`, `release` and `revoke` answer, dry or not. What changes is found by
folding the journal twice, without and with the event, so the answer is the same arithmetic that the next attempt uses.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from dataguard.core.spans import SpanSet
from dataguard.plan.attempts import Skip
from dataguard.run.pending import Pending

__all__ = ["Amended", "Place", "differences"]

_SHOWN = 20


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the stream holds a row next."""

    position: int
    step: int | None
    """In the trainer's labels, on the lineage named; null where the position is skipped."""
    batch: int
    """In the trainer's labels."""
    epoch: int


class Amended(msgspec.Struct, frozen=True, kw_only=True):
    """What was (or, dry, would be) written, and what it changes for attempts that begin after it."""

    kind: Literal["skip", "quarantine", "release", "revoke"]
    event: int | None
    """Number of the event; null where it was a dry run."""
    dry_run: bool
    reason: str
    attempt: int
    """The leaf of the lineage whose steps are named; 0 where no attempt has begun."""
    steps: tuple[int, int] | None = None
    """Half-open, in the trainer's labels; null where no step of the lineage holds the positions, or none are meant."""
    batches: tuple[int, int] | None = None
    """Half-open, in the trainer's labels."""
    positions: tuple[int, int] | None = None
    """Half-open."""
    shard: str | None = None
    row: int | None = None
    withheld: str | None = None
    """Digest of the list of rows."""
    revokes: int | None = None
    """The event that no longer applies."""
    num_samples: int = 0
    """Samples that the shards and rows named hold in one epoch."""
    places: tuple[Place, ...] = ()
    """Of a single row: where the stream holds it next, up to the end of the epoch that its source is in."""
    num_positions_skipped: int = 0
    """How many positions more (below 0: fewer) the next attempt skips than it would have, wherever it begins."""
    withheld_more: tuple[str, ...] = ()
    """Shards and rows that the next attempt withholds and would not have; the first 20."""
    num_withheld_more: int = 0
    withheld_less: tuple[str, ...] = ()
    """Shards and rows that it no longer withholds; the first 20."""
    num_withheld_less: int = 0
    notes: tuple[str, ...] = ()
    """What is worth knowing before the next attempt begins; one line each."""


def differences(before: Pending, after: Pending) -> dict[str, object]:
    """The fields of `Amended` that say what the next attempt does otherwise."""
    held_before = {(entry.shard, entry.row) for entry in before.withheld}
    held_after = {(entry.shard, entry.row) for entry in after.withheld}
    more = _named(held_after - held_before)
    less = _named(held_before - held_after)
    return {
        "num_positions_skipped": _merged(after.skips).num_inside - _merged(before.skips).num_inside,
        "withheld_more": more[:_SHOWN],
        "num_withheld_more": len(more),
        "withheld_less": less[:_SHOWN],
        "num_withheld_less": len(less),
    }


def _merged(skips: tuple[Skip, ...]) -> SpanSet:
    return SpanSet.of((skip.start, skip.stop) for skip in skips)


def _named(targets: set[tuple[str, int | None]]) -> tuple[str, ...]:
    ordered = sorted(targets, key=lambda target: (target[0].encode(), -1 if target[1] is None else target[1]))
    return tuple(shard if row is None else f"{shard}:{row}" for shard, row in ordered)
