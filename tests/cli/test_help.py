"""Does every help show how a command is typed, and would what it shows be taken?"""

from __future__ import annotations

import re
import shlex

import click
import pytest

from dataguard.cli.dressing import dress, examples_of
from dataguard.cli.main import main
from dataguard.errors import UsageError
from tests.architecture.tree import TOP
from tests.support.typed import every_command, parse

COMMANDS = dict(every_command())
WIDTH = 80
SIGNS = {"N": "3", "EVENT": "3", "START:STOP": "40:45", "SHARD:ROW": "web/a.jsonl:17", "TEXT": "words", "...": ""}


def shown(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*name.split(), "--help"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    return told.out


def block(help_text: str) -> list[str]:
    """The lines of the block of examples, as they can be pasted."""
    lines = help_text.splitlines()
    assert lines.count("  Examples:") == 1, help_text
    start = lines.index("  Examples:") + 1
    return lines[start : lines.index("", start)]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_help_can_be_typed(name, capsys) -> None:
    lines = block(shown(name, capsys))
    examples = "\n".join(lines).replace("\\\n", " ").splitlines()
    assert 1 <= len(examples) <= 3
    for example in examples:
        prompt, *words = shlex.split(example.partition(" | ")[0])
        assert prompt == "dataguard"
        parse(words)
    assert any(f"dataguard {name}".rstrip() in " ".join(example.split()) for example in examples)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_help_fits_a_terminal(name, capsys) -> None:
    text = shown(name, capsys)
    wide = [line for line in text.splitlines() if len(line) > WIDTH]
    assert wide == []
    assert "INTEGER RANGE" not in text
    assert "\b" not in text


@pytest.mark.parametrize("name", [name for name in COMMANDS if name])
def test_every_option_says_what_it_does(name) -> None:
    for parameter in COMMANDS[name].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.opts
    assert ["--debug"] in [parameter.opts for parameter in COMMANDS[name].params]


def test_the_parser_of_these_tests_refuses_what_main_would() -> None:
    with pytest.raises(click.NoSuchOption, match="--nope"):
        parse(["inspect", "RUN", "--nope"])
    with pytest.raises(click.UsageError, match="run"):
        parse(["inspect", "--step", "3"])
    with pytest.raises(click.UsageError, match="unexpected extra argument"):
        parse(["store", "list", "RUN", "more"])
    with pytest.raises(UsageError, match="reversed"):
        parse(["skip", "RUN", "5:3", "--reason", "x"])


def fenced() -> list[str]:
    """Lines of the README's blocks that are commands; what stands behind two blanks tells of them."""
    blocks = re.findall(r"```(?:sh)?\n(.*?)```", (TOP / "README.md").read_text(), re.DOTALL)
    lines = [line for each in blocks for line in each.replace("\\\n", " ").splitlines()]
    return [re.split(r" {2,}", line)[0] for line in lines if line.startswith("dataguard ")]


@pytest.mark.parametrize("line", fenced())
def test_the_commands_of_the_readme_can_be_typed(line) -> None:
    words = []
    for word in shlex.split(line, comments=True)[1:]:
        word = SIGNS.get(word.strip("[]"), word.strip("[]").partition("|")[0])
        words += [word] if word else []
    parse(words)


def test_flags_that_the_readme_speaks_of_exist() -> None:
    flags = {flag for command in COMMANDS.values() for p in command.params for flag in (*p.opts, *p.secondary_opts)}
    named = set(re.findall(r"(?<![-\w])--[a-z][a-z-]+", (TOP / "README.md").read_text()))
    others = {"--benchmark-enable", "--dist"}  # of pytest
    assert named - others <= flags
    assert len(named) > 5


def test_a_long_example_is_broken_where_a_shell_joins_it() -> None:
    @click.command()
    def long() -> None:
        """Do it.

        Example: dataguard where RUN web/a-shard-with-a-long-name.jsonl.zst:17 --until 20000 --attempt 12345 --json
        """

    dress(long)
    assert long.help is not None
    assert "\b\nExamples:\n  dataguard where" in long.help
    assert " \\\n    --" in long.help
    assert examples_of(long.help) == [
        "dataguard where RUN web/a-shard-with-a-long-name.jsonl.zst:17 --until 20000 --attempt 12345 --json"
    ]
