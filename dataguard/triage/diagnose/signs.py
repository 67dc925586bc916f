"""What is one contribution to the score of a hypothesis?

A `Sign` is a name, a hypothesis, points, and a condition: a pure predicate over the facts of an `Evidence` and nothing
else, written as data so that it can be read as a table, and so that a test can enumerate it. A score is the sum of the
points of the signs that hold.

Points are on one scale for all, set by what a kind of fact can show and by nothing that was measured on runs:

==  ==================================================================================================
9   an intervention that separates this cause from the others (a cell of the experiment, a canary, two number types)
6   the same, where another cause predicts it as well
4   an observation that names one place and one time, or a shape that defines its cause
3   several traces of one kind, or a mitigation that helped
1   a shape, or a pattern, that several causes share; a search that found nothing
==  ==================================================================================================

`CONVICTS` is what an observation of one place and time gives (4): no sum of shapes and shared patterns is a cause
without one fact that can convict (`dataguard.triage.diagnose.verdict`). `LEAD` is what several traces give (3): of two
hypotheses that both have such facts, neither is convicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from dataguard.core.evidence import (
    Evidence,
    Finite,
    GradNorm,
    HardwareLog,
    Mitigation,
    RankPattern,
    Replay,
    Told,
)
from dataguard.core.spikes import EventClass

__all__ = ["CONVICTS", "FACTS", "LEAD", "UNKNOWN_OF", "Condition", "Hypothesis", "Sign", "all_events_but", "when"]

CONVICTS = 4
"""Points that a hypothesis must have to be convicted."""
LEAD = 3
"""Points by which it must lead every other."""


class Hypothesis(StrEnum):
    """What may be to blame."""

    DATA = "data"
    OPTIMIZER_OR_NUMERICS = "optimizer_or_numerics"
    HARDWARE = "hardware"
    APPLICATION = "application"


FACTS: Mapping[str, tuple[StrEnum | None, ...]] = {
    "event": (None, *EventClass),
    "planned_change": tuple(Told),
    "finite": tuple(Finite),
    "ranks": tuple(RankPattern),
    "optimizer": tuple(Told),
    "data": tuple(Told),
    "replay": tuple(Replay),
    "canary": tuple(Told),
    "hardware_log": tuple(HardwareLog),
    "number_type": tuple(Told),
    "grad_norm": tuple(GradNorm),
    "mitigation": tuple(Mitigation),
}
"""Each fact of `Evidence` that is decided from, with all its values: their product is every evidence there is."""

UNKNOWN_OF: Mapping[str, StrEnum] = {
    "planned_change": Told.UNKNOWN,
    "finite": Finite.UNKNOWN,
    "ranks": RankPattern.UNKNOWN,
    "optimizer": Told.UNKNOWN,
    "data": Told.UNKNOWN,
    "replay": Replay.NOT_RUN,
    "canary": Told.UNKNOWN,
    "hardware_log": HardwareLog.NOT_GIVEN,
    "number_type": Told.UNKNOWN,
    "grad_norm": GradNorm.UNKNOWN,
    "mitigation": Mitigation.NOT_TRIED,
}
"""Of each fact the value that says that nobody looked."""

Condition = tuple[Mapping[str, frozenset[StrEnum | None]], ...]
"""Alternatives, one of which must hold; of each, all facts named must have one of their values."""


def when(**facts: StrEnum | tuple[StrEnum | None, ...] | frozenset[StrEnum | None] | None) -> Condition:
    """One alternative: each fact has its value, or one of its values. ``+`` joins alternatives.

    >>> condition = when(canary=Told.YES) + when(ranks=(RankPattern.ONE_RANK, RankPattern.PERSISTENT))
    >>> len(condition)
    2
    """
    unknown = [name for name in facts if name not in FACTS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no fact of Evidence: {', '.join(FACTS)}")
    clause = {}
    for name, allowed in facts.items():
        clause[name] = frozenset(allowed if isinstance(allowed, tuple | frozenset) else (allowed,))
    return (clause,)


def all_events_but(*events: EventClass) -> frozenset[StrEnum | None]:
    """Every class of event except these; not the absence of one."""
    return frozenset(EventClass) - frozenset(events)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """One contribution: whom it concerns, how many points, when, and what it says to people."""

    name: str
    hypothesis: Hypothesis
    points: int
    """Above zero it speaks for the hypothesis, below zero against it."""
    condition: Condition
    says: str
    reason: str = ""
    """Why it has these points, where that does not go without saying."""

    @property
    def facts(self) -> tuple[str, ...]:
        """The facts that it reads."""
        return tuple(name for name in FACTS if any(name in clause for clause in self.condition))

    def holds(self, evidence: Evidence) -> bool:
        """Whether the evidence shows it; pure."""
        return any(
            all(getattr(evidence, name) in allowed for name, allowed in clause.items()) for clause in self.condition
        )
