"""Was a step of a watched loader what it is now, bit for bit?

1. The index says which rows stood in which slots. By index, data set and collate function make each batch again, as the
   DataLoader's own fetcher does; the gate judges again and masks again; digests of samples and of the microbatch, and
   what the gate says, are held against the record.
2. Whatever the store has of the step is fetched, and its digest held against the record; it is all there is of batches
   that came by order.

Random numbers that the data set draws are not those of the first time, so such a batch differs, and the answer says so.
The state of the process's generators is as before afterwards.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dataguard.core.tensors import NamedTensor
from dataguard.errors import RunDamaged, UsageError
from dataguard.gate.verdict import Verdict
from dataguard.plan.slots import PADDING
from dataguard.replay.answers import ReplayAnswer, ReplayMicrobatch, ReplaySample, ReplayStatus, SkippedBatch
from dataguard.replay.compare import worst
from dataguard.replay.lookup import Found, Lookup
from dataguard.run.judging import Judge, judge_of
from dataguard.run.records import HEADLINE_PREFIX, SIGNAL_PREFIX
from dataguard.run.run import Run
from dataguard.run.store_file import KeptMicrobatch, read_store
from dataguard.torch.guarding_judge import Naming, answers_of
from dataguard.torch.guarding_take import Taken, take
from dataguard.torch.tensors import DTYPES

__all__ = ["Replayed", "replay_step"]

_PADDING = [int(status) for status in PADDING]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replayed:
    """A step made again."""

    answer: ReplayAnswer
    """As `dataguard replay` gives it, slot by slot; padding is left out."""
    batches: Mapping[tuple[int, int], Any]
    """By rank and microbatch: the batch as the loader's data set made it again, or the tensors that the store had."""

    @property
    def status(self) -> ReplayStatus:
        """``exact``, ``differs``, ``skipped`` (padding alone) or ``unreadable``."""
        return self.answer.status


def replay_step(
    run: Run, label: int, *, loader: Any, naming: Naming, attempt: int | None = None, rank: int | None = None
) -> Replayed:
    """Make a step again (in the trainer's labels).

    Parameters
    ----------
    loader
        The DataLoader whose data set makes its batches again; None where only the store can.
    """
    lookup = Lookup(run)
    found = lookup.find(label, attempt=attempt, rank=rank)
    assert not isinstance(found, SkippedBatch), "nothing is ever skipped here"
    records = found.records.records
    judge = judge_of(run, found.attempt.number)
    ranks = range(found.attempt.geometry.world_size) if rank is None else [rank]
    kept, damage = _kept(run, found, ranks)
    notes = [*found.records.torn, *found.records.damage]
    answers: list[ReplayMicrobatch] = []
    batches: dict[tuple[int, int], Any] = {}
    for of_rank, microbatch in sorted(set(zip(records["rank"].tolist(), records["microbatch"].tolist(), strict=True))):
        place = of_rank, microbatch
        own = records[(records["rank"] == of_rank) & (records["microbatch"] == microbatch)]
        own = own[~np.isin(own["status"], _PADDING)]
        stored = kept.get(place)
        if not len(own):
            status: ReplayStatus = "skipped"
            answers.append(_microbatch(place, status, None, None, ()))
        elif loader is None:
            if stored is not None:
                batches[place] = _tensors(stored)
            else:
                notes.append(f"rank {of_rank}, microbatch {microbatch}: the store does not have it")
            answers.append(_fetched(run, found, place, own, stored))
        else:
            answer, batch = _rebuilt(run, found, place, own, loader, naming, judge)
            if batch is not None:
                batches[place] = batch
            if stored is not None and stored.digest != own["microbatch_digest"][0].tobytes():
                notes.append(f"rank {of_rank}, microbatch {microbatch}: the store has another batch than was recorded")
            elif stored is not None:
                notes.append(f"rank {of_rank}, microbatch {microbatch}: the store has what was recorded")
            answers.append(answer)
    damage = [*found.records.damage, *damage]
    answer_of_step = ReplayAnswer(
        step=label,
        batch=run.label(found.batch.batch),
        attempt=found.attempt.number,
        status=worst([each.status for each in answers]) if answers else "unreadable",
        microbatches=tuple(answers),
        damage=tuple(damage),
        notes=tuple(notes),
    )
    return Replayed(answer=answer_of_step, batches=batches)


def _rebuilt(
    run: Run,
    found: Found,
    place: tuple[int, int],
    records: NDArray[np.void],
    loader: Any,
    naming: Naming,
    judge: Judge | None,
) -> tuple[ReplayMicrobatch, Any]:
    rows = records["row"].astype(np.int64)
    try:
        with _generators_kept():
            batch = _fetch(loader, rows.tolist())
        taken = take(batch, rows, judge=judge, naming=naming, whole=loader.batch_sampler is None)
    except Exception as error:  # noqa: BLE001 - the data set is the user's: whatever it raises is the answer
        told = f"{type(error).__name__}: {error}".splitlines()[0]
        lost = tuple(_sample(run, found, record, "unreadable", None, told) for record in records)
        return _microbatch(place, "unreadable", None, records, lost), None
    verdicts = _verdicts(judge, taken, records)
    samples = []
    for i, record in enumerate(records):
        digest = taken.digests[i][:8]
        status: ReplayStatus = "exact"
        why = None
        if record["digest"].tobytes() != digest:
            status, why = "differs", "the data set gives other tensors than were handed over"
        elif int(record["status"]) != int(taken.status[i]) or verdicts[i]:
            status, why = (
                "differs",
                verdicts[i] or f"status {int(record['status'])} recorded, {int(taken.status[i])} now",
            )
        samples.append(_sample(run, found, record, status, digest, why, length=int(taken.lengths[i])))
    status = worst([sample.status for sample in samples])
    if status == "exact" and taken.digest != records["microbatch_digest"][0].tobytes():
        status = "differs"
    return _microbatch(place, status, taken.digest, records, tuple(samples)), batch


def _fetch(loader: Any, rows: list[int]) -> Any:
    """A batch, as a DataLoader makes one of indices."""
    dataset = loader.dataset
    if loader.batch_sampler is None:
        return loader.collate_fn(dataset[rows[0]])
    several = getattr(dataset, "__getitems__", None)
    return loader.collate_fn(several(rows) if several else [dataset[row] for row in rows])


def _fetched(
    run: Run, found: Found, place: tuple[int, int], records: NDArray[np.void], stored: KeptMicrobatch | None
) -> ReplayMicrobatch:
    """What the store has, which checks its own digest when it is read."""
    status: ReplayStatus
    if stored is None:
        status, why, digest = "unreadable", "the store does not have it, and nothing else can bring it back", None
    elif stored.digest == records["microbatch_digest"][0].tobytes():
        status, why, digest = "exact", None, stored.digest
    else:
        status, why, digest = "differs", "the store has another batch than was recorded", stored.digest
    samples = tuple(
        _sample(run, found, record, status, record["digest"].tobytes() if status == "exact" else None, why)
        for record in records
    )
    return _microbatch(place, status, digest, records, samples)


def _verdicts(judge: Judge | None, taken: Taken, records: NDArray[np.void]) -> list[str | None]:
    """By sample, where the gate says otherwise now than the record does."""
    if judge is None or taken.judged is None:
        return [None] * len(records)
    answers = answers_of(judge, taken.judged, records["position"].astype(np.int64))
    again: NDArray[np.void] = np.zeros(len(records), judge.record)
    answers.write(again)
    names = [
        name
        for name in judge.record.names or ()
        if name in ("verdict", "rules") or name.startswith((HEADLINE_PREFIX, SIGNAL_PREFIX))
    ]
    told: list[str | None] = []
    for record, now in zip(records, again, strict=True):
        other = [
            f"{name} {_said(name, record[name])} recorded, {_said(name, now[name])} now"
            for name in names
            if name in (records.dtype.names or ()) and record[name].tobytes() != now[name].tobytes()
        ]
        told.append("; ".join(other) or None)
    return told


def _said(name: str, value: Any) -> str:
    return Verdict(int(value)).name.lower() if name == "verdict" else str(value)


def _sample(
    run: Run,
    found: Found,
    record: Any,
    status: ReplayStatus,
    digest: bytes | None,
    why: str | None,
    *,
    length: int | None = None,
) -> ReplaySample:
    stream = run.stream_of(found.attempt.number)
    return ReplaySample(
        slot=int(record["slot"]),
        position=int(record["position"]),
        source=stream.source_names[0],
        shard=stream.manifest_set.shard_name(int(record["shard"])),
        row=int(record["row"]),
        delivered=None,
        status=status,
        digest=(digest or bytes(8)).hex(),
        recorded=record["digest"].tobytes().hex(),
        length=int(record["length"]) if length is None else length,
        problem=why,
    )


def _microbatch(
    place: tuple[int, int],
    status: ReplayStatus,
    digest: bytes | None,
    records: NDArray[np.void] | None,
    samples: tuple[ReplaySample, ...],
) -> ReplayMicrobatch:
    return ReplayMicrobatch(
        rank=place[0],
        microbatch=place[1],
        status=status,
        digest=(digest or bytes(16)).hex(),
        recorded=None if records is None else records["microbatch_digest"][0].tobytes().hex(),
        samples=samples,
    )


def _kept(run: Run, found: Found, ranks: Any) -> tuple[dict[tuple[int, int], KeptMicrobatch], list[str]]:
    """What the store has of a step, by rank and microbatch, and which of its files cannot be trusted."""
    kept, damage = {}, []
    for rank in ranks:
        path = run.layout.store(found.attempt.number, found.step, rank)
        try:
            _, read = read_store(path, run=run.run_id, attempt=found.attempt.number, rank=rank, step=found.step)
        except FileNotFoundError:
            continue
        except RunDamaged as error:
            damage.append(str(error).splitlines()[0])
            continue
        kept.update({(rank, each.microbatch): each for each in read})
    return kept, damage


_TORCH = {name: dtype for dtype, name in DTYPES.items()}


def _tensors(stored: KeptMicrobatch) -> dict[str, torch.Tensor]:
    """What the store had, by path."""
    return {name: _tensor(tensor) for name, tensor in stored.tensors.items()}


def _tensor(tensor: NamedTensor) -> torch.Tensor:
    if tensor.dtype not in _TORCH:
        raise UsageError(f"this PyTorch has no dtype {tensor.dtype}", todo="use a newer one")
    dtype = _TORCH[tensor.dtype]
    if not tensor.num_bytes:
        return torch.empty(tensor.shape, dtype=dtype)
    return torch.frombuffer(bytearray(tensor.data), dtype=dtype).reshape(tensor.shape)


@contextmanager
def _generators_kept() -> Iterator[None]:
    """The process's generators of random numbers are afterwards as they were before."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002, TID251 - not drawn from
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002, TID251 - not drawn from
