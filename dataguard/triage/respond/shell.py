r"""How is a command printed so that it runs as it stands?

Every word goes through `quote`: POSIX quoting where the word can be shown, and the ``$'...'`` of bash, zsh and ksh
where it holds what a terminal must not be given (controls, directional marks), which would otherwise be shown escaped
and mean something else.

>>> print(typed(("dataguard", "skip", "runs/a b", "40:45", "--reason", "it's a spike")).text)
dataguard skip 'runs/a b' 40:45 --reason 'it'"'"'s a spike'
>>> print(quote("web/\x1b.jsonl"))
$'web/\x1b.jsonl'
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from dataguard.triage.respond.answers import Command

__all__ = ["command", "quote", "typed"]

_MARKS = {*"\u061c\u200e\u200f\u2028\u2029\ufeff", *map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}


def quote(word: str) -> str:
    """One word for a shell, without anything in it that a terminal shows otherwise than it is."""
    if not any(_hidden(letter) for letter in word):
        return shlex.quote(word)
    return "$'" + "".join(map(_escaped, word)) + "'"


def typed(argv: Sequence[str], *, why: str = "", applies: bool = False) -> Command:
    """A command of these words."""
    return Command(text=" ".join(map(quote, argv)), argv=tuple(argv), why=why, applies=applies)


def command(
    verb: str, run: str, *arguments: str, why: str, options: Sequence[str] = (), applies: bool = False
) -> Command:
    """``dataguard VERB RUN ARGUMENT... --option ...``; words that look like options stand behind ``--``."""
    words = (run, *arguments)
    if any(word.startswith("-") for word in words):
        return typed(("dataguard", verb, *options, "--", *words), why=why, applies=applies)
    return typed(("dataguard", verb, *words, *options), why=why, applies=applies)


def _hidden(letter: str) -> bool:
    return letter < " " or "\x7f" <= letter <= "\x9f" or letter in _MARKS or "\ud800" <= letter <= "\udfff"


def _escaped(letter: str) -> str:
    if letter in "\\'":
        return "\\" + letter
    if not _hidden(letter):
        return letter
    return "".join(f"\\x{byte:02x}" for byte in letter.encode("utf-8", "surrogateescape"))
