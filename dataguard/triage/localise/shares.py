"""Which shards and sources hold more of the event than of the run, and how did the loss do when they were read before?

Three numbers for each, and what each can say:

1. How many samples of the event it holds, and how many its share of the background would give. Where samples were drawn
   one by one the hypergeometric chance says how odd that is; but blocks are read together, so neighbours come with
   neighbours in every step of a clean run as well. It is told and decides nothing.
2. How many of the samples whose loss stands out of their own step lie in it, among all of the same steps. That holds
   the shard against what was read beside it. A shard that was always hard is no news: of one whose losses are known
   from before, the excess over its own median counts.
3. At how many of the earlier steps that held it the loss stood out, against all earlier steps. Both shards and trouble
   come in stretches, so steps are compared within stretches of `STRETCH_STEPS` alone.

The second and the third, corrected for all shards and sources, decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dataguard.triage.localise.chances import Tail, hypergeometric_tail, stratified_tail
from dataguard.triage.localise.history import Delivered, Names
from dataguard.triage.localise.sample_losses import SampleLosses

__all__ = ["STRETCH_STEPS", "Share", "hard_for_their_step", "share_of_each"]

STRETCH_STEPS = 32
_HARD = 0.01
"""Chance of the loss of a sample by which it is called hard: one in a hundred is. Counts of them have exact chances
whatever it is."""
_LEAST_OF_SHARD = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One shard or source."""

    kind: Literal["shard", "source"]
    number: int
    name: str
    num_samples: int
    num_outlying: int
    num_expected: float
    num_before: int
    p_value: float
    outlying_p_value: float | None
    steps_before: int
    steps_before_out: int
    num_steps_before: int
    num_steps_before_out: int
    steps_p_value: float | None

    @property
    def deciding(self) -> float:
        """The least of the chances that say something about the data, times how many there are."""
        known = [p for p in (self.outlying_p_value, self.steps_p_value) if p is not None]
        return min(1.0, len(known) * min(known)) if known else 1.0


def hard_for_their_step(event: Delivered, losses: SampleLosses, before: Delivered) -> NDArray[np.bool_] | None:
    """Samples whose loss stands out of their step by more than their shard always does; None without losses."""
    judged = ~np.isnan(losses.excess)
    known = ~np.isnan(losses.excess_before)
    if not judged.any() or not known.any():
        return None
    excess = losses.excess.copy()
    for shard in np.unique(event.shard[judged]).tolist():
        own = losses.excess_before[known & (before.shard == shard)]
        if len(own) >= _LEAST_OF_SHARD:
            excess[event.shard == shard] -= float(np.median(own))
    within = np.full(len(event), -np.inf)
    for step in np.unique(event.step[judged]).tolist():
        mine = judged & (event.step == step)
        with np.errstate(invalid="ignore"):
            away = excess[mine] - np.median(excess[mine])
        within[mine] = np.where(np.isnan(away), 0.0, away)
    chances = Tail(losses.excess_before[known]).chances(within)
    hard: NDArray[np.bool_] = judged & (chances < _HARD) & (losses.own_chance < _HARD)
    return hard


def share_of_each(
    event: Delivered,
    outlying: NDArray[np.bool_],
    hard: NDArray[np.bool_] | None,
    judged: NDArray[np.bool_] | None,
    before: Delivered,
    steps_out: dict[int, bool],
    *,
    names: tuple[Names, Names],
) -> list[Share]:
    """Every shard and source of the event.

    Parameters
    ----------
    event
        Samples of the steps tested.
    outlying
        Those that stand out, for counting.
    hard, judged
        Those whose loss stands out of their step, and those whose loss is known; None where none is.
    steps_out
        Of each earlier step whose loss is known, whether it stood out.
    """
    sources, shards = names
    found = []
    for kind, numbers, numbers_before, known in (
        ("shard", event.shard, before.shard, shards),
        ("source", event.source, before.source, sources),
    ):
        for number in np.unique(numbers[event.held]).tolist():
            mine = (numbers == number) & event.held
            theirs = (numbers_before == number) & before.held
            n, m = int(event.held.sum()), int(before.held.sum())
            count, count_before = int(mine.sum()), int(theirs.sum())
            p_hard = None
            if hard is not None and judged is not None and hard.any():
                p_hard = hypergeometric_tail(
                    int((hard & mine).sum()), int(hard.sum()), int((judged & mine).sum()), int(judged.sum())
                )
            held_steps = np.unique(before.step[theirs]).tolist()
            strata, hits = _strata(held_steps, steps_out)
            is_known = any(marked for _, marked, _ in strata)
            found.append(
                Share(
                    kind=kind,  # type: ignore[arg-type]
                    number=number,
                    name=known.names[number],
                    num_samples=count,
                    num_outlying=int((outlying & mine).sum()),
                    num_expected=n * count_before / m if m else 0.0,
                    num_before=count_before,
                    p_value=hypergeometric_tail(count, n, count + count_before, n + m),
                    outlying_p_value=p_hard,
                    steps_before=sum(step in steps_out for step in held_steps),
                    steps_before_out=hits,
                    num_steps_before=len(steps_out),
                    num_steps_before_out=sum(steps_out.values()),
                    steps_p_value=stratified_tail(strata, hits) if is_known and held_steps else None,
                )
            )
    return found


def _strata(held: list[int], steps_out: dict[int, bool]) -> tuple[list[tuple[int, int, int]], int]:
    """(steps that held it, steps that stood out, steps) of each stretch, and the steps that did both."""
    draws: dict[int, int] = {}
    marked: dict[int, int] = {}
    total: dict[int, int] = {}
    hits = 0
    holding = set(held)
    for step, out in steps_out.items():
        stretch = step // STRETCH_STEPS
        total[stretch] = total.get(stretch, 0) + 1
        marked[stretch] = marked.get(stretch, 0) + out
        if step in holding:
            draws[stretch] = draws.get(stretch, 0) + 1
            hits += out
    return [(draws.get(each, 0), marked[each], total[each]) for each in sorted(total)], hits
