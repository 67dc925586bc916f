"""What is a policy, once it is checked?

Rules over samples (bit i of a sample's rule bits is rule i), over global batches and over shards; sections that change
them for some sources; and what the policy says of slots and audits. All frozen; whatever evaluates reads these values.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Literal

from dataguard.core.signals import SignalKind
from dataguard.gate.bounds import Condition
from dataguard.gate.verdict import Action, Skip, Verdict
from dataguard.score.registry import SIGNALS

__all__ = [
    "DEFAULT_ALLOWANCE",
    "MAX_RULES",
    "SPAN_SIGNALS",
    "BatchRule",
    "Policy",
    "Rule",
    "Section",
    "ShardRule",
    "matches",
]

MAX_RULES = 64
"""Rules of one scope that a policy may have: a sample's rule bits are one 64-bit number."""
DEFAULT_ALLOWANCE = 0.001
"""Share of the samples judged on which a flag, mask or substitute rule may fire before an audit fails."""
SPAN_SIGNALS = frozenset(
    {"token_dup_ngram_fraction", "token_periodic_repeats", "token_periodic_fraction", "out_of_vocabulary"}
)
"""Token signals that know which positions made them, by score/spans.py."""


def matches(patterns: Collection[str], source: str) -> bool:
    """Whether a source is named, or matched by a pattern; no patterns at all match every source.

    >>> matches((), "web"), matches(("web", "code-*"), "code-python"), matches(("web",), "web2")
    (True, True, False)
    """
    return not patterns or any(pattern == source or fnmatchcase(source, pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule over samples; it fires where all of its conditions hold."""

    name: str
    bit: int
    """Its bit in a sample's rule bits, and its place in `Policy.rules`."""
    action: Action
    conditions: tuple[Condition, ...]
    """At least one; all over the same kind."""
    sources: tuple[str, ...] = ()
    """Names or patterns; empty for every source."""
    max_fraction: float
    """Share of what it was evaluated on, on which it may fire before an audit fails."""
    masks: Literal["span", "sample"]
    note: str = ""
    line: int | None = None

    @property
    def verdict(self) -> Verdict:
        """What its action makes of a sample."""
        return _VERDICTS[self.action]

    @property
    def kind(self) -> SignalKind:
        """Text or tokens: what it is over."""
        return self.conditions[0].signal.kind

    @property
    def text(self) -> str:
        """Its conditions in words."""
        return " and ".join(map(str, self.conditions))


_VERDICTS: dict[Action, Verdict] = {
    "flag": Verdict.FLAG,
    "mask": Verdict.MASK,
    "substitute": Verdict.SUBSTITUTE,
    "halt": Verdict.HALT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRule:
    """A rule over the global batch, never over one rank's part of it."""

    name: str
    action: Literal["flag", "propose_skip"]
    of: Literal["mean", "max"]
    """Which value over the samples of the batch is bounded."""
    condition: Condition
    sources: tuple[str, ...] = ()
    """The samples it looks at; empty for those of every source."""
    max_fraction: float
    apply_at_next_attempt: bool = False
    note: str = ""
    line: int | None = None

    @property
    def text(self) -> str:
        """What it says, in words."""
        return f"{self.of} of {self.condition} over the global batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRule:
    """A rule over all samples of a shard that were judged, added up over ranks (or blocks of an audit)."""

    name: str
    action: Literal["propose_quarantine"] = "propose_quarantine"
    counts: tuple[str, ...]
    """Actions or names of rules: a sample counts where a rule with one of them fired."""
    bits: int
    """The rules that `counts` means, as rule bits."""
    low: float
    """Least share of counted samples at which it fires."""
    min_samples: int
    """Judged only once so many samples of the shard were."""
    sources: tuple[str, ...] = ()
    max_fraction: float
    apply_at_next_attempt: bool = False
    text: str
    """What it says, in words."""
    note: str = ""
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What is different for the sources that match; of several sections the last that speaks of a rule counts."""

    source: str
    """A name or a pattern."""
    off: tuple[str, ...]
    conditions: dict[str, tuple[Condition, ...]]
    """Name of a rule -> its conditions there."""
    line: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Policy:
    """Rules, and what becomes of the samples on which they fire. Two policies are equal when their digests are."""

    name: str
    digest: str
    """SHA-256 of the text in UTF-8, hexadecimal: what ``policy/<digest>.toml`` is called."""
    text: str = field(repr=False)
    """The toml as written."""
    title: str = ""
    warning: str = ""
    rules: tuple[Rule, ...]
    """Over samples; rule i has bit i. At most 64."""
    batch_rules: tuple[BatchRule, ...] = ()
    shard_rules: tuple[ShardRule, ...] = ()
    sections: tuple[Section, ...] = ()
    fill: Literal["mask", "substitute"] | None = None
    on_unreadable: Literal["withhold", "halt"] = "withhold"
    withhold: frozenset[Verdict] = frozenset({Verdict.MASK, Verdict.SUBSTITUTE, Verdict.HALT})
    """Samples with which verdicts an audit writes into withhold.parquet."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def conditions_of(self, rule: Rule, source: str) -> tuple[Condition, ...] | Skip:
        """The conditions of a rule for samples of a source, or why it is not judged there."""
        if not matches(rule.sources, source):
            return Skip.SOURCE
        found: tuple[Condition, ...] | Skip = rule.conditions
        for section in self.sections:
            if matches((section.source,), source):
                found = Skip.OFF if rule.name in section.off else section.conditions.get(rule.name, found)
        return found

    def is_off(self, rule: str, source: str) -> bool:
        """Whether the last section that speaks of a rule for this source switches it off."""
        off = False
        for section in self.sections:
            if matches((section.source,), source):
                off = rule in section.off or (off and rule not in section.conditions)
        return off

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """Every condition of rules over samples and batches, those of sections too."""
        own = [condition for rule in self.rules for condition in rule.conditions]
        own += [rule.condition for rule in self.batch_rules]
        own += [each for section in self.sections for kept in section.conditions.values() for each in kept]
        return tuple(own)

    def signals(self, kind: SignalKind) -> tuple[str, ...]:
        """Names of the signals that the policy asks for, of one kind, in the registry's order."""
        asked = {condition.signal.name for condition in self.conditions}
        return tuple(name for name, spec in SIGNALS.items() if name in asked and spec.kind == kind)
