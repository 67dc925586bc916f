"""Which facts does a verdict follow from, at this event of this run?

Each fact comes from one place, and says with which numbers; what nobody looked at stays unknown. Experiments and
canaries are asked of the journal: of several experiments on an event the newest that says anything counts, of canaries
the newest comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dataguard.core.evidence import Evidence, Finite, RankPattern, Replay, Told
from dataguard.core.spikes import SpikeEvent
from dataguard.run.events import CanaryCompared, ExperimentDone
from dataguard.run.journal import Entry
from dataguard.run.notes import noted
from dataguard.run.places import hosts_of
from dataguard.triage.choosing import reaches
from dataguard.triage.evidence import finite_of, planned_change
from dataguard.triage.evidence.lines import MachineLogs
from dataguard.triage.evidence.matching import match
from dataguard.triage.evidence.optimizer import OptimizerSign, SignKind, signs_found
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
    """What traces and an experiment say of the configuration, in the words of the response."""
    odd_rank: int | None
    """The one rank that stands out, where there is one."""
    odd_hosts: tuple[str, ...]
    """Machines that a canary or that rank points to."""
    world_size: int | None
    """Of the attempt that delivered the event's peak (without one: of the leaf); None where none has begun."""


def gather(
    looked: Looked,
    event: SpikeEvent | None,
    localised: Localised | None,
    machine_logs: MachineLogs | None,
    *,
    step: int | None = None,
) -> Gathered:
    """Put together what is known about an event, or, without one, about the step that was asked for and the run."""
    experiments = experiments_of(looked, event, step)
    canaries = canaries_of(looked)
    texts: dict[str, tuple[str, ...]] = {}
    evidence = Evidence(event=None if event is None else event.event_class)
    owner = _owner(looked, event)
    world_size = None if owner is None else looked.run.begun(owner, looked.read).world_size
    places = {} if owner is None else hosts_of(looked.run.layout, owner)

    if event is not None:
        rows, left_out = rows_around(looked, event)
        label = looked.run.first_label
        finite, nonfinite_rank, texts["finite"] = finite_of(rows, event, first_label=label, world_size=world_size)
        if finite is Finite.ONE_RANK and world_size == 1:
            # It would point to a device among others, and there are none.
            finite, nonfinite_rank = Finite.UNKNOWN, None
        texts["finite"] += () if left_out is None else (left_out,)
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
    signs: tuple[OptimizerSign, ...] = ()
    if event is not None and looked.traces is not None:
        told, signs, quiet = signs_found(looked.traces, event, looked.events, looked.facts)
        texts["optimizer"] = tuple(sign.text for sign in signs) or quiet
        evidence = replace(evidence, optimizer=told)
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
    hosts = _odd_hosts(places, canaries, odd_rank)
    if machine_logs is not None:
        start, stop = _window(looked, event)
        where = hosts or _only_host(places, world_size)
        devices = _devices_per_host(places, where)
        found, told_by_logs = match(
            machine_logs, start_time=start, stop_time=stop, hosts=where, devices_per_host=devices
        )
        texts["hardware_log"] = (*told_by_logs, *_of_devices(devices, told_by_logs))
        evidence = replace(evidence, hardware_log=found)
    if event is not None and looked.leaf is not None:
        mitigated, texts["mitigation"] = mitigation_of(looked.run, looked.read, looked.leaf, event)
        evidence = replace(evidence, mitigation=mitigated)
    return Gathered(
        evidence=replace(evidence, texts={name: said for name, said in texts.items() if said}),
        experiments=experiments,
        canaries=canaries,
        signs=_signs(signs, texts["number_type"][0] if evidence.number_type is Told.YES else None),
        odd_rank=odd_rank,
        odd_hosts=hosts,
        world_size=world_size,
    )


_ANSWERED = {
    SignKind.REPEATED: Sign.RECURRING,
    SignKind.GROWING: Sign.RECURRING,
    SignKind.CLIMBING_ATTENTION_LOGITS: Sign.RISING_ATTENTION_LOGITS,
    SignKind.CLIMBING_LOG_Z: Sign.RISING_OUTPUT_LOGITS,
    SignKind.CLIMBING_GRAD_NORM: Sign.RISING_GRAD_NORM,
    SignKind.EPSILON_FLOOR: Sign.EPSILON_FLOOR,
    SignKind.NEAR_PEAK: Sign.END_OF_WARMUP,
    SignKind.SHORT_WARMUP: Sign.SHORT_WARMUP,
}
"""What the response calls a sign. An update ratio says that a block moves in one direction and not by which fault."""


def _signs(found: Sequence[OptimizerSign], number_type: str | None) -> dict[Sign, str]:
    """Signs of the configuration, the first text of each kind and how many more there are."""
    texts: dict[Sign, list[str]] = {} if number_type is None else {Sign.NUMBER_TYPE: [number_type]}
    for each in found:
        if each.kind in _ANSWERED:
            texts.setdefault(_ANSWERED[each.kind], []).append(each.text)
    return {
        sign: said[0] + (f" (and {len(said) - 1:,} more like it)" if len(said) > 1 else "")
        for sign, said in texts.items()
    }


def experiments_of(
    looked: Looked, event: SpikeEvent | None, step: int | None = None
) -> tuple[tuple[Entry, ExperimentDone], ...]:
    """Experiments on steps of the event, or without one on the step that was asked for, oldest first.

    They stand in the journal. What they played must be what this lineage delivered at that step: after a rewind another
    batch stands there, of which they say nothing.
    """
    if looked.leaf is None:
        return ()
    tree, leaf = looked.run.attempts(looked.read), looked.leaf

    def is_meant(label: int) -> bool:
        return label == step if event is None else reaches(event, label)

    return tuple(
        (entry, each)
        for entry, each in noted(looked.read.entries, ExperimentDone)
        if is_meant(looked.run.label(each.step))
        and each.attempt in tree.numbers
        and tree.owner(each.step, each.attempt) == tree.owner(each.step, leaf)
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
    places: Mapping[int, str], canaries: Sequence[tuple[Entry, CanaryCompared]], odd_rank: int | None
) -> tuple[str, ...]:
    """Machines that the newest canary or the odd rank points to."""
    hosts = [place.partition("/")[0] for _, each in canaries[-1:] if each.differs is Told.YES for place in each.odd]
    if odd_rank is not None and odd_rank in places:
        hosts.append(places[odd_rank])
    return tuple(dict.fromkeys(hosts))


def _owner(looked: Looked, event: SpikeEvent | None) -> int | None:
    """The attempt that delivered the event's peak: its ranks and machines are those to ask."""
    if looked.leaf is None or event is None:
        return looked.leaf
    chain = looked.run.attempts(looked.read).lineage(looked.leaf)
    peak = looked.run.step(event.peak)
    return next((each.number for each in reversed(chain) if each.fork_step <= peak), chain[0].number)


def _only_host(places: Mapping[int, str], world_size: int | None) -> tuple[str, ...]:
    """The machine that all ranks ran on, where it is one and each said so: whatever happened, it happened there."""
    hosts = tuple(dict.fromkeys(places.values()))
    return hosts if len(hosts) == 1 and len(places) == world_size else ()


def _devices_per_host(places: Mapping[int, str], hosts: Sequence[str]) -> int | None:
    """The most ranks that ran on one of these machines, which has a device for each or more; None where not known."""
    ranks = [sum(host == each for each in places.values()) for host in hosts]
    return max(ranks, default=0) or None


def _of_devices(devices: int | None, texts: Sequence[str]) -> tuple[str, ...]:
    """What the chance was computed with, where one was."""
    if devices is None or not any("unrelated event" in text for text in texts):
        return ()
    several = "one rank" if devices == 1 else f"{devices:,} ranks"
    return (f"with a device for each of {several} that ran there: with more devices it is higher",)


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
