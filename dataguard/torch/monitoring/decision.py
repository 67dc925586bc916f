"""What do all ranks know of a step once its numbers were judged, and is its update to be made?

A `Decision` is what `Monitor.log` gives back where a detector is on: the same value on every rank, since it follows
from the numbers of all. `Skips` counts the updates that were left out. No trainer skips for ever: whoever has used up
a `SkipBudget` (so many in a row, or so many in a window of steps) stops, on all ranks at the same step, with a message.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Literal, get_args

from dataguard.core.spikes import SpikeEvent
from dataguard.errors import AnswerNo, UsageError

__all__ = ["Decision", "RankOutlier", "SkipBudget", "Skips"]

SkipOn = Literal["never", "nonfinite", "spike"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOutlier:
    """A rank that stands out from the others (from 8 ranks up), or from its own past (below 8)."""

    signal: str
    """``loss`` or ``grad_norm``."""
    rank: int
    z: float
    """Robust standard deviations: at this step, or, where it is persistent, the median of the last steps."""
    is_persistent: bool
    """Whether it has stood out over many steps, each of which brought it other data. One step proves nothing: among
    512 ranks some rank lies above 4 on 1.6 % of steps by chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipBudget:
    """Which updates are left out, and how many of them before training stops.

    >>> SkipBudget(on="spike", num_in_a_row=2).num_steps
    10
    """

    on: SkipOn = "nonfinite"
    """``nonfinite``: steps on which any rank saw NaN or infinity (which a loss scaler does not skip itself).
    ``spike``: those, and steps on which a rise of loss or gradient norm is noticed; while it goes on, each whose value
    is no smaller than the one that began it. A hard batch leaves no damage when it is trained on, so skipping it costs
    its data and gains nothing. ``never``: none; decisions are told all the same."""
    num_steps: int = 10
    """Most skipped steps within `window_steps`. At 1 % of the steps something else is wrong than single batches."""
    window_steps: int = 1_000
    num_in_a_row: int = 3
    """Most skipped steps one after the other: each of them had other data, so the next is no better."""

    def __post_init__(self) -> None:
        if self.on not in get_args(SkipOn):
            raise UsageError(f"on {self.on!r} cannot be", allowed=", ".join(get_args(SkipOn)))
        for name in ("num_steps", "window_steps", "num_in_a_row"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} {value!r} of a skip budget cannot be", allowed="a whole number of at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was found at a step, and whether its update is to be made; the same on all ranks."""

    step: int
    """As the trainer calls it."""
    loss: float
    """The mean over ranks; NaN or infinite where it is so on any of them."""
    grad_norm: float | None
    """The same of the gradient norm; None where no rank logged one."""
    began: tuple[SpikeEvent, ...] = ()
    """Events noticed at this step; their class is provisional until they end."""
    ended: tuple[SpikeEvent, ...] = ()
    """Events whose class and aftermath are known as of this step."""
    nonfinite_ranks: tuple[int, ...] = ()
    """Ranks whose loss or gradient norm is NaN or infinite."""
    outliers: tuple[RankOutlier, ...] = ()
    """The worst rank by loss and by gradient norm, where one stands out."""
    skip_update: bool = False
    """Whether the optimizer's step is to be left out (and gradients thrown away), on every rank."""
    reason: str = ""
    """Why, in words; empty where it is not."""


class Skips:
    """Counts skipped steps against a budget.

    >>> skips = Skips(SkipBudget(num_in_a_row=2))
    >>> for step in (5, 6, 7):
    ...     skips.add(step, "loss is nan on rank 1")
    Traceback (most recent call last):
        ...
    dataguard.errors.AnswerNo: training stops at step 7: its update would be the 3rd to be skipped in a row
      found: loss is nan on rank 1
      allowed: at most 2 in a row, and 10 in 1,000 steps
      next: dataguard triage says what it was; resume from a checkpoint before step 5
    """

    def __init__(self, budget: SkipBudget) -> None:
        self.budget = budget
        self._steps: deque[int] = deque(maxlen=max(budget.num_steps, budget.num_in_a_row) + 1)
        self._in_a_row: list[int] = []

    def add(self, step: int, reason: str) -> None:
        """Count a step that is to be skipped.

        Raises
        ------
        AnswerNo
            The budget is used up: training stops.
        """
        budget = self.budget
        self._forget(step)
        recent = [each for each in self._steps if each > step - budget.window_steps]
        if len(self._in_a_row) >= budget.num_in_a_row:
            raise self._stop(
                step, self._in_a_row[0], reason, f"the {_nth(len(self._in_a_row) + 1)} to be skipped in a row"
            )
        if len(recent) >= budget.num_steps:
            what = f"the {_nth(len(recent) + 1)} to be skipped in {budget.window_steps:,} steps"
            raise self._stop(step, recent[0], reason, what)
        self._steps.append(step)
        self._in_a_row.append(step)

    def keep(self, step: int) -> None:
        """Note that a step was trained on."""
        self._forget(step)
        self._in_a_row.clear()

    def _forget(self, step: int) -> None:
        """A trainer that went back has not skipped what it comes to again."""
        while self._steps and self._steps[-1] >= step:
            self._steps.pop()
        while self._in_a_row and self._in_a_row[-1] >= step:
            self._in_a_row.pop()

    def _stop(self, step: int, first: int, reason: str, what: str) -> AnswerNo:
        budget = self.budget
        return AnswerNo(
            f"training stops at step {step:,}: its update would be {what}",
            found=reason,
            allowed=f"at most {budget.num_in_a_row:,} in a row, "
            f"and {budget.num_steps:,} in {budget.window_steps:,} steps",
            todo=f"dataguard triage says what it was; resume from a checkpoint before step {first:,}",
        )

    def state_dict(self) -> dict[str, Any]:
        """JSON-able, bounded by the budget."""
        return {"steps": list(self._steps), "in_a_row": list(self._in_a_row)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` gave."""
        self._steps.clear()
        self._steps.extend(int(step) for step in state["steps"])
        self._in_a_row = [int(step) for step in state["in_a_row"]]


def _nth(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number:,}{ending}"
