"""Which signals of the event's samples stand out of the run's background of the same source?

Samples of an event that no data made are like any others of their source: they could be exchanged with those of other
steps. From that alone follow two exact chances, for each measure, side, source and step tested:

1. how many of the event's samples lie beyond *all* of the background (so and so many of the largest are all of them);
2. how many lie beyond the 95 % quantile of both together (hypergeometric).

Where one sample alone makes an event, ranks cannot show it: they end at 1 in (n + 1). So there is a third one:

3. how far the furthest lies beyond the background's tail, assumed to be no lighter than exponential on the measure's
   scale (`chances.Tail`). This is an assumption. Where losses of samples were logged it counts only for a sample whose
   own loss stands out as well.

Samples can be exchanged as long as one kind of them is not read in one go: shards differ, and blocks are read together.
So what stands out must stand out of the steps right before as well, where the same blocks were read.

The least of the three, times three, times everything that was compared, is what a signal is judged by. Measures that
the index has of every sample are compared a second time, against all of the background that was looked up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dataguard.triage.localise.chances import Tail, first_of_all_tail, hypergeometric_tail, location_scale
from dataguard.triage.localise.measures import MEASURES, Measure, Side
from dataguard.triage.localise.sample_losses import LEAST_BACKGROUND

__all__ = ["NEAR_CHANCE", "Compared", "Measured", "compare", "deviations"]

Origin = Literal["rebuilt", "recorded"]

_QUANTILE = 0.95
NEAR_CHANCE = 0.01
"""Chance below which a signal must be against the steps right before as well: asked of what stands out already, and so
corrected for nothing."""
_NUM_WAYS = 3
_BY_NAME = {measure.name: measure for measure in MEASURES}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """Measures of some samples: arrays of shape (n,), NaN where one is not known."""

    step: NDArray[np.int64]
    source: NDArray[np.int64]
    values: Mapping[str, NDArray[np.float64]]

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Compared:
    """One measure, side and source, at the step (or at all steps together) where it shows most."""

    measure: str
    unit: str
    side: Side
    source: int
    step: int | None
    origin: Origin
    bound: float
    usual: float
    extreme: float
    beyond: NDArray[np.bool_]
    """Of all samples of the event, those beyond the bound; of all steps tested."""
    num_beyond: int
    """At that step."""
    num_samples: int
    num_beyond_before: int
    num_samples_before: int
    p_value: float
    near_p_value: float | None
    """The same against the steps right before alone; None where they are too few, or where it was not asked."""
    size: float
    """How far the samples beyond the bound lie from what is usual, in robust standard deviations, on the measure's
    scale; infinite where the background has no spread. Of equal chances the larger comes first."""

    @property
    def order(self) -> tuple[float, float]:
        """By what they are sorted."""
        return self.p_value, -self.size


def _measure(name: str) -> Measure:
    found = _BY_NAME.get(name)
    return found or Measure(name=name, kind="text", unit="fired", sides=("high",))


def compare(
    event: Measured,
    before: Measured,
    *,
    near: NDArray[np.bool_],
    origin: Origin,
    alone: NDArray[np.bool_] | None = None,
) -> tuple[list[Compared], int]:
    """Hold the event's samples against those before, measure by measure.

    Parameters
    ----------
    near
        Samples of the background that are of the steps right before.
    alone
        Samples of the event that may stand out by themselves; None for all.

    Returns
    -------
    compared
        One entry for each measure, side and source: the step where it shows most.
    num_comparisons
        How many chances the least ones were taken of.
    """
    found: dict[tuple[str, Side, int], Compared] = {}
    count = 0
    steps = np.unique(event.step).tolist()
    groups: list[int | None] = [*steps, *([None] if len(steps) > 1 else [])]
    for name, values in event.values.items():
        theirs = before.values.get(name)
        if theirs is None:
            continue
        measure = _measure(name)
        for source in np.unique(event.source).tolist():
            background = theirs[(before.source == source) & ~np.isnan(theirs)]
            if len(background) < LEAST_BACKGROUND:
                continue
            for side in measure.sides:
                against = _Side(measure, side, background)
                for step in groups:
                    mine = (event.source == source) & ~np.isnan(values)
                    if step is not None:
                        mine &= event.step == step
                    if not mine.any():
                        continue
                    count += _NUM_WAYS
                    one = against.judge(values, mine, alone, source=source, step=step, origin=origin)
                    key = (name, side, source)
                    if key not in found or one.order < found[key].order:
                        found[key] = one
    answers = [_with_near(one, event, before, near, alone) for one in found.values()]
    return sorted(answers, key=lambda one: one.order), count


def _with_near(
    one: Compared, event: Measured, before: Measured, near: NDArray[np.bool_], alone: NDArray[np.bool_] | None
) -> Compared:
    """With the chance against what was read right before, where it could matter."""
    if one.p_value >= NEAR_CHANCE:
        return one
    values, theirs = event.values[one.measure], before.values[one.measure]
    background = theirs[near & (before.source == one.source) & ~np.isnan(theirs)]
    if len(background) < LEAST_BACKGROUND:
        return one
    mine = (event.source == one.source) & ~np.isnan(values)
    if one.step is not None:
        mine &= event.step == one.step
    against = _Side(_measure(one.measure), one.side, background)
    found = against.judge(values, mine, alone, source=one.source, step=one.step, origin=one.origin)
    return replace(one, near_p_value=found.p_value)


class _Side:
    """One side of a measure of one source, with its background."""

    def __init__(self, measure: Measure, side: Side, background: NDArray[np.float64]) -> None:
        self._measure = measure
        self._side: Side = side
        self._sign = 1.0 if side == "high" else -1.0
        self._raw = background
        self._scaled = self._sign * measure.scaled(background)
        self._tail = Tail(self._scaled)
        self._most = float(self._scaled.max())
        self._centre, self._spread = location_scale(self._scaled)

    def judge(
        self,
        values: NDArray[np.float64],
        mine: NDArray[np.bool_],
        alone: NDArray[np.bool_] | None,
        *,
        source: int,
        step: int | None,
        origin: Origin,
    ) -> Compared:
        every = self._sign * self._measure.scaled(values)
        own = every[mine]
        n, m = len(own), len(self._scaled)
        beyond_all = int(np.count_nonzero(own > self._most))
        quantile = float(np.quantile(np.concatenate([own, self._scaled]), _QUANTILE))
        hits, hits_before = (int(np.count_nonzero(each > quantile)) for each in (own, self._scaled))
        if self._measure.unit == "fired":  # yes or no
            quantile = 0.5
            hits, hits_before = (int(np.count_nonzero(each > quantile)) for each in (own, self._scaled))
        may = own if alone is None else every[mine & alone]
        furthest = float(may.max()) if len(may) else -np.inf
        ways = (
            (first_of_all_tail(beyond_all, n, m), self._most, beyond_all, 0),
            (hypergeometric_tail(hits, n, hits + hits_before, n + m), quantile, hits, hits_before),
            (min(1.0, n * self._tail.chance(furthest)), self._most, int(np.count_nonzero(may > self._most)), 0),
        )
        chance, bound, num_beyond, num_before = min(ways, key=lambda way: way[0])
        with np.errstate(invalid="ignore"):
            beyond = (every > bound) & ~np.isnan(values)
        extreme = float(values[mine][int(np.argmax(own))])
        return Compared(
            measure=self._measure.name,
            unit=self._measure.unit,
            side=self._side,
            source=source,
            step=step,
            origin=origin,
            bound=self._unscaled(bound),
            usual=float(np.median(self._raw)),
            extreme=extreme,
            beyond=beyond,
            num_beyond=num_beyond,
            num_samples=n,
            num_beyond_before=num_before,
            num_samples_before=m,
            p_value=min(1.0, chance),
            near_p_value=None,
            size=self._size(own[own > bound]),
        )

    def _size(self, beyond: NDArray[np.float64]) -> float:
        away = float(np.median(beyond)) - self._centre if len(beyond) else 0.0
        return away / self._spread if self._spread > 0 else np.inf if away > 0 else 0.0

    def _unscaled(self, scaled: float) -> float:
        value = self._sign * scaled
        return float(np.expm1(value)) if self._measure.logarithm else value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Deviation:
    """How far one measure of every sample lies from what is usual for its source."""

    measure: str
    z: NDArray[np.float64]
    """NaN where nothing is known; infinite where the background has no spread and the value is another."""
    chance: NDArray[np.float64]
    """Of as much, either side; 1 where nothing is known."""
    usual: NDArray[np.float64]
    beyond_all: NDArray[np.bool_]
    """Further than all of the background, on a side that counts."""


def deviations(event: Measured, before: Measured) -> Iterator[Deviation]:
    """Each measure of each sample of the event against the background of its source."""
    for name, values in event.values.items():
        theirs = before.values.get(name)
        if theirs is None:
            continue
        measure = _measure(name)
        z, chance, usual = np.full(len(event), np.nan), np.ones(len(event)), np.full(len(event), np.nan)
        beyond = np.zeros(len(event), np.bool_)
        for source in np.unique(event.source).tolist():
            background = theirs[(before.source == source) & ~np.isnan(theirs)]
            mine = (event.source == source) & ~np.isnan(values)
            if len(background) < LEAST_BACKGROUND or not mine.any():
                continue
            scaled, own = measure.scaled(background), measure.scaled(values[mine])
            centre, scale = location_scale(scaled)
            with np.errstate(divide="ignore", invalid="ignore"):
                z[mine] = np.where(own == centre, 0.0, (own - centre) / scale)
            up, down = Tail(scaled), Tail(-scaled)
            sides = [up.chances(own) if "high" in measure.sides else np.ones(len(own))]
            sides.append(down.chances(-own) if "low" in measure.sides else np.ones(len(own)))
            chance[mine] = np.minimum(1.0, len(measure.sides) * np.minimum(*sides))
            usual[mine] = float(np.median(background))
            above, below = own > scaled.max(), own < scaled.min()
            beyond[mine] = (above & ("high" in measure.sides)) | (below & ("low" in measure.sides))
        yield Deviation(measure=name, z=z, chance=chance, usual=usual, beyond_all=beyond)


def rules_as_measures(
    names: Sequence[str], bits: NDArray[np.uint64], judged: NDArray[np.bool_]
) -> dict[str, NDArray[np.float64]]:
    """Whether each rule of a policy fired, as ``rule NAME``: 1 or 0, NaN where nothing was judged.

    >>> rules_as_measures(["a", "b"], np.array([2, 0], np.uint64), np.array([True, False]))["rule b"].tolist()
    [1.0, nan]
    """
    return {
        f"rule {name}": np.where(judged, ((bits >> np.uint64(bit)) & np.uint64(1)).astype(np.float64), np.nan)
        for bit, name in enumerate(names)
    }
