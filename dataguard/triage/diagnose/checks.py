"""In which order are the facts looked for, which of them decided, and which is worth looking for next?

Row A1: checks in order of cost, numerics and ranks first, the optimizer next, the replay last. The costs are computed
(`costs`), so the order follows from the run. `walked` goes along that order and stops at the first *conclusive* check:
the one with whose facts, and those of the checks before, the verdict is what it is with all of them. Checks that were
done before it and decided nothing are shown as such.

`next_check` tries each value that missing facts could take, and names

1. where one hypothesis is ahead with at least `LEAD` points, the cheapest check that could convict it;
2. else the cheapest check that could change the verdict.

What a run logged lies on disk, and triage has read it: what is unknown of it was not logged, and no check brings it
back. Such checks are named only if they were not done (`on_disk_done=False`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any, Literal

import msgspec

from dataguard.core.evidence import Evidence, Verdict
from dataguard.triage.diagnose.costs import Cost, Costs, cost_of, how_to
from dataguard.triage.diagnose.signs import FACTS, UNKNOWN_OF

__all__ = ["CHECKS", "ON_DISK", "Check", "NextCheck", "in_order", "next_check", "walked"]

CHECKS: Mapping[str, tuple[str, ...]] = {
    "plan_and_journal": ("planned_change", "mitigation"),
    "numerics_and_ranks": ("finite", "ranks"),
    "machine_logs": ("hardware_log",),
    "optimizer_traces": ("optimizer", "grad_norm"),
    "samples": ("data",),
    "canary": ("canary",),
    "replay": ("replay", "number_type"),
}
"""Name of each check -> the facts that it finds; where two cost the same, or nobody knows, in this order."""

ON_DISK = frozenset({"plan_and_journal", "numerics_and_ranks", "optimizer_traces", "samples"})
"""Checks that read what the run itself keeps."""

_NOT_ASKED = frozenset({"mitigation"})
"""Facts that nobody looks for in order to decide: a mitigation is tried after a verdict, and then is a fact."""

VerdictOf = Callable[[Evidence], Verdict]
Outcome = Literal["conclusive", "inconclusive", "not_done"]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One check as it was walked."""

    name: str
    outcome: Outcome
    found: dict[str, str]
    """Name of each of its facts -> its value, of those that are known."""
    texts: tuple[str, ...]
    """What was found there, with its numbers."""
    cost: Cost


class NextCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The check to do next."""

    name: str
    cost: Cost
    how: str
    """What one types."""
    could_be: tuple[Verdict, ...]
    """Verdicts that it could lead to instead."""


def in_order(costs: Costs) -> tuple[str, ...]:
    """Names of the checks, cheapest first; those whose cost is not known come last.

    >>> in_order(Costs())[:2], in_order(Costs())[-1]
    (('plan_and_journal', 'numerics_and_ranks'), 'replay')
    """

    def key(name: str) -> float:
        seconds = cost_of(name, costs).node_seconds
        return float("inf") if seconds is None else seconds

    return tuple(sorted(CHECKS, key=key))


def walked(evidence: Evidence, verdict_of: VerdictOf, costs: Costs) -> tuple[Check, ...]:
    """The checks in order of cost, up to the first that is conclusive; all of them where none is."""
    verdict = verdict_of(evidence)
    known = Evidence(event=evidence.event)
    checks = []
    for name in in_order(costs):
        facts = {fact: getattr(evidence, fact) for fact in CHECKS[name]}
        found = {fact: str(value) for fact, value in facts.items() if value is not UNKNOWN_OF[fact]}
        known = replace(known, **facts)
        is_conclusive = bool(found) and verdict is not Verdict.INCONCLUSIVE and verdict_of(known) is verdict
        checks.append(
            Check(
                name=name,
                outcome="conclusive" if is_conclusive else "inconclusive" if found else "not_done",
                found=found,
                texts=tuple(text for fact in CHECKS[name] for text in evidence.texts.get(fact, ())),
                cost=cost_of(name, costs),
            )
        )
        if is_conclusive:
            break
    return tuple(checks)


def next_check(
    evidence: Evidence,
    verdict_of: VerdictOf,
    costs: Costs,
    *,
    wanted: frozenset[Verdict] = frozenset(),
    on_disk_done: bool = True,
) -> NextCheck | None:
    """The check to do next; None where no fact that is missing could change the verdict.

    Parameters
    ----------
    evidence, verdict_of, costs
        What is known, how a verdict follows from it, and what checks cost.
    wanted
        Verdicts that convict the hypothesis that is ahead, where one is.
    on_disk_done
        Whether what the run itself keeps was read, so that no more can be found there.
    """
    verdict = verdict_of(evidence)
    possible: list[tuple[str, set[Verdict]]] = []
    for name in in_order(costs):
        if not (on_disk_done and name in ON_DISK):
            others = _could_be(name, evidence, verdict_of) - {verdict}
            if others:
                possible.append((name, others))
    chosen = next((each for each in possible if each[1] & wanted), possible[0] if possible else None)
    if chosen is None:
        return None
    name, others = chosen
    return NextCheck(
        name=name,
        cost=cost_of(name, costs),
        how=how_to(name, costs),
        could_be=tuple(each for each in Verdict if each in others),
    )


def _could_be(check: str, evidence: Evidence, verdict_of: VerdictOf) -> set[Verdict]:
    """The verdicts of all values that the missing facts of a check could take."""
    missing = [fact for fact in CHECKS[check] if fact not in _NOT_ASKED and getattr(evidence, fact) is UNKNOWN_OF[fact]]
    found = set()
    for values in product(*(FACTS[fact] for fact in missing)):
        facts: dict[str, Any] = dict(zip(missing, values, strict=True))
        found.add(verdict_of(replace(evidence, **facts)))
    return found
