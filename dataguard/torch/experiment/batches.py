"""Which batches does an experiment feed: the event's, those before it, and ordinary ones?

All of them are rebuilt exactly or not used. Placebo batches are chosen by key among the steps of the lineage with as
many slots, those with the same sources before others; not the event's, nor its neighbours', nor a step of any other
event that was found, nor one whose logged loss stands out. Steps after the event come first: as the event's batch, the
checkpoints have not seen them yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import xxhash

from dataguard.core.keys import derive_key
from dataguard.core.robust import MAD_TO_SIGMA
from dataguard.errors import AnswerNo, NotInRun, UsageError
from dataguard.replay.answers import SkippedBatch
from dataguard.replay.lookup import Lookup
from dataguard.run.events import SpikeFound
from dataguard.run.notes import noted
from dataguard.run.reached import complete_before
from dataguard.run.run import Run
from dataguard.torch.experiment.measuring import Batch
from dataguard.torch.making import Collate, Transform
from dataguard.torch.microbatch import TensorMicrobatch
from dataguard.torch.replaying import rebuild_tensors

__all__ = ["Rebuilding", "choose_ranks", "placebo_batches"]

_NEIGHBOURS = 2  # an optimizer's step at s shows in the loss of s + 1; one more for trainers that log late
_MOST_TRIED = 4  # batches are rebuilt to see which sources they hold; so many for each that is wanted
_ODD_SIGMAS = 5.0  # of a normal loss, one in three million


@dataclass(slots=True, kw_only=True)
class Rebuilding:
    """Makes batches of one lineage again."""

    run: Run
    attempt: int
    """The leaf of the lineage."""
    roots: Mapping[str, str] | None
    transform: Transform | None
    collate: Collate | None
    ranks: tuple[int, ...] | None
    """Of each step; None for all."""

    def is_skipped(self, label: int) -> bool:
        """Whether the trainer had nothing to train on at a step (a skip that leaves a hole)."""
        return isinstance(Lookup(self.run).find(label, attempt=self.attempt), SkippedBatch)

    def batch(self, label: int) -> Batch:
        """The batch of a step.

        Raises
        ------
        UsageError
            The attempt delivered no tensors that can be made again, or nothing of it counts towards a loss.
        AnswerNo
            It cannot be made again exactly.
        NotInRun
            The lineage did not deliver it.
        """
        microbatches: list[TensorMicrobatch] = []
        for rank in (None,) if self.ranks is None else self.ranks:
            replayed = rebuild_tensors(
                self.run,
                label,
                attempt=self.attempt,
                rank=rank,
                transform=self.transform,
                collate=self.collate,
                roots=self.roots,
            )
            status, notes = replayed.answer.status, replayed.answer.notes
            if status == "skipped":
                raise UsageError(f"step {label:,} was skipped: it has no batch")
            if status not in {"exact", "withheld"}:
                problems = [each.problem for each in replayed.answer.microbatches if each.problem]
                raise AnswerNo(
                    f"the batch of step {label:,} cannot be made again exactly, so it would prove nothing",
                    found="; ".join([status, *dict.fromkeys(problems), *notes][:4]),
                    todo=f"dataguard replay {self.run.path} --step {label} shows what differs",
                )
            if len(replayed.microbatches) < len(replayed.answer.microbatches):
                raise UsageError(
                    f"the tensors of step {label:,} cannot be made again",
                    found="; ".join(notes) or "the attempt delivered no tensors",
                    todo="give the transform that made them: transform=, or --transform MODULE:NAME",
                )
            microbatches += replayed.microbatches
        state = xxhash.xxh3_128(b"dataguard-batch-1")
        for each in microbatches:
            state.update(each.digest)
        useful = tuple(each for each in microbatches if not each.all_masked)
        if not useful:
            raise UsageError(f"nothing of step {label:,} counts towards a loss: all of it is masked")
        return Batch(step=label, microbatches=useful, digest=state.hexdigest())


def choose_ranks(run: Run, step: int, world_size: int, most: int | None) -> tuple[int, ...] | None:
    """The ranks whose microbatches are used, by key; None for all of them."""
    if most is None or most >= world_size:
        return None
    seed = run.plan_document().root.seed
    if most < 1:
        raise UsageError(f"{most} ranks cannot stand for a batch", allowed="at least 1, or None for all")
    by_key = sorted(range(world_size), key=lambda rank: derive_key("experiment-rank", seed, step, rank))
    return tuple(sorted(by_key[:most]))


def placebo_batches(
    rebuilding: Rebuilding,
    batch: Batch,
    *,
    event: range,
    num_placebos: int,
    losses: Mapping[int, float],
    notes: list[str],
) -> list[Batch]:
    """Ordinary batches, chosen by key: those that the event's checkpoints have not seen come first.

    Parameters
    ----------
    event
        Steps of the event, in the trainer's labels.
    losses
        What was logged by step, as far as anything was.

    Raises
    ------
    AnswerNo
        Fewer than four can be had: nothing says what is ordinary.
    """
    leaf = rebuilding.attempt
    sources = _sources(batch)
    chosen: list[Batch] = []
    spare: list[Batch] = []
    why_not: list[str] = []
    for label in _candidates(rebuilding, event, losses):
        if len(chosen) == num_placebos or len(chosen) + len(spare) == _MOST_TRIED * num_placebos:
            break
        try:
            each = rebuilding.batch(label)
        except (AnswerNo, NotInRun, UsageError) as error:
            why_not.append(error.asked)
            continue
        if _size(each) != _size(batch):
            why_not.append(f"step {label:,} has another size")
        else:
            (chosen if _sources(each) == sources else spare).append(each)
    others = spare[: num_placebos - len(chosen)]
    if others:
        chosen += others
        notes.append(f"{len(others)} of {len(chosen)} placebo batches hold other sources: no more have the same")
    if len(chosen) < 4:
        raise AnswerNo(
            f"no more than {len(chosen)} placebo batches can be had, so nothing says what is ordinary",
            found="; ".join(why_not[:3]) or f"attempt {leaf} delivered too few steps beside the event",
            allowed="at least 4 other steps of the same size, of no event",
        )
    if len(chosen) < num_placebos:
        notes.append(f"{len(chosen)} placebo batches instead of {num_placebos}: the run has no more that are ordinary")
    return chosen


def _candidates(rebuilding: Rebuilding, event: range, losses: Mapping[int, float]) -> Iterator[int]:
    run, leaf = rebuilding.run, rebuilding.attempt
    stop = run.label(complete_before(run, leaf))
    barred = {*range(event.start - _NEIGHBOURS, event.stop + _NEIGHBOURS)}
    lineage = set(Lookup(run).lineage(leaf))
    for _, found in noted(run.read().entries, SpikeFound):
        if found.attempt in lineage:
            start, end = run.label(found.start), run.label(found.stop)
            barred |= {*range(start - _NEIGHBOURS, min(end, stop) + _NEIGHBOURS)}
    odd = _odd(losses)
    seed = run.plan_document().root.seed
    steps = [step for step in range(run.label(0), stop) if step not in barred and step not in odd]

    def by_key(those: Iterable[int]) -> list[int]:
        return sorted(those, key=lambda step: derive_key("experiment-placebo", seed, event.start, step))

    yield from by_key(step for step in steps if step >= event.stop)
    yield from by_key(step for step in steps if step < event.start)


def _odd(losses: Mapping[int, float]) -> set[int]:
    """Steps whose logged loss is not finite or stands out of its neighbours."""
    steps = sorted(losses)
    values = np.array([losses[step] for step in steps], np.float64)
    odd = {step for step, value in zip(steps, values, strict=True) if not np.isfinite(value)}
    for i, step in enumerate(steps):
        around = np.concatenate([values[max(0, i - 25) : i], values[i + 1 : i + 26]])
        around = around[np.isfinite(around)]
        if step in odd or len(around) < 8:
            continue
        middle = np.median(around)
        scale = MAD_TO_SIGMA * np.median(np.abs(around - middle))
        if abs(values[i] - middle) > _ODD_SIGMAS * max(scale, 1e-12):
            odd.add(step)
    return odd


def _sources(batch: Batch) -> frozenset[str]:
    return frozenset(name.partition("/")[0] for each in batch.microbatches for name in each.names)


def _size(batch: Batch) -> int:
    return max(each.slots.stop for each in batch.microbatches) - min(each.slots.start for each in batch.microbatches)
