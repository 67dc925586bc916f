"""A document that the journal names is missed when it is gone, and when its bytes have changed."""

from __future__ import annotations

from pathlib import Path

from dataguard.core.evidence import Replay, Told
from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.run.events import CanaryCompared, ExperimentDone
from dataguard.run.notes import keep_document
from tests.support.corpora import make_corpus
from tests.support.runs import make_run


def test_documents_behind_notes_are_verified(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", make_corpus(tmp_path, {"web": {"a.parquet": 8}}), global_batch=2)
    assert [check.name for check in verify_run(Lookup(run)).checks] == ["journal", "index"]
    digests = [keep_document(run.layout, what, what.encode()) for what in ("experiment", "canary")]
    run.journal.append(
        ExperimentDone(
            attempt=1, step=3, outcome=Replay.STATE, number_type=Told.UNKNOWN, first_layer=None, results=digests[0],
            summary="it is the state",
        )
    )  # fmt: skip
    run.journal.append(
        CanaryCompared(attempt=None, step=3, differs=Told.NO, odd=(), results=digests[1], summary="2 agree")
    )

    def faults() -> list[str]:
        answer = verify_run(Lookup(run))
        (notes,) = [check for check in answer.checks if check.name == "notes"]
        assert notes.checked == 2
        return [fault.message for fault in notes.faults]

    assert faults() == []
    run.layout.triage("canary", digests[1]).write_bytes(b"other")
    run.layout.triage("experiment", digests[0]).unlink()
    gone, changed = faults()
    assert gone.startswith("event 2: ")
    assert "missing" in gone
    assert changed.startswith("event 3: ")
    assert "other bytes" in changed
