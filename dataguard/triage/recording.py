"""How does the journal come to know what triage found and decided?

Two notes: the event (`SpikeFound`) and the verdict (`Diagnosed`), each written unless the newest of its kind says the
same of the same step. Looking twice leaves one trace.
"""

from __future__ import annotations

from dataguard.core.evidence import Evidence
from dataguard.core.spikes import SpikeEvent
from dataguard.run.events import Diagnosed, SpikeFound
from dataguard.run.notes import noted
from dataguard.run.noting import note_once
from dataguard.run.run import Run
from dataguard.triage.diagnose import Diagnosis
from dataguard.triage.diagnose.signs import FACTS

__all__ = ["record"]


def record(
    run: Run, attempt: int, event: SpikeEvent | None, evidence: Evidence, diagnosis: Diagnosis, *, by: str | None
) -> None:
    """Write both notes, where they are new."""
    if event is not None:
        note_once(
            run,
            SpikeFound(
                attempt=attempt,
                event_class=event.event_class,
                start=run.step(event.start),
                stop=run.step(event.stop - 1) + 1,
                peak=run.step(event.peak),
                size_nats=event.size_nats,
                sigmas=event.sigmas,
                aftermath_nats=event.aftermath_nats,
                grad_norm_ratio=event.grad_norm_ratio,
                signal=event.signal,
                rank=event.rank,
                detector="default",
            ),
            by=by,
        )
    decided = Diagnosed(
        attempt=attempt,
        step=None if event is None else run.step(event.peak),
        event_class=None if event is None else event.event_class,
        verdict=diagnosis.verdict,
        scores={name: float(score) for name, score in diagnosis.scores.items()},
        evidence={name: str(getattr(evidence, name)) for name in FACTS},
        summary=diagnosis.summary,
    )
    before = [
        each for _, each in noted(run.read().entries, Diagnosed) if (each.attempt, each.step) == (attempt, decided.step)
    ]
    if before[-1:] != [decided]:
        run.journal.append(decided, by=by)
