"""How does a command line of many commands start in a tenth of a second?

By a table: the name, the one-line help and the module of each command stand in it, so ``dataguard --help`` imports
none of them, and a command imports its own module only.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from dataguard.cli.dressing import dress

__all__ = ["Entry", "LazyGroup"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One command of the table."""

    name: str
    """As it is typed."""
    module: str
    """Dotted path of the module that holds it."""
    attribute: str
    """Name of the `click.Command` in that module."""
    help: str
    """One line; the command's own ``short_help`` is set to it."""
    section: str
    """Heading under which the help lists it."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for.

    Parameters
    ----------
    entries
        The table, in the order of the help; names are unique.
    **attributes
        As for `click.Group`.
    """

    def __init__(self, *, entries: Sequence[Entry], **attributes: Any) -> None:
        super().__init__(**attributes)
        dress(self)
        self.entries = {entry.name: entry for entry in entries}
        assert len(self.entries) == len(entries), "a command stands twice in the table"

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every name of the table, in its order."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now; None where the table has none."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        if cmd_name not in self.commands:
            command: click.Command = getattr(import_module(entry.module), entry.attribute)
            command.short_help = entry.help
            dress(command)
            self.add_command(command, cmd_name)
        return self.commands[cmd_name]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands of the table that begin like that, from the table alone, and options."""
        found = [
            CompletionItem(entry.name, help=entry.help)
            for entry in self.entries.values()
            if entry.name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def path_of(self, words: Sequence[str]) -> str:
        """The command that words begin with, as it is typed: ``dataguard store list``; options are passed over."""
        path = ["dataguard"]
        left = [word for word in words if not word.startswith("-")]
        if left and left[0] in self.entries:
            path.append(left[0])
            command = self.commands.get(left[0])
            if isinstance(command, click.Group) and len(left) > 1 and left[1] in command.commands:
                path.append(left[1])
        return " ".join(path)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that was typed; a mistyped one is met with the nearest of the table."""
        name = args[0]
        if name in self.entries or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        near = difflib.get_close_matches(name, self.entries, n=1)
        raise click.UsageError(
            f"there is no command {name!r}" + (f"; did you mean {near[0]}?" if near else ""), ctx=ctx
        )

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands under their headings, from the table alone."""
        width = max(len(name) for name in self.entries)
        for section in dict.fromkeys(entry.section for entry in self.entries.values()):
            rows = [
                (entry.name.ljust(width), entry.help) for entry in self.entries.values() if entry.section == section
            ]
            with formatter.section(section):
                formatter.write_dl(rows)
