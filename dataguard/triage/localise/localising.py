"""Which ranks, microbatches, samples and shards does an event point at? The order in which it is looked for.

1. The steps: those of the event, from one before its onset (the loss of a step is of the model before its update, so a
   cause may lie earlier); held against the background are those up to its first step, and its peak: a cause lies no
   later than the loss that it makes.
2. Losses of samples and ranks from the telemetry (`losses`, `ranks`), signals of samples rebuilt or recorded
   (`contents`, `signals`), copies (`copies`), shards and sources (`shares`).
3. What stands out is said with the chance of it; `data` says yes where any of the families of comparisons does, each
   corrected for how many there were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dataguard.core.evidence import RankPattern, Told
from dataguard.core.spikes import SpikeEvent
from dataguard.replay.lookup import Lookup
from dataguard.run.run import Run
from dataguard.triage.localise.answers import Localised, LookedAt
from dataguard.triage.localise.searched import searched_steps

__all__ = ["FALSE_ALARMS", "localise"]

FALSE_ALARMS = 0.01
"""Chance that `Localised.data` may say yes of an event that no data made: one in a hundred such events, chosen before
anything was measured; a third of it goes to signals, to copies and to shards each."""


def localise(
    run: Run,
    event: SpikeEvent,
    *,
    attempt: int | None = None,
    events: Sequence[SpikeEvent] = (),
    roots: Mapping[str, str] | None = None,
    most: int = 20,
) -> Localised:
    """Which ranks, microbatches, samples, signals, shards and sources stand out at an event, worst first.

    Parameters
    ----------
    run, event
        What happened, steps in the trainer's labels.
    attempt
        The lineage of this attempt; by default the newest leaf's.
    events
        All events of that lineage: what else the shards were in when the loss misbehaved.
    roots
        Where sources lie now, where that is another place than the run remembers.
    most
        List so many of each.

    Raises
    ------
    NotInRun
        The run has no such attempt.
    """
    lookup = Lookup(run)
    leaf = lookup.chain(attempt)[-1].number
    searched = searched_steps(event, first_label=run.first_label)
    return Localised(
        attempt=leaf,
        looked_at=LookedAt(steps=searched.steps, tested=searched.tested),
        pattern=RankPattern.UNKNOWN,
        data=Told.UNKNOWN,
        false_alarms=FALSE_ALARMS,
        num_comparisons=0,
        notes=_left_out(events, roots, most),
    )


def _left_out(events: Sequence[SpikeEvent], roots: Mapping[str, str] | None, most: int) -> tuple[str, ...]:
    del events, roots, most
    return ("nothing was looked at",)
