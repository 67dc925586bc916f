"""Every command and every flag, one a line, as the command line has them now.

Run as ``python -m tests.architecture.flags`` it prints the list that ``flags.txt`` freezes.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from dataguard.cli.main import group


def lines() -> list[str]:
    """``COMMAND ARGUMENT...`` and ``COMMAND --flag`` lines, in byte order."""
    with click.Context(group, info_name="dataguard") as ctx:
        return sorted(_of(group, "dataguard", ctx))


def _of(command: click.Command, path: str, ctx: click.Context) -> Iterator[str]:
    arguments = [param.human_readable_name for param in command.params if isinstance(param, click.Argument)]
    yield " ".join([path, *arguments])
    for param in command.params:
        if isinstance(param, click.Option):
            yield f"{path} {'/'.join(sorted((*param.opts, *param.secondary_opts)))}"
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            member = command.get_command(ctx, name)
            assert member is not None, name
            yield from _of(member, f"{path} {name}", ctx)


if __name__ == "__main__":
    print("\n".join(lines()))
