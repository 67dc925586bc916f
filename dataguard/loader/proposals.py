"""Which shards should somebody look at, since rows of theirs could not be read, or the gate says so?

Ranks write exceptions and records, and never the journal. Whoever may write it (rank 0 when an attempt begins or ends,
and the command line) turns them into proposals: one a shard, attempt and rule. A proposal has no effect until somebody
acts on it. Shards that rules of the policy propose are in `shard_proposals`; here lies what both share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from dataguard.errors import RunDamaged
from dataguard.loader.shard_proposals import apply_proposals, propose_shards
from dataguard.plan.slots import MAX_DRAWS, Exempted, next_substitute
from dataguard.plan.stream import Samples, Stream
from dataguard.run.begin import propose
from dataguard.run.events import Proposed
from dataguard.run.exceptions import read_exceptions
from dataguard.run.policies import fill_of
from dataguard.run.run import Run

__all__ = ["propose_met", "propose_unreadable"]

_MOST_ROWS = 256
"""Rows and positions that one proposal lists; of more only the number is told."""


def propose_met(run: Run, *, before_attempt: bool = False) -> int:
    """Propose whatever attempts met and could not decide; how many proposals were new.

    Of a named stream nothing is proposed: nothing amends it.

    With `before_attempt`, quarantine the shards of proposals that a policy wants applied at the next attempt.
    """
    if run.stream_identity is not None:
        return 0
    count = propose_unreadable(run) + propose_shards(run)
    if before_attempt:
        apply_proposals(run)
    return count


def propose_unreadable(run: Run) -> int:
    """Propose to quarantine every shard with unreadable rows, for each attempt once; how many proposals were new."""
    proposals = []
    tree = run.attempts()
    proposed = {
        (entry.event.attempt, entry.event.shard)
        for entry in run.read().entries
        if isinstance(entry.event, Proposed) and not entry.event.rule
    }
    for number in tree.numbers:
        try:
            exceptions = read_exceptions(run.layout, number, range(tree.attempt(number).geometry.world_size))
        except RunDamaged:
            continue  # verify tells it; what only advises must not keep a run from going on
        met: dict[str, tuple[set[int], set[int]]] = {}
        for name, row, position in _unreadable(run, number, exceptions) if exceptions else ():
            rows, positions = met.setdefault(name, (set(), set()))
            rows.add(row)
            positions.add(position)
        for name, (rows, positions) in sorted(met.items()):
            if (number, name) in proposed:
                continue
            few = len(positions) <= _MOST_ROWS
            proposals.append(
                Proposed(
                    proposal="quarantine",
                    attempt=number,
                    shard=name,
                    rows=tuple(sorted(rows)) if few else (),
                    positions=tuple(sorted(positions)) if few else (),
                    reason=f"{len(rows):,} {'row' if len(rows) == 1 else 'rows'} could not be read in attempt {number}",
                )
            )
    return len(propose(run, proposals))


def _unreadable(run: Run, attempt: int, exceptions: Mapping[int, Exempted]) -> Iterator[tuple[str, int, int]]:
    """(shard, row, position) of every row that was asked for and not had: planned ones, and draws that failed too."""
    stream, withheld = run.stream_of(attempt), run.withheld_of(attempt)
    substitutes = fill_of(run, attempt) == "substitute"
    samples = stream.samples(np.array(sorted(exceptions), dtype=np.int64))
    held = (withheld.mask(samples.shard, samples.row) > 0) | samples.removed
    for i, position in enumerate(samples.position.tolist()):
        if exceptions[position].failed:
            yield from _failed(stream, samples, i, exceptions[position].failed)
            continue
        if not held[i]:
            yield stream.manifest_set.shard_name(int(samples.shard[i])), int(samples.row[i]), position
        draw = -1
        while substitutes:
            found = next_substitute(
                stream,
                withheld,
                position=position,
                source=int(samples.source[i]),
                generation=int(samples.generation[i]),
                after_draw=draw,
            )
            if found is None or found.draw == exceptions[position].draw:
                break
            yield stream.manifest_set.shard_name(found.shard), found.row, position
            draw = found.draw


def _failed(stream: Stream, samples: Samples, i: int, failed: int) -> Iterator[tuple[str, int, int]]:
    """The rows that an exception of an attempt with a policy names one by one."""
    position = int(samples.position[i])
    if failed & 1:
        yield stream.manifest_set.shard_name(int(samples.shard[i])), int(samples.row[i]), position
    for draw in range(MAX_DRAWS):
        if failed >> (draw + 1) & 1:
            _, shard, row = stream.substitute(position, int(samples.source[i]), int(samples.generation[i]), draw)
            yield stream.manifest_set.shard_name(shard), row, position
