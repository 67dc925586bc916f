"""Ranks that log as processes of their own: with a process group, never closed, killed in the middle, out of space."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dataguard.corpus.corpus import Corpus
from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.run.run import Run
from dataguard.run.telemetry_reading import read_telemetry, telemetry_of_lineage
from tests.support.corpora import make_corpus
from tests.support.processes import environment
from tests.support.runs import make_run
from tests.torch.monitored import loss_of

LONGEST_SECONDS = 120


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("corpus"), {"web": {"a.parquet": 120}})


@pytest.fixture
def run(tmp_path: Path, corpus: Corpus) -> Run:
    return make_run(tmp_path / "run", corpus)


@contextmanager
def ranks(run: Run, count: int, **words: Any) -> Iterator[list[subprocess.Popen[str]]]:
    processes = [
        subprocess.Popen(
            [
                sys.executable, "-m", "tests.torch.monitored",
                json.dumps({"run": str(run.path), "world_size": count, "rank": rank, **words}),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo"),
        )
        for rank in range(count)
    ]  # fmt: skip
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def lines_of(process: subprocess.Popen[str], count: int) -> list[dict[str, Any]]:
    """What a process says, until it is at least so many lines; each of them is one write, so none is cut."""
    assert process.stdout is not None
    deadline, said = time.monotonic() + LONGEST_SECONDS, b""
    while said.count(b"\n") < count:
        # Read past Python's own buffer, which `select` does not see.
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"the process is late: it said {said!r}"
        more = os.read(process.stdout.fileno(), 1 << 16)
        assert more, process.stderr.read() if process.stderr else ""
        said += more
    return [json.loads(line) for line in said.splitlines()]


def test_each_rank_of_a_process_group_has_its_own_telemetry_closed_or_not(run: Run, tmp_path: Path) -> None:
    # Nobody closes the monitors: what was logged is there all the same.
    with ranks(run, 2, steps=3, close=False, init=str(tmp_path / "meet")) as processes:
        for rank, process in enumerate(processes):
            out, err = process.communicate(timeout=LONGEST_SECONDS)
            assert (process.returncode, err) == (0, "")
            assert [json.loads(line)["rank"] for line in out.splitlines()] == [rank] * 3
    rows = telemetry_of_lineage(run, names=["loss"])
    steps = rows[rows["slot"] < 0]
    assert steps[["step", "rank", "value"]].tolist() == [
        (step, rank, loss_of(step, rank)) for step in range(3) for rank in range(2)
    ]
    samples = rows[rows["slot"] >= 0]
    assert samples[["step", "slot"]].tolist() == [(step, slot) for step in range(3) for slot in range(8)]
    assert samples["value"].tolist() == [loss_of(step, slot // 4) for step in range(3) for slot in range(8)]


def test_whatever_was_logged_before_a_kill_is_there(run: Run) -> None:
    with ranks(run, 2, steps=20, hang_at=7) as processes:
        for process in processes:
            assert [line["step"] for line in lines_of(process, 8)] == list(range(8))
            process.send_signal(signal.SIGKILL)
        for process in processes:
            process.wait(LONGEST_SECONDS)
    torn: list[str] = []
    rows = telemetry_of_lineage(run, names=["loss"], torn=torn)
    steps = rows[rows["slot"] < 0]
    assert steps[["step", "rank", "value"]].tolist() == [
        (step, rank, loss_of(step, rank)) for step in range(8) for rank in range(2)
    ]
    assert (rows["slot"] >= 0).sum() == 8 * 8
    assert torn == []
    answer = verify_run(Lookup(Run.open(run.path)))
    assert answer.ok
    assert {check.name: check.checked for check in answer.checks}["telemetry"] == 8 * 2 * 3 + 8 * 8


def test_a_kill_at_any_moment_leaves_whole_values(run: Run) -> None:
    with ranks(run, 1, steps=10_000) as (process,):
        said = lines_of(process, 1)
        time.sleep(0.15)
        process.send_signal(signal.SIGKILL)
        out, _ = process.communicate(timeout=LONGEST_SECONDS)
    said += [json.loads(line) for line in out.splitlines()]
    assert [line["step"] for line in said] == list(range(len(said)))
    rows = read_telemetry(run.layout, 1, names=["loss"])
    logged = rows[rows["slot"] < 0]
    assert logged["step"].tolist() == list(range(len(logged)))
    assert logged["value"].tolist() == [loss_of(step, 0) for step in range(len(logged))]
    # At most the step in hand was logged and not said.
    assert 0 <= len(logged) - len(said) <= 1


def test_where_the_system_takes_no_more_the_trainer_hears_of_it(run: Run) -> None:
    with ranks(run, 1, steps=400, most_bytes=40_000) as (process,):
        out, err = process.communicate(timeout=LONGEST_SECONDS)
    *said, failed = [json.loads(line) for line in out.splitlines()]
    assert process.returncode == 0, err
    assert (failed["error"], failed["exit"]) == ("WriteFailed", 4)
    assert "cannot append to" in failed["text"]
    torn: list[str] = []
    rows = read_telemetry(run.layout, 1, names=["lr"], torn=torn)
    assert rows["step"].tolist() == list(range(len(said)))
    assert torn == []
    assert run.layout.telemetry(1, 0).stat().st_size <= 40_000
