"""How is one way of doing something compared with another on a machine that is never quiet?

Absolute times move by half between one minute and the next, so contenders take turns: every round runs each of them
once, in an order that rotates, and what is reported is the median over the rounds of the ratio within a round. One
round of each comes first and is not counted.

pytest-benchmark times one function after the other and so cannot do this; where a single number is meant (time of one
call, by size), its fixture is used instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

__all__ = ["Claim", "Turns", "rounds_of"]

Work = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """Seconds of every contender, by round."""

    seconds: Mapping[str, list[float]]

    def seconds_of(self, name: str) -> float:
        """Median time of one contender."""
        return median(self.seconds[name])

    def ratio(self, ours: str, other: str) -> float:
        """Median over the rounds of ours / other."""
        return median(a / b for a, b in zip(self.seconds[ours], self.seconds[other], strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One row of the table at the end of a run: what was seen, and what was promised."""

    name: str
    seen: float
    unit: str
    """``x`` for a ratio."""
    target: float | None = None
    """None for what is shown and not promised."""
    at_least: bool = False
    """The target is a least, not a most."""
    detail: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.target is None:
            return None
        return self.seen >= self.target if self.at_least else self.seen <= self.target


def rounds_of(
    contenders: Mapping[str, Work],
    *,
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
    before: Work = lambda: None,
    after: Callable[[Any], object] = lambda _: None,
) -> Turns:
    """Run every contender once a round, in turns.

    Parameters
    ----------
    contenders
        By name; each call is one measurement.
    rounds
        Counted rounds. With 0 each runs once, and that one is reported: a smoke test.
    clock
        ``time.process_time`` where nothing waits for a disk and the machine is shared.
    before
        Runs before every measurement, untimed (dropping pages, for one).
    after
        Is given what a contender returned, untimed (closing it, for one).
    """
    names = list(contenders)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            before()
            began = clock()
            made = contenders[name]()
            took = clock() - began
            after(made)
            if number or not rounds:
                seconds[name].append(max(took, 1e-9))
    return Turns(seconds=seconds)
