"""Every system of both documents has its place and its tests: the table in the docstring of `dataguard.triage`."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import dataguard.triage

TOP = Path(__file__).parents[2]
ROW = re.compile(r"^    (?P<rows>[AC]\d+(?:, [AC]\d+)*) +(?P<place>dataguard[\w.]*:\w+) +(?P<path>tests/\S+\.py)$")
TEST = re.compile(r"^ {14}(?P<test>test_\w+)$")
ALL = [*(f"A{i}" for i in range(1, 20)), *(f"C{i}" for i in range(1, 27))]


def table() -> list[tuple[str, str, str, str]]:
    """(row, module:name, path of a test file, test): a line for each place, and below it one for each of its tests."""
    assert dataguard.triage.__doc__ is not None
    lines = dataguard.triage.__doc__.splitlines()
    title = next(i for i, line in enumerate(lines) if line.split() == ["row", "function", "tests"])
    found: list[tuple[str, str, str, str]] = []
    place, has_test = None, True
    for line in lines[title + 1 :]:
        if row := ROW.match(line):
            assert has_test, f"no test stands below {place}"
            place, has_test = row, False
        else:
            test = TEST.match(line)
            assert test, f"no line of the table: {line!r}"
            assert place is not None
            has_test = True
            found += [(each, place["place"], place["path"], test["test"]) for each in place["rows"].split(", ")]
    assert has_test
    return found


@cache
def functions_of(path: str) -> set[str]:
    """Functions of a file outside of classes, which is where pytest is told to look."""
    return {node.name for node in ast.parse((TOP / path).read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_row_is_there_in_its_order() -> None:
    rows = [row for row, _, _, _ in table()]
    assert list(dict.fromkeys(rows)) == ALL
    assert rows == sorted(rows, key=ALL.index)


@pytest.mark.parametrize("place", sorted({place for _, place, _, _ in table()}))
def test_what_it_points_to_can_be_imported(place: str) -> None:
    module, _, name = place.partition(":")
    if module.startswith("dataguard.torch"):
        pytest.importorskip("torch")
    found = getattr(import_module(module), name)
    assert callable(found)
    assert found.__module__ == module, f"it is made in {found.__module__}"


def test_every_test_that_it_names_is_there() -> None:
    lost = [(row, path, test) for row, _, path, test in table() if test not in functions_of(path)]
    assert not lost
