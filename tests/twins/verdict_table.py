"""A naive twin of the verdict: every evidence there is, as arrays with one axis a fact.

Scores are summed over the signs' conditions as data, whole axes at a time; the rules are written again, as masks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataguard.core.evidence import Evidence, RankPattern, Replay, Told, Verdict
from dataguard.core.spikes import EventClass
from dataguard.triage.diagnose.scoring import CAN_CONVICT, SIGNS
from dataguard.triage.diagnose.signs import FACTS, Condition, Hypothesis

NAMES = tuple(name for name in FACTS if name != "event")
SHAPE = tuple(len(FACTS[name]) for name in NAMES)
VERDICTS = tuple(Verdict)
CONVICTS, LEAD = 4, 3


@dataclass(slots=True, repr=False)
class Slice:
    """All evidence of one class of event; its repr says nothing, since a failing test would print millions."""

    event: StrEnum | None
    scores: dict[Hypothesis, NDArray[np.int8]]
    can_convict: dict[Hypothesis, NDArray[np.bool_]]
    verdicts: NDArray[np.uint8]

    def evidence(self, place: int) -> Evidence:
        """The evidence at a flat place."""
        indices = np.unravel_index(place, SHAPE)
        facts: dict[str, Any] = {name: FACTS[name][int(index)] for name, index in zip(NAMES, indices, strict=True)}
        return Evidence(event=self.event, **facts)  # type: ignore[arg-type]


def axis(name: str, *values: StrEnum) -> NDArray[np.bool_]:
    """Where a fact has one of some values, to broadcast over all axes."""
    shape = [1] * len(NAMES)
    shape[NAMES.index(name)] = -1
    return np.array([value in values for value in FACTS[name]]).reshape(shape)


def holds(condition: Condition, event: StrEnum | None) -> NDArray[np.bool_]:
    """Where a condition holds, to broadcast over all axes."""
    found = np.zeros((1,) * len(NAMES), np.bool_)
    for clause in condition:
        if event in clause.get("event", {event}):
            here = np.ones((1,) * len(NAMES), np.bool_)
            for name, allowed in clause.items():
                if name != "event":
                    here = here & axis(name, *(value for value in allowed if value is not None))
            found = found | here
    return found


def slices() -> Iterator[Slice]:
    """One after the other, by class of event."""
    for event in FACTS["event"]:
        scores = {each: np.zeros(SHAPE, np.int8) for each in Hypothesis}
        for sign in SIGNS:
            where = holds(sign.condition, event)
            if where.any():
                scores[sign.hypothesis] += where * np.int8(sign.points)
        can = {each: holds(CAN_CONVICT[each], event) for each in Hypothesis}
        yield Slice(event=event, scores=scores, can_convict=can, verdicts=_decided(event, scores, can))


def _decided(
    event: StrEnum | None, scores: dict[Hypothesis, NDArray[np.int8]], can: dict[Hypothesis, NDArray[np.bool_]]
) -> NDArray[np.uint8]:
    guilty, contested = {}, np.zeros(SHAPE, np.bool_)
    for each in Hypothesis:
        others = np.maximum.reduce([scores[other] for other in Hypothesis if other is not each])
        strong = (scores[each] >= CONVICTS) & can[each]
        guilty[each] = strong & (scores[each] - others >= LEAD)
        contested |= strong
    planned = np.broadcast_to(axis("planned_change", Told.YES), SHAPE)
    code = {verdict: VERDICTS.index(verdict) for verdict in Verdict}
    verdicts = np.full(SHAPE, code[Verdict.INCONCLUSIVE], np.uint8)
    if event is None:
        odd = axis("ranks", RankPattern.PERSISTENT) | axis("canary", Told.YES)
        verdicts[:] = code[Verdict.NO_INCIDENT]
        verdicts[planned] = code[Verdict.PLANNED_CHANGE]
        verdicts[np.broadcast_to(odd, SHAPE)] = code[Verdict.INCONCLUSIVE]
        verdicts[guilty[Hypothesis.HARDWARE]] = code[Verdict.HARDWARE]
        return verdicts
    if event not in (EventClass.HARD_FAULT, EventClass.STALL):
        verdicts[planned & ~contested] = code[Verdict.PLANNED_CHANGE]
    verdicts[guilty[Hypothesis.APPLICATION]] = code[Verdict.APPLICATION]
    verdicts[guilty[Hypothesis.HARDWARE]] = code[Verdict.HARDWARE]
    verdicts[guilty[Hypothesis.OPTIMIZER_OR_NUMERICS]] = code[Verdict.OPTIMIZER_OR_NUMERICS]
    of_data = guilty[Hypothesis.DATA]
    if event is EventClass.HARD_BATCH:
        verdicts[of_data] = code[Verdict.HARD_BATCH]
    else:
        verdicts[of_data & axis("replay", Replay.BATCH)] = code[Verdict.BAD_DATA]
        verdicts[of_data & axis("replay", Replay.BATCH_FROM_THIS_STATE)] = code[Verdict.DATA_AND_STATE]
    return verdicts
