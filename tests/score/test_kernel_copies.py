"""What kernels share stands in each of their files, since numba's cache sees changes of one file alone: kept equal."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import dataguard

ROOMS = ("score/kernels", "corpus/kernels")
COPIED = (
    *("_trailing_zeros", "_leading_zeros", "_ones", "_fold", "_below", "_bits"),
    *("ALL", "SECRET_1", "SECRET_2", "SECRET_3", "LOW_32", "HIGH_32", "GOLDEN", "WIDTH"),
)


def definitions(name: str) -> dict[str, str]:
    """File -> the definition of a function or constant, its comments and form left out."""
    found = {}
    for room in ROOMS:
        for path in sorted((Path(dataguard.__file__).parent / room).glob("*.py")):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.FunctionDef) and node.name == name:
                    found[path.name] = ast.dump(node)
                elif isinstance(node, ast.Assign) and any(
                    isinstance(target, ast.Name) and target.id == name for target in node.targets
                ):
                    found[path.name] = ast.dump(node.value)
    return found


@pytest.mark.parametrize("name", COPIED)
def test_copies_are_equal(name: str) -> None:
    found = definitions(name)
    assert len(found) > 1, "nothing is copied any more: take the name out"
    assert len(set(found.values())) == 1, f"{name} differs among {', '.join(found)}"
