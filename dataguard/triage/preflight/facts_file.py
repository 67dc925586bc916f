r"""What does a file say of a trainer (``preflight FILE.toml``), and is every word of it one that means something?

The grammar are the Structs of `dataguard.core.trainer`. The file is read leaf by leaf, so that one error names every
misspelt key and every value that cannot be, each with its line and what may stand there.

>>> facts = read_facts("[optimizer]\nepsilon = 1e-8\n[[changes]]\nstep = 40\nwhat = 'lr / 3'\n", name="run.toml")
>>> facts.optimizer.epsilon, facts.changes[0].step
(1e-08, 40)
>>> read_facts("[optimiser]\nepsilon = 1\n", name="run.toml")
Traceback (most recent call last):
    ...
dataguard.errors.UsageError: run.toml says what cannot be: 1 problem
  found: line 1: there is no 'optimiser'; did you mean optimizer?
  allowed: architecture, optimizer, schedule, precision, data, monitoring, checkpoints, changes
"""

from __future__ import annotations

import difflib
import math
import tomllib
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from dataguard.core.trainer import TrainerFacts
from dataguard.errors import InputError, UsageError
from dataguard.gate.locate import key_lines, line_of

__all__ = ["load_facts", "read_facts"]

_BELOW_ONE = frozenset({"beta1", "beta2"})
_ABOVE_ZERO = frozenset({"seconds_per_step"})

_Where = tuple[str | int, ...]


def load_facts(path: str | Path) -> TrainerFacts:
    """The facts of a file.

    Raises
    ------
    InputError
        It cannot be read.
    UsageError
        It is no TOML, or says what cannot be: every problem with its line.
    """
    try:
        text = Path(path).read_bytes().decode()
    except OSError as error:
        raise InputError(f"{path} cannot be read", found=error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text", found=str(error), allowed="TOML, in UTF-8") from error
    return read_facts(text, name=str(path))


def read_facts(text: str, *, name: str) -> TrainerFacts:
    """The facts of a text; `name` is what messages call it."""
    try:
        parsed = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is no TOML", found=str(error)) from error
    reading = _Reading(key_lines(text))
    facts = reading.struct(parsed, TrainerFacts, ())
    if reading.problems:
        count = len(reading.problems)
        raise UsageError(
            f"{name} says what cannot be: {count:,} {'problem' if count == 1 else 'problems'}",
            found="\n    ".join(text for _, text in sorted(reading.problems, key=lambda each: each[0])),
            allowed="\n    ".join(dict.fromkeys(reading.allowed)) or None,
        )
    made: TrainerFacts = msgspec.convert(facts, TrainerFacts)
    return made


class _Reading:
    def __init__(self, lines: dict[_Where, int]) -> None:
        self.lines = lines
        self.problems: list[tuple[int, str]] = []
        self.allowed: list[str] = []

    def tell(self, where: _Where, text: str, allowed: str | None = None) -> None:
        line = line_of(self.lines, where) or 0
        self.problems.append((line, f"line {line}: {text}" if line else text))
        if allowed:
            self.allowed.append(allowed)

    def struct(self, value: Any, kind: type[msgspec.Struct], where: _Where) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.tell(where, f"{_named(where)} is no table: {_shown(value)}", f"[{_named(where)}]")
            return {}
        types = get_type_hints(kind, include_extras=True)
        fields = {each.encode_name: each for each in msgspec.structs.fields(kind)}
        read = {}
        for key, inner in value.items():
            here = (*where, key)
            if key not in fields:
                near = difflib.get_close_matches(key, fields, n=1)
                of = f" in {_named(where)}" if where else ""
                more = f"; did you mean {near[0]}?" if near else ""
                allowed = ", ".join(fields)
                self.tell(here, f"there is no {key!r}{of}{more}", f"{_named(where)}: {allowed}" if where else allowed)
            else:
                made = self.value(inner, types[fields[key].name], here)
                read[key] = made
        for key, each in fields.items():
            if each.required and key not in value:
                self.tell(where, f"{_named(where)} has no {key!r}")
        return read

    def value(self, value: Any, kind: Any, where: _Where) -> Any:
        kind, meta = _plain(kind)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self.struct(value, kind, where)
        if get_origin(kind) is tuple:
            if not isinstance(value, list):
                self.tell(where, f"{_named(where)} is no list: {_shown(value)}")
                return None
            return [self.value(each, get_args(kind)[0], (*where, i)) for i, each in enumerate(value)]
        if get_origin(kind) is Literal:
            if value in get_args(kind) and isinstance(value, str):
                return value
            near = difflib.get_close_matches(value, get_args(kind), n=1) if isinstance(value, str) else []
            more = f"; did you mean {near[0]}?" if near else ""
            allowed = f"{_named(where)}: {', '.join(get_args(kind))}"
            self.tell(where, f"{_named(where)} = {_shown(value)} cannot be{more}", allowed)
            return None
        return self.leaf(value, kind, meta, where)

    def leaf(self, value: Any, kind: Any, meta: msgspec.Meta | None, where: _Where) -> Any:
        words = {bool: "true or false", str: "text in quotes", int: "a whole number", float: "a number of 0 or more"}
        allowed = f"{_named(where)}: {words[kind]}" + (f" of at least {meta.ge}" if meta is not None else "")
        try:
            made = msgspec.convert(value, Annotated[kind, meta] if meta else kind, strict=True)
        except (msgspec.ValidationError, OverflowError):
            self.tell(where, f"{_named(where)} = {_shown(value)} cannot be", allowed)
            return None
        name = where[-1]
        if isinstance(made, float) and not (math.isfinite(made) and made >= 0):
            self.tell(where, f"{_named(where)} = {_shown(value)} cannot be", allowed)
        elif name in _BELOW_ONE and made >= 1:
            self.tell(
                where, f"{_named(where)} = {_shown(value)} cannot be", f"{_named(where)}: a number from 0 and below 1"
            )
        elif name in _ABOVE_ZERO and made == 0:
            self.tell(where, f"{_named(where)} = {_shown(value)} cannot be", f"{_named(where)}: a number above 0")
        return made


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


def _named(where: _Where) -> str:
    return ".".join(str(part) for part in where)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    shown = repr(value) if isinstance(value, str | int | float | list | dict) else str(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
