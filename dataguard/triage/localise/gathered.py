"""What is known of an event and of the steps before it, before anything is judged?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataguard.core.spikes import SpikeEvent
from dataguard.replay.lookup import Lookup
from dataguard.run.run import Run
from dataguard.triage.localise.history import Delivered, Names, read_steps, stretches_before
from dataguard.triage.localise.logged import by_rank, logged_values, losses_of_samples
from dataguard.triage.localise.loss_steps import loss_by_step, steps_that_stood_out
from dataguard.triage.localise.ranks import RankTable, is_reduced
from dataguard.triage.localise.sample_losses import losses_by_sample
from dataguard.triage.localise.searched import Searched, searched_steps

__all__ = ["Gathered", "gather"]

_MOST_SAMPLES = 1 << 16
"""Samples that are searched: of batches of thousands fewer steps of an event that lasts."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gathered:
    """All that was read; steps count from 0 unless they are said to be labels."""

    run: Run
    leaf: int
    searched: Searched
    """In labels."""
    first: int
    """The first step searched; what lies before is the background."""
    tested: tuple[int, ...]
    steps_out: dict[int, bool]
    """Of each step of the background whose loss is known, or that is in another event: whether the loss stood out."""
    quiet: NDArray[np.bool_]
    """Of each sample before: whether its step did not. What the loss of a step has nothing to do with cannot be changed
    by leaving steps out by their loss; and what made an earlier event as well does not hide in the background."""
    names: tuple[Names, Names]
    """Of sources and shards."""
    samples: Delivered
    """Of the steps searched."""
    before: Delivered
    loss: NDArray[np.float64]
    """Of each sample searched."""
    loss_before: NDArray[np.float64]
    logged_loss: RankTable
    """As ranks logged it, of the steps searched and those before."""
    own_loss: RankTable
    """Of each rank, before any reduction; empty where it is not known."""
    is_reduced: bool
    """Whether the losses logged are one and the same on all ranks."""
    own_norm: RankTable
    notes: list[str]

    @property
    def is_tested(self) -> NDArray[np.bool_]:
        """Of each sample searched, whether its step is held against the background."""
        return np.isin(self.samples.step, self.tested)

    @property
    def seed(self) -> int:
        """Of the run: what is drawn is drawn by it."""
        return self.run.plan_document().root.seed

    @property
    def num_ranks(self) -> int:
        """Of the newest attempt of the lineage that delivered any of the steps searched, else of the leaf."""
        number = int(self.samples.attempt.max()) if len(self.samples) else self.leaf
        return self.run.attempts().attempt(number).geometry.world_size


def gather(run: Run, event: SpikeEvent, *, attempt: int | None, events: Sequence[SpikeEvent]) -> Gathered:
    """Read index and telemetry of the steps of an event, and of the background.

    Raises
    ------
    NotInRun
        The run has no such attempt.
    """
    lookup = Lookup(run)
    chain = lookup.chain(attempt)
    leaf, label = chain[-1].number, run.first_label
    searched = searched_steps(event, first_label=label)
    first, stop = (step - label for step in searched.steps)
    size = run.steps_of(leaf).size_of(first)
    stop = min(stop, max(max(searched.tested) - label + 1, first + max(1, _MOST_SAMPLES // size)))
    searched = Searched(
        steps=(first + label, stop + label),
        tested=searched.tested,
        is_cut=searched.is_cut or stop + label < event.stop,
    )
    spans = stretches_before(first, size, seed=run.plan_document().root.seed)
    names: tuple[Names, Names] = (Names(), Names())
    notes: list[str] = []
    if searched.is_cut:
        notes.append(
            f"the event is {event.start:,}:{event.stop:,}; searched are {stop - first:,} steps that can hold its cause"
        )
    samples = read_steps(lookup, leaf, [(first, stop)], names=names, notes=notes)
    before = read_steps(lookup, leaf, spans, names=names, notes=notes)
    rows = logged_values(run, chain, [*spans, (first, stop)], notes)
    of_samples = losses_of_samples(rows)
    loss, loss_before = losses_by_sample(samples, of_samples), losses_by_sample(before, of_samples)
    logged = RankTable(*by_rank(rows, "loss"))
    reduced = is_reduced(logged)
    means = _means_by_rank((before, loss_before), (samples, loss))
    earlier = logged.steps < first
    by_step = loss_by_step(
        RankTable(logged.steps[earlier], logged.ranks, logged.values[earlier]), before.step, loss_before
    )
    others = {
        step - label
        for each in events
        if (each.start, each.peak) != (event.start, event.peak)
        for step in searched_steps(each, first_label=label).tested
    }
    out = steps_that_stood_out(*by_step, others, before.steps)
    own = means if (reduced or not logged.values.size) and means.values.size else logged
    if reduced and own is logged:
        own = RankTable(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 0)))
    return Gathered(
        run=run,
        leaf=leaf,
        searched=searched,
        first=first,
        tested=tuple(step - label for step in searched.tested),
        steps_out=out,
        quiet=~np.isin(before.step, [step for step, is_out in out.items() if is_out]),
        names=names,
        samples=samples,
        before=before,
        loss=loss,
        loss_before=loss_before,
        logged_loss=logged,
        own_loss=own,
        is_reduced=reduced,
        own_norm=RankTable(*by_rank(rows, "local_grad_norm")),
        notes=notes,
    )


def _means_by_rank(*parts: tuple[Delivered, NDArray[np.float64]]) -> RankTable:
    """The mean loss of the samples of each step and rank, where they were logged."""
    step = np.concatenate([samples.step[~np.isnan(loss)] for samples, loss in parts])
    rank = np.concatenate([samples.rank[~np.isnan(loss)] for samples, loss in parts])
    values = np.concatenate([loss[~np.isnan(loss)] for _, loss in parts])
    steps, step_places = np.unique(step, return_inverse=True)
    ranks, rank_places = np.unique(rank, return_inverse=True)
    sums, counts = np.zeros((len(steps), len(ranks))), np.zeros((len(steps), len(ranks)))
    np.add.at(sums, (step_places, rank_places), values)
    np.add.at(counts, (step_places, rank_places), 1)
    return RankTable(steps, ranks, np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))
