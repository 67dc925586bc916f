"""Which facts does a verdict follow from, at this event of this run?

Each fact comes from one place, and says with which numbers; what nobody looked at stays unknown. Experiments and
canaries are asked of the journal: of several experiments on an event the newest that says anything counts, of canaries
the newest comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dataguard.core.evidence import Evidence, RankPattern, Replay, Told
from dataguard.core.spikes import SpikeEvent
from dataguard.run.events import CanaryCompared, ExperimentDone
from dataguard.run.journal import Entry
from dataguard.run.notes import noted
from dataguard.triage.choosing import reaches
from dataguard.triage.evidence import finite_of, optimizer_signs, planned_change
from dataguard.triage.evidence.lines import MachineLogs
from dataguard.triage.evidence.matching import match
from dataguard.triage.grad_norm import grad_norm_of
from dataguard.triage.localise import Localised
from dataguard.triage.looked import Looked, rows_around
from dataguard.triage.mitigation import mitigation_of
from dataguard.triage.respond import Sign

__all__ = ["Gathered", "canaries_of", "experiments_of", "gather"]

_DECISIVE = frozenset(Replay) - {Replay.NOT_RUN, Replay.INCONCLUSIVE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The evidence, and what it was drawn from."""

    evidence: Evidence
    experiments: tuple[tuple[Entry, ExperimentDone], ...]
    canaries: tuple[tuple[Entry, CanaryCompared], ...]
    signs: dict[Sign, str]
    """What an experiment says of the configuration, in the words of the response."""
    odd_rank: int | None
    """The one rank that stands out, where there is one."""
    odd_hosts: tuple[str, ...]
    """Machines that a canary or that rank points to."""


def gather(
    looked: Looked, event: SpikeEvent | None, localised: Localised | None, machine_logs: MachineLogs | None
) -> Gathered:
    """Put together what is known about an event, or about a run without one."""
    experiments = experiments_of(looked, event)
    canaries = canaries_of(looked)
    texts: dict[str, tuple[str, ...]] = {}
    evidence = Evidence(event=None if event is None else event.event_class)

    if event is not None:
        rows = rows_around(looked, event)
        label = looked.run.first_label
        world_size = None if looked.leaf is None else looked.run.begun(looked.leaf, looked.read).world_size
        finite, nonfinite_rank, texts["finite"] = finite_of(rows, event, first_label=label, world_size=world_size)
        evidence = replace(evidence, finite=finite)
        if looked.curve is not None:
            grad_norm, texts["grad_norm"] = grad_norm_of(looked.curve, rows, event, looked.events, first_label=label)
            evidence = replace(evidence, grad_norm=grad_norm)
    else:
        nonfinite_rank = None
    planned, texts["planned_change"] = planned_change(
        looked.run if looked.leaf is not None else None, event, looked.facts, looked.detection, attempt=looked.leaf
    )
    evidence = replace(evidence, planned_change=planned)
    if event is not None and looked.traces is not None:
        signs, texts["optimizer"] = optimizer_signs(looked.traces, event, looked.events, looked.facts)
        evidence = replace(evidence, optimizer=signs)
    if localised is not None:
        # Their first words say what they are about; what stands out in detail is listed with the places.
        texts["ranks"] = tuple(text for text in localised.texts if text.startswith("rank"))
        texts["data"] = tuple(text for text in localised.texts if text.startswith("data:"))
        evidence = replace(evidence, ranks=localised.pattern, data=localised.data)
    if experiments:
        decisive = [each for each in experiments if each[1].outcome in _DECISIVE]
        _, newest = (decisive or experiments)[-1]
        typed = [each for _, each in experiments if each.number_type is not Told.UNKNOWN]
        texts["replay"] = (newest.summary,)
        texts["number_type"] = (typed[-1].summary,) if typed else ()
        evidence = replace(
            evidence, replay=newest.outcome, number_type=typed[-1].number_type if typed else Told.UNKNOWN
        )
    if canaries:
        _, compared = canaries[-1]
        texts["canary"] = (compared.summary,)
        evidence = replace(evidence, canary=compared.differs)
    odd_rank = _odd_rank(event, localised, nonfinite_rank)
    hosts = _odd_hosts(looked, canaries, odd_rank)
    if machine_logs is not None:
        start, stop = _window(looked, event)
        found, texts["hardware_log"] = match(machine_logs, start_time=start, stop_time=stop, hosts=hosts)
        evidence = replace(evidence, hardware_log=found)
    if event is not None and looked.leaf is not None:
        mitigated, texts["mitigation"] = mitigation_of(looked.run, looked.read, looked.leaf, event)
        evidence = replace(evidence, mitigation=mitigated)
    return Gathered(
        evidence=replace(evidence, texts={name: said for name, said in texts.items() if said}),
        experiments=experiments,
        canaries=canaries,
        signs={Sign.NUMBER_TYPE: texts["number_type"][0]} if evidence.number_type is Told.YES else {},
        odd_rank=odd_rank,
        odd_hosts=hosts,
    )


def experiments_of(looked: Looked, event: SpikeEvent | None) -> tuple[tuple[Entry, ExperimentDone], ...]:
    """Experiments on steps of the event that stand in the journal, of attempts on this lineage, oldest first."""
    if event is None:
        return ()
    mine = _lineage(looked)
    return tuple(
        (entry, each)
        for entry, each in noted(looked.read.entries, ExperimentDone)
        if each.attempt in mine and reaches(event, looked.run.label(each.step))
    )


def canaries_of(looked: Looked) -> tuple[tuple[Entry, CanaryCompared], ...]:
    """Comparisons of canaries that stand in the journal, of this lineage or of no attempt, oldest first."""
    mine = _lineage(looked)
    return tuple(
        (entry, each)
        for entry, each in noted(looked.read.entries, CanaryCompared)
        if each.attempt is None or each.attempt in mine
    )


def _lineage(looked: Looked) -> set[int]:
    if looked.leaf is None:
        return set()
    return {each.number for each in looked.run.attempts(looked.read).lineage(looked.leaf)}


def _odd_rank(event: SpikeEvent | None, localised: Localised | None, nonfinite_rank: int | None) -> int | None:
    """The one rank that NaN stood on, that fell silent, or that stands out alone."""
    if nonfinite_rank is not None:
        return nonfinite_rank
    if event is not None and event.rank is not None:
        return event.rank
    if localised is not None and localised.pattern in (RankPattern.ONE_RANK, RankPattern.PERSISTENT):
        return next((each.rank for each in localised.ranks if each.outlying), None)
    return None


def _odd_hosts(
    looked: Looked, canaries: Sequence[tuple[Entry, CanaryCompared]], odd_rank: int | None
) -> tuple[str, ...]:
    """Machines that the newest canary or the odd rank points to."""
    hosts = [place.partition("/")[0] for _, each in canaries[-1:] if each.differs is Told.YES for place in each.odd]
    if odd_rank is not None and odd_rank in looked.hosts:
        hosts.append(looked.hosts[odd_rank])
    return tuple(dict.fromkeys(hosts))


def _window(looked: Looked, event: SpikeEvent | None) -> tuple[float | None, float | None]:
    """Unix seconds of the event: from the row before its onset to the row after its end, as far as they have times."""
    curve = looked.curve
    if curve is None or event is None:
        return None, None
    begin = event.start if event.onset is None else min(event.onset, event.start)
    before = curve.times[(curve.steps < begin) & ~np.isnan(curve.times)]
    after = curve.times[(curve.steps >= event.stop) & ~np.isnan(curve.times)]
    inside = curve.times[(curve.steps >= begin) & (curve.steps < event.stop) & ~np.isnan(curve.times)]
    start = before[-1] if len(before) else inside[0] if len(inside) else None
    stop = after[0] if len(after) else inside[-1] if len(inside) else None
    if looked.silence is not None and event is looked.silence.event:
        stop = looked.silence.last_seconds + looked.silence.silent_seconds
    return (None if start is None else float(start)), (None if stop is None else float(stop))
