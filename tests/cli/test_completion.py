"""What does a shell offer where Tab is pressed? Bash is asked for real; zsh and fish where they are installed."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dataguard.cli.main import COMMANDS, main
from dataguard.cli.schema import DOCUMENTS
from dataguard.cli.shells import SHELLS, shell_of
from tests.architecture.test_startup import imported_after
from tests.support.processes import environment

PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two attempts, a skip and a stream's folder; and ``dataguard`` as a program of its own."""
    base = tmp_path_factory.mktemp("completed")
    for name in ("web", "code"):
        (base / "data" / name).mkdir(parents=True)
        (base / "data" / name / "a.jsonl").write_text('{"text": "a"}\n' * 8)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(base)
        for line in (
            "manifest build web=data/web code=data/code -o M.parquet",
            "rehearse M.parquet --run RUN --seed 7 --global-batch 4 --world-size 1 --microbatch-size 4 --steps 3",
            "skip RUN 4:5 --reason 'a, b'",
            "rehearse --run RUN --steps 1",
        ):
            assert main(shlex.split(line)) == 0
    (base / "RUN" / "streams" / "valid-web").mkdir(parents=True)
    program = base / "bin" / "dataguard"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dataguard "$@"\n')
    program.chmod(0o755)
    return base


def offered(line: str, shell: str = "zsh") -> list[str]:
    """Values that are offered at the end of a line; ``<dir>`` and ``<file>`` where the shell lists them."""
    *args, incomplete = line.split(" ")
    found = shell_of(shell).get_completions(args, incomplete)
    return [item.value if item.type == "plain" else f"<{item.type}>" for item in found]


def test_commands_and_options() -> None:
    assert offered("") == [entry.name for entry in COMMANDS]
    assert offered("ver") == ["verify"]
    assert offered("store ") == ["list", "prune", "show"]
    assert "--no-data" in offered("verify RUN --")
    assert "--debug" in offered("--")


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("inspect ", ["<dir>"]),
        ("inspect RUN --attempt ", ["1", "2"]),
        ("inspect --attempt 2 RUN --attempt ", ["1", "2"]),
        ("inspect RUN --stream v", ["valid-web"]),
        ("inspect RUN --order ", ["worst", "slot"]),
        ("replay RUN --root w", ["web="]),
        ("replay RUN --root web=da", ["<file>"]),
        ("manifest verify M.parquet --root ", ["code=", "web="]),
        ("rehearse --run RUN --weight c", ["code="]),
        ("where RUN c", ["code/a.jsonl:"]),
        ("quarantine RUN ", ["code/a.jsonl", "web/a.jsonl"]),
        ("quarantine NOWHERE ", []),
        ("revoke RUN ", ["3"]),
        ("revoke NOWHERE ", []),
        ("manifest show ", ["<file>"]),
        ("audit data --policy g", ["gopher"]),
        ("audit data --policy my", ["<file>"]),
        ("policy check se", ["seed-batch"]),
        ("schema tri", ["triage"]),
        ("completion ", [*SHELLS]),
    ],
)
def test_values(folder, monkeypatch, line, values) -> None:
    monkeypatch.chdir(folder)
    assert offered(line) == values


def test_a_damaged_run_offers_what_is_left(folder, tmp_path, monkeypatch) -> None:
    shutil.copytree(folder / "RUN", tmp_path / "RUN")
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / "RUN" / "journal").iterdir():
        if path.name != "000003.json":
            path.write_bytes(b"{")
    for path in (tmp_path / "RUN" / "manifest").iterdir():
        path.write_bytes(b"PAR1")
    assert offered("revoke RUN ") == ["3"]
    assert offered("inspect RUN --attempt ") == []
    assert offered("where RUN ") == []


DRIVE = """
eval "$(dataguard completion bash)"
complete -p dataguard
ask() {  # LINE WORD...: the words as bash takes them apart, the last one incomplete
    COMP_LINE=$1; COMP_POINT=${#1}; shift
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
    _dataguard_completion dataguard "${COMP_WORDS[COMP_CWORD]}" ""
    printf '%s|' "${COMPREPLY[@]}"; echo
}
ask "dataguard insp" dataguard insp
ask "" dataguard insp
ask "dataguard inspect RUN --attempt " dataguard inspect RUN --attempt ""
ask "dataguard replay RUN --root w" dataguard replay RUN --root w
ask "dataguard where RUN web/a" dataguard where RUN web/a
ask "dataguard audit --policy=go" dataguard audit --policy = go
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")
def test_bash(folder) -> None:
    done = subprocess.run(
        ["bash", "--norc", "-c", DRIVE],
        cwd=folder,
        env=environment(PATH=f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "complete -o nosort -F _dataguard_completion dataguard",
        *("inspect|", "inspect|", "1|2|", "web=|", "web/a.jsonl:|", "gopher|"),
    ]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_take_the_script(shell, folder) -> None:
    """Where such a shell is installed it reads the script; everywhere its protocol is spoken."""
    script = shell_of(shell).source()
    assert "_DATAGUARD_COMPLETE" in script
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=script, text=True, check=True, timeout=PATIENCE_SECONDS)
    words = {"zsh": ("dataguard ver", "1"), "fish": ("dataguard ver", "ver")}[shell]
    done = subprocess.run(
        [folder / "bin" / "dataguard"],
        env=environment(_DATAGUARD_COMPLETE=f"{shell}_complete", COMP_WORDS=words[0], COMP_CWORD=words[1]),
        capture_output=True,
        text=True,
        check=True,
    )
    told = "Check that journal, index, plan and data agree."
    assert done.stdout == {"zsh": f"plain\nverify\n{told}\n", "fish": f"plain,verify\t{told}\n"}[shell]


def test_what_no_shell_asks_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("_DATAGUARD_COMPLETE", "tcsh_complete")
    monkeypatch.setattr(sys, "argv", ["dataguard"])
    assert main() == 1


def test_the_command_prints_the_script(capsys) -> None:
    for shell in SHELLS:
        assert main(["completion", shell]) == 0
        script = capsys.readouterr().out
        assert script.rstrip("\n") == shell_of(shell).source().rstrip("\n")
        assert main(["completion", shell, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["shell"] == shell
    assert main(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err
    assert "completion" in DOCUMENTS


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        ("insp", set()),
        ("inspect RUN --att", set()),
        ("inspect RUN --attempt ", set()),
        ("where RUN w", {"numpy", "pyarrow"}),
    ],
)
def test_a_shell_waits_for_nothing_heavy(words, allowed, folder) -> None:
    code = f"from dataguard.cli.shells import shell_of; shell_of('zsh').get_completions({words.split(' ')[:-1]!r}, "
    names = imported_after(f"{code}{words.split(' ')[-1]!r})", cwd=folder)
    heavy = {"numba", "polars", "datasets", "pandas", "torch", "ray", "pyarrow", "numpy", "fsspec"}
    assert names & heavy <= allowed | ({"fsspec"} if allowed else set())
