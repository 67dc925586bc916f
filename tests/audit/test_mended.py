"""What could not be read, and can be now, is read again by whoever goes on; nothing else is."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import BinaryIO, ClassVar

import pytest

from dataguard.audit.documents import AuditSummary
from dataguard.audit.engines.local import LocalEngine
from dataguard.audit.folder import AuditFolder
from dataguard.audit.scoring import Scorer
from dataguard.audit.tasks import Task
from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.formats.protocol import ScanOptions
from tests.audit.making import PERIODIC, SMALL, audit, contents, corpus


class Counting(Scorer):
    scored: ClassVar[Counter[int]] = Counter()
    interrupted_at: ClassVar[int | None] = None

    def score(self, task: Task, sink: BinaryIO) -> None:
        if task.number == Counting.interrupted_at:
            raise KeyboardInterrupt
        super().score(task, sink)
        Counting.scored[task.number] += 1


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    Counting.scored, Counting.interrupted_at = Counter(), None
    corpus(tmp_path / "in")
    options = ScanOptions(block_bytes=1000, block_tokens=100)
    sources = [f"{tmp_path}/in/web", f"{tmp_path}/in/ids"]
    build_manifest_file(sources, tmp_path / "M", options=options, num_workers=1)
    return tmp_path / "M"


def go(manifest: Path, name: str, *, resume: bool = False) -> AuditSummary:
    out = manifest.parent / name
    return audit(out, manifest, task_bytes=SMALL, resume=resume, engine=LocalEngine(1, scorer=Counting))


def tasks_scored() -> set[int]:
    """Those since this was asked last; none of them twice."""
    assert set(Counting.scored.values()) <= {1}
    found = set(Counting.scored)
    Counting.scored.clear()
    return found


@pytest.mark.parametrize("fault", ["missing", "changed"])
def test_a_complete_audit_goes_on_with_what_is_mended(manifest: Path, fault: str) -> None:
    shard = manifest.parent / "in/web/a.jsonl"
    content = shard.read_bytes()
    if fault == "missing":
        shard.unlink()
    else:
        shard.write_bytes(content.replace(PERIODIC.encode(), b"e" * len(PERIODIC)))
    summary = go(manifest, "out")
    assert summary.exit_code == 3
    assert {code for each in summary.shards.damaged for code in each.codes} == {fault}
    every = tasks_scored()
    assert AuditFolder(manifest.parent / "out").parts_done() == every

    assert go(manifest, "out", resume=True) == summary, "nothing was mended: the same answer"
    again = tasks_scored()
    assert again < every

    shard.write_bytes(content)
    mended = go(manifest, "out", resume=True)
    assert tasks_scored() == again
    whole = go(manifest, "whole")
    assert mended == whole
    assert whole.account.unreadable == 0
    tasks_scored()
    assert contents(manifest.parent / "out") == contents(manifest.parent / "whole")
    assert go(manifest, "out", resume=True) == whole
    assert tasks_scored() == set(), "all is well: the answer, and no work"


def test_an_interrupted_audit_reads_again_what_it_could_not_read(manifest: Path) -> None:
    shard = manifest.parent / "in/web/a.jsonl"
    shard.rename(shard.with_suffix(".gone"))
    Counting.interrupted_at = 9
    with pytest.raises(KeyboardInterrupt):
        go(manifest, "out")
    before = tasks_scored()
    shard.with_suffix(".gone").rename(shard)
    Counting.interrupted_at = None
    go(manifest, "out", resume=True)
    again = tasks_scored() & before
    assert 0 < len(again) < len(before), "those of the shard that was away"
    go(manifest, "whole")
    assert contents(manifest.parent / "out") == contents(manifest.parent / "whole")


def test_an_answer_is_gone_before_what_it_was_made_of(manifest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted between the two, there is no complete audit that lacks parts."""
    shard = manifest.parent / "in/web/a.jsonl"
    shard.rename(shard.with_suffix(".gone"))
    go(manifest, "out")
    tasks_scored()
    shard.with_suffix(".gone").rename(shard)
    folder, removed = AuditFolder(manifest.parent / "out"), []
    real = os.unlink
    with monkeypatch.context() as patch:

        def unlink(self: Path, **asked: bool) -> None:
            removed.append(self)
            if len(removed) == 3:
                raise KeyboardInterrupt
            real(self)

        patch.setattr(Path, "unlink", unlink)
        with pytest.raises(KeyboardInterrupt):
            go(manifest, "out", resume=True)
    assert removed[0] == folder.summary
    go(manifest, "out", resume=True)
    go(manifest, "whole")
    assert contents(manifest.parent / "out") == contents(manifest.parent / "whole")
