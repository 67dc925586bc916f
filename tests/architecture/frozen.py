"""Everything that others build on, one a line, as the code has it now.

Run as ``python -m tests.architecture.frozen`` it writes the lists under ``frozen/``, which a test holds equal to the
code: so what is public changes by intent, with a diff that shows it, and never by accident.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

from dataguard.core.evidence import Verdict as DiagnosisVerdict
from dataguard.core.spikes import EventClass
from dataguard.corpus.formats.registry import FORMATS
from dataguard.gate.policy import POLICY_NAMES, named_policy
from dataguard.gate.verdict import Verdict
from dataguard.plan.slots import SlotStatus
from dataguard.run import events
from dataguard.run.layout import Layout
from dataguard.score.registry import SIGNALS
from dataguard.triage.detect import PROFILES
from examples.docs.public import PUBLIC_MODULES
from tests.architecture.tree import modules

__all__ = ["FOLDER", "LISTS"]

FOLDER = Path(__file__).with_name("frozen")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{3,}")
_SPANS = {"attempt": 1, "rank": 0, "first": 0, "stop": 10_000, "stop_step": 9_002, "step": 9_000, "first_step": 0}


def names() -> Iterator[str]:
    """Every name of a public module, with how it is called: parameters, members, values."""
    for module in PUBLIC_MODULES:
        for name in import_module(module).__all__:
            yield from _of(f"{module}.{name}", getattr(import_module(module), name))


def _of(path: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        if issubclass(value, enum.Enum):
            yield f"{path}: {' '.join(member.name for member in value)}"
        elif issubclass(value, BaseException):
            yield f"{path}({', '.join(base.__name__ for base in value.__bases__)}) exit {value.exit_code}"
        else:
            yield f"{path}{_signature(value)}"
        yield from sorted(_members(path, value))
    elif callable(value):
        yield f"{path}{_signature(value)}"
    elif isinstance(value, int | float | str):
        yield f"{path} = {value!r}" if path != "dataguard.__version__" else path
    else:
        yield f"{path}: {type(value).__name__}"


def _members(path: str, kind: type) -> Iterator[str]:
    """What the classes of this package offer on it; what a base from elsewhere brings is that base's."""
    seen = set()
    for base in kind.__mro__:
        if not base.__module__.startswith("dataguard"):
            continue
        fields = {field.name for field in dataclasses.fields(base)} if dataclasses.is_dataclass(base) else set()
        fields |= set(getattr(base, "__struct_fields__", ()))
        for name, member in vars(base).items():
            if name.startswith("_") or name in seen or name in fields:
                continue
            seen.add(name)
            if isinstance(member, classmethod | staticmethod):
                member = member.__func__
            if isinstance(member, FunctionType):
                yield f"{path}.{name}{_signature(member)}"
            elif isinstance(member, property) or hasattr(member, "func"):
                yield f"{path}.{name}: property"


def _signature(value: Any) -> str:
    """Names, kinds and defaults of parameters: what a call depends on. Types are in the code, and checked there."""
    try:
        signature = inspect.signature(value)
    except ValueError:  # of a type that is written in C
        return ""
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    spelled = str(inspect.Signature([each.replace(default=_spelled(each.default)) for each in bare]))
    return re.sub(r" at 0x[0-9a-f]+", "", spelled)


def _spelled(default: Any) -> Any:
    """A default that reads the same in every process."""
    if default is inspect.Parameter.empty or isinstance(default, int | float | str | bytes | tuple | None):
        return default
    return _Name(getattr(default, "__qualname__", type(default).__name__))


class _Name:
    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return f"<{self._text}>"


def signals() -> Iterator[str]:
    """Name, version, unit and range of every signal, in the order of the registry: columns have it."""
    for spec in SIGNALS.values():
        high = f"{spec.high:g}{']' if spec.high_reached else ')'}"
        kind = f"{spec.kind} {'int64' if spec.whole else 'float64'}"
        needs = f" needs {' '.join(spec.needs)}" if spec.needs else ""
        bounds = f"[{spec.low:g}, {high}"
        yield f"{spec.name} v{spec.version}: {kind}, {spec.unit}, {bounds}, of nothing {spec.empty:g}{needs}"


def words() -> Iterator[str]:
    """Words of closed lists that stand on disk or are typed: formats, kinds of events, verdicts, profiles."""
    yield f"formats: {' '.join(entry.name for entry in FORMATS)}"
    yield f"journal events: {' '.join(sorted(_tags(events.EventBase)))}"
    yield f"verdicts: {' '.join(f'{each.name.lower()}={each.value}' for each in Verdict)}"
    yield f"slot statuses: {' '.join(f'{each.name.lower()}={each.value}' for each in SlotStatus)}"
    yield f"event classes: {' '.join(each.value for each in EventClass)}"
    yield f"diagnosis verdicts: {' '.join(each.value for each in DiagnosisVerdict)}"
    yield f"detector profiles: {' '.join(PROFILES)}"
    for name in POLICY_NAMES:
        yield f"policy {name}: {named_policy(name).digest}"


def _tags(kind: type) -> Iterator[str]:
    for each in kind.__subclasses__():
        yield str(each.__struct_config__.tag)  # type: ignore[attr-defined]
        yield from _tags(each)


def run_directory() -> Iterator[str]:
    """What each file of a run directory is called."""
    layout = Layout(Path("RUN"))
    found = set()
    for name, member in vars(Layout).items():
        if name.startswith("_") or isinstance(member, staticmethod) or name in {"root", "spool"}:
            continue
        if isinstance(member, property):
            found.add(f"{getattr(layout, name).as_posix()}/")
        elif isinstance(member, FunctionType):
            given = {
                each: _SPANS.get(each, {"digest": "DIGEST", "name": "NAME", "what": "WHAT", "number": 1}.get(each))
                for each, parameter in inspect.signature(member).parameters.items()
                if each != "self" and parameter.kind is not inspect.Parameter.KEYWORD_ONLY
            }
            path = member(layout, **given).as_posix()
            found.add(path if path.count(".") else f"{path}/")
    folders = {
        path for path in found if path.endswith("/") and any(each != path and each.startswith(path) for each in found)
    }
    yield from sorted(path.replace("DIGEST", "<digest>").replace("WHAT", "<what>") for path in found - folders)


def environment() -> Iterator[str]:
    """Environment variables that are read or set anywhere in the package."""
    found = set()
    for path in modules():
        text = path.read_text()
        if "environ" not in text:
            continue
        tree = ast.parse(text)
        tree.body = [node for node in tree.body if not _is_all(node)]
        looks = any(
            (isinstance(node, ast.Attribute) and node.attr == "environ")
            or (isinstance(node, ast.Name | ast.arg) and getattr(node, "id", getattr(node, "arg", "")) == "environ")
            for node in ast.walk(tree)
        )
        if looks:
            found |= {
                node.value
                for node in ast.walk(tree)
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and _VARIABLE.fullmatch(node.value)
            }
    yield from sorted(found)


def _is_all(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__"


LISTS: dict[str, Callable[[], Iterator[str]]] = {
    "names.txt": names,
    "signals.txt": signals,
    "words.txt": words,
    "run_directory.txt": run_directory,
    "environment.txt": environment,
}
"""File under ``frozen/`` -> what gives its lines."""


if __name__ == "__main__":
    for file, lines in LISTS.items():
        (FOLDER / file).write_text("".join(f"{line}\n" for line in lines()))
