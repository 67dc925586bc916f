"""Is the tree one that a stranger can read: small files, nothing of one machine in it?"""

from __future__ import annotations

import ast
import re

from tests.architecture.tree import PACKAGE, TOP, modules, tracked

MOST_LINES = 400

# Built from pieces, so that this file does not hold what it looks for.
MACHINE = re.compile(
    "|".join(
        [
            r"(?<![A-Za-z0-9_.])/(?:wo" + r"rk|fa" + r"rm|ro" + r"ot|ho" + r"me/[a-z]+)/",
            r"https?://[a-z0-9.:-]*/sim" + r"ple(?:/|\b)",
            r"\b(?:pypi\.or" + r"g|pythonhos" + r"ted\.org|registry\.npm" + r"js\.org)\b",
        ]
    )
)


def test_no_file_holds_a_second_subject() -> None:
    """Past 400 lines a file is told here: look for the second subject in it."""
    told = {}
    for path in modules():
        num_lines = len(path.read_text().splitlines())
        if num_lines > MOST_LINES:
            told[str(path.relative_to(PACKAGE))] = num_lines
    assert told == {}


def test_nothing_of_one_machine_is_in_the_tree() -> None:
    told = []
    for path in tracked():
        content = path.read_bytes()
        if b"\0" in content[:8000]:
            continue
        for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), start=1):
            if MACHINE.search(line):
                told.append(f"{path.relative_to(TOP)}:{number}: {line.strip()[:100]}")
    assert told == []


def test_the_search_for_machine_paths_finds_them() -> None:
    assert MACHINE.search("see /wo" + "rk/main/x.py")
    assert MACHINE.search("index https://mirror.example/sim" + "ple/")
    assert not MACHINE.search("the frame/work/flow of net/work/s")


def test_annotations_are_never_evaluated() -> None:
    without = []
    for path in modules():
        body = ast.parse(path.read_text()).body
        code = [node for node in body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
        imports = [node for node in body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
        only_names = all(isinstance(node, ast.Import | ast.ImportFrom | ast.Assign) for node in code)
        if code and not imports and not only_names:
            without.append(str(path.relative_to(PACKAGE)))
    assert without == []


def test_every_room_of_the_package_has_its_tests() -> None:
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"report"}
    without = sorted(room for room in rooms if not list((TOP / "tests" / room).glob("test_*.py")))
    assert without == []
