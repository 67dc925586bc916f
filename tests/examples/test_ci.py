"""The workflow of examples/ci, its own commands in the shell that it asks for: which pull requests of data are bad?"""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.architecture.tree import TOP
from tests.corpus.making import jsonl
from tests.support.commands import dataguard
from tests.support.processes import environment

WORKFLOW = TOP / "examples" / "ci" / "data.yml"
PLACE = ".github/workflows/data.yml"
INSTALL, AUDIT = "Install dataguard", "Audit the data"
SHELLS = {"bash": ["bash", "--noprofile", "--norc", "-eo", "pipefail"]}
"""What a runner starts for the name of a shell."""

PROSE = [
    f"On the {i}th evening the ferry was late, and whoever waited at pier {i * 7 % 101} talked about the weather, "
    f"about boat {i * 13 % 97}, and about the letters that had come from the other side of the bay."
    for i in range(300)
]


@cache
def workflow() -> dict[Any, Any]:
    return yaml.safe_load(WORKFLOW.read_text())


def steps() -> list[dict[str, Any]]:
    (job,) = workflow()["jobs"].values()
    return job["steps"]


def git(folder: Path, *words: str) -> str:
    """Git without anything of this machine's configuration."""
    person = {f"GIT_{who}_{what}": "a@b.example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = environment(GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1", **person)
    done = subprocess.run(["git", *words], cwd=folder, env=env, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of data whose main branch is good."""
    folder = tmp_path_factory.mktemp("ci") / "repository"
    jsonl(folder / "data" / "web" / "a.jsonl", PROSE[:100])
    jsonl(folder / "data" / "web" / "b.jsonl.zst", PROSE[100:200])
    jsonl(folder / "eval" / "valid.jsonl", PROSE[280:])
    dataguard("policy", "init", "-o", folder / "policy.toml")
    (folder / PLACE).parent.mkdir(parents=True)
    shutil.copy(WORKFLOW, folder / PLACE)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "data")
    return folder


@dataclass(frozen=True)
class Checked:
    """What became of a pull request."""

    code: int
    log: str
    folder: Path

    @property
    def summary(self) -> dict[str, Any]:
        return json.loads((self.folder / "audit" / "summary.json").read_text())


def pull_request(repository: Path, name: str, at: Path) -> Checked:
    """Commit what was changed to a branch, check it out elsewhere, and do the workflow's steps there, but the install.

    Like a runner: a step that fails ends the job, but for those that come whatever happens.
    """
    git(repository, "switch", "-q", "-c", name)
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", name)
    changed = git(repository, "diff", "--name-only", "main...HEAD").split()
    git(repository, "switch", "-q", "main")
    # `on` is a truth value to YAML 1.1, and a name to whoever runs workflows.
    wanted = workflow()[True]["pull_request"]["paths"]
    assert any(fnmatch.fnmatch(path, pattern) for path in changed for pattern in wanted), "the workflow is started"

    git(at, "clone", "-q", "--branch", name, str(repository), "checkout")
    folder = at / "checkout"
    env = environment(PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    code, log = 0, ""
    for step in steps():
        if "run" not in step or step["name"] == INSTALL:
            continue
        script = at / "step.sh"
        script.write_text(step["run"])
        shell = SHELLS[step.get("shell", workflow()["defaults"]["run"]["shell"])]
        done = subprocess.run(
            [*shell, str(script)], cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False
        )
        log += done.stdout + done.stderr
        code = done.returncode
        if code:
            break
    assert "Traceback" not in log, log
    for path in steps()[-1]["with"]["path"].split():
        assert (folder / path).is_file(), f"{path} is kept"
    return Checked(code=code, log=log, folder=folder)


def test_a_good_one_passes(repository: Path, tmp_path: Path) -> None:
    jsonl(repository / "data" / "web" / "c.jsonl", PROSE[200:260])
    checked = pull_request(repository, "good", tmp_path)
    assert checked.code == 0, checked.log
    assert checked.summary["verdict"] == "pass"
    assert checked.summary["account"]["scored"] == 260
    assert checked.summary["overlap"]["evaluation"], "it was held against the evaluation data"


def test_a_shard_that_repeats_itself_is_red(repository: Path, tmp_path: Path) -> None:
    jsonl(repository / "data" / "web" / "poison.jsonl", [*PROSE[200:220], *["spam and eggs " * 40] * 5])
    checked = pull_request(repository, "poison", tmp_path)
    assert checked.code == 1
    assert "rule byte_periods fired on 5 of 225" in checked.log
    assert "data/web/poison.jsonl" in checked.log


def test_a_shard_that_was_cut_short_is_red(repository: Path, tmp_path: Path) -> None:
    shard = repository / "data" / "web" / "b.jsonl.zst"
    shard.write_bytes(shard.read_bytes()[:-200])
    checked = pull_request(repository, "cut", tmp_path)
    assert checked.code == 3
    assert "1 of 2 shards are damaged" in checked.log
    assert "data/web/b.jsonl.zst" in checked.log


def test_evaluation_data_in_the_corpus_is_red(repository: Path, tmp_path: Path) -> None:
    jsonl(repository / "data" / "web" / "leak.jsonl", [*PROSE[200:220], PROSE[285]])
    checked = pull_request(repository, "leak", tmp_path)
    assert checked.code == 1
    assert "fail: 1 records are in the evaluation data, byte for byte" in checked.log
    assert "data has 1 records of eval" in checked.log


def test_the_report_is_kept_whatever_comes_of_it() -> None:
    upload = steps()[-1]
    assert upload["uses"].startswith("actions/upload-artifact@")
    assert upload["if"] == "${{ !cancelled() }}"
    assert "audit/report.html" in upload["with"]["path"].split()


def test_what_it_installs_is_this_project() -> None:
    (install,) = [step for step in steps() if step.get("name") == INSTALL]
    name = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["name"]
    command = install["run"].partition("#")[0].split()
    assert command == ["python", "-m", "pip", "install", name]
    assert [step["name"] for step in steps() if "run" in step] == [INSTALL, AUDIT], "nothing else wants leaving out"
    assert workflow()["permissions"] == {"contents": "read"}
