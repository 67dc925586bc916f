"""The README is what people run first: its two lines, its commands and its links hold."""

from __future__ import annotations

import ast
import re
import subprocess
from importlib import import_module

from dataguard.cli.main import COMMANDS
from dataguard.version import __version__
from tests.architecture.tree import TOP

README = (TOP / "README.md").read_text()


def set_up_lines() -> list[str]:
    return [line for line in README.splitlines() if "venv" in line]


def test_exactly_two_set_up_lines() -> None:
    demo, tests = set_up_lines()
    assert demo.endswith("dataguard demo")
    assert re.search(r"/pytest( [-a-z0-9 ]+)?$", tests)
    for line in (demo, tests):
        assert line.startswith("python3 -m venv .venv && .venv/bin/pip install ")


def test_ci_takes_the_test_line_from_the_readme() -> None:
    script = (TOP / ".ci" / "run").read_text()
    pattern = re.search(r"grep -E '([^']+)' README\.md", script)
    assert pattern is not None
    found = subprocess.run(["grep", "-E", pattern[1], "README.md"], cwd=TOP, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == set_up_lines()[1:]
    assert "pip install -q -e '.[test]'" not in script, "the script must not have a test line of its own"


def test_what_it_is_stands_in_five_lines() -> None:
    assert len(README.split("\n\n")[1].splitlines()) == 5


def test_every_command_named_exists_and_every_command_is_named() -> None:
    named = set(re.findall(r"^dataguard ([a-z]+)", README, re.MULTILINE))
    known = {entry.name for entry in COMMANDS}
    assert named <= known
    asides = {"compact", "demo", "release"}  # told on the line of a sibling, or above
    assert known - named <= asides
    for name in asides:
        assert re.search(rf"\b{name}\b", README)


def test_python_names_of_the_readme_are_public() -> None:
    rooms = {"dataguard", "dataguard.torch"}
    named = set()
    for snippet in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        for node in ast.walk(ast.parse(snippet)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "dataguard":
                assert node.module in rooms
                assert {alias.name for alias in node.names} <= set(import_module(node.module).__all__)
                named.add(node.module)
    assert named == rooms


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)]+)\)", README) + re.findall(r'src(?:set)?="([^"]+)"', README)
    assert targets
    for target in targets:
        assert (TOP / target).exists(), target


def test_the_changelog_speaks_of_this_version() -> None:
    assert f"## {__version__.partition('.dev')[0]}" in (TOP / "CHANGELOG.md").read_text()


def test_what_contributing_names_exists() -> None:
    text = (TOP / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`((?:tests|dataguard|schemas|\.ci|pyproject)[^` ]*)`", text)
    assert len(named) >= 6
    for name in named:
        assert (TOP / name).exists(), name
