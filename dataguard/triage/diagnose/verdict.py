"""Which one diagnosis verdict follows from the evidence, and what speaks for it, against it, and is missing?

`diagnose` is total: every combination of facts has exactly one verdict, and the same one always.

1. Each hypothesis has a score: the points of the signs that hold (`scoring`, `signature`).
2. A hypothesis is *convicted* if a fact is there that can convict it (`scoring.CAN_CONVICT`), it has `CONVICTS` points
   and it leads each other hypothesis by `LEAD`. So at most one is.
3. `RULES` are read from the top; the first that applies is the verdict, and the last always applies.

The tree of row C13, which this replaces, has branches that overlap, leaves cases without an answer, and knows neither
NaN nor ranks nor machines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from dataguard.core.evidence import Evidence, RankPattern, Replay, Told, Verdict
from dataguard.core.spikes import EventClass
from dataguard.triage.diagnose.checks import Check, NextCheck, next_check, walked
from dataguard.triage.diagnose.costs import Costs
from dataguard.triage.diagnose.scoring import SIGNS, can_convict, scores
from dataguard.triage.diagnose.signs import CONVICTS, LEAD, UNKNOWN_OF, Hypothesis, Sign

__all__ = ["RULES", "Diagnosis", "Rule", "convicted", "decide", "diagnose", "verdict_of"]


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True, rename={"for_": "for"}):
    """A diagnosis verdict with its reasons. Of each hypothesis by name: score, and texts for, against, missing."""

    verdict: Verdict
    rule: str
    """The rule that decided."""
    summary: str
    """One sentence for people."""
    scores: dict[str, int]
    for_: dict[str, tuple[str, ...]]
    against: dict[str, tuple[str, ...]]
    missing: dict[str, tuple[str, ...]]
    checks: tuple[Check, ...]
    """In order of cost, up to the first conclusive one."""
    next_check: NextCheck | None
    """The cheapest check that could change the verdict; null where none could."""

    def __repr__(self) -> str:
        from dataguard.triage.diagnose.shown import diagnosis_text

        return diagnosis_text(self)

    def _repr_html_(self) -> str:
        """As a notebook shows it."""
        from dataguard.core.notebook import guarded
        from dataguard.triage.diagnose.shown import diagnosis_html

        return guarded(repr(self), lambda: diagnosis_html(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of the table."""

    name: str
    verdict: Verdict
    applies: Callable[[Evidence, Hypothesis | None, Mapping[Hypothesis, int]], bool]
    says: str


def _contested(evidence: Evidence, points: Mapping[Hypothesis, int]) -> bool:
    """Whether a hypothesis would be convicted but for others that come close."""
    return any(points[each] >= CONVICTS and can_convict(each, evidence) for each in Hypothesis)


RULES: tuple[Rule, ...] = (
    Rule(
        name="hardware_without_event",
        verdict=Verdict.HARDWARE,
        applies=lambda evidence, guilty, _: evidence.event is None and guilty is Hypothesis.HARDWARE,
        says="no event shows in the curve, and hardware computes wrongly all the same",
    ),
    Rule(
        name="rank_without_event",
        verdict=Verdict.INCONCLUSIVE,
        applies=lambda evidence, _, __: (
            evidence.event is None and (evidence.ranks is RankPattern.PERSISTENT or evidence.canary is Told.YES)
        ),
        says="no event shows in the curve; a rank stands out again and again, and what was asked speaks against its "
        "hardware",
    ),
    Rule(
        name="planned_without_event",
        verdict=Verdict.PLANNED_CHANGE,
        applies=lambda evidence, _, __: evidence.event is None and evidence.planned_change is Told.YES,
        says="the curve changes where a change was planned, and shows no event",
    ),
    Rule(
        name="no_event",
        verdict=Verdict.NO_INCIDENT,
        applies=lambda evidence, _, __: evidence.event is None,
        says="no event shows in the curve, and nothing else says that there was one",
    ),
    Rule(
        name="harmless_data",
        verdict=Verdict.HARD_BATCH,
        applies=lambda evidence, guilty, _: guilty is Hypothesis.DATA and evidence.event is EventClass.HARD_BATCH,
        says="the loss belongs to the batch and left no damage: there is nothing to rewind",
    ),
    Rule(
        name="data_from_both_checkpoints",
        verdict=Verdict.BAD_DATA,
        applies=lambda evidence, guilty, _: guilty is Hypothesis.DATA and evidence.replay is Replay.BATCH,
        says="the batch does it from both checkpoints, and a placebo batch does not",
    ),
    Rule(
        name="data_from_this_state",
        verdict=Verdict.DATA_AND_STATE,
        applies=lambda evidence, guilty, _: (
            guilty is Hypothesis.DATA and evidence.replay is Replay.BATCH_FROM_THIS_STATE
        ),
        says="the batch does it from this checkpoint, and not from an earlier one",
    ),
    Rule(
        name="optimizer",
        verdict=Verdict.OPTIMIZER_OR_NUMERICS,
        applies=lambda _, guilty, __: guilty is Hypothesis.OPTIMIZER_OR_NUMERICS,
        says="the configuration does it: optimizer, schedule, or numbers",
    ),
    Rule(
        name="hardware",
        verdict=Verdict.HARDWARE,
        applies=lambda _, guilty, __: guilty is Hypothesis.HARDWARE,
        says="a device or a link does it",
    ),
    Rule(
        name="application",
        verdict=Verdict.APPLICATION,
        applies=lambda _, guilty, __: guilty is Hypothesis.APPLICATION,
        says="the program does it, by the logs of the machine",
    ),
    Rule(
        name="planned",
        verdict=Verdict.PLANNED_CHANGE,
        applies=lambda evidence, _, points: (
            evidence.planned_change is Told.YES
            # Nobody plans NaN, or that no row arrives.
            and evidence.event not in (EventClass.HARD_FAULT, EventClass.STALL)
            and not _contested(evidence, points)
        ),
        says="it begins at a change that was planned, and nothing else is convicted",
    ),
    Rule(
        name="otherwise",
        verdict=Verdict.INCONCLUSIVE,
        applies=lambda _, __, ___: True,
        says="nothing is convicted by what is known",
    ),
)
"""Read from the top; the first that applies decides."""


def convicted(evidence: Evidence, points: Mapping[Hypothesis, int]) -> Hypothesis | None:
    """The hypothesis that a fact can convict, with enough points and far enough ahead of each other; or None."""
    first, second = sorted(points.values(), reverse=True)[:2]
    if first < CONVICTS or first - second < LEAD:
        return None
    guilty = next(each for each in Hypothesis if points[each] == first)
    return guilty if can_convict(guilty, evidence) else None


def decide(evidence: Evidence, points: Mapping[Hypothesis, int]) -> Rule:
    """The rule that applies to the evidence with these scores."""
    guilty = convicted(evidence, points)
    return next(rule for rule in RULES if rule.applies(evidence, guilty, points))


def verdict_of(evidence: Evidence) -> Verdict:
    """The verdict alone.

    >>> verdict_of(Evidence(event=EventClass.TRANSIENT_SPIKE, replay=Replay.BATCH))
    <Verdict.BAD_DATA: 'bad_data'>
    """
    return decide(evidence, scores(evidence)).verdict


def diagnose(evidence: Evidence, *, costs: Costs | None = None, on_disk_done: bool = True) -> Diagnosis:
    """Draw exactly one verdict, with its reasons.

    Parameters
    ----------
    evidence
        All that is known; facts that nobody looked for are unknown, and count for nobody.
    costs
        What the costs of further checks follow from; without it they are not known.
    on_disk_done
        Whether what the run itself keeps was read, as triage does, so that the next check is another.

    Examples
    --------
    >>> found = diagnose(Evidence(event=EventClass.TRANSIENT_SPIKE, data=Told.YES))
    >>> found.verdict, found.scores["data"], found.next_check.name
    (<Verdict.INCONCLUSIVE: 'inconclusive'>, 3, 'replay')
    """
    known = costs or Costs()
    points = scores(evidence)
    rule = decide(evidence, points)
    held = [sign for sign in SIGNS if sign.holds(evidence)]
    following = next_check(evidence, verdict_of, known, wanted=_wanted(points), on_disk_done=on_disk_done)
    return Diagnosis(
        verdict=rule.verdict,
        rule=rule.name,
        summary=rule.says,
        scores={str(each): points[each] for each in Hypothesis},
        for_={str(each): _texts(held, each, evidence, sign=1) for each in Hypothesis},
        against={str(each): _texts(held, each, evidence, sign=-1) for each in Hypothesis},
        missing={str(each): _missing(each, evidence) for each in Hypothesis},
        checks=walked(evidence, verdict_of, known),
        next_check=following,
    )


_CONVICTIONS: Mapping[Hypothesis, frozenset[Verdict]] = {
    Hypothesis.DATA: frozenset({Verdict.BAD_DATA, Verdict.DATA_AND_STATE, Verdict.HARD_BATCH}),
    Hypothesis.OPTIMIZER_OR_NUMERICS: frozenset({Verdict.OPTIMIZER_OR_NUMERICS}),
    Hypothesis.HARDWARE: frozenset({Verdict.HARDWARE}),
    Hypothesis.APPLICATION: frozenset({Verdict.APPLICATION}),
}


def _wanted(points: Mapping[Hypothesis, int]) -> frozenset[Verdict]:
    """Verdicts that convict the hypothesis that is ahead; none where none is, by as much as counts."""
    first, second = sorted(points.values(), reverse=True)[:2]
    if first < LEAD or first == second:
        return frozenset()
    return _CONVICTIONS[next(each for each in Hypothesis if points[each] == first)]


_MOST_TEXTS = 4
"""Findings that a reason is told with; all of them stand beside the facts."""


def _texts(held: list[Sign], hypothesis: Hypothesis, evidence: Evidence, *, sign: int) -> tuple[str, ...]:
    """What holds for (or against) a hypothesis, with its points and with the numbers that were found."""
    texts = []
    for each in held:
        if each.hypothesis is hypothesis and each.points * sign > 0:
            numbers = [text for fact in each.facts for text in evidence.texts.get(fact, ())]
            more = f"; and {len(numbers) - _MOST_TEXTS:,} more" if len(numbers) > _MOST_TEXTS else ""
            behind = f": {'; '.join(numbers[:_MOST_TEXTS])}{more}" if numbers else ""
            texts.append(f"{each.points:+d} {each.says}{behind}")
    return tuple(texts)


def _missing(hypothesis: Hypothesis, evidence: Evidence) -> tuple[str, ...]:
    """Facts that nobody looked for, and that have a say about the hypothesis."""
    read = {fact for sign in SIGNS if sign.hypothesis is hypothesis for fact in sign.facts}
    return tuple(
        text for fact, text in _MISSING.items() if fact in read and getattr(evidence, fact) is UNKNOWN_OF[fact]
    )


_MISSING: Mapping[str, str] = {
    "planned_change": "whether a change was planned there",
    "finite": "where NaN or infinity stood, by rank",
    "ranks": "which ranks stand out",
    "hardware_log": "logs of the machines",
    "optimizer": "what happens inside the model and the optimizer",
    "grad_norm": "the gradient norm",
    "data": "whether the event's samples stand out",
    "canary": "a canary: one batch on two hosts, bitwise",
    "number_type": "the same in float32",
    "replay": "the replay: the batch and a placebo, from two checkpoints, on two nodes",
}
