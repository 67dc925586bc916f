"""What real text does every machine with Python have?

The standard library: its source files, and the documentation strings in them. Which text is found depends on the
Python version alone: files are taken in the byte order of their paths. Of the library's own tests, of tools that few
machines have and of what is no UTF-8 nothing is taken.
"""

from __future__ import annotations

import ast
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

__all__ = ["documentation", "library_folder", "passages", "source_files"]

_MOST_BYTES = 64_000  # of one source file: the demo is brisk
_FEWEST_CHARACTERS = 40  # of a documentation string
_LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "__pycache__", "turtledemo"}

_PASSAGE_CHARACTERS = (130, 400)
"""A passage ends at the first blank line past the one, or at any line past the other."""
_MOST_OF_PASSAGE = 800


def library_folder() -> Path:
    """Where the sources of this Python's standard library lie."""
    return Path(sysconfig.get_path("stdlib"))


def source_files(library: Path) -> Iterator[tuple[str, str]]:
    """(relative path, text) of the library's modules, in byte order of their paths; what is no UTF-8 is left out."""
    found = {path.relative_to(library).as_posix(): path for path in library.rglob("*.py")}
    for name in sorted(found, key=str.encode):
        path = found[name]
        if _LEFT_OUT.isdisjoint(Path(name).parts) and 0 < path.stat().st_size <= _MOST_BYTES:
            try:
                yield name, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def documentation(name: str, text: str) -> Iterator[dict[str, str]]:
    """The documentation strings of one source file, with the dotted names of what they document."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old escapes in somebody else's strings
        tree = ast.parse(text, filename=name)
    todo: list[tuple[str, ast.AST]] = [(name.removesuffix(".py").replace("/", "."), tree)]
    while todo:
        owner, node = todo.pop(0)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            string = ast.get_docstring(node)
            if string is not None and len(string) >= _FEWEST_CHARACTERS:
                yield {"text": string, "name": owner}
        for child in ast.iter_child_nodes(node):
            inner = getattr(child, "name", None)
            todo.append((f"{owner}.{inner}" if isinstance(inner, str) else owner, child))


def passages(name: str, text: str) -> Iterator[dict[str, str]]:
    """A text cut into passages of whole lines, each with the name of the text and the line it begins at, from 1.

    >>> [each["name"] for each in passages("a", ("x" * 70 + chr(10)) * 3 + chr(10) + "y" * 140)]
    ['a:1']
    """
    fewest, most = _PASSAGE_CHARACTERS
    lines: list[str] = []
    first, size = 1, 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not lines:
            if not line.strip():
                continue
            first = number
        lines.append(line)
        size += len(line) + 1
        if size >= fewest and (not line.strip() or size >= most):
            passage = "\n".join(lines).rstrip()
            if fewest <= len(passage) <= _MOST_OF_PASSAGE:
                yield {"text": passage, "name": f"{name}:{first}"}
            lines, size = [], 0
