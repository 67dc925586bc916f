"""Ctrl-C in the midst of each long command: it says how to go on, and going on that way gives the same bytes."""

from __future__ import annotations

import itertools
import json
import operator
import shlex
import shutil
import signal
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dataguard.cli.interrupts import ONLY_READ, SAME_AGAIN, Interrupted, going_on
from dataguard.cli.main import main
from dataguard.corpus.manifest_read import read_manifest
from dataguard.errors import RunDamaged
from tests.support.held import PATIENCE_SECONDS, held, interrupt

PROGRESS = "dataguard.cli.progress:Progress.__call__"
REHEARSE = "rehearse M.parquet --run {run} --seed 7 --global-batch 8 --world-size 2 --microbatch-size 2 --steps 12"
SPOOLED = "rehearse M.parquet --run {run} --seed 7 --global-batch 8 --world-size 2 --microbatch-size 2 --steps 6"
ORDER = [("position", "ascending")]
AUDIT = "audit M.parquet -o {out} --policy default"


def do(folder: Path, line: str, monkeypatch: pytest.MonkeyPatch, *, code: int = 0) -> None:
    monkeypatch.chdir(folder)
    assert main(shlex.split(line)) == code, line


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of two sources, their manifest, and a run with a batch store and two attempts."""
    base = tmp_path_factory.mktemp("interrupted")
    for name in ("web", "code"):
        (base / "data" / name).mkdir(parents=True)
        for shard in range(4):
            lines = [json.dumps({"text": f"record {row} of {name} {shard}. " * 3}) + "\n" for row in range(40)]
            (base / "data" / name / f"part-{shard}.jsonl").write_text("".join(lines))
    (base / "train.csv").write_text("step,loss\n" + "".join(f"{step},{4 - step / 50}\n" for step in range(12)))
    with pytest.MonkeyPatch.context() as patch:
        do(base, "manifest build web=data/web code=data/code -o M.parquet", patch)
        do(base, f"{REHEARSE.format(run='RUN')} --store all", patch)
        do(base, "rehearse --run RUN --steps 6", patch)
        do(base, AUDIT.format(out="AUDIT"), patch, code=0)
    return base


def contents(path: Path, *, without: Callable[[Path], bool] = lambda _: False) -> dict[str, bytes]:
    """Every file below a folder."""
    found = (each for each in sorted(path.rglob("*")) if each.is_file() and not without(each))
    return {str(each.relative_to(path)): each.read_bytes() for each in found}


def next_of(told: str) -> str:
    """What the message says to do next."""
    lines = told.splitlines()
    lines = lines[lines.index("error: interrupted") :]
    assert len(lines) <= 3, told
    assert lines[-1].startswith("  next: "), told
    return lines[-1].removeprefix("  next: ")


def copied(folder: Path, tmp_path: Path, *names: str) -> Path:
    """Things of the folder where a test may change them."""
    work = tmp_path / "work"
    work.mkdir(parents=True)
    for name in names:
        (shutil.copytree if (folder / name).is_dir() else shutil.copy)(folder / name, work / name)
    return work


def stopped(
    line: str, target: str, count: int, cwd: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """What a command says that is interrupted in this process, at the `count`-th call of ``module:name``."""
    capsys.readouterr()
    monkeypatch.chdir(cwd)
    with monkeypatch.context() as patch:
        module, _, name = target.partition(":")
        inner, calls = operator.attrgetter(name)(import_module(module)), itertools.count(1)

        def stops(*args: Any, **named: Any) -> Any:
            if next(calls) == count:
                signal.raise_signal(signal.SIGINT)
            return inner(*args, **named)

        patch.setattr(f"{module}.{name}", stops)
        assert main(shlex.split(line)) == 130
    return capsys.readouterr().err


def test_manifest_build(folder, tmp_path, monkeypatch) -> None:
    build = "manifest build web=data/web code=data/code -o M.parquet"
    work = copied(folder, tmp_path, "data")
    with held(PROGRESS, 3, *shlex.split(build), cwd=work) as process:
        told = interrupt(process)
    assert "found: 3 of 8 shards are scanned" in told
    assert next_of(told) == "the same command goes on from there: scans that are done are kept"
    assert not (work / "M.parquet").exists()
    kept = sorted(path.name for path in (work / "M.parquet.building").iterdir())
    assert len(kept) == 3
    assert all(name.endswith(".scan") for name in kept)
    do(work, build, monkeypatch)
    assert sorted(path.name for path in work.iterdir()) == ["M.parquet", "data"]
    built, whole = (read_manifest(each / "M.parquet").manifest for each in (work, folder))
    assert built.digest == whole.digest


def test_manifest_build_with_workers(folder, tmp_path) -> None:
    """Workers end with the command, whoever else had the signal."""
    work = copied(folder, tmp_path, "data")
    words = shlex.split("manifest build web=data/web code=data/code -o M.parquet --workers 2")
    with held(PROGRESS, 2, *words, cwd=work) as process:
        workers = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
        assert len(workers) >= 1
        told = interrupt(process, signal.SIGTERM)
        assert "of 8 shards are scanned" in told
        assert [pid for pid in workers if Path(f"/proc/{pid}").exists()] == []
    assert [path.name for path in work.rglob("*.tmp")] == []


def test_an_audit_of_threads(folder, tmp_path, monkeypatch) -> None:
    work = copied(folder, tmp_path, "M.parquet")
    words = shlex.split(AUDIT.format(out="OUT"))
    with held("dataguard.audit.scoring:Scorer.score", 1, *words, cwd=work) as process:
        told = interrupt(process)
    assert next_of(told) == "what was done is kept in OUT: the same command with --resume goes on from there"
    assert not (work / "OUT" / "summary.json").exists()
    do(work, shlex.join([*words, "--resume"]), monkeypatch)
    resumed, whole = contents(work / "OUT"), contents(folder / "AUDIT")
    assert set(resumed) == set(whole)
    assert {name for name, content in whole.items() if resumed[name] != content} == set()


def test_a_rehearsal(folder, tmp_path, monkeypatch, capsys) -> None:
    work = copied(folder, tmp_path, "M.parquet", "data")
    words = shlex.split(f"{REHEARSE.format(run='R')} --on-unreadable halt")
    with held(PROGRESS, 5, *words, cwd=work) as process:
        told = interrupt(process)
    assert "found: 5 of 12 steps are delivered to all ranks" in told
    command, _, where = next_of(told).partition(" goes on at ")
    assert command == "dataguard rehearse --run R --steps 7 --on-unreadable halt"
    assert where == "step 5"
    assert [path for path in (work / "R").rglob("*") if path.parent.name == "tmp"] == []
    do(work, command.removeprefix("dataguard "), monkeypatch)
    do(work, "verify R", monkeypatch)
    for run in ("R", str(folder / "RUN")):
        do(work, f"seen {run} --step 12 --rows {Path(run).name}.parquet", monkeypatch)
    capsys.readouterr()
    ours, whole = (pq.read_table(f"{name}.parquet") for name in ("R", "RUN"))
    same = [name for name in whole.column_names if name != "attempt"]
    assert ours.select(same).sort_by(ORDER).equals(whole.select(same).sort_by(ORDER))


def test_a_rehearsal_that_had_not_begun(folder, tmp_path, monkeypatch, capsys) -> None:
    work = copied(folder, tmp_path, "M.parquet", "data")
    line = SPOOLED.format(run="R")
    told = stopped(line, "dataguard.loader.rehearse:shared_cache_bytes", 1, work, monkeypatch, capsys)
    assert next_of(told) == "no attempt was begun: the same command begins again"
    do(work, line, monkeypatch)
    do(work, "verify R", monkeypatch)


LOOKING = {
    "verify": ("verify RUN", PROGRESS, 2, "steps are verified", ONLY_READ),
    "replay -o": ("replay RUN --step 0:6 -o OUT", "dataguard.replay.replay:replay_step", 3, "2 of 6", SAME_AGAIN),
    "report": ("report AUDIT -o page.html", "dataguard.run.atomic:publish", 1, "interrupted", SAME_AGAIN),
}


@pytest.mark.parametrize("name", LOOKING)
def test_what_only_reads_changes_nothing(folder, name, monkeypatch, tmp_path, capsys) -> None:
    line, target, count, found, todo = LOOKING[name]
    work = copied(folder, tmp_path, "RUN", "M.parquet", "data", "AUDIT")
    before = contents(work / "RUN")
    told = stopped(line, target, count, work, monkeypatch, capsys)
    assert found in told
    assert next_of(told) == todo
    assert contents(work / "RUN") == before
    assert not (work / "page.html").exists()
    do(work, line, monkeypatch)


CHANGING: dict[str, tuple[str, str, int, str]] = {
    "seal": ("seal RUN", "dataguard.run.tidy:seal_attempt", 2, "the same command goes on with those that are left"),
    "compact": ("compact RUN", "dataguard.run.tidy:compact", 2, "the same command goes on with those that are left"),
    "telemetry": (
        *("telemetry import RUN train.csv", "dataguard.run.telemetry_import:_imported", 1),
        "the same command goes on: what was written already is not written again",
    ),
    "prune": (
        "store prune RUN --keep-last 1",
        "dataguard.run.store_prune:remove_stored",
        4,
        "the same command goes on with what is left",
    ),
}


@pytest.mark.parametrize("name", CHANGING)
def test_what_changes_a_run_goes_on(folder, tmp_path, monkeypatch, name, capsys) -> None:
    line, target, count, todo = CHANGING[name]
    works = [copied(folder, tmp_path / each, "RUN", "train.csv", "data") for each in ("stopped", "whole")]
    told = stopped(line, target, count, works[0], monkeypatch, capsys)
    assert next_of(told) == todo
    for work in works:
        do(work, line, monkeypatch)
    timed = {"frames", "json"} if name in {"telemetry", "prune"} else set()
    ours, theirs = (contents(work / "RUN", without=lambda path: path.suffix[1:] in timed) for work in works)
    assert set(ours) == set(theirs)
    assert {each for each in ours if ours[each] != theirs[each]} == set()
    do(works[0], "verify RUN", monkeypatch)
    asked = {"telemetry": "telemetry show RUN --name loss --json", "prune": "store list RUN --json"}.get(name)
    capsys.readouterr()
    if asked is not None:
        answers = []
        for work in works:
            do(work, asked, monkeypatch)
            answers.append(capsys.readouterr().out)
        assert answers[0] == answers[1]


def test_a_second_signal_ends_at_once(folder, tmp_path) -> None:
    """While the first one is being cleaned up after, by something that would take a minute."""
    work = copied(folder, tmp_path, "RUN", "data")
    with held(PROGRESS, 2, "verify", "RUN", cwd=work, cleanup="dataguard.cli.progress:Progress.__exit__") as process:
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.readline() == "cleaning up\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE_SECONDS) == 130
        assert process.stderr.read() == ""


def test_warmup(tmp_path, monkeypatch, capsys) -> None:
    told = stopped("warmup", "dataguard.cli.warmup:_ready", 1, tmp_path, monkeypatch, capsys)
    assert "found: 0 kernels are ready" in told
    assert next_of(told) == "the same command goes on with those that are left: what is compiled is kept"


def test_what_is_said_further_in_counts_first() -> None:
    with pytest.raises(Interrupted) as caught, going_on("outer"), going_on("inner", found="a"):
        raise KeyboardInterrupt
    assert (caught.value.todo, caught.value.found) == ("inner", "a")


def test_what_cannot_be_found_out_is_not_said() -> None:
    def fails() -> Any:
        raise RunDamaged("the journal is gone")

    with pytest.raises(Interrupted) as caught, going_on(fails, found=fails):
        raise KeyboardInterrupt
    assert (caught.value.todo, caught.value.found) == (None, None)
