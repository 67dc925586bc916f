"""What does every command have, whoever wrote it?

``--debug``; numbers that are called ``N`` in its help; and the examples of its docstring as lines that can be typed as
they stand. In the docstring they are a paragraph of their own::

Examples
--------
    dataguard inspect RUN --step 17 --rank 1
    dataguard inspect RUN --batch 42
"""

from __future__ import annotations

import re
from inspect import cleandoc

import click

__all__ = ["EXAMPLES", "debug_option", "dress", "examples_of"]

EXAMPLES = "Examples:"

_WIDTH = 76
"""Of an example's line: on a terminal of 80 columns it stands as it is."""


def debug_option() -> click.Option:
    """``--debug``, which every command takes: `main` looks for it when something fails."""
    return click.Option(
        ["--debug"], is_flag=True, expose_value=False, help="Show the traceback when something goes wrong."
    )


def dress(command: click.Command) -> None:
    """Give a command, and those below it, what every command has."""
    if not any("--debug" in parameter.opts for parameter in command.params):
        command.params.append(debug_option())
    if command.help:
        command.help = _with_block(cleandoc(command.help))
    for parameter in command.params:
        if parameter.metavar is None and isinstance(parameter.type, click.IntRange | click.FloatRange):
            parameter.metavar = "N" if isinstance(parameter, click.Option) else None
    if isinstance(command, click.Group):
        for member in command.commands.values():
            dress(member)


def examples_of(text: str) -> list[str]:
    r"""The examples of a help text, each on one line, as typed.

    >>> examples_of("Look.\n\nExamples: dataguard log RUN; dataguard log RUN\n--json\n\nMore.")
    ['dataguard log RUN', 'dataguard log RUN --json']
    """
    for paragraph in text.split("\n\n"):
        head, _, rest = paragraph.lstrip("\b\n").partition(":")
        if head in {"Example", "Examples"}:
            joined = " ".join(rest.replace("\\\n", " ").split())
            return [each.removesuffix(";") for each in re.split(r" (?=dataguard )", joined) if each]
    return []


def _with_block(text: str) -> str:
    """A help text whose examples stand on lines that click does not fill."""
    paragraphs = []
    for paragraph in text.split("\n\n"):
        examples = examples_of(paragraph)
        if examples and not paragraph.startswith("\b"):
            paragraph = "\n".join(["\b", EXAMPLES, *(line for each in examples for line in _lines(each))])
        paragraphs.append(paragraph)
    return "\n\n".join(paragraphs)


def _lines(example: str) -> list[str]:
    """An example, broken before an option where it is too long; a shell takes it as one line."""
    lines = ["  "]
    for part in re.split(r" (?=-)", example):
        gap = "" if lines[-1].isspace() else " "
        if gap and len(lines[-1]) + len(part) + 3 > _WIDTH:
            lines[-1] += " \\"
            lines.append(f"    {part}")
        else:
            lines[-1] += gap + part
    return lines
