"""What was each rank fed at each step of a heat map, and which of its samples are listed?

All cells have their number of samples and the command that shows them; how many samples are listed is bounded for the
whole page. Samples come into it in this order: those that `localise` names, the peak's, those that are no plain pass,
then all others, the nearest to a peak first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataguard.errors import RunDamaged
from dataguard.gate.rules import Policy
from dataguard.plan.slots import SlotStatus
from dataguard.replay.answers import InspectedSample, rebuilt_digest
from dataguard.replay.inspect import inspected
from dataguard.report.run.curves import rounded
from dataguard.report.run.facts import CellSample, HeatCell
from dataguard.report.run.lineage import Lineage
from dataguard.run.policies import policy_of
from dataguard.triage.localise import Localised, LocalisedSample
from dataguard.triage.respond.shell import quote

__all__ = ["LEAST_LISTED", "MOST_LISTED", "Listed", "cells_of", "list_samples"]

MOST_LISTED = 14_000
"""Samples that are listed on a page, in all its heat maps together, less one for each of their cells."""
LEAST_LISTED = 4_000
"""However many cells there are."""

Key = tuple[int, int, int]
"""Attempt, step from 0, slot: a sample."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Listed:
    """A sample that is listed in some heat map."""

    attempt: int
    step: int
    """From 0."""
    sample: InspectedSample
    loss: float | None
    localised: LocalisedSample | None
    rank_of_interest: int
    """0 for one that `localise` names, 1 at the peak and no plain pass, 2 at the peak, 3 no plain pass, 4 any other."""


def list_samples(
    lineage: Lineage,
    parts: Sequence[tuple[int, NDArray[np.void]]],
    rows: NDArray[np.void],
    localised: Localised | None,
    *,
    peak: int,
    most: int,
) -> list[Listed]:
    """The samples of one heat map that are listed, in the order in which they matter.

    Parameters
    ----------
    parts
        Attempts, and what they recorded of the steps and ranks shown.
    rows
        TELEMETRY_ROW: losses of samples are taken from it.
    peak
        The step that matters most, from 0.
    """
    named = {} if localised is None else {(lineage.run.step(each.step), each.slot): each for each in localised.samples}
    losses = _losses(rows)
    listed: list[Listed] = []
    for attempt, records in parts:
        if not len(records):
            continue
        steps, slots = records["step"].astype(np.int64), records["slot"].astype(np.int64)
        odd = (records["verdict"] > 0) | (records["status"] != SlotStatus.LIVE)
        order = np.where(steps == peak, np.where(odd, 1, 2), np.where(odd, 3, 4))
        order[[key in named for key in zip(steps.tolist(), slots.tolist(), strict=True)]] = 0
        chosen = np.lexsort((slots, steps, np.abs(steps - peak), order))[:most]
        stream = lineage.run.stream_of(attempt)
        policy = _policy(lineage, attempt)
        interest = {(int(steps[k]), int(slots[k])): int(order[k]) for k in chosen}
        by_step = records[np.sort(chosen)]
        for step in np.unique(by_step["step"]).tolist():
            listed += [
                Listed(
                    attempt=attempt,
                    step=step,
                    sample=sample,
                    loss=losses.get((step, sample.rank, sample.slot)),
                    localised=named.get((step, sample.slot)),
                    rank_of_interest=interest[step, sample.slot],
                )
                for sample in inspected(by_step[by_step["step"] == step], stream, policy)
            ]
    listed.sort(key=lambda each: (each.rank_of_interest, abs(each.step - peak)))  # stable: worst first within a step
    return listed[:most]


def _losses(rows: NDArray[np.void]) -> dict[tuple[int, int, int], float]:
    mine = rows[(rows["slot"] >= 0) & (rows["name"] == b"loss")]
    keys = zip(mine["step"].tolist(), mine["rank"].tolist(), mine["slot"].tolist(), strict=True)
    return dict(zip(keys, mine["value"].tolist(), strict=True))


def _policy(lineage: Lineage, attempt: int) -> Policy | None:
    try:
        return policy_of(lineage.run, attempt)
    except RunDamaged as error:
        told = f"rules of attempt {attempt} are told by number: {str(error).splitlines()[0]}"
        if told not in lineage.damage:
            lineage.damage.append(told)
        return None


def cells_of(
    lineage: Lineage,
    parts: Sequence[tuple[int, NDArray[np.void]]],
    listed: Sequence[Listed],
    previews: Mapping[Key, int],
) -> tuple[HeatCell, ...]:
    """A cell for every rank and step of which anything was recorded, in the order (rank, step)."""
    samples: dict[tuple[int, int], list[CellSample]] = {}
    for each in listed:
        place = previews.get((each.attempt, each.step, each.sample.slot))
        samples.setdefault((each.sample.rank, each.step), []).append(_cell_sample(each, place))
    cells = []
    run, quoted = lineage.run, quote(str(lineage.run.path))
    option = "" if lineage.leaf == lineage.lookup.tree.newest else f" --attempt {lineage.leaf}"
    for attempt, records in parts:
        keys, counts = np.unique(records[["rank", "step"]], return_counts=True)
        for (rank, step), count in zip(keys.tolist(), counts.tolist(), strict=True):
            cells.append(
                HeatCell(
                    rank=rank,
                    step=run.label(step),
                    attempt=attempt,
                    samples=tuple(samples.get((rank, step), ())),
                    num_samples=count,
                    command=f"dataguard inspect {quoted} --step {run.label(step)} --rank {rank}{option}",
                )
            )
    return tuple(sorted(cells, key=lambda cell: (cell.rank, cell.step)))


def _cell_sample(each: Listed, preview: int | None) -> CellSample:
    sample, named = each.sample, each.localised
    said = sample.why or [""] * len(sample.rules)
    why = [f"{name}: {text}" for name, text in zip(sample.rules, said, strict=True) if text]
    return CellSample(
        microbatch=sample.microbatch,
        slot=sample.slot,
        position=sample.position,
        source=sample.source,
        shard=sample.shard,
        row=sample.row,
        status=sample.status,
        delivered=None if sample.delivered is None else (sample.delivered.shard, sample.delivered.row),
        verdict=sample.verdict,
        rules=sample.rules,
        why=(*why, *(() if named is None else named.why)),
        loss=None if each.loss is None else rounded([each.loss])[0],
        digest=rebuilt_digest(sample.digest),
        outlying=named is not None and named.outlying,
        preview=preview,
    )
