"""Words of the command line, through the real parser and no further."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from dataguard.cli.main import group


def every_command() -> Iterator[tuple[str, click.Command]]:
    """``("store list", its command)`` of everything that can be typed; ``("", group)`` first."""
    yield "", group
    with click.Context(group, info_name="dataguard") as ctx:
        for name in group.list_commands(ctx):
            command = group.get_command(ctx, name)
            assert command is not None, name
            yield name, command
            if isinstance(command, click.Group):
                for below, member in sorted(command.commands.items()):
                    yield f"{name} {below}", member


def parse(words: Sequence[str]) -> click.Context:
    """Read words as `main` would, and run nothing: what cannot be typed raises what `main` would tell."""
    ctx = group.make_context("dataguard", list(words))
    left, command = [*ctx._protected_args, *ctx.args], group
    while isinstance(command, click.Group):
        name, found, left = command.resolve_command(ctx, left)
        assert found is not None, words
        ctx = found.make_context(name, list(left), parent=ctx)
        left, command = [*ctx._protected_args, *ctx.args], found
    return ctx
