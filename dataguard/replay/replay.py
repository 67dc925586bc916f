"""What was delivered at a step, made again and compared, and written down for whoever wants to look at it?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from dataguard.errors import WriteFailed
from dataguard.replay.answers import ReplayAnswer, ReplayMicrobatch, SkippedBatch
from dataguard.replay.compare import compare_microbatch, without_transform, worst
from dataguard.replay.lookup import Found, Lookup
from dataguard.replay.rebuild import Rebuilder, Rebuilt
from dataguard.run.atomic import publish
from dataguard.score.registry import SIGNALS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["replay_step", "skipped_answer", "write_samples"]


def replay_step(
    lookup: Lookup,
    label: int,
    *,
    attempt: int | None = None,
    rank: int | None = None,
    roots: Mapping[str, str] | None = None,
) -> tuple[ReplayAnswer, list[Rebuilt]]:
    """Rebuild the step (in the trainer's labels) that a lineage delivered, and compare it with its record.

    Returns
    -------
    ReplayAnswer
        With status ``exact``, ``differs``, ``skipped``, ``withheld`` or ``unreadable``.
    list
        The microbatches as rebuilt, in order of rank and microbatch.

    Raises
    ------
    NotInRun
        No attempt on the lineage delivered it.
    """
    found = lookup.find(label, attempt=attempt, rank=rank)
    if isinstance(found, SkippedBatch):
        return skipped_answer(found), []
    rebuilder = Rebuilder(lookup.run, found.attempt.number, roots=roots)
    rebuilt: list[Rebuilt] = []
    answers: list[ReplayMicrobatch] = []
    try:
        for microbatch, compared in _compared(rebuilder, found, rank):
            rebuilt.append(microbatch)
            answers.append(compared)
    finally:
        rebuilder.close()
    unrecorded = sum(1 for each in answers if each.recorded is None)
    notes = [*found.records.torn, *found.records.damage]
    if rebuilder.transform is not None:
        notes.append(without_transform(rebuilder.transform))
    if unrecorded:
        notes.append(
            f"{unrecorded:,} of {len(answers):,} microbatches have no record; they are compared with the manifest"
        )
    answer = ReplayAnswer(
        step=label,
        batch=lookup.run.label(found.batch.batch),
        attempt=found.attempt.number,
        status=worst([each.status for each in answers]),
        microbatches=tuple(answers),
        damage=tuple(found.records.damage),
        notes=tuple(notes),
    )
    return answer, rebuilt


def skipped_answer(skipped: SkippedBatch) -> ReplayAnswer:
    """The answer for a step or batch that was skipped: never another batch."""
    return ReplayAnswer(
        step=skipped.step,
        batch=skipped.batch,
        attempt=skipped.attempt,
        status="skipped",
        microbatches=(),
        skips=skipped.skips,
    )


def _compared(rebuilder: Rebuilder, found: Found, rank: int | None) -> Iterator[tuple[Rebuilt, ReplayMicrobatch]]:
    records = found.records.records
    for rebuilt in rebuilder.step(found.step, rank=rank):
        address = rebuilt.microbatch.address
        own = records[(records["rank"] == address.rank) & (records["microbatch"] == address.microbatch)]
        yield (
            rebuilt,
            compare_microbatch(
                rebuilt,
                own,
                manifests=rebuilder.stream.manifest_set,
                source_names=rebuilder.stream.source_names,
                policy=None if rebuilder.judge is None else rebuilder.judge.policy,
                of_tensors=rebuilder.transform is not None,
            ),
        )


def write_samples(
    answer: ReplayAnswer, rebuilt: list[Rebuilt], out: Path, *, spell: Callable[[NDArray[Any]], bytes] | None = None
) -> Path:
    """Write ``OUT/samples.parquet``: a row a slot.

    Columns: address, sample, status, digests; what the gate says now (verdict, rules, and a column for each signal of
    the policy and the headline, in full precision; absent without a policy); the text (bytes) or ids.

    Parameters
    ----------
    spell
        Gives the text of the ids of a window, which is written beside them.

    Raises
    ------
    WriteFailed
        The folder cannot be made or written.
    """
    import pyarrow.parquet as pq

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteFailed(f"{out} cannot be made", found=error.strerror, todo="name another folder with -o") from error
    path = out / "samples.parquet"
    table = _table(answer, rebuilt, spell)

    def write(stream: object) -> None:
        pq.write_table(table, stream, compression="zstd", write_page_checksum=True)

    publish(path, write, tmp=out)
    return path


def _table(answer: ReplayAnswer, rebuilt: list[Rebuilt], spell: Callable[[NDArray[Any]], bytes] | None) -> pa.Table:
    import pyarrow as pa

    rows: list[dict[str, Any]] = []
    windows = any(each.microbatch.ids is not None for each in rebuilt)
    judged = any(each.answers is not None for each in rebuilt)
    signals = dict.fromkeys(name for m in answer.microbatches for s in m.samples for name in s.signals or ())
    for each, compared in zip(rebuilt, answer.microbatches, strict=True):
        microbatch = each.microbatch
        for i, sample in enumerate(compared.samples):
            content: dict[str, Any]
            if microbatch.ids is None:
                assert microbatch.records is not None
                content = {"text": microbatch.records[i]}
            else:
                content = {"ids": microbatch.ids[i].tolist()}
                if spell is not None:
                    content["text"] = spell(microbatch.ids[i]) if microbatch.lengths[i] else b""
            rows.append(
                {
                    "step": answer.step,
                    "rank": compared.rank,
                    "microbatch": compared.microbatch,
                    "slot": sample.slot,
                    "position": sample.position,
                    "source": sample.source,
                    "shard": sample.shard,
                    "row": sample.row,
                    "delivered_shard": sample.delivered.shard if sample.delivered else None,
                    "delivered_row": sample.delivered.row if sample.delivered else None,
                    "status": sample.status,
                    "digest": sample.digest,
                    "recorded_digest": sample.recorded,
                    "verdict": sample.verdict,
                    "rules": sample.rules,
                    **(sample.signals or {}),
                    **content,
                }
            )
    integers = ("step", "rank", "microbatch", "slot", "position", "row", "delivered_row")
    fields = [
        pa.field(name, pa.int64() if name in integers else pa.string())
        for name in (
            *("step", "rank", "microbatch", "slot", "position", "source", "shard", "row"),
            *("delivered_shard", "delivered_row", "status", "digest", "recorded_digest"),
        )
    ]
    if judged:
        fields += [pa.field("verdict", pa.string()), pa.field("rules", pa.list_(pa.string()))]
        fields += [pa.field(name, pa.int64() if SIGNALS[name].whole else pa.float64()) for name in signals]
    fields += [pa.field("ids", pa.list_(pa.int64()))] if windows else []
    fields += [pa.field("text", pa.large_binary())] if not windows or spell is not None else []
    return pa.Table.from_pylist(rows, schema=pa.schema(fields, metadata={"dataguard.samples": "1"}))
