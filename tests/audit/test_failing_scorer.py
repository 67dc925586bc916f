"""A scorer that fails is a fault of dataguard: it is named with the samples it failed at, and costs nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dataguard.audit.engines.local import LocalEngine
from dataguard.audit.scoring import Scorer
from dataguard.audit.tasks import Task
from dataguard.cli.main import main
from dataguard.errors import WriterConflict
from tests.audit.making import PROSE, audit, contents, corpus
from tests.corpus.making import jsonl


class Failing(Scorer):
    """Fails at the 40th row of b.jsonl.gz."""

    error: Exception = ValueError("odd")

    def _score_texts(self, segment: Any, block: Any, rows: Any) -> Any:
        name = self.job.corpus.manifest.shard_name(segment.shard)
        if name == "web/b.jsonl.gz" and rows[0] <= 40 <= rows[-1]:
            raise self.error
        return super()._score_texts(segment, block, rows)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_it_is_named_and_what_is_done_stays(tmp_path: Path, workers: int) -> None:
    folder = corpus(tmp_path / "in") / "web"
    audit(tmp_path / "whole", folder, task_bytes=4000)
    with pytest.raises(RuntimeError, match=r"scoring rows \d+:\d+ of shard web/b.jsonl.gz failed: ValueError: odd"):
        audit(tmp_path / "out", folder, engine=LocalEngine(workers, scorer=Failing), task_bytes=4000)
    assert list((tmp_path / "out/work/parts").rglob("*.parquet")), "tasks before it were kept"
    again: list[int] = []

    class Counting(Scorer):
        def score(self, task: Task, sink: Any) -> None:
            again.append(task.number)
            super().score(task, sink)

    kept = {int(path.stem) for path in (tmp_path / "out/work/parts").rglob("*.parquet")}
    audit(tmp_path / "out", folder, engine=LocalEngine(workers, scorer=Counting), task_bytes=4000, resume=True)
    assert kept
    assert kept.isdisjoint(again)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (ValueError("odd"), 70, "fault of dataguard: RuntimeError: scoring rows 0:400 of shard web/a.jsonl failed"),
        (MemoryError(), 4, "out of memory: scoring rows 0:400 of shard web/a.jsonl failed"),
    ],
)
def test_the_command_says_how_to_go_on(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    code: int,
    told: str,
) -> None:
    jsonl(tmp_path / "web/a.jsonl", PROSE)

    def fail(*_: Any) -> Any:
        raise error

    words = ["audit", str(tmp_path / "web"), "-o", str(tmp_path / "out"), "--json", "--workers", "1"]
    with monkeypatch.context() as patch:
        patch.setattr(Scorer, "_score_texts", fail)
        assert main(words) == code
    shown = capfd.readouterr()
    assert shown.out == ""
    assert told in shown.err
    assert "the same command with --resume goes on" in shown.err
    assert main([*words, "--resume"]) == 0


def test_whoever_comes_second_is_not_told_to_go_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jsonl(tmp_path / "web/a.jsonl", PROSE)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/audit.json").write_text("{}")

    def busy(*_: Any) -> bool:
        return False

    monkeypatch.setattr("dataguard.audit.folder.try_lock", busy)
    code = main(["audit", str(tmp_path / "web"), "-o", str(tmp_path / "out"), "--resume"])
    shown = capfd.readouterr()
    assert code == WriterConflict.exit_code
    assert "another process is auditing" in shown.err
    assert "what was done is kept" not in shown.err
