"""An audit of an object store: a real S3 API on this machine, behind a line that fails now and then."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import pytest

from dataguard.audit.engines.local import LocalEngine
from dataguard.audit.folder import AuditFolder
from dataguard.audit.scoring import Scorer
from dataguard.audit.tasks import Task
from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.formats.protocol import ScanOptions
from tests.audit.far import Line, bucket_behind
from tests.audit.making import SMALL, audit, contents, corpus
from tests.support.commands import dataguard

for _name in ("s3fs", "moto", "flask", "flask_cors"):
    pytest.importorskip(_name, reason=f"{_name} is not installed; it comes with dataguard[test]")


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Line]:
    with bucket_behind(monkeypatch, corpus(tmp_path / "in")) as made:
        yield made


def beside_the_places(out: Path) -> dict[str, str]:
    """All files of an audit but those that say where the corpus lies."""
    return {name: digest for name, digest in contents(out).items() if name not in {"audit.json", "manifest.parquet"}}


def test_a_line_that_fails_now_and_then_changes_nothing(line: Line, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    local = audit(tmp_path / "local", folder / "web", folder / "ids", task_bytes=SMALL)
    line.fails = True
    far = audit(tmp_path / "far", "s3://data/web", "s3://data/ids", task_bytes=SMALL, workers=2)
    assert len(line.failures) >= 2
    assert far == local
    assert beside_the_places(tmp_path / "far") == beside_the_places(tmp_path / "local")
    assert len(contents(tmp_path / "far")) > 6


def test_a_line_that_refuses_makes_records_unreadable_and_no_pass(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    build_manifest_file(["s3://data/ids"], tmp_path / "M")
    line.refused = "/"
    summary = audit(tmp_path / "out", tmp_path / "M")
    assert (summary.verdict, summary.exit_code) == ("nothing", 3)
    account = summary.account
    assert account.balanced
    assert account.records == account.unreadable > 0
    assert [shard.codes for shard in summary.shards.damaged] == [("unreadable",)]


class Counting(Scorer):
    scored: ClassVar[Counter[int]] = Counter()

    def score(self, task: Task, sink: BinaryIO) -> None:
        super().score(task, sink)
        Counting.scored[task.number] += 1


def test_what_was_refused_is_read_again_once_that_is_mended(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    options = ScanOptions(block_bytes=1000, block_tokens=100)
    build_manifest_file(["s3://data/web", "s3://data/ids"], tmp_path / "M", options=options, num_workers=1)
    asked: dict[str, Any] = {"task_bytes": SMALL, "engine": LocalEngine(1, scorer=Counting)}
    audit(tmp_path / "whole", tmp_path / "M", **asked)
    Counting.scored.clear()

    line.refused = "b.jsonl.gz"
    out = tmp_path / "out"
    summary = audit(out, tmp_path / "M", **asked)
    assert summary.exit_code == 3
    (damaged,) = summary.shards.damaged
    assert (damaged.shard, damaged.codes) == ("web/b.jsonl.gz", ("unreadable",))
    assert "AccessDenied by the test" in damaged.reason
    assert summary.account.balanced
    assert (summary.account.unreadable, summary.account.scored > 200) == (120, True)
    assert len(AuditFolder(out).parts_done()) == len(Counting.scored), "what was read is not read again"

    # not mended yet: the same answer, and what can be read is left alone
    every = set(Counting.scored)
    Counting.scored.clear()
    assert audit(out, tmp_path / "M", resume=True, **asked) == summary
    again = set(Counting.scored)
    assert 0 < len(again) < len(every) / 2

    line.refused = ""
    Counting.scored.clear()
    mended = audit(out, tmp_path / "M", resume=True, **asked)
    assert Counting.scored == dict.fromkeys(again, 1)
    assert mended.account.unreadable == 0
    assert contents(out) == contents(tmp_path / "whole"), "as if nothing had been wrong; nothing else is left behind"


def test_the_commands_that_read_samples_read_them_from_there(line: Line, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    asked = "--json --seed 7 --steps 3 --world-size 1 --global-batch 64 --microbatch-size 64 --policy default"
    answers = []
    for name, places in (("near", [folder / "web"]), ("far", ["s3://data/web"])):
        build_manifest_file([str(place) for place in places], tmp_path / f"{name}.parquet", num_workers=1)
        line.fails = name == "far"
        run = tmp_path / f"run-{name}"
        dataguard("rehearse", tmp_path / f"{name}.parquet", "--run", run, *asked.split())
        looks = [dataguard(command, run, "--step", "1", "--json") for command in ("inspect", "replay")]
        answers.append([json.loads(look.stdout) for look in looks])
    assert line.failures
    assert answers[0] == answers[1]
