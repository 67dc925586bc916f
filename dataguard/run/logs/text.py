"""How is a text log read whose lines are meant for people?

Each format knows what a line of its kind looks like. A line that its `lead` finds and its `parse` reads gives points of
one step; one that its `lead` finds and `parse` does not read was torn or written over by another process, and is told;
every other line is not about steps and is none of our business. Terminal colors are taken off first, and what a
progress bar left before a carriage return counts as a line of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Protocol, TypeAlias

from dataguard.run.logs.log import LogRows
from dataguard.run.logs.opening import LogFile

__all__ = ["Parsed", "TextFormat", "read_text", "shown_lines"]

Parsed: TypeAlias = tuple[int, Mapping[str, float]]
"""A step as the trainer labels it, and what was logged of it."""

_COLOR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class TextFormat(Protocol):
    """What a module of this package offers that reads one format of text log."""

    @property
    def lead(self) -> re.Pattern[str]:
        """Finds the lines that are about a step."""

    @property
    def parse(self) -> _Parse:
        """Reads one line; None where it cannot be read."""


class _Parse(Protocol):
    def __call__(self, line: str, /) -> Parsed | None: ...


def shown_lines(file: LogFile) -> Iterator[tuple[int, str]]:
    """The lines as a terminal would show them, each with the number of its line in the file."""
    for number, line in file.lines():
        plain = _COLOR.sub("", line) if "\x1b" in line else line
        if "\r" in plain:
            for part in plain.split("\r"):
                yield number, part
        else:
            yield number, plain


def read_text(file: LogFile, rows: LogRows, reader: TextFormat) -> None:
    """Read every line of one format."""
    find, parse = reader.lead.search, reader.parse
    for number, line in shown_lines(file):
        if find(line) is None:
            continue
        parsed = parse(line)
        if parsed is None:
            rows.problem("unparsed", number, line.strip())
        else:
            rows.add(parsed[0], parsed[1], line=number)
