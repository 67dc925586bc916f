"""A policy, one sample and one rule at a time, from the parsed toml: the obvious twin of `dataguard.gate.gate`."""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from dataguard.score.registry import SIGNALS

LENGTHS = {"length_bytes", "length_chars", "length_words", "length_lines", "length_tokens"}
ORDER = ["pass", "flag", "mask", "substitute", "halt"]


def judge(
    text: str,
    sources: Sequence[str],
    kind: str,
    columns: Mapping[str, Sequence[float]],
    source: Sequence[int],
    *,
    references: Mapping[tuple[str, str], tuple[float, float]] | None = None,
    has_vocab_size: bool = True,
) -> list[dict[str, Any]]:
    """For each sample: its verdict, its bits, and for each rule ``fired``, ``quiet`` or why it was skipped."""
    policy = tomllib.loads(text)
    rules = [rule for rule in policy["rules"] if rule.get("scope", "sample") == "sample"]
    answers = []
    for i, s in enumerate(source):
        verdict, bits, states = 0, 0, []
        for bit, rule in enumerate(rules):
            values = {name: column[i] for name, column in columns.items()}
            state = "padding" if s < 0 else _state(policy, rule, sources[s], kind, values, references, has_vocab_size)
            states.append(state)
            if state == "fired":
                bits |= 1 << bit
                verdict = max(verdict, ORDER.index(rule["action"]))
        answers.append({"verdict": verdict, "bits": bits, "states": states})
    return answers


def _state(
    policy: Mapping[str, Any],
    rule: Mapping[str, Any],
    source: str,
    kind: str,
    values: Mapping[str, float],
    references: Mapping[tuple[str, str], tuple[float, float]] | None,
    has_vocab_size: bool,
) -> str:
    conditions = rule.get("all", [rule])
    if SIGNALS[conditions[0]["signal"]].kind != kind:
        return "kind"
    if not any(_matches(pattern, source) for pattern in rule.get("sources", ["*"])):
        return "source"
    off = False
    for pattern, section in policy.get("sources", {}).items():
        if not _matches(pattern, source):
            continue
        if rule["name"] in section.get("off", []):
            off = True
        elif rule["name"] in section.get("rules", {}):
            off = False
            override = section["rules"][rule["name"]]
            conditions = override.get("all", [{"signal": rule.get("signal"), **override}])
    if off:
        return "off"
    needs = [need for each in conditions for need in SIGNALS[each["signal"]].needs]
    needs += ["profile" for each in conditions if "outlier_mad" in each]
    if ("profile" in needs and references is None) or ("vocab_size" in needs and not has_vocab_size):
        return "need"
    for each in conditions:
        measured = "outlier_mad" in each or "profile" in SIGNALS[each["signal"]].needs
        if measured and references is not None and (source, each["signal"]) not in references:
            return "reference"
    guards = [each for each in conditions if each["signal"] in LENGTHS and "outlier_mad" not in each]
    if len(guards) < len(conditions) and not all(_holds(each, values, source, references) for each in guards):
        return "minimum"
    return "fired" if all(_holds(each, values, source, references) for each in conditions) else "quiet"


def _holds(
    condition: Mapping[str, Any],
    values: Mapping[str, float],
    source: str,
    references: Mapping[tuple[str, str], tuple[float, float]] | None,
) -> bool:
    value = float(values[condition["signal"]])
    if "outlier_mad" in condition:
        assert references is not None
        median, mad = references[source, condition["signal"]]
        z = 0.0 if mad == 0 else (value - median) / (1.4826 * mad)
        return abs(z) > condition["outlier_mad"]
    if "outside" in condition:
        low, high = condition["outside"]
        return value < low or value > high
    return (
        value < condition.get("below", float("inf"))
        and value <= condition.get("at_most", float("inf"))
        and value > condition.get("above", float("-inf"))
        and value >= condition.get("at_least", float("-inf"))
    )


def _matches(pattern: str, source: str) -> bool:
    return pattern == source or fnmatch.fnmatchcase(source, pattern)
