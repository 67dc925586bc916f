"""Is one rank ill while the mean over all of them looks well?

One rank at a loss of 4.4 among 512 at 2.2 moves the mean by 0.0043. So each step's values of all ranks are held against
each other:

1. From 8 ranks up, a rank's z is its distance from the median over ranks, in robust standard deviations (1.4826 MAD,
   corrected for few ranks) between ranks: the larger of this step's and the median of the last `NUM_RECENT` steps'. A
   MAD of 8 ranks alone is off by 40 %, and would call one rank in a thousand an outlier; 32 of them are off by 7 %.
2. Below 8 a MAD over ranks says nothing. There a rank's distance from the median of the *others* is held against its
   own past distances: those of the `NUM_PAST` steps before the last `NUM_RECENT`. A rank that was ill from the first
   step on cannot be told so. Two ranks are as far from each other; the one that left its own level is meant.
3. Ranks see other data at every step, so an outlier of one step belongs to its data. A rank is *persistent* where more
   than half of its last `NUM_RECENT` z lie beyond `PERSISTENT_Z` on one side. Of a rank that is well and normal 2.3 %
   do, and 17 of 32 have a chance of 5e-20; of Laplace's values, whose tails are far heavier, 6.4 % and 1e-12, or once
   in 27,000 runs of a million steps on 512 ranks.

Gradient norms are compared by their logarithm. Differences below a ten-thousandth are rounding: they do not stand out
where all ranks log the same reduced value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataguard.core.robust import MAD_TO_SIGMA
from dataguard.torch.monitoring.decision import RankOutlier

__all__ = ["NUM_PAST", "NUM_RECENT", "PERSISTENT_Z", "RankWatch"]

ENOUGH_RANKS = 8
"""From here on ranks are held against each other."""
NUM_RECENT = 32
NUM_PAST = 128
PERSISTENT_Z = 2.0
OUTLIER_Z = 6.0
"""A rank stands out at one step: 2e-9 of normal values, 1e-6 a step among 512 ranks."""
QUIET_Z = 3.0
"""One rank alone shows an event where no other one lies beyond this."""
_ROUNDING = 1e-4
_ENOUGH_STEPS = 8

Floats = NDArray[np.float64]


class _Ring:
    """The last `size` rows, shape (width,) each."""

    def __init__(self, size: int, width: int) -> None:
        self._held = np.full((size, width), np.nan)
        self._count = 0

    def __len__(self) -> int:
        return min(self._count, len(self._held))

    @property
    def is_full(self) -> bool:
        return self._count >= len(self._held)

    def push(self, row: Floats) -> Floats | None:
        """Take a row; the one that it takes the place of."""
        place = self._count % len(self._held)
        oldest = self._held[place].copy() if self.is_full else None
        self._held[place] = row
        self._count += 1
        return oldest

    def rows(self) -> Floats:
        """In any order, shape (n, width)."""
        return self._held[: len(self)]

    def newest(self, count: int) -> Floats:
        """The last so many, in order."""
        return np.roll(self._held, -self._count, axis=0)[-count:] if self.is_full else self.rows()[-count:]

    def state(self) -> list[list[float | None]]:
        return [[None if value != value else value for value in row] for row in self.newest(len(self)).tolist()]

    def load(self, rows: list[list[float | None]]) -> None:
        self._count = 0
        for row in rows:
            self.push(np.array([np.nan if value is None else value for value in row], np.float64))


class RankWatch:
    """The values of one signal on all ranks, step by step; knows at most `NUM_PAST` + `NUM_RECENT` steps.

    >>> watch = RankWatch("loss", 8)
    >>> values = np.array([2.1, 2.2, 2.3, 2.2, 4.4, 2.1, 2.25, 2.15])
    >>> for _ in range(32):
    ...     found = watch.observe(values)
    >>> found[0].rank, found[0].is_persistent, watch.lone
    (4, True, 4)
    """

    def __init__(self, signal: str, world_size: int) -> None:
        self.signal = signal
        self.world_size = world_size
        self._z = _Ring(NUM_RECENT, world_size)
        own = world_size if world_size < ENOUGH_RANKS else 0
        self._distances, self._values = _Ring(NUM_RECENT, own), _Ring(NUM_RECENT, own)
        """Below 8 ranks: distances from the others, and values, of the recent steps."""
        self._past_distances, self._past_values = _Ring(NUM_PAST, own), _Ring(NUM_PAST, own)
        """The same of the steps before."""
        self._spreads = _Ring(NUM_RECENT, 1)
        """From 8 ranks up: robust standard deviation between ranks, of each recent step."""
        self._ill: int | None = None
        """Of two ranks the one that is persistent, as it was told at first."""
        self.lone: int | None = None
        """The one rank that lies high at the newest step, where no other does."""

    def observe(self, values: Floats) -> tuple[RankOutlier, ...]:
        """Take the values of all ranks at a step, shape (world_size,), NaN where there is none; who stands out."""
        self.lone = None
        if self.world_size < 2:
            return ()
        compared = self._comparable(values)
        if self.world_size >= ENOUGH_RANKS:
            distances = compared - _median(compared)
            z = distances / self._spread(distances, compared)
        else:
            distances = compared - _medians_of_others(compared)
            z = self._against_past(distances, compared)
        z = np.where(
            np.isfinite(z), z.round(3), 0.0
        )  # what was not told does not stand out; digits cost in checkpoints
        above = np.flatnonzero(z > QUIET_Z)
        if len(above) == 1 and z[above[0]] > OUTLIER_Z:
            self.lone = int(above[0])
        return self._take(distances, compared, z)

    def _spread(self, distances: Floats, compared: Floats) -> float:
        """Between ranks, as far as it is known by now: not a number before there were enough steps."""
        count = int(np.isfinite(distances).sum())
        if count < ENOUGH_RANKS // 2:
            return float("nan")
        own = MAD_TO_SIGMA * _median(np.abs(distances)) * count / (count - 0.8)  # Croux and Rousseeuw, 1992
        self._spreads.push(np.array([own]))
        if len(self._spreads) < _ENOUGH_STEPS:
            return float("nan")
        return max(own, _median(self._spreads.rows()[:, 0]), self._rounding(compared))

    def _take(self, distances: Floats, compared: Floats, z: Floats) -> tuple[RankOutlier, ...]:
        self._z.push(z)
        if self.world_size < ENOUGH_RANKS:
            before = (self._distances.push(distances), self._values.push(compared))
        else:
            before = (None, None)
        persistent = self._persistent()
        if persistent is not None:
            return (persistent,)
        if before[0] is not None and before[1] is not None:  # what a sick rank does is no past to hold it against
            self._past_distances.push(before[0])
            self._past_values.push(before[1])
        size = np.abs(z)
        worst = int(size.argmax())
        if size[worst] <= OUTLIER_Z:
            return ()
        if self.world_size == 2:
            worst = self._which_of_two(compared, worst)
        return (RankOutlier(signal=self.signal, rank=worst, z=float(z[worst]), is_persistent=False),)

    def _persistent(self) -> RankOutlier | None:
        if not self._z.is_full:
            return None
        known = self._z.rows()
        num_beyond = np.maximum((known > PERSISTENT_Z).sum(0), (known < -PERSISTENT_Z).sum(0))
        (ranks,) = np.nonzero(num_beyond > NUM_RECENT // 2)
        if not len(ranks):
            self._ill = None
            return None
        medians = np.median(known[:, ranks], axis=0)
        place = int(np.abs(medians).argmax())
        worst = int(ranks[place])
        if self.world_size == 2:
            if self._ill is None:
                self._ill = self._which_of_two(_medians(self._values.newest(NUM_RECENT // 2)), worst)
            worst = self._ill
        return RankOutlier(signal=self.signal, rank=worst, z=float(medians[place]), is_persistent=True)

    def _which_of_two(self, values: Floats, either: int) -> int:
        """Two ranks are as far from each other; the one that has moved further from its own past is meant."""
        if not len(self._past_values):
            return either
        newest = self._past_values.newest(NUM_RECENT)  # what all ranks learn since then is little
        moved = np.abs(values - _medians(newest))
        return int(np.where(np.isfinite(moved), moved, 0.0).argmax())

    def _against_past(self, distances: Floats, compared: Floats) -> Floats:
        if len(self._past_distances) < NUM_RECENT:
            return np.full(self.world_size, np.nan)
        past = self._past_distances.rows()
        middle = _medians(past)
        spread = MAD_TO_SIGMA * _medians(np.abs(past - middle))
        return (distances - middle) / np.maximum(spread, self._rounding(compared))

    def _rounding(self, compared: Floats) -> float:
        """The least spread: of a logarithm it is relative already."""
        return _ROUNDING if self.signal == "grad_norm" else _ROUNDING * max(abs(_median(compared)), 1e-12)

    def _comparable(self, values: Floats) -> Floats:
        finite = np.where(np.isfinite(values), values, np.nan)
        if self.signal != "grad_norm":
            return finite
        # A rank without any gradient (exactly zero) is as odd as one far too large.
        return np.log(np.maximum(finite, 1e-12))

    # -- checkpoint

    def state_dict(self) -> dict[str, Any]:
        """JSON-able, bounded."""
        return {
            "world_size": self.world_size,
            "ill": self._ill,
            "rings": {name: ring.state() for name, ring in self._rings().items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue; on another number of ranks it begins anew, since their numbers mean other devices then."""
        is_same = state["world_size"] == self.world_size
        self._ill = state["ill"] if is_same else None
        for name, ring in self._rings().items():
            ring.load(state["rings"][name] if is_same else [])

    def _rings(self) -> dict[str, _Ring]:
        return {
            "z": self._z,
            "spreads": self._spreads,
            "distances": self._distances,
            "values": self._values,
            "past_distances": self._past_distances,
            "past_values": self._past_values,
        }


def _median(values: Floats) -> float:
    known = np.sort(values[np.isfinite(values)])
    count = len(known)
    return float(known[(count - 1) // 2] + known[count // 2]) / 2 if count else float("nan")


def _medians(values: Floats) -> Floats:
    """Of each column, over what is finite."""
    ordered = np.sort(values, axis=0)  # NaN comes last
    if np.isfinite(ordered[-1]).all() and np.isfinite(ordered[0]).all():
        medians: Floats = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
        return medians
    return np.array([_median(column) for column in values.T])


def _medians_of_others(values: Floats) -> Floats:
    """For each of a few ranks the median of the other ones."""
    told = [(value, rank) for rank, value in enumerate(values.tolist()) if value == value]
    medians = []
    for rank in range(len(values)):
        others = sorted(value for value, other in told if other != rank)
        count = len(others)
        medians.append((others[(count - 1) // 2] + others[count // 2]) / 2 if count else np.nan)
    return np.array(medians, np.float64)
