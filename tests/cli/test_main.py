"""How does a command line end? Every way, with its code and its words."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
from importlib import import_module
from pathlib import Path

import click
import pytest

from dataguard import errors
from dataguard.cli.dressing import debug_option
from dataguard.cli.failures import explain
from dataguard.cli.interrupts import SAME_AGAIN
from dataguard.cli.lazy import Entry
from dataguard.cli.main import COMMANDS, group, main


@pytest.fixture
def command(monkeypatch):
    """Put a command of one's own into the table, as ``boom``."""

    def put(callback) -> None:
        entry = Entry(name="boom", module="none", attribute="none", help="Fails.", section="The data")
        monkeypatch.setitem(group.entries, "boom", entry)
        monkeypatch.setitem(group.commands, "boom", click.Command("boom", callback=callback))

    return put


def raising(error: BaseException):
    def callback() -> None:
        raise error

    return callback


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_every_command_of_the_table_exists(entry) -> None:
    found = getattr(import_module(entry.module), entry.attribute)
    assert isinstance(found, click.Command)
    assert found.name == entry.name
    assert found.help, "a command says what it does"


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_every_command_helps(entry, flag, capsys) -> None:
    assert main([entry.name, flag]) == 0
    told = capsys.readouterr()
    assert told.out.startswith(f"Usage: dataguard {entry.name} ")
    assert told.err == ""


def test_help_lists_every_command_once_with_its_line(capsys) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for entry in COMMANDS:
        assert len(entry.help) <= 66, "the help of a command is one line"
        assert sum(line.split() == [entry.name, *entry.help.split()] for line in shown.splitlines()) == 1


def test_version(capsys) -> None:
    from dataguard import __version__

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"dataguard {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["inspct"], "inspct"),
        (["schema", "--nope"], "--nope"),
        (["schema", "plan", "extra"], "extra"),
        (["--nope"], "--nope"),
    ],
)
def test_what_cannot_be_asked_ends_with_2_and_says_how_to_ask(arguments, told, capsys) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert told in shown.err
    assert "--help" in shown.err
    assert "Traceback" not in shown.err


def test_a_mistyped_command_is_met_with_the_nearest(capsys) -> None:
    assert main(["inspct"]) == 2
    assert "inspect" in capsys.readouterr().err


def test_no_arguments_at_all_show_the_help_and_end_with_2(capsys) -> None:
    assert main([]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Usage: dataguard" in shown.err


@pytest.mark.parametrize("name", errors.__all__)
def test_each_error_ends_with_its_own_code_and_all_its_parts(name, command, capsys) -> None:
    kind = getattr(errors, name)
    command(raising(kind("asked", found="found", allowed="allowed", todo="todo")))
    assert main(["boom"]) == kind.exit_code
    assert capsys.readouterr().err == "error: asked\n  found: found\n  allowed: allowed\n  next: todo\n"


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "runs/a/x"), 4, "runs/a/x"),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "x"), 4, "quota"),
        (PermissionError(errno.EACCES, "Permission denied", "secret"), 4, "secret"),
        (OSError(errno.EROFS, "Read-only file system", "x"), 4, "another place"),
        (OSError(errno.EMFILE, "Too many open files", "x"), 4, "ulimit -n"),
        (OSError(errno.EIO, "Input/output error", "disk"), 4, "disk"),
        (OSError("only words"), 4, "only words"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "M.parquet"), 3, "M.parquet"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "folder"), 3, "folder"),
        (click.FileError("M.parquet", "unreadable"), 3, "M.parquet"),
        (MemoryError(), 4, "out of memory"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (click.Abort(), 130, "interrupted"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 4, "Broken pipe"),  # a worker's, not the reader's: all is open
        (KeyError("x"), 70, "fault of dataguard: KeyError: 'x'"),
        (RecursionError(), 70, "--debug"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_other_failures_are_told_apart(error, code, told, command, capsys) -> None:
    command(raising(error))
    assert main(["boom"]) == code
    shown = capsys.readouterr().err
    assert told in shown
    assert shown.startswith("error: ")
    assert "Traceback" not in shown


def test_a_dead_worker_is_the_environment(command, capsys) -> None:
    from concurrent.futures.process import BrokenProcessPool

    command(raising(BrokenProcessPool("terminated abruptly")))
    assert main(["boom"]) == 4
    assert "a worker died: terminated abruptly" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--debug", "boom"], ["boom", "--debug"]])
def test_debug_shows_the_traceback_and_keeps_the_code(arguments, command, capsys) -> None:
    command(raising(errors.NotInRun("step 70 was not delivered")))
    group.commands["boom"].params.append(debug_option())
    assert main(arguments) == 2
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert shown.splitlines()[-2:] == [
        "error: step 70 was not delivered",
        "  next: dataguard log RUN lists its attempts, steps and events",
    ]


def test_every_command_takes_debug() -> None:
    with click.Context(group) as ctx:
        found = group.get_command(ctx, "schema")
    assert found is not None
    assert ["--debug"] in [param.opts for param in found.params]


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_command_may_give_its_own_code(code, command) -> None:
    command(lambda: code)
    assert main(["boom"]) == code


def test_a_command_that_gives_anything_else_is_a_fault(command, capsys) -> None:
    command(lambda: "yes")
    assert main(["boom"]) == 70
    assert "'yes' for an exit code" in capsys.readouterr().err


def test_control_characters_in_an_error_are_shown_escaped(command, capsys) -> None:
    command(raising(errors.NotInRun("no shard is called \x1b[2J\u202eexe.txt")))
    assert main(["boom"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == "error: no shard is called \\x1b[2J\\u202eexe.txt"


# ---------------------------------------------------------------------------------------------------------------------
# Processes of their own: what happens to the streams can only be seen from outside
# ---------------------------------------------------------------------------------------------------------------------

TALKATIVE = textwrap.dedent(
    """
    import sys, click, msgspec
    from dataguard.cli import output
    from dataguard.cli.lazy import Entry
    from dataguard.cli.main import group, main

    class Line(msgspec.Struct):
        number: int

    @click.command()
    @click.option("--json", "as_json", is_flag=True)
    def boom(as_json):
        output.say("working")
        output.answer_lines(map(Line, range(200_000)), lambda line: f"finding {line.number}", json=as_json)
        output.say("done")

    group.entries["boom"] = Entry(name="boom", module="", attribute="", help="", section="")
    group.commands["boom"] = boom
    sys.exit(main())
    """
)


@pytest.mark.parametrize("flags", [[], ["--json"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_is_no_failure_of_the_answer(flags, unbuffered) -> None:
    """`| head -n 1` gets its line; no traceback, and a code that no script takes for an answer."""
    child = subprocess.Popen(
        [sys.executable, "-c", TALKATIVE, "boom", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert child.stdout is not None
    assert child.stderr is not None
    first = child.stdout.readline()
    child.stdout.close()
    told = child.stderr.read().decode()
    child.stderr.close()
    assert child.wait(timeout=60) == 141
    assert first in (b"finding 0\n", b'{"number":0}\n')
    assert told == "working\n"


def test_a_reader_that_goes_before_the_first_line() -> None:
    done = subprocess.run(
        ["bash", "-c", '"$0" -m dataguard --help | true; exit "${PIPESTATUS[0]}"', sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 141)
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("arguments", [["schema", "plan"], ["--help"]])
def test_an_answer_that_cannot_be_written_is_never_0(arguments) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "dataguard", *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 4
    assert done.stderr.startswith("error: No space left on device")
    assert "Exception ignored" not in done.stderr


def test_closed_streams_are_no_crash() -> None:
    shell = 'exec "$0" -m dataguard schema plan >&-'
    done = subprocess.run(["bash", "-c", shell, sys.executable], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 4
    assert "standard output is closed" in done.stderr
    shell = 'exec "$0" -m dataguard nope 2>&-'
    done = subprocess.run(["bash", "-c", shell, sys.executable], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""


def test_an_interrupt_ends_with_130_and_no_traceback() -> None:
    waiting = TALKATIVE.replace('output.say("done")', "import time; time.sleep(60)")
    child = subprocess.Popen(
        [sys.executable, "-c", waiting, "boom"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert child.stderr is not None
    assert child.stderr.readline() == "working\n"
    child.send_signal(signal.SIGINT)
    told = child.stderr.read()
    child.stderr.close()
    assert child.wait(timeout=60) == 130
    assert told == f"error: interrupted\n  next: {SAME_AGAIN}\n"


def test_what_an_encoding_lacks_is_shown_escaped() -> None:
    shell = "from dataguard.cli import output; output.prepare(); output._show('naïve \\u4e2d')"
    done = subprocess.run(
        [sys.executable, "-c", shell],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=True,
    )
    assert done.stdout == b"na\\xefve \\u4e2d\n"


def test_a_command_that_exits_by_itself_is_a_fault() -> None:
    """Codes are returned or raised as errors; ``sys.exit`` would pass by the flush of the answer."""
    assert explain(SystemExit(3)).exit_code == 70
