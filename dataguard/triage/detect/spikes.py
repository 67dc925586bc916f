"""What is said of a log, or of two: their events, and how often each rule would have alarmed on them?"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from dataguard.core.spikes import SpikeEvent
from dataguard.run.logs import TrainingLog
from dataguard.triage.detect.answers import (
    ComparedLogs,
    FoundSpike,
    LoggedSteps,
    ProfileRate,
    SmallestSpikes,
    SpikesAnswer,
    UnheardSpike,
)
from dataguard.triage.detect.changes import ChangePoint
from dataguard.triage.detect.compare import compare
from dataguard.triage.detect.detection import Detection, detect, judged_log
from dataguard.triage.detect.hearing import Hearing, Unheard
from dataguard.triage.detect.profiles import DEFAULT, PROFILES

__all__ = ["Examined", "compare_examined", "compare_logs", "examine", "spikes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """One log with all that was found in it."""

    log: TrainingLog
    """One row a step, ``loss``, ``grad_norm`` and ``lr`` by these names."""
    detection: Detection
    answer: SpikesAnswer


def spikes(log: TrainingLog, *, profile: str = DEFAULT, changes: Iterable[int | ChangePoint] = ()) -> SpikesAnswer:
    """The events of a log under a profile, and the alarm rate of every profile on it.

    Raises
    ------
    NotInRun
        The log holds no loss.
    UsageError
        There is no such profile.

    Examples
    --------
    >>> from dataguard.run.logs.log import LogRows
    >>> rows = LogRows()
    >>> for step in range(500):
    ...     rows.add(step, {"loss": 3.0 + 0.01 * (-1) ** step + (0.5 if step == 400 else 0.0)})
    >>> answer = spikes(rows.finish("a", "csv"))
    >>> [(each.event_class, each.start) for each in answer.events], answer.steps.logged
    ([('hard_batch', 400)], 500)
    >>> {each.profile: each.alarms for each in answer.profiles if each.alarms}
    {'default': 1, 'seed-3sigma': 1, 'seed-rise': 1, 'olmo-6sigma': 1}
    """
    return examine(log, profile=profile, changes=changes).answer


def examine(
    log: TrainingLog,
    *,
    profile: str = DEFAULT,
    changes: Iterable[int | ChangePoint] = (),
    begun: Collection[int] = (),
) -> Examined:
    """The same with the log and the detection that the answer was made of."""
    told = tuple(changes)
    detection = detect(log, profile=profile, changes=told, begun=begun)
    default = detection if profile == DEFAULT else detect(log, changes=told, begun=begun)
    judged = judged_log(log)
    steps, loss = judged.series("loss")
    rates = []
    for name, rule in PROFILES.items():
        alarms = len(default.events) if rule is None else int(rule(loss).sum())
        rates.append(ProfileRate(profile=name, alarms=alarms, per_1000=round(1000 * alarms / len(loss), 4)))
    answer = SpikesAnswer(
        log=log.source,
        steps=LoggedSteps(first=int(steps[0]), last=int(steps[-1]), logged=len(steps)),
        events=tuple(map(_found, detection.events)),
        profiles=tuple(rates),
        smallest_spike=_smallest(detection.hearing),
        unheard=() if detection.hearing is None else tuple(map(_unheard, detection.hearing.unheard())),
    )
    return Examined(log=judged, detection=detection, answer=answer)


def compare_logs(first: TrainingLog, second: TrainingLog, *, profile: str = DEFAULT) -> ComparedLogs:
    """Two logs, and whether what they share are hard batches of one data order.

    Raises
    ------
    NotInRun
        One of them holds no loss.
    """
    return compare_examined(examine(first, profile=profile), examine(second, profile=profile))


def compare_examined(first: Examined, second: Examined) -> ComparedLogs:
    """The same, of logs that were examined already."""
    comparison = compare(first.log, second.log, (first.detection, second.detection))
    return ComparedLogs(logs=(first.answer, second.answer), comparison=comparison)


def _smallest(hearing: Hearing | None) -> SmallestSpikes | None:
    typical, hardest = (None, None) if hearing is None else (hearing.typical(), hearing.hardest())
    if typical is None or hardest is None:
        return None
    return SmallestSpikes(typical_nats=typical, hardest_step=hardest[0], hardest_nats=hardest[1])


def _unheard(found: Unheard) -> UnheardSpike:
    return UnheardSpike(
        start=found.start,
        stop=found.stop,
        size_nats=found.size_nats,
        sigmas=found.sigmas,
        smallest_spike_nats=found.smallest_spike_nats,
    )


def _found(event: SpikeEvent) -> FoundSpike:
    return FoundSpike(
        event_class=event.event_class.value,
        start=event.start,
        stop=event.stop,
        peak=event.peak,
        size_nats=event.size_nats,
        sigmas=event.sigmas,
        aftermath_nats=event.aftermath_nats,
        grad_norm_ratio=event.grad_norm_ratio,
    )
