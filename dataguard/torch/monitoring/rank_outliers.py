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

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
_MAD_TO_SIGMA = 1.4826

Floats = NDArray[np.float64]


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
        self._past: deque[tuple[Floats, Floats]] = deque(maxlen=NUM_PAST)
        """Below 8 ranks: distances from the others, and values, of the steps before the recent ones."""
        self._recent: deque[tuple[Floats, Floats, Floats]] = deque(maxlen=NUM_RECENT)
        """Distances, values, and z."""
        self._spreads: deque[float] = deque(maxlen=NUM_RECENT)
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
            distances = compared - np.array([_median(np.delete(compared, rank)) for rank in range(self.world_size)])
            z = self._against_past(distances, compared)
        high = np.where(np.isfinite(z), z, -np.inf)
        (above,) = np.nonzero(high > QUIET_Z)
        if len(above) == 1 and high[above[0]] > OUTLIER_Z:
            self.lone = int(above[0])
        return self._take(distances, compared, z)

    def _spread(self, distances: Floats, compared: Floats) -> float:
        """Between ranks, as far as it is known by now: not a number before there were enough steps."""
        count = int(np.isfinite(distances).sum())
        if count < ENOUGH_RANKS // 2:
            return float("nan")
        own = _MAD_TO_SIGMA * _median(np.abs(distances)) * count / (count - 0.8)  # Croux and Rousseeuw, 1992
        self._spreads.append(own)
        if len(self._spreads) < _ENOUGH_STEPS:
            return float("nan")
        return max(own, float(np.median(self._spreads)), self._rounding(compared))

    def _take(self, distances: Floats, compared: Floats, z: Floats) -> tuple[RankOutlier, ...]:
        oldest = self._recent[0] if len(self._recent) == NUM_RECENT else None
        if self.world_size >= ENOUGH_RANKS:  # z alone is looked at again
            distances = compared = np.empty(0)
        self._recent.append((distances, compared, z))
        persistent = self._persistent()
        if oldest is not None and persistent is None and self.world_size < ENOUGH_RANKS:
            self._past.append(oldest[:2])  # what a sick rank does is no past to hold it against
        if persistent is not None:
            return (persistent,)
        size = np.where(np.isfinite(z), np.abs(z), 0.0)
        worst = int(size.argmax())
        if size[worst] <= OUTLIER_Z:
            return ()
        if self.world_size == 2:
            worst = self._which_of_two(compared, worst)
        return (RankOutlier(signal=self.signal, rank=worst, z=float(z[worst]), is_persistent=False),)

    def _persistent(self) -> RankOutlier | None:
        if len(self._recent) < NUM_RECENT:
            return None
        known = np.stack([z for _, _, z in self._recent])
        known = np.where(np.isfinite(known), known, 0.0)  # what was not told does not stand out
        known.sort(axis=0)
        # What 17 of 32 lie beyond, on either side.
        low, high = known[NUM_RECENT // 2 - 1], known[NUM_RECENT // 2]
        medians = np.where(low > 0, low, np.where(high < 0, high, 0.0))
        worst = int(np.abs(medians).argmax())
        if abs(medians[worst]) <= PERSISTENT_Z:
            self._ill = None
            return None
        if self.world_size == 2 and self._ill is not None:
            worst = self._ill
        elif self.world_size == 2:
            recent = list(self._recent)[NUM_RECENT // 2 :]
            worst = self._ill = self._which_of_two(_medians(np.stack([values for _, values, _ in recent])), worst)
        return RankOutlier(signal=self.signal, rank=worst, z=float(medians[worst]), is_persistent=True)

    def _which_of_two(self, values: Floats, either: int) -> int:
        """Two ranks are as far from each other; the one that has moved further from its own past is meant."""
        if not self._past:
            return either
        newest = [past for _, past in self._past][-NUM_RECENT:]  # what all ranks learn since then is little
        moved = np.abs(values - _medians(np.stack(newest)))
        return int(np.where(np.isfinite(moved), moved, 0.0).argmax())

    def _against_past(self, distances: Floats, compared: Floats) -> Floats:
        if len(self._past) < NUM_RECENT:
            return np.full(self.world_size, np.nan)
        past = np.stack([each for each, _ in self._past])
        middle = _medians(past)
        spread = _MAD_TO_SIGMA * _medians(np.abs(past - middle))
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
            "past": [[_listed(part) for part in each] for each in self._past],
            "spreads": list(self._spreads),
            "ill": self._ill,
            "recent": [[_listed(part) for part in each] for each in self._recent],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue; on another number of ranks it begins anew, since their numbers mean other devices then."""
        self._past.clear()
        self._recent.clear()
        self._spreads.clear()
        self._ill = None
        if state["world_size"] != self.world_size:
            return
        self._spreads.extend(state["spreads"])
        self._ill = state["ill"]
        for distances, values in state["past"]:
            self._past.append((_array(distances), _array(values)))
        for distances, values, z in state["recent"]:
            self._recent.append((_array(distances), _array(values), _array(z)))


def _median(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")


def _medians(values: Floats) -> Floats:
    """Of each column, over what is finite."""
    if np.isfinite(values).all():
        medians: Floats = np.median(values, axis=0)
        return medians
    return np.array([_median(column) for column in values.T])


def _listed(values: Floats) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values.tolist()]


def _array(values: list[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], np.float64)
