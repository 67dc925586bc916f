"""Are the named streams of a run there, sound, and the same set in every evaluation?

A stream is verified as a run is, with three differences. Every evaluation is a lineage of its own, so exactly-once is
judged in each. What is rebuilt from the shards is one of them, the longest; all others are held against it by position:
the same rows and the same digests. And that one ended early, or missed rows that could not be read, is told and is no
fault: whoever evaluates may stop when he likes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from dataguard.errors import RunDamaged
from dataguard.plan.attempts import AttemptPlan
from dataguard.plan.slots import PADDING, SlotStatus
from dataguard.replay.answers import Fault, VerifyAnswer, VerifyCheck
from dataguard.replay.lookup import Lookup
from dataguard.run.records import RANKED_RECORD
from dataguard.run.run import Run
from dataguard.run.streams import added_streams, num_steps_of, opened_stream

__all__ = ["evaluations_of", "fixed_set", "rebuilt_evaluation", "roots_for", "stream_checks"]

_MOST_FAULTS = 100
_SAME = ("shard", "row", "length", "digest")


def stream_checks(
    lookup: Lookup, verify: Callable[[Lookup, Mapping[str, str]], VerifyAnswer], roots: Mapping[str, str]
) -> list[VerifyCheck]:
    """What `verify` finds in every stream of a run; checks are named after their stream.

    Parameters
    ----------
    verify
        Verifies one of them, given where its sources lie now.
    roots
        Where sources lie now, of the run and of all its streams.
    """
    checks: list[VerifyCheck] = []
    for name, event in added_streams(lookup.run.read()).items():
        try:
            own = opened_stream(lookup.run, event)
        except RunDamaged as error:
            fault = Fault(kind="missing", message=str(error).splitlines()[0])
            checks.append(VerifyCheck(name=f"stream {name}", checked=0, unit="evaluations", faults=(fault,)))
            continue
        answer = verify(Lookup(own), {source: roots[source] for source in _sources(own) if source in roots})
        found = [msgspec.structs.replace(check, name=f"stream {name}: {check.name}") for check in answer.checks]
        checks += found
    return checks


def roots_for(run: Run, roots: Mapping[str, str]) -> dict[str, str]:
    """Of where sources lie now, what is the run's own to know: all but what only its streams have."""
    own = _sources(run)
    theirs: set[str] = set()
    for event in added_streams(run.read()).values():
        try:
            theirs |= _sources(opened_stream(run, event))
        except RunDamaged:
            continue  # told by `stream_checks`
    return {name: root for name, root in roots.items() if name in own or name not in theirs}


def evaluations_of(lookup: Lookup, number: int | None) -> tuple[AttemptPlan, ...]:
    """The evaluations of a stream that are verified: the one asked for, else all."""
    numbers = lookup.tree.numbers if number is None else [number]
    return tuple(lookup.tree.attempt(each) for each in numbers)


def rebuilt_evaluation(lookup: Lookup, chain: Iterable[AttemptPlan]) -> tuple[AttemptPlan, ...]:
    """The one that stands for all: of most steps, and of those the newest."""
    return (max(chain, key=lambda each: (lookup.complete[each.number], each.number)),)


def fixed_set(lookup: Lookup, chain: tuple[AttemptPlan, ...]) -> VerifyCheck:
    """Whether all evaluations gave the same sample at each position."""
    faults: list[Fault] = []
    notes: list[str] = []
    num_steps, checked = num_steps_of(lookup.run), 0
    (longest,) = rebuilt_evaluation(lookup, chain)
    wanted = _records(lookup, longest)
    for each in chain:
        complete = lookup.complete[each.number]
        if complete < num_steps:
            notes.append(f"evaluation {each.number} holds {complete:,} of {num_steps:,} steps")
        records = wanted if each is longest else _records(lookup, each)
        checked += len(records)
        missed = int((~np.isin(records["status"], [int(SlotStatus.LIVE), *map(int, PADDING)])).sum())
        if missed:
            notes.append(f"evaluation {each.number} missed {missed:,} samples that could not be read")
        faults += _differences(each.number, records, longest.number, wanted)
    return VerifyCheck(
        name="fixed set", checked=checked, unit="samples", faults=tuple(faults[:_MOST_FAULTS]), notes=tuple(notes)
    )


def _differences(number: int, records: NDArray[np.void], other: int, wanted: NDArray[np.void]) -> list[Fault]:
    """Positions at which two evaluations gave different samples; what one of them did not give is no difference."""
    _, mine, theirs = np.intersect1d(records["position"], wanted["position"], return_indices=True)
    ours, theirs_there = records[mine], wanted[theirs]
    live = (ours["status"] == SlotStatus.LIVE) & (theirs_there["status"] == SlotStatus.LIVE)
    wrong = np.zeros(len(ours), np.bool_)
    for name in _SAME:
        wrong |= ours[name] != theirs_there[name]
    return [
        Fault(
            kind="differs",
            message=f"evaluation {number}, position {int(ours['position'][i]):,}: digest "
            f"{ours['digest'][i].tobytes().hex()} recorded, evaluation {other} has "
            f"{theirs_there['digest'][i].tobytes().hex()}",
        )
        for i in np.flatnonzero(wrong & live)[:_MOST_FAULTS].tolist()
    ]


def _records(lookup: Lookup, evaluation: AttemptPlan) -> NDArray[np.void]:
    """What an evaluation recorded, as far as it can be read; damage is told by the check of the index."""
    names = ["position", "status", *_SAME]
    empty: NDArray[np.void] = np.zeros(0, RANKED_RECORD)[names]
    ranks = evaluation.geometry.world_size
    parts = [records[names] for records in lookup.index.records(evaluation.number, num_ranks=ranks, torn=[], damage=[])]
    return np.concatenate([empty, *parts])


def _sources(run: Run) -> set[str]:
    return {source.name for manifest in run.manifests.values() for source in manifest.sources}
