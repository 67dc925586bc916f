"""How does a shell know what can be typed?

By click's own machinery: the script that a shell loads asks ``dataguard`` itself, with ``_DATAGUARD_COMPLETE`` set. For
bash the script is ours: it hands over the line as it was typed, so that words with ``=`` and ``:`` in them, which bash
takes apart, are completed as one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from dataguard.cli import output

if TYPE_CHECKING:
    from click.shell_completion import ShellComplete

__all__ = ["SHELLS", "VARIABLE", "answer_shell", "shell_of"]

VARIABLE = "_DATAGUARD_COMPLETE"
SHELLS = ("bash", "zsh", "fish")


def answer_shell() -> int | None:
    """Answer a shell that asks what can be typed; None where nobody asks."""
    asked = os.environ.get(VARIABLE)  # noqa: TID251 - the protocol of click
    if not asked:
        return None
    shell, _, instruction = asked.partition("_")
    if shell not in SHELLS or instruction not in {"source", "complete"}:
        return 1
    made = shell_of(shell)
    output.write(f"{made.source() if instruction == 'source' else made.complete()}\n".encode())
    output.flush()
    return 0


def shell_of(name: str) -> ShellComplete:
    """What makes the script of a shell, and its answers."""
    from click.shell_completion import BashComplete, CompletionItem, get_completion_class, split_arg_string

    from dataguard.cli.main import group

    class Bash(BashComplete):
        source_template = _BASH

        def get_completion_args(self) -> tuple[list[str], str]:
            line = os.environ.get("COMP_LINE", "")  # noqa: TID251 - the protocol of the shell
            if not line:
                return super().get_completion_args()
            typed = line.encode()[: int(os.environ["COMP_POINT"])].decode(errors="replace")  # noqa: TID251
            words = split_arg_string(typed)
            incomplete = words.pop() if words and not typed[-1:].isspace() else ""
            return words[1:], incomplete

        def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
            found = super().get_completions(args, incomplete)
            breaks = os.environ.get("COMP_WORDBREAKS", "")  # noqa: TID251
            cut = max((incomplete.rfind(sign) + 1 for sign in "=:" if sign in breaks), default=0)
            for item in found:  # bash puts a value in the place of what stands behind the sign alone
                if item.type == "plain" and cut and item.value.startswith(incomplete[:cut]):
                    item.value = item.value[cut:]
            return found

    made: Any = Bash if name == "bash" else get_completion_class(name)
    shell: ShellComplete = made(group, {}, "dataguard", VARIABLE)
    return shell


_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n'
    local response completion type value

    response=$(env COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD="$COMP_CWORD" %(complete_var)s=bash_complete "$1" 2>/dev/null)

    COMPREPLY=()
    for completion in $response; do
        IFS=',' read -r type value <<< "$completion"

        if [[ $type == 'dir' ]]; then
            compopt -o dirnames 2>/dev/null
        elif [[ $type == 'file' ]]; then
            compopt -o default 2>/dev/null
        elif [[ $type == 'plain' ]]; then
            COMPREPLY+=("$value")
            [[ $value == *[=:/] ]] && compopt -o nospace 2>/dev/null
        fi
    done

    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""
