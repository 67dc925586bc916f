"""Does a policy mean something that can be, and what is it then?

Works on a `Draft` (document.py), adds every problem of meaning to it, and makes the `Policy` where there is none:

1. Each rule alone: its keys against its scope, its signals, its bounds against their ranges, its conditions against
   each other. A rule that can never fire, or that fires on everything, is a problem.
2. The rules together: names, numbers, what shard rules count.
3. The sections: rules they speak of, bounds they give.

What depends on the sources there are is checked when those are known (fitting.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from dataguard.gate.bounds import Condition
from dataguard.gate.conditions import conditions_of
from dataguard.gate.document import BOUND_KEYS, Draft, suggestion
from dataguard.gate.locate import line_of
from dataguard.gate.rules import (
    DEFAULT_ALLOWANCE,
    MAX_RULES,
    SPAN_SIGNALS,
    BatchRule,
    Policy,
    Rule,
    Section,
    matches,
)
from dataguard.gate.shard_rules import shard_rule_of
from dataguard.gate.verdict import ACTIONS, Verdict

__all__ = ["make_policy"]

_SHARED = frozenset({"name", "scope", "action", "sources", "max_fraction", "note"})
_BATCHES_AND_SHARDS = _SHARED | {"apply_at_next_attempt"}
_KEYS = {
    "sample": _SHARED | {"signal", "all", "masks", *BOUND_KEYS},
    "batch": _BATCHES_AND_SHARDS | {"signal", "of", *BOUND_KEYS} - {"outlier_mad"},
    "shard": _BATCHES_AND_SHARDS | {"counts", "min_samples", "above", "at_least"},
}
_ACTIONS_OF = {
    "sample": tuple(ACTIONS),
    "batch": ("flag", "propose_skip"),
    "shard": ("propose_quarantine",),
}


def make_policy(draft: Draft, text: str, *, name: str) -> Policy | None:
    """The policy of a draft; None where the draft has problems, then or before, all of which are noted in it."""
    values = draft.values
    drafted = [(i, rule, f"rule {rule.get('name', i + 1)!r}") for i, rule in enumerate(values.get("rules", [])) if rule]
    _check_names(draft, drafted)
    scopes = {i: rule.get("scope", "sample") for i, rule, _ in drafted}
    for scope in _KEYS:
        _check_number(draft, [i for i, _, _ in drafted if scopes[i] == scope], scope)
    for i, rule, where in drafted:
        _check_keys(draft, rule, ("rules", i), where, scopes[i])
    rules: list[Rule] = []
    batch_rules: list[BatchRule] = []
    for i, drafted_rule, where in drafted:
        if scopes[i] == "sample":
            made = _sample_rule(draft, drafted_rule, ("rules", i), where, bit=len(rules))
            rules += [made] if made else []
        elif scopes[i] == "batch":
            batch = _batch_rule(draft, drafted_rule, ("rules", i), where)
            batch_rules += [batch] if batch else []
    by_name = {rule["name"]: rule for _, rule, _ in drafted if "name" in rule}
    samples = {
        name: rule.get("action", "") for name, rule in by_name.items() if rule.get("scope", "sample") == "sample"
    }
    bits = {rule.name: 1 << rule.bit for rule in rules if rule.bit < MAX_RULES}
    places = {rule["name"]: i for i, rule, _ in drafted if "name" in rule}
    shard_rules = [
        shard_rule_of(draft, rule, ("rules", i), where, samples=samples, bits=bits)
        for i, rule, where in drafted
        if scopes[i] == "shard"
    ]
    sections = [
        _section(draft, source, section, by_name, {rule.name: rule for rule in rules})
        for source, section in values.get("sources", {}).items()
        if isinstance(section, dict)
    ]
    for rule in rules:
        if _is_off_everywhere(rule, sections):
            told = "the sections switch it off for every source that it is for, so it never fires"
            draft.tell("never", ("rules", places[rule.name]), f"rule {rule.name!r}", told, todo="take it out")
    if not drafted and not draft.problems:
        draft.tell("missing-key", (), "the policy", "it has no rules, so it checks nothing", todo="give [[rules]]")
    if draft.problems:
        return None
    return Policy(
        name=values.get("name", name),
        digest=hashlib.sha256(text.encode()).hexdigest(),
        text=text,
        title=values.get("title", ""),
        warning=values.get("warning", ""),
        rules=tuple(rules),
        batch_rules=tuple(batch_rules),
        shard_rules=tuple(rule for rule in shard_rules if rule is not None),
        sections=tuple(sections),
        fill=values.get("fill"),
        on_unreadable=values.get("on_unreadable", "withhold"),
        withhold=frozenset(ACTIONS[action] for action in values["withhold"])
        if "withhold" in values
        else frozenset({Verdict.MASK, Verdict.SUBSTITUTE, Verdict.HALT}),
    )


def _check_names(draft: Draft, drafted: list[tuple[int, dict[str, Any], str]]) -> None:
    first: dict[str, int] = {}
    for i, rule, where in drafted:
        name = rule.get("name")
        if name is None:
            continue
        if name in ACTIONS:
            draft.tell(
                "doubled-name", ("rules", i, "name"), where, "an action has this name", todo="give it another one"
            )
        if name in first:
            line = line_of(draft.lines, ("rules", first[name], "name"))
            draft.tell(
                "doubled-name",
                ("rules", i, "name"),
                where,
                f"two rules have this name, the other on line {line}",
                todo="give one of them another name",
            )
        first.setdefault(name, i)


def _check_number(draft: Draft, places: list[int], scope: str) -> None:
    if len(places) > MAX_RULES:
        draft.tell(
            "too-many",
            ("rules", places[MAX_RULES]),
            "the policy",
            f"{len(places):,} rules over a {scope} are too many",
            allowed=f"at most {MAX_RULES}",
            todo="the first one too many stands here",
        )


def _check_keys(draft: Draft, rule: Mapping[str, Any], path: tuple[str | int, ...], where: str, scope: str) -> None:
    allowed = _KEYS[scope]
    for key in rule:
        if key not in allowed:
            words = ", ".join(sorted(allowed - {"scope"}))
            draft.tell("no-meaning", (*path, key), where, f"{key} says nothing in a rule over a {scope}", allowed=words)
    action = rule.get("action")
    if action is not None and action not in _ACTIONS_OF[scope]:
        draft.tell(
            "unknown-value",
            (*path, "action"),
            where,
            f"a rule over a {scope} cannot {action}",
            allowed=", ".join(_ACTIONS_OF[scope]),
        )
    if "sources" in rule and not rule["sources"]:
        draft.tell("never", (*path, "sources"), where, "no source is listed, so it never fires", todo="leave it out")
    for i, source in enumerate(rule.get("sources", ())):
        if not source:
            draft.tell("never", (*path, "sources", i), where, "no source has the name ''", todo='write "*" for all')


def _sample_rule(
    draft: Draft, rule: Mapping[str, Any], path: tuple[str | int, ...], where: str, *, bit: int
) -> Rule | None:
    conditions = conditions_of(draft, rule, path, where)
    action = rule.get("action")
    masks = rule.get("masks")
    if masks is not None and action is not None and action != "mask":
        draft.tell("no-meaning", (*path, "masks"), where, f"it masks nothing: its action is {action}")
    if masks == "span" and conditions and not has_span(conditions):
        draft.tell(
            "no-meaning",
            (*path, "masks"),
            where,
            "none of its signals has a span",
            allowed=f"at_least or above on one of {', '.join(sorted(SPAN_SIGNALS))}",
            todo='write masks = "sample"',
        )
    if not conditions or action is None or action not in ACTIONS or "name" not in rule:
        return None
    return Rule(
        name=rule["name"],
        bit=bit,
        action=action,
        conditions=conditions,
        sources=tuple(rule.get("sources", ())),
        max_fraction=rule.get("max_fraction", 0.0 if action == "halt" else DEFAULT_ALLOWANCE),
        masks=masks or ("span" if has_span(conditions) else "sample"),
        note=rule.get("note", ""),
        line=line_of(draft.lines, path),
    )


def has_span(conditions: tuple[Condition, ...]) -> bool:
    """Whether some positions of a sample can be said to have made the conditions hold."""
    return any(each.signal.name in SPAN_SIGNALS and each.lower is not None for each in conditions)


def _batch_rule(draft: Draft, rule: Mapping[str, Any], path: tuple[str | int, ...], where: str) -> BatchRule | None:
    conditions = conditions_of(draft, rule, path, where, averaged=rule.get("of") == "mean")
    if "of" not in rule:
        draft.tell("missing-key", path, where, "it does not say of what", allowed='of = "mean" or "max"')
    if not conditions or not {"of", "name", "action"} <= set(rule) or rule["action"] not in _ACTIONS_OF["batch"]:
        return None
    return BatchRule(
        name=rule["name"],
        action=rule["action"],
        of=rule["of"],
        condition=conditions[0],
        sources=tuple(rule.get("sources", ())),
        max_fraction=rule.get("max_fraction", 0.0),
        apply_at_next_attempt=rule.get("apply_at_next_attempt", False),
        note=rule.get("note", ""),
        line=line_of(draft.lines, path),
    )


def _section(
    draft: Draft,
    source: str,
    section: Mapping[str, Any],
    by_name: Mapping[str, Mapping[str, Any]],
    rules: Mapping[str, Rule],
) -> Section:
    path, where = ("sources", source), f"section sources.{source}"
    off = tuple(section.get("off", ()))
    for i, name in enumerate(off):
        _check_known(draft, name, by_name, (*path, "off", i), where)
    conditions: dict[str, tuple[Condition, ...]] = {}
    for name, override in section.get("rules", {}).items():
        place = (*path, "rules", name)
        if not isinstance(override, dict) or not _check_known(draft, name, by_name, place, where):
            continue
        if by_name[name].get("scope", "sample") != "sample":
            draft.tell("no-meaning", place, where, f"rule {name!r} is over no single sample, so it has no bounds here")
            continue
        if name in off:
            draft.tell("never", place, where, f"rule {name!r} is switched off in this section, and given bounds")
        base = by_name[name]
        own = {**({} if "all" in override or "signal" not in base else {"signal": base["signal"]}), **override}
        if "all" not in own and "signal" not in own:
            draft.tell(
                "missing-key", place, where, f"rule {name!r} has several conditions: write them all", todo="all = [...]"
            )
            continue
        made = conditions_of(draft, own, place, f"{where}, rule {name!r}")
        if made and name in rules and made[0].signal.kind != rules[name].kind:
            draft.tell("mixed-kinds", place, where, f"rule {name!r} is over {rules[name].kind}", found=str(made[0]))
        if made:
            conditions[name] = made
    if not section:
        draft.tell("missing-key", path, where, "it says nothing", allowed="off = [...], or rules.NAME = {...}")
    return Section(source=source, off=off, conditions=conditions, line=line_of(draft.lines, path))


def _is_off_everywhere(rule: Rule, sections: Sequence[Section]) -> bool:
    """Whether no source could be named for which the rule is on: as far as the patterns alone say."""
    return all(_is_off(rule.name, pattern, sections) for pattern in rule.sources or ("*",))


def _is_off(name: str, pattern: str, sections: Sequence[Section]) -> bool:
    """Whether a rule is off for all sources of a pattern."""
    off = False
    for section in sections:
        if section.source in {"*", pattern} or matches((section.source,), pattern):
            off = name in section.off or (off and name not in section.conditions)
        elif name in section.conditions:
            off = False  # there may be a source of both patterns
    return off


def _check_known(draft: Draft, name: str, known: Mapping[str, Any], path: tuple[str | int, ...], where: str) -> bool:
    if name in known:
        return True
    draft.tell(
        "unknown-rule",
        path,
        where,
        f"there is no rule {name!r}",
        allowed=", ".join(known) or None,
        todo=suggestion(name, known),
    )
    return False
