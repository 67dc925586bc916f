"""Which names may users import? The list is frozen here: it grows by intent, never by accident."""

from __future__ import annotations

import ast
import importlib

import pytest

import dataguard
from dataguard import errors
from tests.architecture.tree import PACKAGE, modules

PUBLIC = [
    "Address",
    "Corpus",
    "DataguardError",
    "Geometry",
    "Loader",
    "Manifest",
    "Plan",
    "Policy",
    "Run",
    "__version__",
    "score_text",
    "score_tokens",
]

ROOMS = {
    "dataguard.audit": [
        "Audit",
        "AuditRequest",
        "AuditSummary",
        "LocalEngine",
        "Progress",
        "RayEngine",
        "open_audit",
        "read_summary",
        "run_audit",
    ],
    "dataguard.gate": ["Gate", "Policy", "load_policy", "read_policy"],
    "dataguard.replay": [
        "Lookup",
        "Rebuilder",
        "Rebuilt",
        "index_frame",
        "inspect_step",
        "read_log",
        "replay_step",
        "seen_before",
        "telemetry_frame",
        "verify_run",
        "where_record",
    ],
    "dataguard.torch": [
        "ByteTransform",
        "Guarded",
        "GuardedLoader",
        "Monitor",
        "Record",
        "TensorMicrobatch",
        "WindowTransform",
        "describe",
        "guard",
        "rebuild_tensors",
        "together",
    ],
}
"""What a room offers by its own name."""

EXIT_CODES = {
    "DataguardError": 1,
    "AnswerNo": 1,
    "UsageError": 2,
    "GeometryError": 2,
    "PlanError": 2,
    "SpanError": 2,
    "AttemptError": 2,
    "UnknownSignal": 2,
    "PolicyError": 2,
    "NotInRun": 2,
    "InputError": 3,
    "ShardDamaged": 3,
    "ShardChanged": 3,
    "ManifestDamaged": 3,
    "RunDamaged": 3,
    "EnvironmentFailed": 4,
    "WriteFailed": 4,
    "UnfitFileSystem": 4,
    "WriterConflict": 4,
    "RanksDisagree": 4,
    "RankMissing": 4,
    "TransformFailed": 4,
    "WorkerDied": 4,
}


def test_public_names_are_these() -> None:
    assert dataguard.__all__ == PUBLIC


@pytest.mark.parametrize("room", ROOMS)
def test_what_a_room_offers_is_this(room: str) -> None:
    assert importlib.import_module(room).__all__ == ROOMS[room]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(dataguard, name) is not None
    assert name in dir(dataguard)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Corpse'"):
        _ = dataguard.Corpse
    with pytest.raises(ImportError, match="Corpse"):
        exec("from dataguard import Corpse")


def test_exit_codes_of_the_error_tree_are_these() -> None:
    assert {name: getattr(errors, name).exit_code for name in errors.__all__} == EXIT_CODES


def test_every_error_stands_in_the_drawn_tree_with_its_code() -> None:
    assert errors.__doc__ is not None
    drawn = {}
    for line in errors.__doc__.splitlines():
        words = line.replace("│", " ").replace("├──", " ").replace("└──", " ").split()
        if words and words[0] in errors.__all__:
            drawn[words[0]] = int(next(word for word in words[1:] if word.isdigit()))
    assert drawn == EXIT_CODES


def test_every_module_names_what_it_offers() -> None:
    """A sorted ``__all__`` in each module that holds code, and every name in it exists (lint keeps the order)."""
    without = []
    for path in modules():
        body = ast.parse(path.read_text()).body
        defines = any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in body)
        names = [
            target.id
            for node in body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        ]
        if defines and "__all__" not in names:
            without.append(str(path.relative_to(PACKAGE)))
    assert without == []


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_name_offered_exists(path) -> None:
    dotted = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    if dotted.endswith("__main__"):
        return
    module = importlib.import_module(dotted)
    assert module.__doc__, f"{dotted} does not say what it is for"
    for name in getattr(module, "__all__", []):
        assert hasattr(module, name), f"{dotted} offers {name}, which it lacks"
