"""Which shards and rows should be withheld, and which are already?

What the event's own samples give is handed in as `Suspect`; what ranks and the gate proposed stands in the journal. A
proposal counts until somebody has decided: quarantined what it names, or released it later than it was proposed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dataguard.run.events import Proposed, Quarantined, Released
from dataguard.run.journal import Entry
from dataguard.run.pending import Pending
from dataguard.run.run import Run
from dataguard.run.targets import known_targets
from dataguard.triage.respond.answers import QuarantineAdvice

__all__ = ["Suspect", "open_proposals", "quarantine_advice", "withheld_by"]

_MOST_ROWS = 8
"""Rows of one proposal that are withheld one by one; where more could not be read, the shard is what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A shard, or one row of it, that this event points to."""

    shard: str
    row: int | None = None
    reason: str
    evidence: str | None = None
    """What shows it, with its numbers."""


def quarantine_advice(
    run: Run, suspects: Iterable[Suspect], entries: Sequence[Entry], pending: Pending
) -> tuple[QuarantineAdvice, ...]:
    """What to withhold: suspects in their order, then what is proposed; each once.

    Raises
    ------
    NotInRun
        A suspect that no manifest of the run has.
    """
    advice: list[QuarantineAdvice] = []
    asked = [
        *((suspect, "event") for suspect in suspects),
        *((suspect, "proposal") for suspect in open_proposals(entries, pending)),
    ]
    for suspect, origin in asked:
        [(shard, row)] = known_targets(run, [(suspect.shard, suspect.row)])
        if any(each.shard == shard and each.row in (None, row) for each in advice):
            continue
        advice.append(
            QuarantineAdvice(
                shard=shard,
                row=row,
                reason=suspect.reason,
                evidence=suspect.evidence,
                origin="event" if origin == "event" else "proposal",
                by_event=withheld_by(pending, shard, row),
            )
        )
    return tuple(advice)


def withheld_by(pending: Pending, shard: str, row: int | None) -> int | None:
    """The event that withholds a shard, or a row alone or with its shard; None where nothing does."""
    for entry in pending.withheld:
        if entry.shard == shard and entry.row in (None, row):
            return entry.event
    return None


def open_proposals(entries: Sequence[Entry], pending: Pending) -> Iterator[Suspect]:
    """What was proposed to be quarantined, and nobody has decided on since."""
    for entry in entries:
        event = entry.event
        if not isinstance(event, Proposed) or event.proposal != "quarantine" or event.shard is None:
            continue
        rows: tuple[int | None, ...] = event.rows if 0 < len(event.rows) <= _MOST_ROWS else (None,)
        for row in rows:
            if withheld_by(pending, event.shard, row) is None and not _decided(
                entries, pending, entry.number, event.shard, row
            ):
                yield Suspect(
                    shard=event.shard, row=row, reason=event.reason, evidence=f"proposal of event {entry.number}"
                )


def _decided(entries: Sequence[Entry], pending: Pending, since: int, shard: str, row: int | None) -> bool:
    """Whether somebody released it, or took its quarantine back, after it was proposed."""
    for entry in entries:
        event = entry.event
        if entry.number <= since or not isinstance(event, Quarantined | Released) or event.shard != shard:
            continue
        concerns = event.row is None or event.row == row
        taken_back = isinstance(event, Quarantined) and entry.number in pending.revoked
        released = isinstance(event, Released) and entry.number not in pending.revoked
        if concerns and (taken_back or released):
            return True
    return False
