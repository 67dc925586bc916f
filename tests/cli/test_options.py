"""What was typed becomes values, or an error that says how to type it."""

from __future__ import annotations

import click
import pytest

from dataguard.cli.lazy import Entry
from dataguard.cli.main import group, main
from dataguard.cli.options import SHARD_ROW, SPAN, STEPS, geometry_options, plan_options, root_option, step_option


@pytest.fixture
def typed(monkeypatch):
    """Run a command that keeps what its options were turned into."""
    kept: dict[str, object] = {}

    @click.command("boom")
    @step_option
    @root_option
    @plan_options
    @geometry_options
    def boom(**values: object) -> None:
        kept.update(values)

    entry = Entry(name="boom", module="", attribute="", help="", section="")
    monkeypatch.setitem(group.entries, "boom", entry)
    monkeypatch.setitem(group.commands, "boom", boom)

    def run(*words: str) -> tuple[int, dict[str, object]]:
        kept.clear()
        return main(["boom", *words]), dict(kept)

    return run


def test_what_is_left_out_is_none(typed) -> None:
    code, values = typed()
    assert code == 0
    assert {name for name, value in values.items() if value} == set()
    assert values["weights"] == {}
    assert values["roots"] == {}
    assert values["seed"] is None


def test_ranges_are_half_open(typed) -> None:
    assert typed("--step", "17")[1]["step"] == (17, 18)
    assert typed("--step", "17:20")[1]["step"] == (17, 20)


def test_sources_are_named(typed) -> None:
    assert typed("--root", "web=s3://bucket/web")[1]["roots"] == {"web": "s3://bucket/web"}
    values = typed("--root", "web=data/a=b", "--root", "code=x", "--weight", "web=0.3", "--weight", "code=2")[1]
    assert values["roots"] == {"web": "data/a=b", "code": "x"}
    assert values["weights"] == {"web": "0.3", "code": "2"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--step", "20:17"], "reversed"),
        (["--step", "17:17"], "empty"),
        (["--step", "-3"], "negative"),
        (["--step", "x"], "whole numbers"),
        (["--root", "web"], "NAME=PATH"),
        (["--root", "=x"], "NAME=PATH"),
        (["--root", "web="], "NAME=PATH"),
        (["--root", "a/b=x"], "cannot name a source"),
        (["--root", "web=a", "--root", "web=b"], "given twice"),
        (["--weight", "web"], "NAME=W"),
        (["--seed", "-1"], "--seed"),
        (["--global-batch", "0"], "--global-batch"),
        (["--world-size", "0"], "--world-size"),
        (["--microbatch-size", "0"], "--microbatch-size"),
        (["--form", "packed"], "document"),
        (["--first-label", "2"], "--first-label"),
        (["--lanes", "1.5"], "--lanes"),
    ],
)
def test_what_cannot_be_is_refused_with_2(words, told, typed, capsys) -> None:
    assert typed(*words) == (2, {})
    assert told in capsys.readouterr().err


def test_types_say_what_they_are_called_in_the_help() -> None:
    assert [kind.name for kind in (SPAN, STEPS, SHARD_ROW)] == ["START:STOP", "STEP|START:STOP", "SHARD[:ROW]"]
