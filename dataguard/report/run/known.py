"""What is known of the events of a lineage, and what of it when something cannot be trusted?

`triage` says it all, and writes nothing here. Where it cannot answer, since manifests or the record are damaged, the
events of the curve are told without a verdict; of damaged telemetry both are drawn from what is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from dataguard.errors import RunDamaged
from dataguard.report.run.lineage import Lineage
from dataguard.run.clock import unix_seconds
from dataguard.triage.answers import EventShown, TriageAnswer
from dataguard.triage.choosing import chosen
from dataguard.triage.localise import Localised
from dataguard.triage.looked import look
from dataguard.triage.triage import shown, triage

__all__ = ["Known", "known_of", "or_nothing"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Events and verdict."""

    answer: TriageAnswer | None
    events: tuple[EventShown, ...]
    chosen: EventShown | None
    """The event in question."""

    @property
    def localised(self) -> Localised | None:
        """What stands out at it."""
        return None if self.answer is None else self.answer.localised

    @property
    def odd_ranks(self) -> list[int]:
        """Ranks that stand out at it, the worst first, then those of the samples that are named."""
        if self.localised is None:
            return []
        return [
            *(each.rank for each in self.localised.ranks if each.outlying or each.persistent),
            *(each.rank for each in self.localised.samples),
        ]


def known_of(lineage: Lineage, step: int | None, roots: Mapping[str, str] | None) -> Known:
    """Ask `triage`, as it would be asked of this step (a label); what it cannot answer is told as damage."""
    try:
        answer = triage(lineage.run, step=step, attempt=lineage.leaf, roots=roots, note=False)
    except RunDamaged as error:
        lineage.damage.append(f"no verdict: {_words(error)}")
    else:
        return Known(answer=answer, events=answer.events, chosen=answer.event)
    try:
        events = look(lineage.run, lineage.leaf, now_seconds=unix_seconds()).events
    except RunDamaged as error:
        lineage.damage.append(f"events are not known: {_words(error)}")
        events = ()
    event = chosen(events, step)
    return Known(answer=None, events=tuple(map(shown, events)), chosen=None if event is None else shown(event))


def or_nothing(lineage: Lineage, what: str, make: Callable[[], _T], nothing: _T) -> _T:
    """What is made, or nothing where the run is damaged; the damage says what is missing."""
    try:
        return make()
    except RunDamaged as error:
        lineage.damage.append(f"{what} cannot be told: {_words(error)}")
        return nothing


def _words(error: RunDamaged) -> str:
    return " ".join(str(error).split())
