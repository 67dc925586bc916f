"""Do journal, index, plan and data agree?

1. *journal*: the chain of events is unbroken, and holds every head that frames headers have seen.
   *notes*: what an event names of results stands in the run directory, where one does.
2. *index*: every frame and sealed file is whole and in its place. A torn tail is reported and is no fault.
   *telemetry*: the same of what the ranks logged, where they did.
3. *exactly once*: along the lineage no position is missing and none is there twice.
4. *plan*: each recorded sample is the one that the plan has at its position, with what was withheld and why; where the
   order was given from outside, its structure is what such a run can have.
5. *data*: every step is rebuilt and its digests compared with the record; not where only its trainer could.

6. *store*: what is kept of delivered batches is whole and as recorded, where anything is kept.
7. The run's named streams, likewise; a stream by itself: `dataguard.replay.verify_streams`.

A check that looked at nothing says so; verification is only good when something was checked and nothing was found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dataguard.core.address import Geometry
from dataguard.core.manifest import ManifestSet
from dataguard.errors import RunDamaged
from dataguard.plan.attempts import AttemptPlan
from dataguard.plan.located import Located
from dataguard.plan.slots import PADDING, SlotStatus
from dataguard.plan.steps import Steps
from dataguard.replay.answers import Fault, VerifyAnswer, VerifyCheck, rebuilt_digest
from dataguard.replay.compare import compare_microbatch, without_transform
from dataguard.replay.coverage import Coverage
from dataguard.replay.given import given_faults, not_rebuilt
from dataguard.replay.lookup import Lookup
from dataguard.replay.rebuild import Rebuilder
from dataguard.replay.verify_notes import note_checks
from dataguard.replay.verify_store import store_checks
from dataguard.replay.verify_streams import evaluations_of, fixed_set, rebuilt_evaluation, roots_for, stream_checks
from dataguard.run.index import merge
from dataguard.run.reached import reached, recorded_attempts, recorded_heads
from dataguard.run.records import notable
from dataguard.run.telemetry_reading import check_telemetry

__all__ = ["verify_run"]

_MOST_FAULTS = 100


def verify_run(
    lookup: Lookup,
    *,
    attempt: int | None = None,
    data: bool = True,
    roots: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> VerifyAnswer:
    """Check a run along one lineage (default: the newest leaf's).

    Parameters
    ----------
    data
        Rebuild every delivered step and compare digests; otherwise the shards are not read.
    progress
        Called with steps rebuilt and steps in all.
    """
    run = lookup.run
    is_stream = run.stream_identity is not None
    roots = roots or {}
    checks = [_journal(lookup), *note_checks(run.layout, run.read().entries)]
    chain: tuple[AttemptPlan, ...] = ()
    if len(lookup.tree):
        checks += [_index(lookup), *_telemetry(lookup)]
        chain = evaluations_of(lookup, attempt) if is_stream else lookup.tree.lineage(attempt)
        given = run.plan_document().root.form == "given"
        checks += _once_and_plan(lookup, chain, notes=(not_rebuilt(run.plan),) if data and given else ())
        if is_stream:
            checks.append(fixed_set(lookup, chain))
        if data and not given:
            rebuilt = rebuilt_evaluation(lookup, chain) if is_stream else chain
            checks.append(_data(lookup, rebuilt, roots_for(run, roots), progress))
        if data:
            checks += store_checks(lookup)
    else:
        note = f"no {'evaluation' if is_stream else 'attempt'} has begun"
        checks.append(VerifyCheck(name="index", checked=0, unit="attempts", faults=(), notes=(note,)))
    checks += stream_checks(
        lookup, lambda each, places: verify_run(each, data=data, roots=places, progress=progress), roots
    )
    return VerifyAnswer(
        ok=not any(check.faults for check in checks) and not run.problems(),
        lineage=() if is_stream else tuple(each.number for each in chain),
        checks=tuple(checks),
    )


def _owned(chain: tuple[AttemptPlan, ...]) -> Iterator[tuple[AttemptPlan, int, int | None]]:
    """Each attempt with the steps it owns, ``first:stop``, to where the next forks from it; a leaf's have no stop."""
    for i, each in enumerate(chain):
        forks = i + 1 < len(chain) and chain[i + 1].parent == each.number
        yield each, each.fork_step, chain[i + 1].fork_step if forks else None


def _journal(lookup: Lookup) -> VerifyCheck:
    run = lookup.run
    read = run.read()
    heads = [head for number in recorded_attempts(run) for head in recorded_heads(run, number)]
    faults = [Fault(kind=problem.kind, message=problem.message) for problem in run.journal.check(heads)]
    return VerifyCheck(name="journal", checked=len(read.entries), unit="events", faults=tuple(faults))


def _index(lookup: Lookup) -> VerifyCheck:
    faults: list[Fault] = []
    notes: list[str] = []
    checked = 0
    for number in lookup.tree.numbers:
        geometry = lookup.tree.attempt(number).geometry
        steps = lookup.run.steps_of(number)
        found = lookup.index.check(
            number,
            num_ranks=geometry.world_size,
            num_microbatches=partial(_num_microbatches, geometry, steps),
            next_delivered=steps.next_delivered,
        )
        checked += found.num_records
        faults += [Fault(kind=problem.kind, message=problem.message) for problem in found.problems]
        notes += found.torn
        if lookup.run.stream_identity is None:  # nothing keeps the ranks of an evaluation in step
            faults += _left_behind(lookup, number, steps)
        faults += _notable(lookup, number, geometry.world_size)
    return VerifyCheck(name="index", checked=checked, unit="records", faults=tuple(faults), notes=tuple(notes))


def _telemetry(lookup: Lookup) -> list[VerifyCheck]:
    """What the ranks logged; no check of its own where nobody has logged anything."""
    run = lookup.run
    found = [check_telemetry(run.layout, number, run_id=run.run_id) for number in lookup.tree.numbers]
    faults = tuple(Fault(kind="damaged", message=message) for each in found for message in each.damage)
    notes = tuple(message for each in found for message in each.torn)
    checked = sum(each.num_values for each in found)
    if not (checked or faults or notes):
        return []
    return [VerifyCheck(name="telemetry", checked=checked, unit="values", faults=faults, notes=notes)]


def _num_microbatches(geometry: Geometry, steps: Steps, step: int) -> int:
    return geometry.num_microbatches(steps.size_of(step))


def _left_behind(lookup: Lookup, attempt: int, steps: Steps) -> list[Fault]:
    """Ranks whose record ends more than one step before another rank's: no trainer lets them part that far."""
    label, first = lookup.run.label, lookup.tree.attempt(attempt).fork_step
    stands = [first if step is None else step for step in reached(lookup.run, attempt)]
    farthest = max(stands)
    return [
        Fault(
            kind="gap",
            message=f"attempt {attempt}: the record of rank {rank} ends before step {label(step):,}, that of rank "
            f"{stands.index(farthest)} before step {label(farthest):,}",
        )
        for rank, step in enumerate(stands)
        if farthest > steps.next_delivered(steps.next_delivered(step) + 1)
    ]


def _notable(lookup: Lookup, attempt: int, num_ranks: int) -> list[Fault]:
    """The small files of withheld and substituted samples, which `where` goes by, against the record itself."""
    damage: list[str] = []
    records = lookup.index.records(attempt, num_ranks=num_ranks, torn=[], damage=damage)
    wanted = merge([part[notable(part)] for part in records])
    if damage:
        return []  # told by the check of the record
    try:
        found = merge(list(lookup.index.notable(attempt, num_ranks=num_ranks)))
    except RunDamaged as error:
        return [Fault(kind="damaged", message=f"attempt {attempt}, notable samples: {error}")]
    if found.tobytes() == wanted.tobytes():
        return []
    message = (
        f"attempt {attempt}: the notable files hold {len(found):,} withheld or substituted samples, "
        f"the record {len(wanted):,}" + ("; they differ" if len(found) == len(wanted) else "")
    )
    return [Fault(kind="notable", message=message)]


def _once_and_plan(lookup: Lookup, chain: tuple[AttemptPlan, ...], *, notes: tuple[str, ...]) -> list[VerifyCheck]:
    once: list[Fault] = []
    plan: list[Fault] = []
    once_notes: list[str] = []
    num_positions = num_records = num_substitutes = 0
    for attempt, first, stop in _owned(chain):
        complete = lookup.complete[attempt.number]
        stop = complete if stop is None else stop
        if stop > complete:
            once.append(
                Fault(
                    kind="gap",
                    message=f"attempt {attempt.number} is recorded to step {lookup.run.label(complete):,}, "
                    f"but the next attempt goes on from step {lookup.run.label(stop):,}",
                )
            )
        steps = lookup.run.steps_of(attempt.number)
        coverage = Coverage(attempt, steps, first, stop)
        damage: list[str] = []
        for records in lookup.index.records(
            attempt.number, steps=(first, stop), num_ranks=attempt.geometry.world_size, torn=[], damage=damage
        ):
            num_records += len(records)
            num_substitutes += int((records["status"] == SlotStatus.SUBSTITUTED).sum())
            coverage.add(records["position"].astype(np.int64))
            if len(plan) < _MOST_FAULTS:
                plan += _against_plan(lookup, attempt, records)
        num_positions += coverage.num_recorded
        once += _gaps_and_doubles(lookup, attempt, steps, coverage)
    if num_substitutes:
        once_notes.append(f"{num_substitutes:,} substitutes")
    return [
        VerifyCheck(
            name="exactly once", checked=num_positions, unit="positions", faults=tuple(once[:_MOST_FAULTS]),
            notes=tuple(once_notes),
        ),
        VerifyCheck(
            name="plan", checked=num_records, unit="samples", faults=tuple(plan[:_MOST_FAULTS]), notes=notes
        ),
    ]  # fmt: skip


def _gaps_and_doubles(lookup: Lookup, attempt: AttemptPlan, steps: Steps, coverage: Coverage) -> list[Fault]:
    def fault(kind: str, low: int, high: int, text: str) -> Fault:
        located = steps.locate(low) if kind != "extra" else None
        step = f" (step {lookup.run.label(located.step):,})" if isinstance(located, Located) else ""
        what = f"position {low:,}" if high == low + 1 else f"positions {low:,}:{high:,}"
        return Fault(kind=kind, message=f"attempt {attempt.number}: {what}{step} {text}")

    return [
        *(fault("double", at, at + 1, "is recorded twice") for at in sorted(coverage.doubled)),
        *(fault("gap", *span, "was never recorded") for span in coverage.missing()),
        *(fault("extra", *span, "is no position of this stretch") for span in coverage.extras()),
    ]


def _against_plan(lookup: Lookup, attempt: AttemptPlan, records: NDArray[np.void]) -> list[Fault]:
    run = lookup.run
    stream = run.stream_of(attempt.number)
    if stream.root.form == "given":
        return given_faults(lookup, attempt, records, _MOST_FAULTS)
    samples = stream.samples(records["position"].astype(np.int64))
    wrong = (samples.shard != records["shard"]) | (samples.row != records["row"].astype(np.int64))
    wrong |= samples.source != records["source"]
    wrong |= (samples.position % max(1, stream.root.lanes)) != samples.lane
    withheld = run.withheld_of(attempt.number).mask(samples.shard, samples.row)
    padding = np.isin(records["status"], [int(status) for status in PADDING])
    delivered = (records["status"] == SlotStatus.LIVE) & (withheld > 0)
    faults = []
    for i in np.flatnonzero(wrong | (delivered & ~padding))[:_MOST_FAULTS].tolist():
        record = records[i]
        names = stream.manifest_set
        if wrong[i]:
            text = (
                f"records {_shard_name(names, int(record['shard']))} row {int(record['row']):,}; the plan has "
                f"{names.shard_name(int(samples.shard[i]))} row {int(samples.row[i]):,}"
            )
        else:
            text = f"was delivered although event {int(withheld[i])} withholds its row"
        faults.append(
            Fault(
                kind="plan",
                message=f"attempt {attempt.number}, step {run.label(int(record['step'])):,}, "
                f"position {int(record['position']):,} {text}",
            )
        )
    return faults


def _shard_name(names: ManifestSet, shard: int) -> str:
    return names.shard_name(shard) if shard < names.num_shards else f"shard number {shard:,}, which is not there,"


def _data(
    lookup: Lookup,
    chain: tuple[AttemptPlan, ...],
    roots: Mapping[str, str] | None,
    progress: Callable[[int, int], None],
) -> VerifyCheck:
    faults: list[Fault] = []
    notes: list[str] = []
    checked = done = num_faults = 0
    stretches = []
    for attempt, first, stop in _owned(chain):
        complete = lookup.complete[attempt.number]
        stretches.append((attempt, first, min(complete, complete if stop is None else stop)))
    total = sum(max(0, stop - first) for _, first, stop in stretches)
    for attempt, first, stop in stretches:
        try:
            rebuilder = Rebuilder(lookup.run, attempt.number, roots=roots)
        except RunDamaged as error:
            faults.append(Fault(kind="damaged", message=f"attempt {attempt.number} cannot be rebuilt: {error}"))
            continue
        if rebuilder.transform is not None and stop > first:
            notes.append(f"attempt {attempt.number} is {without_transform(rebuilder.transform)}")
        try:
            step = first
            while (step := rebuilder.steps.next_delivered(step)) < stop:
                num_samples, wrong = _rebuilt_step(lookup, rebuilder, attempt, step)
                checked += num_samples
                num_faults += len(wrong)
                faults += wrong[: max(0, _MOST_FAULTS - len(faults))]  # a lost shard has millions, all alike
                step += 1
                done += 1
                progress(done, total)
        finally:
            rebuilder.close()
    if num_faults > _MOST_FAULTS:
        notes.append(f"{num_faults:,} samples in all; the first {_MOST_FAULTS} are listed")
    return VerifyCheck(name="data", checked=checked, unit="samples", faults=tuple(faults), notes=tuple(notes))


def _rebuilt_step(lookup: Lookup, rebuilder: Rebuilder, attempt: AttemptPlan, step: int) -> tuple[int, list[Fault]]:
    """Samples of a step that were rebuilt, and what differs from the record."""
    faults: list[Fault] = []
    num_samples = 0
    records = lookup.index.step(attempt.number, step, num_ranks=attempt.geometry.world_size).records
    for rebuilt in rebuilder.step(step):
        address = rebuilt.microbatch.address
        own = records[(records["rank"] == address.rank) & (records["microbatch"] == address.microbatch)]
        answer = compare_microbatch(
            rebuilt,
            own,
            manifests=rebuilder.stream.manifest_set,
            source_names=rebuilder.stream.source_names,
            of_tensors=rebuilder.transform is not None,
        )
        num_samples += len(answer.samples)
        where = f"step {lookup.run.label(step):,}, rank {address.rank}, microbatch {address.microbatch}"
        wrong = [sample for sample in answer.samples if sample.status in {"differs", "unreadable"}]
        faults += [
            Fault(
                kind=sample.status,
                message=f"{where}: {sample.shard} row {sample.row:,}, digest {sample.recorded} recorded, "
                f"{rebuilt_digest(sample.digest)} rebuilt" + (f"; {sample.problem}" if sample.problem else ""),
            )
            for sample in wrong
        ]
        if answer.status == "differs" and not wrong:
            faults.append(
                Fault(kind="differs", message=f"{where}: digest {answer.recorded} recorded, {answer.digest} rebuilt")
            )
    return num_samples, faults
