"""What do ``policy check`` and ``policy explain`` answer, as documents?

Made here, where rules and signals are known; text for people is made of them in report/.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Literal

import msgspec

from dataguard.core.signals import SignalKind, SignalSpec
from dataguard.gate.fitting import unfed_problems
from dataguard.gate.problem import Problem
from dataguard.gate.rules import BatchRule, Policy, Rule, ShardRule
from dataguard.score.registry import spec_of

__all__ = [
    "PolicyChecked",
    "PolicyShown",
    "PolicyWritten",
    "RecordExplained",
    "RuleJudged",
    "RuleShown",
    "SectionShown",
    "SignalMeant",
    "SignalValue",
    "checked",
    "meant",
    "rule_shown",
    "shown",
]


class PolicyWritten(msgspec.Struct, frozen=True, kw_only=True):
    """What ``policy init`` wrote."""

    path: str
    name: str
    based_on: str
    """Name of the policy that ships, of which it is a copy."""
    digest: str


class PolicyChecked(msgspec.Struct, frozen=True, kw_only=True):
    """What ``policy check`` found."""

    policy: str
    """As it was asked for."""
    ok: bool
    name: str | None = None
    digest: str | None = None
    """Null where it is no policy."""
    warning: str = ""
    num_sample_rules: int = 0
    num_batch_rules: int = 0
    num_shard_rules: int = 0
    sources: tuple[str, ...] | None = None
    """Names of the sources it was checked against; null where none were given."""
    problems: tuple[Problem, ...] = ()
    """All of them, by line."""
    remarks: tuple[Problem, ...] = ()
    """What is no problem of the policy: rules that would be skipped."""


class SignalMeant(msgspec.Struct, frozen=True, kw_only=True):
    """What a signal is."""

    signal: str
    kind: SignalKind
    unit: str
    definition: str
    low: float | None
    """Null where it has no least value."""
    high: float | None
    version: int


class RuleShown(msgspec.Struct, frozen=True, kw_only=True):
    """A rule in words."""

    rule: str
    scope: Literal["sample", "batch", "shard"]
    action: str
    text: str
    """When it fires."""
    sources: tuple[str, ...]
    """Empty for every source."""
    max_fraction: float
    masks: Literal["span", "sample"] | None
    """What a mask rule over tokens covers; null for other rules."""
    note: str
    line: int | None


class SectionShown(msgspec.Struct, frozen=True, kw_only=True):
    """What is different for some sources."""

    source: str
    off: tuple[str, ...]
    rules: dict[str, str]
    """Name of a rule -> when it fires there."""


class PolicyShown(msgspec.Struct, frozen=True, kw_only=True):
    """What ``policy explain P`` says of a policy as a whole."""

    name: str
    digest: str
    title: str
    warning: str
    fill: Literal["mask", "substitute"] | None
    on_unreadable: Literal["withhold", "halt"]
    withhold: tuple[str, ...]
    rules: tuple[RuleShown, ...]
    sections: tuple[SectionShown, ...]
    signals: tuple[SignalMeant, ...]


class RuleJudged(RuleShown, frozen=True, kw_only=True):
    """A rule beside what it says of one record."""

    state: Literal["fired", "quiet", "skipped"]
    why: str | None
    """Why it was skipped, in words; null where it was not."""
    there: str
    """When it fires for this source."""


class SignalValue(SignalMeant, frozen=True, kw_only=True):
    """A signal beside its value in one record."""

    value: float | int | None
    """Null where it could not be had."""
    why: str | None
    """Why it could not; null where it could."""
    rules: tuple[str, ...]
    """Rules of the policy that read it."""
    spans: tuple[tuple[int, int], ...]
    """Where it lies, half-open, in bytes of the text or positions of the tokens: for signals of rules that fired."""
    num_spans: int
    """How many there are; `spans` has the first of them."""


class RecordExplained(msgspec.Struct, frozen=True, kw_only=True):
    """What ``policy explain P --shard S --row R`` says of one record."""

    policy: str
    digest: str
    shard: str
    row: int
    source: str
    kind: SignalKind
    length: int
    """In bytes (text) or tokens."""
    verdict: Literal["pass", "flag", "mask", "substitute", "halt"]
    fired: tuple[str, ...]
    """Every rule that fired, in the order of their bits."""
    mask_spans: tuple[tuple[int, int], ...] | None
    """Positions whose labels the verdict masks; null for the whole record, and where nothing is masked."""
    rules: tuple[RuleJudged, ...]
    signals: tuple[SignalValue, ...]
    """Every signal of its kind."""


def meant(spec: SignalSpec) -> dict[str, object]:
    """The members of `SignalMeant` for a signal."""
    return {
        "signal": spec.name,
        "kind": spec.kind,
        "unit": spec.unit,
        "definition": spec.definition,
        "low": spec.low if isfinite(spec.low) else None,
        "high": spec.high if isfinite(spec.high) else None,
        "version": spec.version,
    }


def rule_shown(rule: Rule | BatchRule | ShardRule) -> RuleShown:
    """A rule in words."""
    scope: Literal["sample", "batch", "shard"] = "sample"
    if not isinstance(rule, Rule):
        scope = "batch" if isinstance(rule, BatchRule) else "shard"
    masks = rule.masks if isinstance(rule, Rule) and rule.action == "mask" and rule.kind == "tokens" else None
    return RuleShown(
        rule=rule.name,
        scope=scope,
        action=rule.action,
        text=rule.text,
        sources=rule.sources,
        max_fraction=rule.max_fraction,
        masks=masks,
        note=rule.note,
        line=rule.line,
    )


def shown(policy: Policy) -> PolicyShown:
    """A policy in words.

    >>> from dataguard.gate.policy import named_policy
    >>> [(rule.rule, rule.text) for rule in shown(named_policy("olmo")).rules]
    [('token_periods', 'token_periodic_repeats at least 32')]
    """
    every: tuple[Rule | BatchRule | ShardRule, ...] = (*policy.rules, *policy.batch_rules, *policy.shard_rules)
    names = (*policy.signals("text"), *policy.signals("tokens"))
    return PolicyShown(
        name=policy.name,
        digest=policy.digest,
        title=policy.title,
        warning=policy.warning,
        fill=policy.fill,
        on_unreadable=policy.on_unreadable,
        withhold=tuple(verdict.name.lower() for verdict in sorted(policy.withhold)),
        rules=tuple(map(rule_shown, every)),
        sections=tuple(
            SectionShown(
                source=section.source,
                off=section.off,
                rules={name: " and ".join(map(str, own)) for name, own in section.conditions.items()},
            )
            for section in policy.sections
        ),
        signals=tuple(msgspec.convert(meant(spec_of(name)), SignalMeant) for name in names),
    )


def checked(
    asked: str,
    policy: Policy | None,
    problems: Sequence[Problem],
    *,
    remarks: Sequence[Problem] = (),
    sources: Sequence[str] | None = None,
) -> PolicyChecked:
    """What a check found: a policy and remarks, or problems."""
    found = PolicyChecked(
        policy=asked,
        ok=policy is not None and not problems,
        sources=None if sources is None else tuple(sources),
        problems=tuple(problems),
        remarks=(*remarks, *(() if policy is None else unfed_problems(policy))),
    )
    if policy is None:
        return found
    return msgspec.structs.replace(
        found,
        name=policy.name,
        digest=policy.digest,
        warning=policy.warning,
        num_sample_rules=len(policy.rules),
        num_batch_rules=len(policy.batch_rules),
        num_shard_rules=len(policy.shard_rules),
    )
