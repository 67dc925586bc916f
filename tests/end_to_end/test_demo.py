"""The demo, as the README's first line starts it: it trains, and what it promises comes out of what lies on disk."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dataguard import Run
from dataguard.cli.demo.answers import DemoShard
from dataguard.cli.demo.stage import NotAsTold, Stage
from dataguard.cli.demo.trained import Told, _localised
from dataguard.run.telemetry_reading import telemetry_of_lineage
from tests.architecture.validation import validate

DEMO = [sys.executable, "-P", "-m", "dataguard", "demo"]
PATIENCE_SECONDS = 900.0  # of a machine that does other things as well


def demo(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DEMO, *words], cwd=cwd, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> Iterator[tuple[Path, subprocess.CompletedProcess[str]]]:
    folder = tmp_path_factory.mktemp("demo") / "kept"
    yield folder, demo("--keep", str(folder), "--json", cwd=folder.parent)
    for checkpoint in folder.glob("checkpoints/*.pt"):
        checkpoint.unlink()


def curve(folder: Path, attempt: int) -> dict[int, float]:
    """Mean loss over ranks by step, from telemetry."""
    rows = telemetry_of_lineage(Run.open(folder / "RUN"), attempt, names=["loss"])
    rows = rows[rows["slot"] < 0]
    return {int(step): float(rows["value"][rows["step"] == step].mean()) for step in np.unique(rows["step"])}


def test_the_whole_story_comes_out_as_it_is_told(told) -> None:
    folder, done = told
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    validate(document, "demo")
    assert (document["story"], document["verdict"], document["all_as_expected"]) == ("poisoned", "bad_data", True)
    names = [" ".join(each["command"].split()[:2]) for each in document["commands"]]
    assert names == [
        "dataguard manifest",
        "dataguard audit",
        "torchrun --standalone",
        "dataguard triage",
        "dataguard replay",
        "dataguard skip",
        "dataguard quarantine",
        "python train.py",
        "dataguard verify",
        "dataguard report",
    ]
    assert {each["exit_code"] for each in document["commands"]} == {0}
    for each in document["commands"]:
        assert f"$ {each['command']}\n" in done.stderr
    assert "ALERT at step" in done.stderr
    replayed = (folder / "replay.txt").read_text()
    assert ": exact; 1 microbatches (1 rebuilt)" in replayed
    assert "compared sample by sample" not in replayed, "tensors were made again, and compared"
    assert (folder / "triage.txt").read_text().count("\n") > 60
    assert (folder / "report.html").stat().st_size > 10_000
    assert document["report"] == str(folder / "report.html")


def test_what_it_says_of_the_event_is_so(told) -> None:
    folder, done = told
    document = json.loads(done.stdout)
    shard, event, losses = document["shard"], document["event"], document["losses"]
    assert (event["shard"], event["rank"]) == (shard["shard"], shard["rank"])
    assert shard["start"] <= event["peak"] < shard["stop"]
    assert event["size_nats"] > event["needed_nats"] > 0
    first, resumed = curve(folder, 1), curve(folder, 2)
    peak = first[event["peak"]]
    assert losses["peak"] == pytest.approx(peak)
    assert peak == max(loss for step, loss in first.items() if step > 60)
    assert losses["end"] < losses["before"] < peak - 0.5
    assert losses["end"] == pytest.approx(np.median(list(resumed.values())[-losses["num_steps"] :]))


def test_the_poison_is_not_delivered_again_and_one_rank_goes_on(told) -> None:
    folder, done = told
    shard = json.loads(done.stdout)["shard"]["shard"]
    run = Run.open(folder / "RUN")
    assert [run.attempts().attempt(number).geometry.world_size for number in (1, 2)] == [2, 1]
    words = ["where", "RUN", f"{shard}:0", "--json"]
    where = subprocess.run(
        [sys.executable, "-P", "-m", "dataguard", *words], cwd=folder, capture_output=True, text=True, check=True
    )
    places = [(place["label"], place["status"]) for place in json.loads(where.stdout)["places"]]
    assert places[:2] == [("abandoned", "live"), ("skipped", "skipped")]
    # The run that goes on begins another pass, and comes to the record again.
    assert {status for label, status in places if label == "live"} <= {"quarantined"}


def test_without_poison_there_is_no_incident(tmp_path) -> None:
    done = demo("--clean", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    validate(document, "demo")
    assert (document["story"], document["verdict"], document["event"]) == ("clean", "no_incident", None)
    assert document["folder"] is None
    page = Path(document["report"])
    assert page.stat().st_size > 10_000, "the page stays when all else is removed"
    assert [each.name for each in page.parent.iterdir()] == [page.name]
    shutil.rmtree(page.parent)
    assert document["losses"] is None
    assert "ALERT" not in done.stderr


def answer(**changes: Any) -> dict[str, Any]:
    """What triage is asked for, of an event in the shard that `planted` is."""
    return {"localised": {"samples": [{"shard": "code/odd"}]}, **changes}


@pytest.mark.parametrize(
    ("verdict", "shard", "rank", "peak", "what"),
    [
        ("inconclusive", "code/odd", 1, 14, "the verdict"),
        ("bad_data", "code/other", 1, 14, "the shard that triage names"),
        ("bad_data", None, 1, 14, "the shard that triage names"),
        ("bad_data", "code/odd", None, 14, "the rank that triage names"),
        ("bad_data", "code/odd", 1, 20, "the peak of the event"),
    ],
)
def test_what_is_found_otherwise_ends_the_story(tmp_path, capsys, verdict, shard, rank, peak, what) -> None:
    from dataguard.cli.demo.answers import DemoEvent

    planted = DemoShard(shard="code/odd", num_records=9, poisoned=True, rank=1, start=10, stop=20)
    event = DemoEvent(
        event_class="transient_spike",
        start=12,
        stop=30,
        peak=peak,
        size_nats=1.0,
        needed_nats=0.4,
        rank=rank,
        shard=shard,
    )
    stage, told = Stage(tmp_path, to_stderr=True), Told(seed=7, shard=planted, event=event, verdict=verdict)
    with pytest.raises(NotAsTold, match=what) as caught:
        _localised(stage, answer(), told)
    assert caught.value.exit_code == 1
    assert [each.what for each in stage.checks if not each.as_expected] == [what]


def test_no_event_ends_the_story(tmp_path) -> None:
    planted = DemoShard(shard="code/odd", num_records=9, poisoned=True, rank=1, start=10, stop=20)
    with pytest.raises(NotAsTold, match="finds no event"):
        _localised(Stage(tmp_path, to_stderr=True), answer(), Told(seed=7, shard=planted, verdict="no_incident"))


def processes_in(folder: Path) -> list[str]:
    """Command lines of the processes that work in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve() == folder and os.getpid() != int(process.name):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="this system does not say who works where")
def test_an_interrupted_demo_leaves_no_process_and_says_what_is_kept(tmp_path) -> None:
    folder = (tmp_path / "kept").resolve()
    process = subprocess.Popen(
        [*DEMO, "--clean", "--keep", str(folder)],
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if "20 steps are done" in line:
                break
        assert any("train.py" in each for each in processes_in(folder))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "error: interrupted" in said
    assert f"what was made until then is kept in {folder}" in said
    assert (folder / "RUN" / "journal").is_dir()
    assert processes_in(folder) == []
