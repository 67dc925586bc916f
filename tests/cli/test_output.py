"""How does a command answer? One document, two ways to read it, nothing dangerous in either."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.cli import output
from dataguard.cli.output import answer, answer_lines, printable, say, table


class Document(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    count: int | None = None


def test_json_is_one_document_and_nothing_else(capsys) -> None:
    answer(Document(name="a\x1b", count=2), lambda document: "never asked", json=True)
    told = capsys.readouterr()
    assert told.out == '{"name":"a\\u001b","count":2}\n'
    assert told.err == ""


def test_text_comes_from_the_same_document(capsys) -> None:
    answer(Document(name="a", count=2), lambda document: f"{document.name} has {document.count}")
    assert capsys.readouterr().out == "a has 2\n"


def test_several_parts_stand_one_below_the_other(capsys) -> None:
    answer(Document(name="a"), lambda document: ["one", table(["x"], [[1]]), "two"])
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == ["one", "x", "1", "two"]


def test_lines_are_written_as_they_come(capsys) -> None:
    seen = []

    def documents():
        for number in range(3):
            seen.append(capsys.readouterr().out)
            yield Document(name=str(number))

    answer_lines(documents(), lambda document: document.name)
    assert seen == ["", "0\n", "1\n"]
    assert capsys.readouterr().out == "2\n"


def test_lines_of_json_are_documents_each(capsys) -> None:
    answer_lines((Document(name=str(number)) for number in range(3)), str, json=True)
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines] == [{"name": str(number), "count": None} for number in range(3)]


def test_json_reaches_a_stream_without_a_buffer(monkeypatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    answer(Document(name="é"), str, json=True)
    assert stream.getvalue() == '{"name":"é","count":null}\n'


def test_json_keeps_its_place_behind_text(capfdbinary) -> None:
    print("before")
    answer(Document(name="é"), str, json=True)
    print("after")
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == 'before\n{"name":"é","count":null}\nafter\n'.encode()


def test_say_goes_to_standard_error(capsys) -> None:
    say("scanning web/\x1b]0;title\x07")
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "scanning web/\\x1b]0;title\\x07\n"


@given(st.text())
def test_printable_text_holds_nothing_that_moves_a_terminal(text: str) -> None:
    shown = printable(text)
    bad = [char for char in shown if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")]
    assert bad == []
    assert printable(shown) == shown
    shown.encode()
    kept = printable(text, keep_lines=True)
    assert {char for char in kept if unicodedata.category(char) == "Cc"} <= {"\n", "\t"}


@pytest.mark.parametrize("text", ["plain", "naïve 中文 😀", "a\\x1b typed by hand", "e\u0301", "👩\u200d💻"])
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b31m", "\\x9b31m"),
        ("a\rb", "a\\rb"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\u2028", "\\u2028"),
        ("\udcff", "\\udcff"),
        ("\x00\x7f", "\\x00\\x7f"),
    ],
)
def test_what_would_move_a_terminal_is_shown_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_piped_table_is_whole(capsys) -> None:
    """Nothing is cut, folded or coloured where a program reads."""
    rows = [["web/" + "x" * 300, 1_234_567, None], ["b", 5, "[bold]not markup[/bold] :smile:"]]
    answer(Document(name=""), lambda _: table(["shard", "rows", "why"], rows, right=["rows"]))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[1].split() == ["web/" + "x" * 300, "1,234,567", "-"]
    assert lines[2].endswith("5  [bold]not markup[/bold] :smile:")
    assert lines == [line.rstrip() for line in lines]
    assert "\x1b" not in "".join(lines)


def test_data_in_a_table_cannot_move_a_terminal(capsys) -> None:
    from rich.text import Text

    rows = [["a\x1b[2J\nforged line"], [Text("b\x1b[2J")]]
    answer(Document(name=""), lambda _: table(["shard"], rows))
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "shard",
        "a\\x1b[2J\\nforged line",
        "b\\x1b[2J",
    ]


def test_columns_decides_the_width_where_somebody_set_it(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    answer(Document(name=""), lambda _: table(["text"], [["word " * 30]]))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert sum(line.count("word") for line in lines) == 30, "folded, never cut"


def on_a_terminal(code: str, **environment: str) -> bytes:
    """What a process shows when both its streams are one terminal."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **environment}
    child = subprocess.Popen([sys.executable, "-c", code], stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # the far end was closed: that is how a terminal ends
        pass
    os.close(ours)
    assert child.wait(timeout=60) == 0, shown
    return shown


TABLE = "from dataguard.cli.output import _show, table; _show(table(['shard'], [['a\\x1b[2J']]))"


def test_a_terminal_gets_a_bold_heading_and_no_data_of_its_own() -> None:
    shown = on_a_terminal(TABLE)
    assert b"\x1b[1m" in shown
    assert b"\x1b[2J" not in shown
    assert b"a\\x1b[2J" in shown


def test_no_color_means_no_escapes_at_all() -> None:
    assert b"\x1b" not in on_a_terminal(TABLE, NO_COLOR="1")


PROGRESS = """
import time
from dataguard.cli.output import progress
with progress("scanning", unit="rows", total=2000) as report:
    for done in range(0, 2001, 500):
        report(done, 2000)
        time.sleep(0.15)
"""


def test_progress_shows_count_and_rate_on_a_terminal() -> None:
    shown = on_a_terminal(PROGRESS)
    assert b"scanning" in shown
    assert b"of 2,000 rows" in shown
    assert b"rows/s" in shown


def test_progress_is_silent_where_nobody_watches(capsys) -> None:
    with output.progress("scanning", unit="rows", total=3) as report:
        report(1)
        report(3, 3)
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "")
