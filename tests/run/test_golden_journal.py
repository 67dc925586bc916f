"""A run of format version 1, written once and committed: it stays readable, and says what it said.

It holds every kind of event there was then: created with a list of withheld rows, three attempts, a skip, quarantines
of a row and of a list, a proposal, a release and a revocation. Nothing here is ever written again: a new format gets a
golden of its own.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dataguard.run.amend import skip
from dataguard.run.events import Event, Halted, Note, StreamAdded, decode_event, encode_event
from dataguard.run.journal import Head
from dataguard.run.run import Run

GOLDEN = Path(__file__).parents[1] / "golden" / "journal-v1"
HEAD = Head(number=10, sha256="5de888d42f642eeec72d24723f6570556e5cc729d0eb5cc55e320ec4d0f31f38")


@pytest.fixture(scope="module")
def run() -> Run:
    return Run.open(GOLDEN)


def test_it_reads_without_a_problem_and_ends_where_it_ended(run: Run) -> None:
    assert run.problems() == ()
    assert run.journal.check([HEAD]) == ()
    assert run.head() == HEAD


def test_the_first_event_gives_identity(run: Run) -> None:
    assert run.run_id == "00112233445566778899aabbccddeeff"
    assert (run.first_label, run.document.skip_mode, run.document.fill) == (1, "jump", "substitute")
    assert run.document.roots == {"code": "/data/code", "web": "/data/web"}
    assert run.plan_document().root.seed == 7
    assert run.plan_document().root.digest == run.document.root


def test_every_kind_of_event_is_there_with_what_it_said(run: Run) -> None:
    entries = run.read().entries
    assert {type(entry.event) for entry in entries} == set(Event.__args__) - {Halted, StreamAdded, *Note.__args__}
    assert [entry.by for entry in entries] == ["ada@analytical-engine"] * 10
    assert entries[2].event.reason == "spike: loss 2.1 → 7.9"  # type: ignore[union-attr]
    assert entries[2].time == "2026-01-02T03:06:05.000006Z"


def test_attempts_are_what_they_were(run: Run) -> None:
    tree = run.attempts()
    assert [(a.number, a.parent, a.fork_step, a.start_position) for a in map(tree.attempt, tree.numbers)] == [
        (1, None, 0, 0),
        (2, 1, 30, 240),
        (3, 1, 35, 280),
    ]
    assert [[(s.start, s.stop, s.event) for s in tree.attempt(n).skips] for n in tree.numbers] == [
        [],
        [(320, 360, 3)],
        [],
    ]
    assert [(entry.shard, entry.row, entry.event) for entry in tree.attempt(3).withheld] == [
        ("code/a.jsonl", None, 6),
        ("web/a.jsonl", 3, 6),
        ("web/a.jsonl", 7, 4),
        ("web/b.jsonl", 0, 1),
        ("web/b.jsonl", 1, 1),
    ]
    assert sorted(run.steps_of(2).batch(35).positions) == list(range(360, 376))
    assert run.pending().revoked == {3}


def test_bytes_written_today_are_the_bytes_of_then(run: Run) -> None:
    for entry in run.read().entries:
        raw = run.layout.journal_event(entry.number).read_bytes()
        assert encode_event(decode_event(raw)) == raw


def test_it_can_be_continued(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    skip(run, 41, 46, reason="again", next_step=35)
    assert run.problems() == ()
    assert run.head().number == 11
