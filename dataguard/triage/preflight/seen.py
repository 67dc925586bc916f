"""What has a run seen of itself that preflight asks for? Read from its journal, its record and its telemetry.

All of it along one lineage, the newest leaf's by default. Nothing is changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

import numpy as np
from numpy.typing import NDArray

from dataguard.core.spans import SpanSet
from dataguard.core.spikes import EventClass
from dataguard.plan.attempts import AttemptPlan
from dataguard.plan.mixture import BLOCK
from dataguard.plan.slots import SlotStatus
from dataguard.run.events import CheckpointSaved, Diagnosed, SpikeFound
from dataguard.run.index import Index
from dataguard.run.journal import JournalRead
from dataguard.run.notes import noted
from dataguard.run.policies import policy_of
from dataguard.run.reached import complete_before
from dataguard.run.run import Run
from dataguard.run.telemetry_reading import names_in, owned_steps, telemetry_of_lineage
from dataguard.triage.preflight.known import MixtureSeen, RunSeen
from dataguard.triage.respond.rhythm import checkpoint_distance, distances

__all__ = ["seen_of_run"]

_DAMAGING = frozenset({EventClass.TRANSIENT_SPIKE, EventClass.ABSORBING_SHIFT, EventClass.HARD_FAULT})
_PER_LANE = 2
"""By how many samples of a source the closed-form mixture is off in a lane at most."""
_SIGMAS = 6
"""Of what is dealt within a mixture block that was read in part: at most one false alarm in 500 million."""


def seen_of_run(run: Run, attempt: int | None = None) -> tuple[RunSeen, tuple[str, ...]]:
    """What a run knows of itself on a lineage, and what could not be looked at.

    Raises
    ------
    NotInRun
        There is no such attempt.
    RunDamaged
        The record or the telemetry cannot be trusted.
    """
    read = run.read()
    tree = run.attempts(read)
    chain = tree.lineage(attempt) if len(tree) or attempt is not None else ()
    document = run.plan_document()
    notes = list(run.problems())
    # One event may be noted by the trainer and by whoever looked later, a step or two apart.
    damaging = [(each.start, each.stop) for _, each in noted(read.entries, SpikeFound) if each.event_class in _DAMAGING]
    facts: dict[str, object] = {
        "fixed_length": document.root.seq_len if document.root.form != "document" else None,
        "streams": run.streams if run.stream_identity is None else (),
        "sources": _sources(run, chain),
        "detector": _detector(read),
        "num_damaging": len(SpanSet.of(damaging).spans),
        "checkpoint_every": checkpoint_distance(read.entries),
        "num_checkpoints": len({(event.attempt, event.next_step) for _, event in noted(read.entries, CheckpointSaved)}),
        **_policy(run, chain),
    }
    if chain:
        complete = {each.number: complete_before(run, each.number) for each in chain}
        facts["num_steps"] = max(complete[chain[-1].number], chain[-1].fork_step)
        facts["mixture"] = _mixture(run, chain)
        facts["resumed"] = _resumed(run, chain, complete)
        facts |= _telemetry(run, chain[-1].number, notes)
    return RunSeen(**facts), tuple(notes)  # type: ignore[arg-type]


def _policy(run: Run, chain: tuple[AttemptPlan, ...]) -> dict[str, object]:
    """Of the newest attempt; of the run's own event where none has begun."""
    if not chain:
        created = run.document
        return {"policy": created.policy_name or created.policy or None, "has_profile": created.profile is not None}
    leaf = chain[-1]
    policy = policy_of(run, leaf.number)
    if policy is None:
        return {}
    kind = "text" if run.plan_document().root.form == "document" else "tokens"
    lengths = tuple(name for name in policy.signals(kind) if name.startswith("length"))  # type: ignore[arg-type]
    return {"policy": policy.name, "length_signals": lengths, "has_profile": leaf.profile is not None}


def _sources(run: Run, chain: tuple[AttemptPlan, ...]) -> tuple[str, ...]:
    mixtures = chain[-1].mixtures if chain else run.plan_document().mixtures
    return tuple(sorted(name for name, weight in mixtures[-1].weights.items() if weight))


def _detector(read: JournalRead) -> str | None:
    """What noted an event while the run went on. Triage notes events afterwards, each with its diagnosis behind it:
    those do not count, since nobody was told of them in time.
    """
    diagnosed = {(event.attempt, event.step): entry.number for entry, event in noted(read.entries, Diagnosed)}
    for entry, event in noted(read.entries, SpikeFound):
        if diagnosed.get((event.attempt, event.peak), 0) < entry.number:
            return event.detector
    return None


def _resumed(run: Run, chain: tuple[AttemptPlan, ...], complete: dict[int, int]) -> tuple[int, int] | None:
    """The newest attempt that went on from a state and completed a step with it."""
    for each in reversed(chain):
        if each.parent is not None and each.fork_step > 0 and complete[each.number] > each.fork_step:
            return each.number, run.label(each.fork_step)
    return None


def _mixture(run: Run, chain: tuple[AttemptPlan, ...]) -> MixtureSeen | None:
    """What was delivered of each source, and what its weights asked for over the same positions."""
    leaf = chain[-1]
    starts = np.array([mixture.start for mixture in leaf.mixtures], dtype=np.int64)
    names = run.stream_of(leaf.number).source_names
    asked = np.zeros(len(names), dtype=np.float64)
    delivered = np.zeros(len(names), dtype=np.int64)
    for each, first, stop in owned_steps(chain):
        own_names = run.stream_of(each.number).source_names
        to = np.array([names.index(name) if name in names else -1 for name in own_names], dtype=np.int64)
        for position, source, trained in _records(run, each, first, stop):
            which = np.searchsorted(starts, position, side="right") - 1
            for mixture, count in zip(*np.unique(which, return_counts=True), strict=True):
                weights = leaf.mixtures[int(mixture)].weights
                total = sum(weights.values())
                for name, weight in weights.items():
                    asked[names.index(name)] += count * weight / total
            own = to[source[trained]]
            delivered += np.bincount(own[own >= 0], minlength=len(names))[: len(names)]
    if not asked.sum():
        return None
    return MixtureSeen(
        asked={name: float(asked[i] / asked.sum()) for i, name in enumerate(names) if asked[i]},
        delivered={name: int(delivered[i]) for i, name in enumerate(names) if delivered[i]},
        allowance=_allowance(run.plan_document().root.lanes, len(leaf.mixtures) + len(leaf.spans.spans)),
    )


def _allowance(num_lanes: int, num_stretches: int) -> int:
    """By how many samples of a source a stream may be off by its own arithmetic.

    A stretch of the stream ends, in each lane, within a mixture block, whose places a keyed permutation deals: of a
    block of B read in part the count of a source has a variance of at most B / 4 x w (1 - w) <= B / 16.
    """
    parts = num_lanes * num_stretches
    return _PER_LANE * parts + math.ceil(_SIGMAS * math.sqrt(parts * BLOCK) / 4)


def _records(
    run: Run, attempt: AttemptPlan, first: int, stop: int | None
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]]:
    """Position, source and whether it was trained on, of the planned samples that an attempt recorded for its steps."""
    from dataguard.corpus.arrow import numbers

    columns = ("step", "position", "source", "status")
    padding = [int(status) for status in (SlotStatus.SKIPPED, SlotStatus.ENDED)]
    for table in Index(run.layout).tables(attempt.number, columns=columns, num_ranks=attempt.geometry.world_size):
        step, position, source, status = (numbers(table.column(name), null=0).astype(np.int64) for name in columns)
        own = (step >= first) & ~np.isin(status, padding)
        if stop is not None:
            own &= step < stop
        trained = np.isin(status, [int(SlotStatus.LIVE), int(SlotStatus.SUBSTITUTED)])
        yield position[own], source[own], trained[own]


def _telemetry(run: Run, leaf: int, notes: list[str]) -> dict[str, object]:
    torn: list[str] = []
    damage: list[str] = []
    rows = telemetry_of_lineage(run, leaf, torn=torn, damage=damage)
    notes += [*torn, *(f"damaged telemetry was left out: {each}" for each in damage)]
    whole = rows[rows["slot"] < 0]
    steps = sorted({int(step) for step in whole["step"][whole["name"] == b"grad_norm"]})
    gaps = distances(steps)
    of_loss = distances(int(step) for step in whole["step"][whole["name"] == b"loss"])
    return {
        "has_telemetry": bool(len(whole)),
        "loss_every": median(of_loss) if of_loss else None,
        "num_grad_norms": len(steps),
        "grad_norm_every": median(gaps) if gaps else None,
        "grad_norm_gap": max(gaps) if gaps else None,
        "utilization": tuple(name for name in names_in(whole) if _is_utilization(name)),
    }


def _is_utilization(name: str) -> bool:
    words = name.lower().replace("/", " ").replace("_", " ").replace("-", " ").split()
    return "mfu" in words or "utilization" in words
