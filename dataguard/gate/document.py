"""What may stand in a policy.toml, and is this one of that shape?

The Structs are the grammar: every key with its type, for the JSON Schema and for the reader alike. `read_draft` goes
over them leaf by leaf, so that one call finds every misspelt key and every value of a wrong type, each with its line;
what is right is kept, so that the checks of meaning (checking.py) can go on over the rest.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import isfinite
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from dataguard.gate.locate import Path, key_lines, line_of
from dataguard.gate.problem import Problem, ProblemKind

__all__ = [
    "BOUND_KEYS",
    "ConditionDocument",
    "Draft",
    "OverrideDocument",
    "PolicyDocument",
    "RuleDocument",
    "SectionDocument",
    "read_draft",
    "suggestion",
]

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
BOUND_KEYS = ("below", "at_most", "above", "at_least", "outside", "outlier_mad")
"""The keys that say when a condition holds."""


class _Bounds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    below: float | None = None
    """Holds where the value is less than this."""
    at_most: float | None = None
    """Holds where the value is this or less."""
    above: float | None = None
    """Holds where the value is more than this."""
    at_least: float | None = None
    """Holds where the value is this or more."""
    outside: tuple[float, float] | None = None
    """Holds where the value is less than the first or more than the second; stands alone."""
    outlier_mad: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Holds where abs(robust z) against the reference profile of the source is more than this; stands alone."""


class ConditionDocument(_Bounds, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A signal and its bounds, one of a list that must all hold."""

    signal: str
    """A name of the registry."""


class RuleDocument(_Bounds, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One rule. Which keys have a meaning depends on its scope."""

    name: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
    """Unique in the policy."""
    action: Literal["flag", "mask", "substitute", "halt", "propose_skip", "propose_quarantine"]
    """Samples: flag, mask, substitute or halt. Batches: flag or propose_skip. Shards: propose_quarantine."""
    scope: Literal["sample", "batch", "shard"] = "sample"
    """What it judges: each sample, the global batch, or a shard over all that was seen of it."""
    signal: str | None = None
    """A name of the registry, with bounds beside it."""
    conditions: tuple[ConditionDocument, ...] | None = msgspec.field(name="all", default=None)
    """Instead of a signal: conditions that must all hold. One on a length says which samples the rule is meant for."""
    sources: tuple[str, ...] | None = None
    """Names or patterns (``code-*``) of the sources it is for; all of them where left out."""
    max_fraction: Share | None = None
    """Share of what it judged on which it may fire before an audit fails."""
    masks: Literal["span", "sample"] | None = None
    """What a mask over tokens covers: the span that made the signal, where it has one, or the whole sample."""
    of: Literal["mean", "max"] | None = None
    """Batches: which value over the samples of the batch is bounded."""
    counts: tuple[str, ...] | None = None
    """Shards: which samples are counted, by actions of the rules that fired or by names of rules."""
    min_samples: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Shards: judged only once so many of its samples were."""
    apply_at_next_attempt: bool | None = None
    """Batches and shards: whether a proposal is carried out when the next attempt begins. False where left out."""
    note: str = ""
    """Where the threshold is from, for people."""


class OverrideDocument(_Bounds, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Other bounds of one rule for some sources."""

    conditions: tuple[ConditionDocument, ...] | None = msgspec.field(name="all", default=None)
    """Other conditions, for rules that have several."""


class SectionDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is different for one source, or for those that a pattern names. Later sections outweigh earlier ones."""

    off: tuple[str, ...] = ()
    """Names of rules that are not judged there."""
    rules: dict[str, OverrideDocument] = {}
    """Name of a rule -> other bounds."""


class PolicyDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A policy as it is written."""

    version: Literal[1] = 1
    """Of this grammar."""
    name: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")] | None = None
    """What the policy is called; the file's name where left out."""
    title: str = ""
    """What it is for, in a line."""
    warning: str = ""
    """What whoever uses it should know; shown by every command that takes it."""
    fill: Literal["mask", "substitute"] | None = None
    """What a slot holds whose row is quarantined or cannot be read; the plan's fill where left out."""
    on_unreadable: Literal["withhold", "halt"] = "withhold"
    """What a row that cannot be read does to a run."""
    withhold: tuple[Literal["flag", "mask", "substitute", "halt"], ...] = ("mask", "substitute", "halt")
    """Samples with which verdicts an audit writes into withhold.parquet."""
    rules: tuple[RuleDocument, ...]
    sources: dict[str, SectionDocument] = {}
    """Name or pattern of sources -> what is different there."""


@dataclass(slots=True, kw_only=True)
class Draft:
    """What could be read of a policy, with all that is wrong so far."""

    values: dict[str, Any] = field(default_factory=dict)
    """Keys of PolicyDocument -> values; only those of the right type. Rules and sections are dicts, too."""
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def written(self, path: Path, *keys: str) -> bool:
        """Whether one of these keys stands there, be its value right or wrong."""
        return any((*path, key) in self.lines for key in keys)

    def tell(
        self,
        kind: ProblemKind,
        path: Path,
        where: str,
        asked: str,
        *,
        found: str | None = None,
        allowed: str | None = None,
        todo: str | None = None,
    ) -> None:
        """Note a problem at a path; `where` says in words what stands there."""
        line = line_of(self.lines, path)
        self.problems.append(
            Problem(kind=kind, line=line, where=where, asked=asked, found=found, allowed=allowed, todo=todo)
        )


def read_draft(text: str) -> Draft:
    r"""Read a policy's text as far as it has the shape of one.

    >>> draft = read_draft('[[rules]]\nname = "a"\nsignall = "byte_entropy"\naction = "flag"\nbelow = "2"\n')
    >>> [(problem.line, problem.kind) for problem in draft.problems]
    [(3, 'unknown-key'), (5, 'wrong-type')]
    """
    draft = Draft()
    try:
        parsed = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError of int's own
        told = str(error) or "its brackets nest too deep"
        draft.problems.append(
            Problem(kind="syntax", line=_line_told(told, text), where="the file", asked=f"it is no TOML: {told}")
        )
        return draft
    draft.lines = key_lines(text)
    draft.values = _struct(draft, parsed, PolicyDocument, (), "the policy")
    return draft


def _line_told(told: str, text: str) -> int | None:
    if "(at end of document)" in told:
        return text.count("\n") + 1
    _, found, rest = told.partition("(at line ")
    return int(rest.partition(",")[0]) if found else None


def _struct(draft: Draft, parsed: Any, kind: type[msgspec.Struct], path: Path, where: str) -> dict[str, Any]:
    """The keys of one table that are known and of their type; all others are told."""
    if not isinstance(parsed, dict):
        draft.tell("wrong-type", path, where, "it is no table", found=_shown(parsed), allowed="key = value")
        return {}
    kind_name = parsed.get("name") if kind is RuleDocument else None
    if isinstance(kind_name, str):
        where = f"rule {kind_name!r}"
    fields = {each.encode_name: each for each in msgspec.structs.fields(kind)}
    types = _types(kind)
    read: dict[str, Any] = {}
    for key, value in parsed.items():
        if key not in fields:
            near = suggestion(key, fields)
            allowed = ", ".join(fields)
            draft.tell("unknown-key", (*path, key), where, f"there is no key {key!r}", allowed=allowed, todo=near)
            continue
        made = _value(draft, value, types[fields[key].name], (*path, key), where, key)
        if made is not _WRONG:
            read[key] = made
    for key, each in fields.items():
        if each.required and key not in parsed:
            draft.tell("missing-key", path, where, f"it has no {key!r}", todo=f"give {key} = ...")
    return read


_WRONG: Any = object()


def _value(draft: Draft, value: Any, kind: Any, path: Path, where: str, key: str) -> Any:
    kind, meta = _plain(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(draft, value, kind, path, where)
    if get_origin(kind) is tuple and get_args(kind)[-1] is Ellipsis:
        if not isinstance(value, list):
            draft.tell("wrong-type", path, where, f"{key} is no list", found=_shown(value), allowed="[ ... ]")
            return _WRONG
        member = get_args(kind)[0]
        made = [
            _value(draft, each, member, (*path, i), where if key != "rules" else f"rule {i + 1}", key)
            for i, each in enumerate(value)
        ]
        return made if isinstance(member, type) and issubclass(member, msgspec.Struct) else _without_wrong(made)
    if get_origin(kind) is dict:
        if not isinstance(value, dict):
            draft.tell("wrong-type", path, where, f"{key} is no table", found=_shown(value), allowed="[sources.NAME]")
            return _WRONG
        member = get_args(kind)[1]
        tables = {
            name: _value(draft, each, member, (*path, name), _section_name(where, key, name), key)
            for name, each in value.items()
        }
        return {name: table for name, table in tables.items() if isinstance(value[name], dict)}
    return _leaf(draft, value, kind, meta, path, where, key)


def _leaf(draft: Draft, value: Any, kind: Any, meta: msgspec.Meta | None, path: Path, where: str, key: str) -> Any:
    if get_origin(kind) is Literal:
        allowed = get_args(kind)
        if type(value) is type(allowed[0]) and value in allowed:
            return value
        words = ", ".join(str(each) for each in allowed)
        near = suggestion(value, map(str, allowed)) if isinstance(value, str) else None
        draft.tell("unknown-value", path, where, f"{key} = {_shown(value)} cannot be", allowed=words, todo=near)
        return _WRONG
    try:
        made = msgspec.convert(value, Annotated[kind, meta] if meta else kind, strict=True)
    except (msgspec.ValidationError, OverflowError):
        draft.tell("wrong-type", path, where, f"{key} = {_shown(value)} cannot be", allowed=_words(kind, meta))
        return _WRONG
    numbers = made if isinstance(made, tuple) else (made,)
    if any(isinstance(each, float) and not isfinite(each) for each in numbers):
        draft.tell("wrong-type", path, where, f"{key} = {_shown(value)} cannot be", allowed=_words(kind, meta))
        return _WRONG
    return made


def _without_wrong(made: list[Any]) -> list[Any]:
    return [each for each in made if each is not _WRONG]


@cache
def _types(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _plain(kind: Any) -> tuple[Any, msgspec.Meta | None]:
    """A type without None and without its bounds, and the bounds."""
    meta = None
    while True:
        if get_origin(kind) is Annotated:
            kind, meta = get_args(kind)[:2]
        elif get_origin(kind) in {Union, UnionType}:
            (kind,) = (each for each in get_args(kind) if each is not type(None))
        else:
            return kind, meta


def _section_name(where: str, key: str, name: str) -> str:
    return f"section sources.{name}" if key == "sources" else f"{where}, rule {name!r}"


def _words(kind: Any, meta: msgspec.Meta | None) -> str:
    """What may stand there, in words."""
    if kind == tuple[float, float]:
        return "[low, high], two numbers"
    if meta is not None and meta.pattern is not None:
        return "1 to 64 of A-Z a-z 0-9 _ . -, the first of them a letter or a digit"
    what = {float: "a number", int: "a whole number", str: 'text in quotes, "..."', bool: "true or false"}[kind]
    if meta is None:
        return f"{what}, and a finite one" if kind is float else what
    limits = {"of at least": meta.ge, "above": meta.gt, "of at most": meta.le}
    told = [f"{word} {limit:g}" for word, limit in limits.items() if limit is not None]
    return " ".join([what, " and ".join(told)]).rstrip()


def _shown(value: Any) -> str:
    """A value as it is written in TOML, or much like it."""
    if isinstance(value, bool):
        return f"{value}".lower()
    shown = repr(value) if isinstance(value, str | int | float | list | dict) else str(value)  # a date
    return shown if len(shown) <= 60 else shown[:57] + "..."


def suggestion(word: str, known: Iterable[str] | Mapping[str, Any]) -> str | None:
    """``did you mean ...?`` for a word that is none of the known ones."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else None
