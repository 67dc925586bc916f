"""A run with a policy through the real command line: two ranks, a kill in the middle, another topology, a halt."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dataguard.run.index import Index, merge
from dataguard.run.run import Run
from tests.support.commands import dataguard
from tests.support.gated import TOKEN_POLICY, VOCABULARY, documents, rule, tokens
from tests.support.processes import environment, launch

POLICY = (
    rule("substitute")
    + """
[[rules]]
name = "long"
signal = "length_bytes"
above = 130
action = "flag"
"""
)
MADE = ("--seed", "7", "--global-batch", "8", "--lanes", "4", "--policy", "p.toml")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gate")
    documents(folder, num_rows=120)
    (folder / "p.toml").write_text(POLICY)
    return folder


def told(*words: str, cwd: Path, code: int = 0) -> Any:
    return json.loads(dataguard(*words, "--json", cwd=cwd, code=code).stdout)


def delivered(run: Run) -> dict[int, list[Any]]:
    """Along the newest lineage: step -> what stands in each slot and what was said of it, whoever delivered it."""
    chain = run.attempts().lineage(None)
    batches: dict[int, list[Any]] = {}
    for i, attempt in enumerate(chain):
        ranks = attempt.geometry.world_size
        records = merge(list(Index(run.layout).records(attempt.number, num_ranks=ranks)))
        stop = chain[i + 1].fork_step if i + 1 < len(chain) else int(records["step"].max()) + 1
        records = records[records["step"] < stop]
        names = [name for name in records.dtype.names if name not in {"rank", "microbatch", "microbatch_digest"}]
        for record in records[np.argsort(records["slot"], kind="stable")]:
            batches.setdefault(int(record["step"]), []).append({name: record[name].tobytes() for name in names})
    return dict(sorted(batches.items()))


@pytest.fixture(scope="module")
def unbroken(folder: Path) -> dict[int, list[Any]]:
    answer = told(
        "rehearse", "M.parquet", "--run", "UNBROKEN", *MADE, "--world-size", "1", "--microbatch-size", "8", "--steps",
        "16", cwd=folder,
    )  # fmt: skip
    assert answer["gate"]["policy"] == "p"
    assert answer["gate"]["halted"] is None
    verdicts = answer["gate"]["verdicts"]
    assert min(verdicts["pass"], verdicts["flag"], verdicts["substitute"]) > 0
    rules = {each["rule"]: each for each in answer["gate"]["rules"]}
    assert rules["low"]["fired"] == verdicts["substitute"]
    assert all(each["evaluated"] + each["skipped"] == sum(verdicts.values()) for each in rules.values())
    return delivered(Run.open(folder / "UNBROKEN"))


RANK = """
import pathlib, sys, time
from dataguard import Geometry, Loader, Run
from dataguard.errors import AnswerNo

folder, launch_id, rank = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
meeting = folder.parent / launch_id
meeting.mkdir(exist_ok=True)
geometry = Geometry(world_size=2, microbatch_size=2)
loader = Loader(Run.open(folder), geometry=geometry, rank=rank, launch_id=launch_id, from_step=1, parent=1)
try:
    while taken := loader.take_step():
        (meeting / f"{taken[0].step}.{rank}").touch()
        while not (meeting / f"{taken[0].step}.{1 - rank}").exists():
            time.sleep(0.05)
except AnswerNo as error:
    print(loader.next_step, str(error).splitlines()[0])
    sys.exit(error.exit_code)
"""


def ranks_that_meet(run: Path, launch_id: str) -> list[subprocess.Popen[str]]:
    """Two processes that walk attempt 2 from step 1 on, and wait for each other once a step, as gradients do."""
    return [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(run), launch_id, str(rank)],
            stdout=subprocess.PIPE,
            env=environment(),
            text=True,
        )
        for rank in (0, 1)
    ]


def test_two_ranks_killed_and_resumed_are_one_unbroken_run(folder: Path, unbroken: dict[int, list[Any]]) -> None:
    told(
        "rehearse", "M.parquet", "--run", "KILLED", *MADE, "--world-size", "2", "--microbatch-size", "2", "--steps",
        "1", cwd=folder,
    )  # fmt: skip
    run = Run.open(folder / "KILLED")
    from dataguard.run.reached import complete_before

    # Two processes, from step 1 on, killed in the middle of their steps.
    processes = ranks_that_meet(folder / "KILLED", "resumed")
    try:
        deadline = time.monotonic() + 120
        while complete_before(run, run.attempts().newest) < 5:
            assert time.monotonic() < deadline, "the ranks deliver nothing"
            assert all(process.poll() is None for process in processes)
            time.sleep(0.1)
    finally:
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
    stopped = complete_before(run, run.attempts().newest)
    assert 5 <= stopped < 16
    answer = told(
        "rehearse", "--run", "KILLED", "--world-size", "4", "--microbatch-size", "1", "--steps", str(16 - stopped),
        cwd=folder,
    )  # fmt: skip
    assert answer["gate"]["policy_digest"] == Run.open(folder / "UNBROKEN").document.policy
    found = delivered(run)
    assert list(found) == list(unbroken)
    for step, slots in unbroken.items():
        for was, now in zip(slots, found[step], strict=True):
            assert {name: (value, now[name]) for name, value in was.items() if value != now[name]} == {}, step
    for step in (stopped - 1, stopped):
        assert told("replay", "KILLED", "--step", str(step), cwd=folder)["status"] == "exact"
    verified = told("verify", "KILLED", cwd=folder)
    assert verified["ok"], verified
    assert told("verify", "UNBROKEN", cwd=folder)["ok"]


def test_sealed_and_compacted_it_says_the_same(folder: Path, unbroken: dict[int, list[Any]]) -> None:
    before = told("inspect", "UNBROKEN", "--step", "5", cwd=folder)
    dataguard("compact", "UNBROKEN", cwd=folder)
    assert told("inspect", "UNBROKEN", "--step", "5", cwd=folder)["samples"] == before["samples"]
    assert delivered(Run.open(folder / "UNBROKEN")) == unbroken
    assert before["policy"] is not None
    assert {sample["verdict"] for sample in before["samples"]} <= {"pass", "flag", "substitute"}


def test_ranks_that_share_the_run_directory_alone_stop_at_one_step(tmp_path: Path) -> None:
    """Two processes without a process group; each waits for the other once a step, as a trainer's gradients do."""
    corpus = tokens(tmp_path, outside=lambda window: window == 37)
    assert corpus is not None
    (tmp_path / "p.toml").write_text(TOKEN_POLICY)
    words = ("--seed", "7", "--global-batch", "8", "--form", "window", "--seq-len", "64", "--shuffle", "none")
    gate = ("--policy", "p.toml", "--vocab-size", str(VOCABULARY), "--lanes", "1")
    dataguard(
        "rehearse", "M.parquet", "--run", "RUN", *words, *gate, "--world-size", "2", "--microbatch-size", "2",
        "--steps", "1", cwd=tmp_path,
    )  # fmt: skip
    processes = ranks_that_meet(tmp_path / "RUN", "halting")
    answers = []
    try:
        for process in processes:
            out, _ = process.communicate(timeout=120)
            answers.append((process.returncode, out.strip()))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    # Window 37 stands in step 4: both ranks are handed steps 4 and 5, and nothing of step 6.
    assert answers == [(1, "6 attempt 2 stops before step 6: the gate says halt")] * 2
    run = Run.open(tmp_path / "RUN")
    records = merge(list(Index(run.layout).records(2, num_ranks=2)))
    assert {rank: int(records["step"][records["rank"] == rank].max()) for rank in (0, 1)} == {0: 5, 1: 5}
    log = [json.loads(line) for line in dataguard("log", "RUN", "--json", cwd=tmp_path).stdout.splitlines()]
    assert [line["kind"] for line in log].count("halted") == 1
    assert told("verify", "RUN", cwd=tmp_path)["ok"]
    again = told("rehearse", "--run", "RUN", "--steps", "2", "--from-step", "4", cwd=tmp_path, code=1)
    assert "attempt 3 stops before step 6" in again["gate"]["halted"], "the same row halts whoever is handed it"


def test_a_halt_ends_a_rehearsal_with_1_and_its_account(tmp_path: Path) -> None:
    tokens(tmp_path, outside=lambda window: window == 20)
    (tmp_path / "p.toml").write_text(TOKEN_POLICY)
    words = ("--seed", "7", "--global-batch", "8", "--form", "window", "--seq-len", "64", "--shuffle", "none")
    answer = told(
        "rehearse", "M.parquet", "--run", "RUN", *words, "--policy", "p.toml", "--vocab-size", str(VOCABULARY),
        "--lanes", "1", "--world-size", "2", "--microbatch-size", "2", "--steps", "10", cwd=tmp_path, code=1,
    )  # fmt: skip
    assert answer["steps"] == [0, 4]
    assert "books/t.npy row 20" in answer["gate"]["halted"]
    assert answer["gate"]["verdicts"]["halt"] == 1
    dataguard("quarantine", "RUN", "books/t.npy:20", "--reason", "an id outside", cwd=tmp_path)
    again = told("rehearse", "--run", "RUN", "--steps", "8", "--from-step", "0", cwd=tmp_path)
    assert again["gate"]["halted"] is None
    assert told("rehearse", "--run", "RUN", "--steps", "1", "--policy", "none", cwd=tmp_path)["gate"] is None


def test_ranks_in_processes_of_their_own_say_what_one_rank_says(folder: Path, unbroken: dict[int, list[Any]]) -> None:
    name = "THREADS"
    told(
        "rehearse", "M.parquet", "--run", name, *MADE, "--world-size", "2", "--microbatch-size", "4", "--steps", "1",
        cwd=folder,
    )  # fmt: skip
    facts = {"run": str(folder / name), "world_size": 2, "microbatch_size": 2, "launch_id": "two", "from_step": 1}
    ranks = [{**facts, "rank": rank, "steps": 9, "num_threads": 3, "parent": 1} for rank in (0, 1)]
    launch(ranks)
    found = delivered(Run.open(folder / name))
    assert found == {step: unbroken[step] for step in range(10)}
