"""What is said to people when they look back: inspect, replay, where, seen, log, verify."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dataguard.replay.answers import (
    InspectAnswer,
    Placed,
    ReplayAnswer,
    ReplaySample,
    SeenAnswer,
    SkippedBatch,
    SkippedBy,
    VerifyAnswer,
    WhereAnswer,
    rebuilt_digest,
)
from dataguard.replay.log import LogLine
from dataguard.report.tables import table

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["render_inspect", "render_log", "render_replay", "render_seen", "render_verify", "render_where"]

_MANY = 64
_ORIGINS = {
    "rebuilt": "rebuilt",
    "fetched": "fetched from the store",
    "both": "rebuilt and compared with the store",
    "none": "to be had nowhere",
}


def render_inspect(answer: InspectAnswer | SkippedBatch) -> Iterator[str | Table]:
    """What ``inspect`` says of one step."""
    if isinstance(answer, SkippedBatch):
        yield _skipped(answer.step, answer.batch, answer.attempt)
        yield from _events(answer.skips)
        return
    start, stop = answer.positions
    jumps = answer.skips if answer.skip_mode == "jump" else ()
    jumped = "".join(f", since {_batches(skip)} was jumped by event {skip.event}" for skip in jumps)
    yield (
        f"step {answer.step:,}, attempt {answer.attempt} ({answer.label}): batch {answer.batch:,}{jumped}; "
        f"positions {start:,}:{stop:,}, global batch {answer.global_batch:,} over {answer.world_size:,} "
        f"rank{'s' * (answer.world_size != 1)}"
    )
    yield from _events(answer.skips)
    if answer.missing_ranks:
        yield f"not completely recorded: rank {', '.join(map(str, answer.missing_ranks))}"
    yield from (f"note: {note}" for note in answer.notes)
    rows = (
        (
            sample.rank,
            sample.microbatch,
            sample.slot,
            sample.position,
            sample.status + (f" by event {sample.event}" if sample.event else ""),
            sample.shard,
            sample.row,
            f"{sample.delivered.shard}:{sample.delivered.row}" if sample.delivered else None,
            sample.length,
            sample.digest,
            *((sample.verdict or "", ", ".join(sample.rules)) if answer.policy else ()),
        )
        for sample in answer.samples
    )
    left_out = answer.num_samples - len(answer.samples)
    if left_out:
        yield f"the first {len(answer.samples):,} of {answer.num_samples:,} samples"
    judged = ("verdict", "rules") if answer.policy else ()
    columns = (
        "rank",
        "microbatch",
        "slot",
        "position",
        "status",
        "shard",
        "row",
        "delivered instead",
        "length",
        "digest",
        *judged,
    )
    yield table(columns, rows, right=("rank", "microbatch", "slot", "position", "row", "length"))


def render_replay(answer: ReplayAnswer) -> Iterator[str | Table]:
    """What ``replay`` says of one step."""
    if answer.status == "skipped" and not answer.microbatches:
        yield _skipped(answer.step, answer.batch, answer.attempt)
        yield from _events(answer.skips)
        return
    samples = [sample for microbatch in answer.microbatches for sample in microbatch.samples]
    counts = {
        status: sum(sample.status == status for sample in samples)
        for status in dict.fromkeys(s.status for s in samples)
    }
    told = ", ".join(f"{count:,} {status}" for status, count in counts.items())
    origins = [microbatch.origin for microbatch in answer.microbatches]
    how = ", ".join(f"{origins.count(origin):,} {_ORIGINS[origin]}" for origin in dict.fromkeys(origins))
    yield (
        f"step {answer.step:,}, attempt {answer.attempt}: {answer.status}; {len(answer.microbatches):,} microbatches "
        f"({how}), {len(samples):,} samples: {told}"
    )
    yield from (f"note: {note}" for note in answer.notes)
    wrong = [(m.rank, m.microbatch, sample) for m in answer.microbatches for sample in m.samples if _is_wrong(sample)]
    for rank, microbatch, sample in wrong[:_MANY]:
        yield (
            f"rank {rank}, microbatch {microbatch}, slot {sample.slot}: {sample.status}: "
            f"{sample.shard} row {sample.row:,}, digest {sample.recorded} recorded, "
            f"{rebuilt_digest(sample.digest)} rebuilt"
        )
        if sample.problem:
            yield f"  {sample.problem}"
    if len(wrong) > _MANY:
        yield f"... and {len(wrong) - _MANY:,} more (--json lists all)"
    for each in answer.microbatches:
        where = f"rank {each.rank}, microbatch {each.microbatch}"
        if each.status == "differs" and not any(_is_wrong(sample) for sample in each.samples):
            yield f"{where}: digest {each.recorded} recorded, {each.digest or each.made_of} rebuilt"
        if each.problem and each.status == "differs":
            yield f"{where}: {each.problem}"
    fetched = [each.problem for each in answer.microbatches if each.origin == "fetched" and each.status != "differs"]
    yield from (f"{fetched.count(why):,} microbatches {why}" for why in dict.fromkeys(fetched) if why is not None)


def render_where(answer: WhereAnswer) -> Iterator[str | Table]:
    """What ``where`` says."""
    yield f"{answer.shard} row {answer.row:,}: {len(answer.places):,} places"
    if not answer.deliverable:
        yield f"it has no place in the stream: {answer.reason}"
    yield from (f"note: {note}" for note in answer.notes)
    if not answer.places:
        return
    columns = ("label", "attempt", "step", "batch", "rank", "microbatch", "slot", "position", "epoch", "status")
    yield table(
        columns, (_place(place) for place in answer.places), right=[c for c in columns if c not in {"label", "status"}]
    )
    for place in answer.places:
        yield from _events(place.skips)


def render_seen(answer: SeenAnswer) -> Iterator[str | Table]:
    """What ``seen`` says."""
    lineage = " > ".join(map(str, answer.lineage))
    yield (
        f"a checkpoint whose next step is {answer.step:,} (lineage {lineage}) was trained on "
        f"{answer.num_samples:,} samples, "
        f"{answer.length:,} {answer.unit}; {answer.num_withheld:,} slots were withheld"
    )
    yield from (f"note: {note}" for note in answer.notes)
    columns = ("source", "samples", answer.unit, "different rows", "withheld", "epochs begun")
    yield table(
        columns,
        (
            (
                each.source,
                each.num_samples,
                each.length,
                each.num_distinct,
                each.num_withheld,
                "none" if each.lowest_epoch is None else f"{each.lowest_epoch} to {each.highest_epoch}",
            )
            for each in answer.sources
        ),
        right=columns[1:5],
    )
    yield ""
    columns_of_shards = ("shard", "samples", answer.unit, "different rows")
    rows = ((each.shard, each.num_samples, each.length, each.num_distinct) for each in answer.shards)
    yield table(columns_of_shards, rows, right=columns_of_shards[1:])


def render_log(line: LogLine) -> str:
    """What ``log`` says of one event."""
    state = {"done": "", "applied": "", "pending": " [from the next attempt on]", "revoked": " [revoked]"}.get(
        line.state, f" [{line.state}]"
    )
    return f"{line.number:>4}  {line.time[:19]}  {line.by}  {line.text}{state}"


def render_verify(answer: VerifyAnswer) -> Iterator[str]:
    """What ``verify`` says."""
    for check in answer.checks:
        found = "good" if not check.faults else f"{len(check.faults):,} faults"
        found = found if check.checked else f"nothing to check{'' if not check.faults else ', ' + found}"
        yield f"{check.name}: {check.checked:,} {check.unit}, {found}"
        yield from (f"  {note}" for note in check.notes)
        yield from (f"  {fault.kind}: {fault.message}" for fault in check.faults[:_MANY])
        if len(check.faults) > _MANY:
            yield f"  ... and {len(check.faults) - _MANY:,} more (--json lists all)"
    lineage = f" along attempts {' > '.join(map(str, answer.lineage))}" if answer.lineage else ""
    yield f"{'everything agrees' if answer.ok else 'NOT everything agrees'}{lineage}"


def _is_wrong(sample: ReplaySample) -> bool:
    return sample.status in {"differs", "unreadable"}


def _skipped(step: int | None, batch: int | None, attempt: int) -> str:
    what = f"batch {batch:,}" if step is None else f"step {step:,}"
    return f"{what} of attempt {attempt} was skipped:"


def _events(skips: Iterable[SkippedBy]) -> Iterator[str]:
    for skip in skips:
        start, stop = skip.positions
        by = f"skipped by event {skip.event} ({skip.by}, {skip.time[:19]})"
        yield f"  {by}, positions {start:,}:{stop:,}: {skip.reason}"


def _batches(skip: SkippedBy) -> str:
    if skip.batches is None:
        return f"positions {skip.positions[0]:,}:{skip.positions[1]:,}"
    return f"{skip.batches[0]:,}:{skip.batches[1]:,}"


def _place(place: Placed) -> tuple[object, ...]:
    status = place.status
    if place.substitute_for:
        status += f" for {place.substitute_for.shard}:{place.substitute_for.row}"
    return (
        *(place.label, place.attempt, place.step, place.batch, place.rank, place.microbatch),
        *(place.slot, place.position, place.epoch, status),
    )
