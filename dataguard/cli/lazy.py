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

__all__ = ["Entry", "LazyGroup", "debug_option"]


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


def debug_option() -> click.Option:
    """``--debug``, which every command takes: `main` looks for it when something fails."""
    return click.Option(
        ["--debug"], is_flag=True, expose_value=False, help="Show the traceback when something goes wrong."
    )


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
            _add_debug(command)
            self.add_command(command, cmd_name)
        return self.commands[cmd_name]

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


def _add_debug(command: click.Command) -> None:
    if isinstance(command, click.Group):
        for member in command.commands.values():
            _add_debug(member)
    elif not any("--debug" in parameter.opts for parameter in command.params):
        command.params.append(debug_option())
