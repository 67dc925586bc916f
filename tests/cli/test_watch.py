"""``dataguard watch`` as people run it: beside real ranks, into a pipe, on a terminal that is drawn on."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dataguard.cli.main import main
from dataguard.run.note_events import CheckpointSaved
from dataguard.run.run import Run
from tests.architecture.validation import validate
from tests.support.corpora import make_corpus
from tests.support.processes import environment
from tests.support.runs import deliver, make_run

Capture = pytest.CaptureFixture[str]
MOST_SECONDS = 60
FRONT, HIDE, SHOW = "\x1b[2K", "\x1b[?25l", "\x1b[?25h"
HOSTILE = "ckpt/\x1b]0;owned\x07\x1b[2J[red]x[/red]\u202egpj"

KEYS = [
    "run", "looked", "state", "attempt", "step", "complete", "silent_seconds", "last_minute", "since_begun", "recent",
    "whole", "signals", "wait", "stall", "events", "judged_from", "behind", "num_behind", "journal", "checkpoint",
    "exceptions", "let_go", "free_bytes", "problems",
]  # fmt: skip


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Twelve steps of two ranks, closed, with a note that is no good to show."""
    folder = tmp_path_factory.mktemp("ended")
    run = make_run(folder / "run", make_corpus(folder, {"web": {"a.parquet": 100}}))
    deliver(run, world_size=2, microbatch_size=2, steps=12)
    run.journal.append(CheckpointSaved(attempt=1, next_step=10, path=HOSTILE))
    return run


def started(*words: str, **streams: Any) -> subprocess.Popen[str]:
    """``dataguard watch`` in a process of its own."""
    command = [sys.executable, "-W", "error", "-m", "dataguard", "watch", *words]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **streams}
    return subprocess.Popen(command, text=True, env=environment(TERM="xterm-256color", NO_COLOR=None), **streams)


@contextlib.contextmanager
def ended_after(*processes: subprocess.Popen[str]) -> Iterator[None]:
    """Whatever happens, none of them stays."""
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_once_shows_everything_and_keeps_the_terminal_safe(ended: Run, capfd: Capture) -> None:
    assert main(["watch", str(ended.path), "--once"]) == 0
    out = capfd.readouterr().out
    assert re.search(r"^state +closed", out, re.MULTILINE)
    assert re.search(r"^step +11, complete on all ranks$", out, re.MULTILINE)
    assert re.search(r"^loss +not known: nothing was logged", out, re.MULTILINE)
    assert re.search(r"^checkpoint +before step 10: ckpt/\\x1b\]0;owned\\x07\\x1b\[2J\[red\]x", out, re.MULTILINE)
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_a_narrow_terminal_loses_nothing(ended: Run, capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["watch", str(ended.path), "--once"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    assert "11, complete on all ranks" in " ".join(" ".join(lines).split())


def test_the_json_of_one_look_has_just_these_keys(ended: Run, capfd: Capture) -> None:
    assert main(["watch", str(ended.path), "--once", "--json"]) == 0
    answer = json.loads(capfd.readouterr().out)
    validate(answer, "watch")
    assert list(answer) == KEYS
    assert (answer["state"], answer["step"], answer["recent"]["num_samples"]) == ("closed", 11, 96)


def test_one_look_at_nothing_is_a_mistake(tmp_path: Path, capfd: Capture) -> None:
    assert main(["watch", str(tmp_path / "none"), "--once"]) == 2
    assert "no run stands at" in capfd.readouterr().err


def test_until_ends_it(ended: Run, capfd: Capture) -> None:
    assert main(["watch", str(ended.path), "--until", "11"]) == 0
    out = capfd.readouterr().out
    assert out.splitlines()[0].split(" ", 1)[1] == "closed, attempt 1, step 11, flagged 0 %, withheld 0 %"
    assert "\x1b" not in out


def test_real_ranks_are_followed_and_one_that_is_stopped_is_named(tmp_path: Path) -> None:
    """From before the run stands until its end: two ranks, of which one is stopped for a while."""
    path, num_steps = tmp_path / "run", 150
    viewer = started(str(path), "--json", "--every", "0.1", "--until", str(num_steps - 1))
    looks: list[Any] = []

    def looks_until(told: Any) -> None:
        assert viewer.stdout is not None
        while not looks or not told(looks[-1]):
            line = viewer.stdout.readline()
            assert line, viewer.communicate()[1]
            looks.append(json.loads(line))

    with ended_after(viewer):
        looks_until(lambda look: look["state"] == "absent")
        make_run(path, make_corpus(tmp_path, {"web": {"a.parquet": 60}}))
        looks_until(lambda look: look["state"] == "waiting")
        words = {"run": str(path), "world_size": 2, "steps": num_steps, "pause": 0.01}
        ranks = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.cli.watched_rank", json.dumps({**words, **more})],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment(),
            )
            for more in ({"rank": 0}, {"rank": 1, "stop_at": 20})
        ]  # fmt: skip
        with ended_after(*ranks):
            assert os.WIFSTOPPED(os.waitpid(ranks[1].pid, os.WUNTRACED)[1])
            looks_until(lambda look: [each["rank"] for each in look["behind"] if (each["num_steps"] or 0) > 9] == [1])
            looks_until(lambda look: look["step"] == num_steps - 1)
            (behind,) = looks[-1]["behind"]
            assert (behind["rank"], behind["step"], behind["num_steps"], looks[-1]["complete"]) == (1, 20, 129, 20)
            os.kill(ranks[1].pid, signal.SIGCONT)
            out, err = viewer.communicate(timeout=MOST_SECONDS)
            assert (viewer.returncode, err) == (0, "")
            looks += map(json.loads, out.splitlines())
    for look in looks[:: max(1, len(looks) // 10)] + looks[-1:]:
        validate(look, "watch")
    last = looks[-1]
    assert (last["complete"], last["behind"], last["whole"]["num_samples"]) == (num_steps - 1, [], 8 * num_steps)
    assert last["last_minute"]["steps_per_second"] > 0
    assert [look["step"] for look in looks if look["step"]] == sorted(look["step"] for look in looks if look["step"])
    (loss,) = [each for each in last["signals"] if each["name"] == "loss"]
    assert loss["recent"] == [3.0 - step / 1000 for step in range(loss["step"] - 63, loss["step"] + 1)]


@pytest.mark.parametrize("ending", ["interrupt", "terminate", "failure"])
def test_a_terminal_is_drawn_on_and_given_back(ended: Run, tmp_path: Path, ending: str) -> None:
    """The view is drawn over itself, and whatever ends it, the cursor is back and the last view stands."""
    path = ended.path
    if ending == "failure":
        path = tmp_path / "run"  # damaged under the viewer's eyes
        make_run(path, make_corpus(tmp_path, {"web": {"a.parquet": 60}}))
    here, there = pty.openpty()
    viewer = started(str(path), "--every", "0.1", stdout=there, stdin=there)
    os.close(there)
    shown = ""

    def shown_until(text: str, times: int = 1) -> None:
        nonlocal shown
        last = time.monotonic() + MOST_SECONDS
        while shown.count(text) < times:
            assert time.monotonic() < last, repr(shown[-2000:])
            if select.select([here], [], [], 1)[0]:
                try:
                    shown += os.read(here, 65536).decode()
                except OSError:  # how a pseudo-terminal says that nobody has its other end
                    break

    with ended_after(viewer):
        shown_until(FRONT, times=12)  # lines that were taken away again: it was drawn over
        assert HIDE in shown
        if ending == "interrupt":
            viewer.send_signal(signal.SIGTSTP)
            assert os.WIFSTOPPED(os.waitpid(viewer.pid, os.WUNTRACED)[1])
            shown_until(SHOW)
            assert shown.rindex(SHOW) > shown.rindex(HIDE)
            viewer.send_signal(signal.SIGCONT)
            shown_until(HIDE, times=2)
        if ending == "failure":
            (path / "journal" / "000001.json").write_bytes(b"{}")
        else:
            viewer.send_signal(signal.SIGINT if ending == "interrupt" else signal.SIGTERM)
        shown_until(SHOW, times=2 if ending == "interrupt" else 1)
        viewer.wait(timeout=MOST_SECONDS)
        assert shown.rindex(SHOW) > shown.rindex(HIDE)
        assert viewer.stderr is not None
        err = viewer.stderr.read()
    os.close(here)
    if ending == "failure":
        assert viewer.returncode == 3
        assert "error: " in err
    else:
        assert (viewer.returncode, err) == (130, "")
        assert "closed: every rank has closed its record" in shown
    # Of what stands in the journal nothing acts: all escapes are those of the view itself.
    assert set(re.findall(r"\x1b(?:\[[0-9;?]*[a-zA-Z]|.)", shown)) <= set(re.findall(r"\x1b\[[0-9;?]*[mAKlh]", shown))
    assert "\x07" not in shown
    assert "\u202e" not in shown


def test_where_nothing_may_be_drawn_it_prints_a_line_for_each_change(ended: Run, tmp_path: Path) -> None:
    here, there = pty.openpty()
    command = [sys.executable, "-W", "error", "-m", "dataguard", "watch", str(ended.path), "--every", "0.05"]
    viewer = subprocess.Popen(
        command, stdout=there, stderr=there, stdin=there, env=environment(TERM="xterm-256color", NO_COLOR="1")
    )
    os.close(there)
    with ended_after(viewer):  # type: ignore[arg-type]
        shown = os.read(here, 65536).decode()
        time.sleep(0.5)  # ten looks at a run that does not change
        viewer.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):
            while part := os.read(here, 65536):
                shown += part.decode()
        assert viewer.wait(timeout=MOST_SECONDS) == 130
    os.close(here)
    assert "\x1b" not in shown
    assert shown.count("closed, attempt 1, step 11") == 1
    assert shown.count("journal 3: ") == 1
