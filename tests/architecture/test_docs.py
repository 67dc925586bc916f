"""Is all that is public in the documentation, and does every page, command and example that it names exist?

The pages themselves are built by ``.ci/run``, with warnings as errors; here is what can be seen without building.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import yaml

from dataguard.cli.main import COMMANDS
from dataguard.core.evidence import Verdict
from dataguard.gate.policy import POLICY_NAMES
from dataguard.score.registry import SIGNALS
from examples.docs.generated import PAGES
from examples.docs.public import PUBLIC_MODULES
from tests.architecture import flags
from tests.architecture.tree import TOP

FOLDER = TOP / "examples" / "docs"
WRITTEN = {path.relative_to(FOLDER / "pages").as_posix(): path.read_text() for path in FOLDER.rglob("pages/**/*.md")}
SETTINGS = yaml.safe_load((FOLDER / "mkdocs.yml").read_text())


def pages_of(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for each in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from pages_of(each)


def test_every_page_is_in_the_navigation_once() -> None:
    assert sorted(pages_of(SETTINGS["nav"])) == sorted([*WRITTEN, *PAGES])
    assert not set(WRITTEN) & set(PAGES)


def test_every_public_module_has_its_place_and_nothing_else_has() -> None:
    shown = [name for text in WRITTEN.values() for name in re.findall(r"^::: (\S+)$", text, re.MULTILINE)]
    assert len(shown) == len(set(shown))
    assert set(PUBLIC_MODULES) <= set(shown)
    for name in set(shown) - set(PUBLIC_MODULES):  # a function that is called as its module is
        module, _, function = name.rpartition(".")
        package, _, file = module.rpartition(".")
        assert package in PUBLIC_MODULES
        assert file == function
        assert function in import_module(package).__all__


def test_every_package_that_offers_names_is_public() -> None:
    offering = {
        ".".join(path.parent.relative_to(TOP).parts)
        for path in (TOP / "dataguard").rglob("__init__.py")
        if re.search(r"^__all__ = ", path.read_text(), re.MULTILINE)
    }
    for_people = {name for name in offering if name.split(".")[1:2] in (["cli"], ["report"])}
    assert offering - for_people - set(PUBLIC_MODULES) == {"dataguard.audit.engines"}  # a seam inside the room


@pytest.mark.parametrize("page", PAGES)
def test_a_page_that_is_made_of_the_code_can_be_made(page: str) -> None:
    text = PAGES[page]()
    assert re.match(r"# \S", text)
    for target in re.findall(r"\]\(([^)#:]+\.md)", text):
        assert target in {*WRITTEN, *PAGES}, target


def test_pages_name_all_that_their_tables_hold() -> None:
    signals, policies, commands = (PAGES[f"{name}.md"]() for name in ("signals", "policies", "commands"))
    assert all(f"`{name}`" in signals for name in SIGNALS)
    assert all(f"## {name}\n" in policies for name in POLICY_NAMES)
    assert all(f"### dataguard {entry.name} " in commands for entry in COMMANDS)
    assert all(f"| `{verdict}` |" in WRITTEN["guides/investigate.md"] for verdict in Verdict)


def test_what_guides_tell_to_type_can_be_typed() -> None:
    flags_of: dict[str, set[str]] = {}
    for line in flags.lines():  # COMMAND ARGUMENT..., or COMMAND --flag/-f
        words = [word for word in line.split() if word.islower() and not word.startswith("-")]
        flags_of.setdefault(" ".join(words), set()).update(line.split()[-1].split("/"))
    typed = [
        line
        for text in WRITTEN.values()
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        for line in block.replace("\\\n", " ").splitlines()
        if line.startswith("dataguard ")
    ]
    assert len(typed) > 20
    for line in typed:
        words = line.split()
        command = next((" ".join(words[:num]) for num in (3, 2) if " ".join(words[:num]) in flags_of), None)
        assert command, line
        for word in words:
            assert not word.startswith("-") or word in flags_of[command], f"{line}: no {word}"


def test_examples_that_pages_show_are_files_of_the_tree() -> None:
    shown = [name for text in WRITTEN.values() for name in re.findall(r'^--8<-- "([^"]+)"$', text, re.MULTILINE)]
    assert {"examples/train.py", "examples/investigate.py", "examples/ci/data.yml"} <= set(shown)
    for name in shown:
        assert (TOP / name).is_file(), name


def test_nothing_is_fetched_from_elsewhere() -> None:
    assert SETTINGS["theme"]["font"] is False
    assert not {"extra_javascript", "repo_url"} & set(SETTINGS)
    for page, text in {**WRITTEN, **{name: write() for name, write in PAGES.items()}}.items():
        assert not re.search(r"!\[[^]]*\]\(http|<(?:img|script|link)\b|```mermaid", text), page
