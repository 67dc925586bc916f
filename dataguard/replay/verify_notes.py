"""Do the documents that notes of the journal name stand in the run directory, with the bytes they had?

Results of experiments and canary records lie in ``triage/`` under their digests. One that a note names and that is gone
or has changed leaves a decision without its reasons.
"""

from __future__ import annotations

from collections.abc import Sequence

from dataguard.errors import RunDamaged
from dataguard.replay.answers import Fault, VerifyCheck
from dataguard.run.events import CanaryCompared, ExperimentDone
from dataguard.run.journal import Entry
from dataguard.run.layout import Layout
from dataguard.run.notes import read_document

__all__ = ["note_checks"]


def note_checks(layout: Layout, entries: Sequence[Entry]) -> list[VerifyCheck]:
    """The documents of all notes; no check where no note names one."""
    faults: list[Fault] = []
    checked = 0
    for entry in entries:
        match entry.event:
            case ExperimentDone(results=digest):
                what = "experiment"
            case CanaryCompared(results=digest):
                what = "canary"
            case _:
                continue
        checked += 1
        try:
            read_document(layout, what, digest)
        except RunDamaged as error:
            faults.append(Fault(kind="damaged", message=f"event {entry.number}: {error.asked}"))
    return [VerifyCheck(name="notes", checked=checked, unit="documents", faults=tuple(faults))] if checked else []
