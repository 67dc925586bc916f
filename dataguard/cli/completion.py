"""``dataguard completion``: print the script of a shell."""

from __future__ import annotations

import click
import msgspec

from dataguard.cli import output
from dataguard.cli.options import json_option
from dataguard.cli.shells import SHELLS, shell_of

__all__ = ["CompletionScript", "completion"]


class CompletionScript(msgspec.Struct, frozen=True, kw_only=True):
    """What ``dataguard completion --json`` answers."""

    shell: str
    script: str
    """What the shell is to run."""


_EPILOG = """To have it in every shell:

\b
  bash  in ~/.bashrc: eval "$(dataguard completion bash)"
  zsh   in ~/.zshrc, behind compinit: eval "$(dataguard completion zsh)"
  fish  dataguard completion fish > ~/.config/fish/completions/dataguard.fish
"""


@click.command(epilog=_EPILOG)
@click.argument("shell", type=click.Choice(SHELLS))
@json_option
def completion(shell: str, as_json: bool) -> None:
    """Print the script that has a shell complete commands, options and values.

    Runs, attempts, events, sources, shards, policies and documents are completed too.

    Examples: dataguard completion bash
    dataguard completion fish
    """
    answer = CompletionScript(shell=shell, script=shell_of(shell).source())
    output.answer(answer, lambda document: document.script, json=as_json)
