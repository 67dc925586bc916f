"""Does a policy fit the corpus: are its sources there, and what its rules need?

A rule for a source that does not exist never fires, and nobody would notice: it is a problem, as is a section for one.
A need that is not there (a profile, the vocabulary's size) is told, and the rule is skipped and counted so.
"""

from __future__ import annotations

from collections.abc import Sequence

from dataguard.core.signals import SignalKind
from dataguard.gate.bounds import Condition
from dataguard.gate.document import suggestion
from dataguard.gate.problem import Problem, in_order
from dataguard.gate.rules import BatchRule, Policy, Rule, ShardRule, matches
from dataguard.gate.table import ReferenceProfile
from dataguard.gate.verdict import Skip

__all__ = ["fit_problems", "lacking_problems", "unfed_problems"]

_TODO = {
    "profile": "give the profile of an audit (profile.json)",
    "vocab_size": "give the size of the vocabulary",
}


def fit_problems(
    policy: Policy,
    source_names: Sequence[str],
    source_kinds: Sequence[SignalKind] | None = None,
    *,
    known_sources: Sequence[str] = (),
) -> tuple[Problem, ...]:
    """What of a policy can never have an effect on these sources.

    Parameters
    ----------
    policy
        Any.
    source_names
        The sources there are; with none of them, nothing is known and nothing is told.
    source_kinds
        What each holds, where that is known.
    known_sources
        Names that the policy may speak of as well, though nothing of them will be judged.
    """
    if not source_names:
        return ()
    names = (*source_names, *(name for name in known_sources if name not in source_names))
    kinds = dict(zip(source_names, source_kinds, strict=True)) if source_kinds is not None else {}
    problems: list[Problem] = []
    every: tuple[Rule | BatchRule | ShardRule, ...] = (*policy.rules, *policy.batch_rules, *policy.shard_rules)
    for rule in every:
        where = f"rule {rule.name!r}"
        problems += [_unmatched(each, names, rule.line, where) for each in rule.sources if not _any(each, names)]
        if rule.sources and all(_any(each, names) for each in rule.sources):
            problems += _kind_problems(rule, names, kinds, where)
    for section in policy.sections:
        where = f"section sources.{section.source}"
        if not _any(section.source, names):
            problems.append(_unmatched(section.source, names, section.line, where))
            continue
        for rule in policy.rules:
            own = [name for name in names if matches((section.source,), name)]
            if rule.name in section.conditions and not any(matches(rule.sources, name) for name in own):
                problems.append(
                    Problem(
                        kind="never",
                        line=section.line,
                        where=where,
                        asked=f"rule {rule.name!r} is not for these sources, so other bounds of it do nothing",
                        found=f"sources = {', '.join(rule.sources)}",
                    )
                )
    return in_order(problems)


def lacking_problems(
    policy: Policy,
    source_names: Sequence[str],
    source_kinds: Sequence[SignalKind] | None,
    *,
    profile: ReferenceProfile | None,
    vocab_size: int | None,
) -> tuple[Problem, ...]:
    """Rules that will be skipped, everywhere or for a source, since what their signals need is not there.

    Parameters
    ----------
    policy
        Any.
    source_names
        The sources there are.
    source_kinds
        What they hold: only rules over such samples are told; all of them where None.
    profile, vocab_size
        None where there is none.
    """
    problems = []
    judging: tuple[Rule | BatchRule, ...] = (*policy.rules, *policy.batch_rules)
    for rule in judging:
        conditions = _conditions(policy, rule)
        if source_kinds is not None and conditions[0].signal.kind not in source_kinds:
            continue
        told: list[tuple[str, str | None]] = [
            (f"it is skipped: there is no {need.replace('_', ' ')}", _TODO[need])
            for need in _needs(conditions)
            if (need == "profile" and profile is None) or (need == "vocab_size" and vocab_size is None)
        ]
        unknown = _unknown_sources(policy, rule, source_names, source_kinds, profile)
        if unknown:
            told.append((f"it is skipped where the profile does not know the source: {', '.join(unknown)}", None))
        where = f"rule {rule.name!r}"
        problems += [Problem(kind="need", line=rule.line, where=where, asked=asked, todo=todo) for asked, todo in told]
    kinds = {condition.signal.kind for condition in policy.conditions}
    if source_kinds and not kinds & set(source_kinds):
        problems.append(
            Problem(
                kind="nothing",
                line=None,
                where="the policy",
                asked=f"none of its rules is over {' or '.join(sorted(set(source_kinds)))}, which is all there is",
            )
        )
    return in_order(problems)


def unfed_problems(policy: Policy) -> tuple[Problem, ...]:
    """Rules whose signal no run and no audit can compute: only who calls a `Gate` may know the bytes of the texts."""
    judging: tuple[Rule | BatchRule, ...] = (*policy.rules, *policy.batch_rules)
    asked = "runs and audits skip it: they do not know from how many bytes of text tokens came"
    return tuple(
        Problem(kind="need", line=rule.line, where=f"rule {rule.name!r}", asked=asked)
        for rule in judging
        if "text_bytes" in _needs(_conditions(policy, rule))
    )


def _conditions(policy: Policy, rule: Rule | BatchRule) -> tuple[Condition, ...]:
    """All conditions of a rule, for whatever source."""
    if isinstance(rule, BatchRule):
        return (rule.condition,)
    others = [each for section in policy.sections for each in section.conditions.get(rule.name, ())]
    return (*rule.conditions, *others)


def _unknown_sources(
    policy: Policy,
    rule: Rule | BatchRule,
    source_names: Sequence[str],
    source_kinds: Sequence[SignalKind] | None,
    profile: ReferenceProfile | None,
) -> list[str]:
    """Sources of a rule's kind for which the profile lacks a reference that it needs."""
    if profile is None or isinstance(rule, BatchRule):
        return []
    unknown = []
    for s, name in enumerate(source_names):
        conditions = policy.conditions_of(rule, name)
        if isinstance(conditions, Skip) or (source_kinds is not None and source_kinds[s] != rule.kind):
            continue
        if any(each.needs_profile and profile.reference(name, each.signal.name) is None for each in conditions):
            unknown.append(name)
    return unknown


def _needs(conditions: Sequence[Condition]) -> list[str]:
    needs = [need for condition in conditions for need in condition.signal.needs]
    needs += ["profile" for condition in conditions if condition.outlier]
    return sorted(set(needs))


def _kind_problems(
    rule: Rule | BatchRule | ShardRule, names: Sequence[str], kinds: dict[str, SignalKind], where: str
) -> list[Problem]:
    """A rule that is for sources of another kind only."""
    if isinstance(rule, ShardRule) or not kinds:
        return []
    kind = rule.kind if isinstance(rule, Rule) else rule.condition.signal.kind
    own = [name for name in names if matches(rule.sources, name)]
    if any(kinds.get(name, kind) == kind for name in own):
        return []
    found = ", ".join(f"{name} holds {kinds[name]}" for name in own)
    asked = f"it is over {kind}, and its sources are not, so it never fires"
    return [Problem(kind="never", line=rule.line, where=where, asked=asked, found=found)]


def _any(pattern: str, names: Sequence[str]) -> bool:
    return any(matches((pattern,), name) for name in names)


def _unmatched(pattern: str, names: Sequence[str], line: int | None, where: str) -> Problem:
    return Problem(
        kind="unmatched-source",
        line=line,
        where=where,
        asked=f"no source is called {pattern!r}, or matches it",
        allowed=", ".join(names),
        todo=suggestion(pattern, names),
    )
