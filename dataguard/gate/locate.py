r"""On which line of a TOML text does each key stand?

tomllib reads the values and forgets where they were. This module goes through a text that tomllib has accepted, with
just enough grammar to know keys, headers, strings and brackets, and notes the line of every key, header and array
element; a test holds its paths equal to those of tomllib's answer. Values are passed over, never read.

>>> lines = key_lines('[[rules]]\nname = "a"\nall = [\n  {signal = "b"},\n]\n')
>>> lines["rules", 0, "name"], lines["rules", 0, "all", 0, "signal"]
(2, 4)
"""

from __future__ import annotations

import re
import tomllib

__all__ = ["Path", "key_lines", "line_of"]

Path = tuple[str | int, ...]
"""Keys and array indices from the top of the document to a value."""

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}'  # a multi-line string may end in two quotes of its own
    r"|'''(?:[^']|'(?!''))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\n]+")


def key_lines(text: str) -> dict[Path, int]:
    """The line, counted from 1, of every table, key and array element of a text that tomllib accepts."""
    return _Scanner(text).scan()


def line_of(lines: dict[Path, int], path: Path) -> int | None:
    """The line of a path, or of the nearest thing around it that has one.

    >>> line_of({("rules", 0): 4}, ("rules", 0, "action"))
    4
    """
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return None


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.counted = 0  # up to where line feeds were counted
        self.line = 1
        self.lines: dict[Path, int] = {}
        self.last: dict[Path, int] = {}  # array of tables -> index of its newest element

    def scan(self) -> dict[Path, int]:
        table: Path = ()
        while True:
            self._skip_space()
            if self.at >= len(self.text):
                return self.lines
            if self._take("[["):
                here = self._line()
                *outer, name = self._key()
                array = (*self._resolved(outer), name)
                self.last[array] = self.last.get(array, -1) + 1
                table = (*array, self.last[array])
                self._note(table, here)
                self._take("]]")
            elif self._take("["):
                here = self._line()
                table = self._resolved(self._key())
                self._note(table, here)
                self._take("]")
            else:
                self._pair(table)

    def _resolved(self, parts: list[str]) -> Path:
        """The path of a header: a name of an array of tables means its newest element."""
        path: Path = ()
        for part in parts:
            path = (*path, part)
            if path in self.last:
                path = (*path, self.last[path])
        return path

    def _pair(self, table: Path) -> None:
        here = self._line()
        path = (*table, *self._key())
        self._note(path, here)
        self._skip_space()
        self._take("=")
        self._value(path)

    def _value(self, path: Path) -> None:
        self._skip_space()
        if self._take("["):
            index = 0
            while not self._closed("]"):
                self._note((*path, index), self._line())
                self._value((*path, index))
                index += 1
        elif self._take("{"):
            while not self._closed("}"):
                self._pair(path)
        elif not self._match(_STRING):
            self._match(_SCALAR)

    def _closed(self, bracket: str) -> bool:
        self._skip_space()
        if self._take(","):
            self._skip_space()
        return self._take(bracket) or self.at >= len(self.text)

    def _key(self) -> list[str]:
        parts = []
        while True:
            self._skip_space()
            quoted = self._match(_STRING)
            parts.append(tomllib.loads(f"key = {quoted}")["key"] if quoted else self._match(_BARE))
            self._skip_space()
            if not self._take("."):
                return parts

    def _note(self, path: Path, line: int) -> None:
        """The line of a path, and of what stands around it where nothing named that before."""
        for end in range(1, len(path) + 1):
            self.lines.setdefault(path[:end], line)

    def _line(self) -> int:
        self.line += self.text.count("\n", self.counted, self.at)
        self.counted = self.at
        return self.line

    def _take(self, what: str) -> bool:
        if not self.text.startswith(what, self.at):
            return False
        self.at += len(what)
        return True

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            return ""
        self.at = found.end()
        return found[0]

    def _skip_space(self) -> None:
        self._match(_SPACE)
