"""How do doctests in prose become code blocks? By an extension of griffe, which reads docstrings for the pages.

A docstring of ours may show an example anywhere in its prose. Markdown would take ``>>>`` for a quotation of a
quotation, so each such stretch of lines is fenced. Sections of NumPy's style know doctests by themselves and stay.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_UNDERLINE = re.compile(r"-{3,}\s*$")


class DoctestsInProse(griffe.Extension):
    """Fences doctests that stand in prose."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Called once, when all of the package has been read."""
        _fence_all(pkg)


def _fence_all(found: griffe.Object) -> None:
    if found.docstring is not None:
        found.docstring.value = fenced(found.docstring.value)
    for member in found.members.values():
        if not member.is_alias:
            _fence_all(member)


def fenced(text: str) -> str:
    """The text with its doctests fenced, up to the first section.

    >>> fenced("One:\\n\\n>>> 1 + 1\\n2\\n\\nTwo.").splitlines()
    ['One:', '', '```pycon', '>>> 1 + 1', '2', '```', '', 'Two.']
    """
    out: list[str] = []
    lines = text.splitlines()
    first_section = next(
        (i - 1 for i, line in enumerate(lines) if i and _UNDERLINE.match(line) and lines[i - 1].strip()), len(lines)
    )
    inside = False
    for line in lines[:first_section]:
        if line.endswith("::"):  # the mark of a literal block elsewhere; here its indentation is enough
            line = line[:-1] if line != "::" else ""
        if not inside and line.startswith(">>>"):
            out.append("```pycon")
            inside = True
        elif inside and not line.strip():
            out.append("```")
            inside = False
        out.append(line)
    if inside:
        out.append("```")
        if first_section < len(lines):
            out.append("")
    return "\n".join([*out, *lines[first_section:]])
