"""Notes: written, found again by kind, said in a sentence; documents behind them keep their bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataguard.errors import RunDamaged
from dataguard.replay.log import read_log
from dataguard.run.events import CheckpointSaved
from dataguard.run.notes import keep_document, noted, read_document
from dataguard.run.run import Run
from tests.run.test_events import NOTES
from tests.support.corpora import make_corpus
from tests.support.runs import make_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path / "run", make_corpus(tmp_path, {"web": {"a.parquet": 8}}), global_batch=2)


def test_notes_are_found_again_and_said_and_amend_nothing(run: Run) -> None:
    before = run.pending()
    for event in NOTES:
        run.journal.append(event)
    read = run.read()
    ((_, checkpoint),) = noted(read.entries, CheckpointSaved)
    assert checkpoint.path == "s3://bucket/ckpt/30"
    assert run.pending() == before
    lines, problems = read_log(run)
    assert not problems
    told = {line.kind: line for line in lines[-len(NOTES) :]}
    assert len(told) == len(NOTES)
    assert {line.state for line in told.values()} == {"done"}
    assert told["diagnosed"].text == "diagnosis of step 33 of attempt 2: data_and_state; rewind to 30"
    assert told["trainer-described"].text == "the trainer described its changes, optimizer"


def test_a_document_keeps_its_bytes(run: Run) -> None:
    digest = keep_document(run.layout, "experiment", b'{"a":1}')
    assert keep_document(run.layout, "experiment", b'{"a":1}') == digest
    assert read_document(run.layout, "experiment", digest) == b'{"a":1}'
    run.layout.triage("experiment", digest).write_bytes(b'{"a":2}')
    with pytest.raises(RunDamaged, match="other bytes"):
        read_document(run.layout, "experiment", digest)
    with pytest.raises(RunDamaged, match="missing"):
        read_document(run.layout, "experiment", "0" * 64)
