"""Are the conditions of a rule possible, each alone and all together?

A bound outside of a signal's range, an empty range, a rule that no sample can meet and one that every sample meets are
all told: each has been seen in policies that were published and did nothing for years.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from itertools import product
from typing import Any

from dataguard.core.signals import SignalSpec
from dataguard.gate.bounds import Condition, Interval, condition_of, domain_of, number
from dataguard.gate.document import BOUND_KEYS, Draft, suggestion
from dataguard.gate.locate import Path
from dataguard.score.registry import SIGNALS

__all__ = ["conditions_of"]


def conditions_of(
    draft: Draft, rule: Mapping[str, Any], path: Path, where: str, *, averaged: bool = False
) -> tuple[Condition, ...]:
    """The conditions of a rule as drafted (`signal` with bounds, or `all`); empty where some of them cannot be.

    `averaged`: the bounds are on a mean of values, which of whole numbers is none.
    """
    several = rule.get("all")
    if several is not None:
        for key in ("signal", *BOUND_KEYS):
            if key in rule:
                draft.tell("no-meaning", (*path, key), where, f"{key} cannot stand beside all", todo="move it into all")
        if not several:
            draft.tell("missing-key", (*path, "all"), where, "all lists no condition")
        made = [
            _condition(draft, each, (*path, "all", i), where, averaged=averaged)
            for i, each in enumerate(several)
            if isinstance(each, dict)
        ]
    else:
        if "signal" not in rule and draft.written(path, "signal"):
            return ()  # told when it was read
        if "signal" not in rule:
            near = "give signal = NAME with bounds, or all = [...]"
            draft.tell("missing-key", path, where, "it names no signal", todo=near)
            return ()
        made = [_condition(draft, rule, path, where, averaged=averaged)]
    conditions = tuple(each for each in made if each is not None)
    if len(conditions) < len(made):
        return ()
    if not _together(draft, conditions, path, where):
        return ()
    return tuple(replace(each, signal=SIGNALS[each.signal.name]) for each in conditions) if averaged else conditions


def _condition(draft: Draft, given: Mapping[str, Any], path: Path, where: str, *, averaged: bool) -> Condition | None:
    name = given.get("signal")
    if name is None:
        return None  # told when it was read
    spec = SIGNALS.get(name)
    if spec is None:
        draft.tell(
            "unknown-signal",
            (*path, "signal"),
            where,
            f"there is no signal {name!r}",
            allowed=None if suggestion(name, SIGNALS) else ", ".join(SIGNALS),
            todo=suggestion(name, SIGNALS),
        )
        return None
    if averaged:
        spec = replace(spec, whole=False)
    bounds = {key: given[key] for key in BOUND_KEYS if key in given}
    return condition_of(spec, bounds) if _bounds_fit(draft, spec, bounds, path, where) else None


def _bounds_fit(draft: Draft, spec: SignalSpec, bounds: Mapping[str, Any], path: Path, where: str) -> bool:
    before = len(draft.problems)
    if not bounds and draft.written(path, *BOUND_KEYS):
        return False  # told when they were read
    if not bounds:
        allowed = ", ".join(BOUND_KEYS)
        draft.tell("missing-key", path, where, f"it gives {spec.name} no bounds", allowed=allowed)
    for key in ("outside", "outlier_mad"):
        if key in bounds and len(bounds) > 1:
            others = ", ".join(other for other in bounds if other != key)
            draft.tell(
                "no-meaning",
                (*path, key),
                where,
                f"{key} stands alone",
                found=f"beside {others}",
                todo="write the other bounds as a condition of their own: all = [...]",
            )
    if "outlier_mad" in bounds and "profile" in spec.needs:
        draft.tell(
            "no-meaning",
            (*path, "outlier_mad"),
            where,
            f"{spec.name} is measured in MADs already",
            todo=f"write outside = [-{_toml(bounds['outlier_mad'])}, {_toml(bounds['outlier_mad'])}]",
        )
    for key, value in bounds.items():
        if key == "outlier_mad":
            continue
        for each in value if key == "outside" else (value,):
            if not spec.low <= each <= spec.high:
                draft.tell(
                    "out-of-range",
                    (*path, key),
                    where,
                    f"{key} {number(each)} lies outside of what {spec.name} can be",
                    allowed=_range(spec),
                )
    if len(draft.problems) > before:
        return False
    return _holds_sometimes(draft, spec, bounds, path, where)


def _holds_sometimes(draft: Draft, spec: SignalSpec, bounds: Mapping[str, Any], path: Path, where: str) -> bool:
    condition = condition_of(spec, bounds)
    if "outside" in bounds:
        low, high = bounds["outside"]
        told = None
        if low > high:
            told = (
                f"outside [{number(low)}, {number(high)}] is reversed",
                f"write outside = [{_toml(high)}, {_toml(low)}]",
            )
        elif low <= domain_of(spec).low:
            told = f"{spec.name} is never below {number(low)}", f"write above = {_toml(high)}"
        elif high >= domain_of(spec).high:
            told = f"{spec.name} is never above {number(high)}", f"write below = {_toml(low)}"
        if told:
            draft.tell("never", (*path, "outside"), where, told[0], allowed=_range(spec), todo=told[1])
        return told is None
    if condition.possible():
        return True
    last = next(key for key in reversed(BOUND_KEYS) if key in bounds)
    todo = None
    if {"below", "above"} <= set(bounds) and bounds["below"] <= bounds["above"]:
        todo = f"did you mean outside = [{_toml(bounds['below'])}, {_toml(bounds['above'])}]?"
    draft.tell("never", (*path, last), where, f"no {spec.name} is {condition.text}", allowed=_range(spec), todo=todo)
    return False


def _together(draft: Draft, conditions: tuple[Condition, ...], path: Path, where: str) -> bool:
    kinds = {condition.signal.kind for condition in conditions}
    if len(kinds) > 1:
        found = ", ".join(f"{each.signal.name} of {each.signal.kind}" for each in conditions)
        draft.tell("mixed-kinds", (*path, "all"), where, "no sample is both text and tokens", found=found)
        return False
    if conditions and all(condition.always() for condition in conditions):
        told = " and ".join(map(str, conditions))
        draft.tell("always", path, where, f"it fires on every sample: {told} always", todo="choose other bounds")
        return False
    for name in dict.fromkeys(condition.signal.name for condition in conditions):
        same = [each for each in conditions if each.signal.name == name and not each.outlier]
        if same and not reduce(_common, (each.possible() for each in same)):
            told = " and ".join(each.text for each in same)
            draft.tell("never", (*path, "all"), where, f"no {name} is {told}", todo="its conditions must all hold")
            return False
    return True


def _common(left: tuple[Interval, ...], right: tuple[Interval, ...]) -> tuple[Interval, ...]:
    met = (a.meet(b) for a, b in product(left, right))
    return tuple(each for each in met if not each.empty)


def _toml(value: float) -> str:
    """A bound as it can be written into a policy.

    >>> _toml(100_000.0), _toml(0.16)
    ('100000', '0.16')
    """
    return number(value).replace(",", "")


def _range(spec: SignalSpec) -> str:
    """The values of a signal in words.

    >>> from dataguard.score.registry import spec_of
    >>> _range(spec_of("dup_line_fraction")), _range(spec_of("length_bytes"))
    ('0 to 1 (never 1 itself)', 'whole numbers of 0 and more')
    """
    if spec.low == -float("inf"):
        return "any number"
    what = "whole numbers of " if spec.whole else ""
    if spec.high == float("inf"):
        return f"{what}{number(spec.low)} and more"
    ends = "" if spec.high_reached else f" (never {number(spec.high)} itself)"
    return f"{what}{number(spec.low)} to {number(spec.high)}{ends}"
