"""Random policies that can be, columns that their signals could have, and references: drawn by Hypothesis."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from dataguard.core.signals import Reference, SignalSpec
from dataguard.score.registry import SIGNALS

SOURCES = ("code-c", "code-py", "web")
NUMBERS = st.one_of(
    st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0, 7.0]), st.floats(0, 9, allow_nan=False), st.integers(0, 9).map(float)
)


class Profile:
    """A reference profile of chosen medians."""

    def __init__(self, references: dict[tuple[str, str], tuple[float, float]]) -> None:
        self.references = references

    def reference(self, source: str, signal: str) -> Reference | None:
        found = self.references.get((source, signal))
        return None if found is None else Reference(median=found[0], mad=found[1])


@st.composite
def bounds(draw: st.DrawFn, spec: SignalSpec) -> dict[str, Any]:
    high = min(spec.high, 9.0)
    inside = st.floats(0, high, allow_nan=False).map(lambda value: round(value, 2))
    word = draw(st.sampled_from(["below", "at_most", "above", "at_least", "outside", "outlier_mad", "between"]))
    if word == "outside":
        low, top = sorted([draw(inside), draw(inside)])
        return {"outside": [low, top]}
    if word == "outlier_mad":
        return {"outlier_mad": draw(st.sampled_from([0.5, 1.0, 6.0]))}
    if word == "between":
        low, top = sorted([draw(inside), draw(inside)])
        return {"at_least": low, "below": top}
    return {word: draw(inside)}


@st.composite
def conditions(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    specs = [spec for spec in SIGNALS.values() if spec.kind == kind]
    if draw(st.booleans()):
        named = [spec for spec in specs if spec.name in {"length_bytes", "length_tokens", "length_outlier"}]
        specs = named or specs
    spec = draw(st.sampled_from(specs))
    return {"signal": spec.name, **draw(bounds(spec))}


@st.composite
def rules(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["text", "tokens"]))
    rule: dict[str, Any] = {"action": draw(st.sampled_from(["flag", "mask", "substitute", "halt"]))}
    if draw(st.booleans()):
        rule |= draw(conditions(kind))
    else:
        rule["all"] = draw(st.lists(conditions(kind), min_size=1, max_size=3))
    if draw(st.integers(0, 3)) == 0:
        rule["sources"] = draw(st.lists(st.sampled_from(["web", "code-*", "code-py"]), min_size=1, max_size=2))
    return rule


@st.composite
def policies(draw: st.DrawFn) -> dict[str, Any]:
    drawn = draw(st.lists(rules(), min_size=1, max_size=6))
    for i, rule in enumerate(drawn):
        rule["name"] = f"r{i}"
    sections: dict[str, Any] = {}
    for source in draw(st.lists(st.sampled_from(["web", "code-*", "*"]), max_size=2, unique=True)):
        section: dict[str, Any] = {}
        for rule in drawn:
            what = draw(st.integers(0, 5))
            if what == 0:
                section.setdefault("off", []).append(rule["name"])
            elif what == 1 and "signal" in rule:
                section.setdefault("rules", {})[rule["name"]] = draw(bounds(SIGNALS[rule["signal"]]))
        if section:
            sections[source] = section
    return {"rules": drawn, "sources": sections}


def columns_of(kind: str, num_rows: int, seed: int) -> dict[str, np.ndarray]:
    """Values of every signal of a kind, many of them on a bound."""
    random = np.random.Generator(np.random.PCG64(seed))
    columns = {}
    for spec in SIGNALS.values():
        if spec.kind != kind:
            continue
        high = min(spec.high, 9.0)
        values = np.round(random.uniform(0 if spec.low == 0 else -9, high, num_rows), random.integers(0, 3))
        columns[spec.name] = values.astype(spec.dtype)
    return columns


def to_toml(value: Any) -> str:
    """A policy as text: rules as tables, everything below inline."""
    lines = []
    for rule in value["rules"]:
        lines.append("[[rules]]")
        lines += [f"{key} = {_inline(each)}" for key, each in rule.items()]
    for source, section in value.get("sources", {}).items():
        lines.append(f'[sources."{source}"]')
        lines += [f"{key} = {_inline(each)}" for key, each in section.items()]
    return "\n".join(lines) + "\n"


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_inline(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else repr(value)
