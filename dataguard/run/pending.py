"""What would the next attempt skip and withhold, given everything that stands in the journal?

1. An event is revoked when an unrevoked event after it says so. A revocation can be revoked like any other amendment,
   which brings back what it had taken away; so the question is settled from the newest event backwards.
2. Skips that are not revoked apply, all of them; they are merged where they are used.
3. Quarantines and releases that are not revoked apply in their order. A released shard takes its quarantined rows with
   it; a released row of a shard that is quarantined as a whole stays withheld with the shard.

Everything here depends on the order of events alone: the same events give the same answer to every reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dataguard.plan.attempts import Skip
from dataguard.plan.withheld import Withheld
from dataguard.run.events import Quarantined, Released, Revoked, RunCreated, SkipAdded
from dataguard.run.journal import Entry
from dataguard.run.withhold import Target

__all__ = ["Pending", "fold", "revoked_events", "withholding_event"]

AT_CREATION = "withheld since the run was created"
"""The reason of rows that a run withholds from its first attempt on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """What an attempt that began now would skip and withhold."""

    skips: tuple[Skip, ...] = ()
    """By position, then event; they may overlap."""
    withheld: tuple[Withheld, ...] = ()
    """By shard and row, the whole shard before its rows; each row once, by its earliest event."""
    revoked: frozenset[int] = frozenset()
    """Events that no longer apply."""


def revoked_events(entries: Iterable[Entry]) -> frozenset[int]:
    """Numbers of all events that an unrevoked later event revokes."""
    revoked: set[int] = set()
    for entry in sorted(entries, key=lambda entry: entry.number, reverse=True):
        event = entry.event
        if isinstance(event, Revoked) and event.event < entry.number and entry.number not in revoked:
            revoked.add(event.event)
    return frozenset(revoked)


def fold(entries: Sequence[Entry], read_list: Callable[[str], Iterable[Target]]) -> Pending:
    """What stands after all of these events.

    Parameters
    ----------
    entries
        Events by rising number.
    read_list
        Gives the shards and rows of a list by its digest.
    """
    revoked = revoked_events(entries)
    skips: list[Skip] = []
    held: dict[Target, Withheld] = {}
    for entry in entries:
        event, number = entry.event, entry.number
        if number in revoked:
            continue
        if isinstance(event, SkipAdded):
            skips.append(Skip(start=event.start, stop=event.stop, event=number, reason=event.reason))
        elif isinstance(event, RunCreated) and event.withheld is not None:
            _hold(held, read_list(event.withheld), number, AT_CREATION)
        elif isinstance(event, Quarantined):
            targets = read_list(event.withheld) if event.withheld else [(event.shard or "", event.row)]
            _hold(held, targets, number, event.reason)
        elif isinstance(event, Released) and event.row is not None:
            held.pop((event.shard, event.row), None)
        elif isinstance(event, Released):
            for target in [target for target in held if target[0] == event.shard]:
                del held[target]
    return Pending(
        skips=tuple(sorted(skips, key=lambda skip: (skip.start, skip.stop, skip.event))),
        withheld=tuple(held[target] for target in sorted(held, key=_order)),
        revoked=revoked,
    )


def withholding_event(pending: Pending, shard: str, row: int | None) -> Withheld | None:
    """What withholds exactly this shard (row None) or exactly this one row by itself; None where nothing does."""
    return next((entry for entry in pending.withheld if entry.shard == shard and entry.row == row), None)


def _hold(held: dict[Target, Withheld], targets: Iterable[Target], number: int, reason: str) -> None:
    for shard, row in targets:
        held.setdefault((shard, row), Withheld(shard=shard, row=row, event=number, reason=reason))


def _order(target: Target) -> tuple[bytes, int]:
    return target[0].encode(), -1 if target[1] is None else target[1]
