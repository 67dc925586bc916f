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
from dataguard.errors import UsageError
from dataguard.gate.verdict import Verdict
from dataguard.plan.stream import Stream
from dataguard.replay.answers import ReplayAnswer, ReplayMicrobatch, ReplayStatus, SkippedBatch
from dataguard.replay.fetch import fetch_step
from dataguard.replay.given_step import Place, answer_of_step, fetched_microbatch, given_microbatch, microbatches_of
from dataguard.replay.lookup import Lookup
from dataguard.run.judging import Judge, judge_of
from dataguard.run.records import HEADLINE_PREFIX, SIGNAL_PREFIX
from dataguard.run.run import Run
from dataguard.run.store_file import KeptMicrobatch
from dataguard.torch.guarding.judge import Naming, answers_of
from dataguard.torch.guarding.take import Taken, take
from dataguard.torch.tensors import DTYPES

__all__ = ["Replayed", "replay_step"]

_MOST_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replayed:
    """A step made again."""

    answer: ReplayAnswer
    """As `dataguard replay` gives it, slot by slot; padding is left out."""
    batches: Mapping[Place, Any]
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
    number = found.attempt.number
    judge, stream = judge_of(run, number), run.stream_of(number)
    ranks = range(found.attempt.geometry.world_size) if rank is None else [rank]
    fetched = fetch_step(run, number, found.step, ranks)
    answers: list[ReplayMicrobatch] = []
    batches: dict[Place, Any] = {}
    for place, records in microbatches_of(found.records.records):
        kept = fetched.kept.get(place)
        if loader is None or not len(records):
            answers.append(fetched_microbatch(stream, place, records, kept))
            if kept is not None:
                batches[place] = {name: _tensor(tensor) for name, tensor in kept.tensors.items()}
        else:
            answer, batch = _rebuilt(stream, place, records, loader, naming, judge, kept)
            answers.append(answer)
            if batch is not None:
                batches[place] = batch
    return Replayed(answer=answer_of_step(lookup, label, found, answers, fetched, []), batches=batches)


def _rebuilt(
    stream: Stream,
    place: Place,
    records: NDArray[np.void],
    loader: Any,
    naming: Naming,
    judge: Judge | None,
    kept: KeptMicrobatch | None,
) -> tuple[ReplayMicrobatch, Any]:
    rows = records["row"].astype(np.int64)
    try:
        with _generators_kept():
            batch = _fetch(loader, rows.tolist())
        taken = take(batch, rows, judge=judge, naming=naming, whole=loader.batch_sampler is None)
    except Exception as error:  # noqa: BLE001 - the data set is the user's: whatever it raises is the answer
        why = f"the data set cannot make it again: {type(error).__name__}: {error}".splitlines()[0][:_MOST_SHOWN]
        nothing = [bytes(8)] * len(records)
        lost = given_microbatch(stream, place, records, [("unreadable", why)] * len(records), nothing, None)
        return lost, None
    verdicts = _verdicts(judge, taken, records)
    said: list[tuple[ReplayStatus, str | None]] = []
    for i, record in enumerate(records):
        if record["digest"].tobytes() != taken.digests[i][:8]:
            said.append(("differs", "the data set gives other tensors than were handed over"))
        elif int(record["status"]) != int(taken.status[i]):
            said.append(("differs", f"status {int(record['status'])} recorded, {int(taken.status[i])} now"))
        else:
            said.append(("exact", None) if verdicts[i] is None else ("differs", verdicts[i]))
    recorded = records["microbatch_digest"][0].tobytes()
    problem = None
    if kept is not None and kept.digest != recorded:
        problem = "the store has another batch than was recorded"
    elif taken.digest != recorded:
        problem = "the tensors are not those that were handed over"
    answer = given_microbatch(
        stream,
        place,
        records,
        said,
        [digest[:8] for digest in taken.digests],
        taken.digest,
        made_of=taken.made_of,
        origin="rebuilt" if kept is None else "both",
        problem=problem,
    )
    return answer, batch


def _fetch(loader: Any, rows: list[int]) -> Any:
    """A batch, as a DataLoader makes one of indices."""
    dataset = loader.dataset
    if loader.batch_sampler is None:
        return loader.collate_fn(dataset[rows[0]])
    several = getattr(dataset, "__getitems__", None)
    return loader.collate_fn(several(rows) if several else [dataset[row] for row in rows])


def _verdicts(judge: Judge | None, taken: Taken, records: NDArray[np.void]) -> list[str | None]:
    """By sample, where the gate says otherwise now than the record does."""
    if judge is None or taken.judged is None:
        return [None] * len(records)
    again: NDArray[np.void] = np.zeros(len(records), judge.record)
    answers_of(judge, taken.judged, records["position"].astype(np.int64)).write(again)
    names = [
        name
        for name in judge.record.names or ()
        if name in ("verdict", "rules") or name.startswith((HEADLINE_PREFIX, SIGNAL_PREFIX))
    ]
    told: list[str | None] = []
    for record, now in zip(records, again, strict=True):
        other = [
            f"{name} {_said(name, record[name])} recorded, {_said(name, now[name])} judged now"
            for name in names
            if name in (records.dtype.names or ()) and record[name].tobytes() != now[name].tobytes()
        ]
        told.append("; ".join(other) or None)
    return told


def _said(name: str, value: Any) -> str:
    return Verdict(int(value)).name.lower() if name == "verdict" else str(value)


_TORCH = {name: dtype for dtype, name in DTYPES.items()}


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
