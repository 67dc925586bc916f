"""Warm-up compiles everything there is into the folder asked for, and whoever comes later waits for nothing."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dataguard.cli import output
from dataguard.cli.compiling import CompilationNote
from dataguard.core.compiled import Compiling
from tests.architecture.tree import PACKAGE, modules
from tests.support.processes import environment


def run(*words: str, code: int = 0, **variables: str | None) -> subprocess.CompletedProcess[str]:
    env = environment(**{"NUMBA_CACHE_DIR": None, **variables})
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "dataguard", *words], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A folder that was warmed up, and what was said."""
    folder = tmp_path_factory.mktemp("warm") / "kept" / "here"
    return folder, run("warmup", "--cache-dir", str(folder), "--json")


def decorated() -> set[str]:
    """Names of all functions of the package under the kernel decorator, from the text of its modules."""
    names = set()
    for path in modules():
        dotted = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and any(
                isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id == "kernel"
                for made in node.decorator_list
            ):
                names.add(f"{dotted}.{node.name}")
    return names


def test_every_kernel_of_the_package_is_compiled(warm: Any) -> None:
    _, done = warm
    answer = json.loads(done.stdout)
    assert {each["kernel"] for each in answer["kernels"]} == decorated(), "a kernel without a part in warmup.FAMILIES"
    assert answer["num_compiled"] == len(answer["kernels"])
    assert not any(each["from_cache"] for each in answer["kernels"])


def test_each_is_told_with_its_seconds_before_it_is_compiled(warm: Any) -> None:
    _, done = warm
    told = done.stderr.splitlines()
    assert sorted(line.split()[1].rstrip(",") for line in told) == sorted(decorated())
    assert all(line.startswith("compiling ") and line.endswith(" s") for line in told)


def test_all_of_them_are_kept_below_the_folder(warm: Any) -> None:
    folder, done = warm
    assert all(Path(each).is_relative_to(folder) for each in json.loads(done.stdout)["folders"])
    kept = {path.name.partition("-")[0] for path in folder.rglob("*.nbc")}
    assert kept == {".".join(name.split(".")[-2:]) for name in decorated()}


def test_whoever_names_the_folder_waits_for_nothing(warm: Any) -> None:
    folder, _ = warm
    again = run("warmup", NUMBA_CACHE_DIR=str(folder))
    assert again.stderr == ""
    assert f"{len(decorated())} kernels are ready, 0 of them compiled now" in again.stdout
    assert f"kept in {folder}" in again.stdout


def test_a_folder_that_cannot_be_written_is_an_error_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    done = run("warmup", "--cache-dir", str(tmp_path / "file" / "kept"), code=4)
    assert "cannot be made" in done.stderr
    assert done.stdout == ""


def test_a_folder_in_which_nothing_can_be_kept_is_one_too(warm: Any, tmp_path: Path) -> None:
    """It is there, and each folder that numba would make in it is a file."""
    folder, _ = warm
    for path in folder.iterdir():
        (tmp_path / path.name).write_text("in the way")
    done = run("warmup", "--cache-dir", str(tmp_path), code=4, NUMBA_DISABLE_JIT=None)
    assert "cannot be kept" in done.stderr
    assert "--cache-dir" in done.stderr


def test_the_note_is_one_line_at_the_first_compilation(capsys: pytest.CaptureFixture[str]) -> None:
    note = CompilationNote()
    for seconds in (4.6, 1):
        note(Compiling(kernel="a.b", seconds=seconds, kept=True))
    assert capsys.readouterr().err == "compiling kernels once, about 5 s ('dataguard warmup' does it ahead)\n"
    CompilationNote()(Compiling(kernel="a.b", seconds=2, kept=False))
    told = capsys.readouterr().err
    assert told.startswith("compiling kernels, about 2 s; they cannot be kept")
    assert "NUMBA_CACHE_DIR" in told
    assert output.printable(told.rstrip()) == told.rstrip()


def test_a_command_tells_of_compilation_on_standard_error_and_only_once(warm: Any, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from dataguard.cli.main import main\n"
        "assert main(['schema']) == 0\n"
        "from dataguard.score.tokens import score_token_rows\n"
        "score_token_rows([1], [0, 1])\n"
        "score_token_rows([1], [0, 1], ['anomaly'])\n"
    )
    for folder, lines in ((tmp_path, 1), (warm[0], 0)):
        env = environment(NUMBA_CACHE_DIR=str(folder))
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        assert done.stderr.count("compiling kernels once") == lines == len(done.stderr.splitlines())
        assert "compiling" not in done.stdout
