"""Decoration is for terminals: none in a pipe, not one escape with NO_COLOR or TERM=dumb, over all commands."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from dataguard.cli import progress as progress_module
from dataguard.cli.main import COMMANDS, main
from dataguard.cli.output import progress
from tests.support.terminal import on_terminal

ESCAPE = "\x1b"

# Every command on one small run; {n} makes names that are written to new ones.
LINES = {
    "manifest build web=web -o M{n}.parquet": 0,
    "manifest show M.parquet": 0,
    "manifest verify M.parquet": 0,
    "policy explain default": 0,
    "policy check default": 0,
    "audit M.parquet -o AUDIT{n}": 1,
    "report AUDIT -o page{n}.html": 0,
    "plan M.parquet --seed 7 --global-batch 4 --step 1": 0,
    "rehearse M.parquet --run RUN{n} --seed 7 --global-batch 4 --world-size 2 --microbatch-size 1 --steps 4": 0,
    "preflight RUN": None,
    "log RUN": 0,
    "inspect RUN --step 1": 0,
    "replay RUN --step 1 -o OUT{n}": 0,
    "where RUN web/a.jsonl:1": 0,
    "seen RUN --step 3": 0,
    "verify RUN": 0,
    "telemetry import RUN train.csv": 0,
    "telemetry show RUN --name loss": 0,
    "spikes RUN": None,
    "triage RUN --no-note": None,
    "canary RUN --compare": 2,
    "skip RUN 8:9 --reason x --dry-run": 0,
    "quarantine RUN web/a.jsonl --reason x --dry-run": 0,
    "release RUN web/a.jsonl": 2,
    "revoke RUN 99": 2,
    "seal RUN": 0,
    "compact RUN": 0,
    "store list RUN": 0,
    "demo --help": 0,
    "completion zsh": 0,
    "schema": 0,
    "warmup --help": 0,
    "inspct": 2,
    "--help": 0,
}
MAYBE = {"watch": "watch RUN --once", "init": "init --help"}
"""Commands of the table where it has them."""


DRAWN = {"verify", "inspect", "spikes", "rehearse", "store"}
"""Commands with bars, styles and tables: enough for a second reason to leave all of it out."""


def lines(number: int) -> dict[str, int | None]:
    names = {entry.name for entry in COMMANDS}
    more: dict[str, int | None] = {line: None for name, line in MAYBE.items() if name in names}
    return {line.format(n=number): code for line, code in {**LINES, **more}.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose samples a policy flags, so that marks are shown; with telemetry, and an audit."""
    base = tmp_path_factory.mktemp("decorated")
    (base / "web").mkdir()
    texts = [f"record {row}\n" + "the same line again and again\n" * (40 * (row % 2)) for row in range(40)]
    (base / "web" / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (base / "train.csv").write_text("step,loss\n" + "".join(f"{step},{4 - step / 50}\n" for step in range(6)))
    made = "rehearse M.parquet --run RUN --seed 7 --global-batch 4 --world-size 2 --microbatch-size 1 --steps 6"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(base)
        for line in ("manifest build web=web -o M.parquet", f"{made} --policy default", "audit M.parquet -o AUDIT"):
            main(shlex.split(line))
    return base


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch, folder) -> None:
    monkeypatch.chdir(folder)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def test_every_command_is_among_them() -> None:
    tried = {shlex.split(line)[0] for line in lines(0)}
    assert {entry.name for entry in COMMANDS} <= tried


def test_a_pipe_carries_no_decoration(monkeypatch, capsys) -> None:
    """Nor where the environment makes rich take a pipe for a terminal."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLORTERM", "truecolor")
    for line, code in lines(1).items():
        assert main(shlex.split(line)) == code or code is None, line
        told = capsys.readouterr()
        assert ESCAPE not in told.out + told.err, line
        assert "\r" not in told.out + told.err, line
        assert told.out + told.err, line


@pytest.mark.parametrize(("number", "name", "value"), [(2, "NO_COLOR", "1"), (3, "TERM", "dumb")])
def test_a_terminal_that_is_to_be_plain_sees_not_one_escape(monkeypatch, number, name, value) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(progress_module, "_SECONDS_BETWEEN", 0)
    for line, code in lines(number).items():
        if value == "dumb" and line.split()[0] not in DRAWN:
            continue
        got, seen = on_terminal(shlex.split(line), monkeypatch)
        assert got == code or code is None, (line, seen)
        assert seen, line
        if line.startswith("watch"):  # draws over itself where it may; colour is what it leaves out
            assert re.search(rb"\x1b\[[0-9;]*m", seen) is None
        else:
            assert ESCAPE.encode() not in seen, (line, seen)


def test_a_terminal_is_decorated_and_shows_progress(monkeypatch) -> None:
    """What the tests above look for is there where it may be."""
    code, seen = on_terminal(["verify", "RUN"], monkeypatch)
    assert code == 0
    assert b"verifying" in seen
    assert ESCAPE.encode() in seen
    assert on_terminal(["inspect", "RUN", "--step", "1"], monkeypatch)[1].count(b"\x1b[") > 2
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(progress_module, "_SECONDS_BETWEEN", 0)
    assert b"\rverifying" in on_terminal(["verify", "RUN"], monkeypatch)[1]


def test_force_color_styles_a_pipe_and_no_color_counts_for_more(monkeypatch, capsys) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(["inspect", "RUN", "--step", "1"]) == 0
    assert ESCAPE in capsys.readouterr().out
    assert main(["inspect", "RUN", "--step", "1", "--json"]) == 0
    assert ESCAPE not in capsys.readouterr().out
    assert main(["verify", "RUN"]) == 0
    assert capsys.readouterr().err == "", "progress is for terminals alone"
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["inspect", "RUN", "--step", "1"]) == 0
    assert ESCAPE not in capsys.readouterr().out


def test_a_closed_standard_error_shows_nothing(monkeypatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    with progress("working", unit="rows", total=3) as shown:
        shown(2)
    assert shown.told("done") == "2 of 3 rows are done"
